//! JavaScript as the holder of locks that extend themselves.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use napi_derive::napi;
use syncguard::{AutoExtend, Error, ErrorKind, Hold, Holder, Presence, Ttl};

use crate::completion::Completion;
use crate::io_thread;
use crate::mailbox::Mailbox;
use crate::mutex::lock;
use crate::options::timeout;

/// How a lock extends itself. Times are in milliseconds.
#[napi(object)]
pub struct HoldSettings {
    /// Tells what becomes of this lock from what becomes of others.
    pub number: u32,
    pub every_ms: f64,
    pub max_ms: Option<f64>,
    /// No heartbeats are sent once JavaScript has not turned its event loop for so long.
    pub max_stall_ms: Option<f64>,
}

impl HoldSettings {
    pub(crate) fn for_ttl(
        self,
        ttl: Ttl,
        mailbox: &Arc<Mailbox>,
        forgotten: &Arc<CollectedHolders>,
    ) -> Result<Hold, Error> {
        let auto_extend = AutoExtend {
            every: Some(timeout(self.every_ms, "everyMs")?),
            max: self.max_ms.map(|ms| timeout(ms, "maxMs")).transpose()?,
        };
        auto_extend.check(ttl)?;
        let max_stall = match self.max_stall_ms {
            Some(ms) => timeout(ms, "maxStallMs")?,
            None => Duration::MAX,
        };
        Ok(Hold {
            auto_extend,
            holder: Arc::new(JavaScript {
                number: self.number,
                mailbox: Arc::clone(mailbox),
                forgotten: Arc::clone(forgotten),
                max_stall,
                since: Instant::now(),
                asked: Mutex::default(),
            }),
            runtime: io_thread::runtime()?,
        })
    }
}

/// The locks of one environment whose holders were collected as garbage, by the numbers of their holders.
#[derive(Default)]
pub(crate) struct CollectedHolders(Mutex<HashSet<u32>>);

impl CollectedHolders {
    /// Sends no more heartbeats for a lock: it ends by itself, and nobody is told of it.
    pub(crate) fn add(&self, number: u32) {
        lock(&self.0).insert(number);
    }
}

/// One environment of JavaScript that holds a lock, or several that were granted together.
struct JavaScript {
    number: u32,
    mailbox: Arc<Mailbox>,
    forgotten: Arc<CollectedHolders>,
    max_stall: Duration,
    since: Instant,
    /// When it was asked to look, if it had not looked for long.
    asked: Mutex<Option<Instant>>,
}

impl Holder for JavaScript {
    fn presence(&self) -> Presence {
        if self.mailbox.is_closed() || lock(&self.forgotten.0).contains(&self.number) {
            return Presence::Gone;
        }
        // It was there when it asked for the lock.
        let looked = self
            .mailbox
            .looked()
            .map_or(self.since, |at| at.max(self.since));
        let mut asked = lock(&self.asked);
        let has_answered = asked.is_some_and(|asked| looked > asked);
        let stalled = looked.elapsed();
        if has_answered || stalled < self.max_stall {
            *asked = None;
            return Presence::Present;
        }
        // It may just have nothing to do: then it looks now, and the next try finds that it has.
        asked.get_or_insert_with(Instant::now);
        self.mailbox.announce();
        Presence::Stalled(Error::new(
            ErrorKind::Aborted,
            format!(
                "the event loop has not turned for {} ms",
                stalled.as_millis()
            ),
        ))
    }

    fn extended(&self, expires_at_ms: i64) {
        self.mailbox
            .put(self.number, Completion::Held { expires_at_ms });
    }

    fn lost(&self, error: Error, which: Option<usize>) {
        self.mailbox
            .put(self.number, Completion::Lost { error, which });
    }
}

impl Drop for JavaScript {
    fn drop(&mut self) {
        lock(&self.forgotten.0).remove(&self.number);
    }
}
