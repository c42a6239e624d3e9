//! JavaScript as the holder of locks that extend themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use napi_derive::napi;
use serde_json::{Value, json};
use syncguard::{AutoExtend, Error, ErrorKind, Hold, Holder, Presence, Ttl};

use crate::answers::completion::Completion;
use crate::answers::mailbox::Mailbox;
use crate::convert::error::causes;
use crate::convert::options::timeout;
use crate::io_thread;
use crate::mutex::lock;

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
        holders: &Arc<Holders>,
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
                holders: Arc::clone(holders),
                known: holders.add(self.number),
                max_stall,
                since: Instant::now(),
                asked: Mutex::default(),
            }),
            runtime: io_thread::runtime()?,
        })
    }
}

/// The locks of one environment that extend themselves, by the numbers of their holders.
#[derive(Default)]
pub(crate) struct Holders(Mutex<HashMap<u32, Arc<Mutex<Known>>>>);

/// What is known of a lock.
#[derive(Default)]
struct Known {
    /// Until when it is held, as far as is known.
    until: Option<Instant>,
    /// Why it is lost, as JSON.
    loss: Option<String>,
    /// Whether its handles were collected as garbage.
    is_forgotten: bool,
}

impl Holders {
    fn add(&self, number: u32) -> Arc<Mutex<Known>> {
        let known = Arc::default();
        lock(&self.0).insert(number, Arc::clone(&known));
        known
    }

    /// Sends no more heartbeats for a lock: it ends by itself, and nobody is told of it.
    pub(crate) fn forget(&self, number: u32) {
        if let Some(known) = lock(&self.0).get(&number) {
            lock(known).is_forgotten = true;
        }
    }

    pub(crate) fn remove(&self, number: u32) {
        lock(&self.0).remove(&number);
    }

    /// Why a lock is lost that was granted and not released, if it is at this moment.
    pub(crate) fn look(&self, number: u32) -> Option<String> {
        let holders = lock(&self.0);
        let Some(known) = holders.get(&number) else {
            return Some(lost("the lock was lost: nothing extends it any more"));
        };
        let known = lock(known);
        if known.loss.is_some() {
            return known.loss.clone();
        }
        let is_over = known
            .until
            .is_some_and(|until| until <= syncguard::lock_time().into_std());
        is_over.then(|| lost("the lock was lost: its end passed before it could be extended"))
    }
}

fn lost(message: &str) -> String {
    loss_as_json(&Error::new(ErrorKind::LockLost, message), None)
}

/// What JavaScript is told of a loss that it looks for.
fn loss_as_json(error: &Error, place: Option<usize>) -> String {
    let mut parts = vec![
        json!(place),
        json!(error.kind().as_str()),
        json!(error.message()),
    ];
    parts.extend(causes(error).into_iter().map(Value::from));
    Value::from(parts).to_string()
}

/// One environment of JavaScript that holds a lock, or several that were granted together.
struct JavaScript {
    number: u32,
    mailbox: Arc<Mailbox>,
    holders: Arc<Holders>,
    known: Arc<Mutex<Known>>,
    max_stall: Duration,
    since: Instant,
    /// When it was asked to look, if it had not looked for long.
    asked: Mutex<Option<Instant>>,
}

impl Holder for JavaScript {
    fn presence(&self) -> Presence {
        if self.mailbox.is_closed() || lock(&self.known).is_forgotten {
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

    fn held_until(&self, end: tokio::time::Instant) {
        lock(&self.known).until = Some(end.into_std());
    }

    fn extended(&self, expires_at_ms: i64) {
        self.mailbox
            .put(self.number, Completion::Held { expires_at_ms });
    }

    fn lost(&self, error: Error, place: Option<usize>) {
        lock(&self.known).loss = Some(loss_as_json(&error, place));
        self.mailbox
            .put(self.number, Completion::Lost { error, place });
    }
}

impl Drop for JavaScript {
    fn drop(&mut self) {
        // Until JavaScript has been told of a loss, it can look for it.
        if lock(&self.known).loss.is_none() {
            self.holders.remove(self.number);
        }
    }
}
