//! Finds out which of several hosts is the primary when more than one accepts writes.
//!
//! A standby that is promoted begins a new timeline. Nobody tells the primary before it, which goes on accepting writes
//! until somebody stops it. Locks that are acquired there exclude nobody who asks the new one. So before statements are sent,
//! the hosts that are not in use are asked, at most twice a second. If one of them accepts writes on a later timeline, the
//! host in use is a former primary: its sessions are given up, and no new one is opened there.
//!
//! With one host there is nobody to ask, and nothing of this happens.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::connect::{Connector, Purpose};
use super::era::{ERA, Era};
use super::session::Session;
use crate::mutex::lock;
use crate::postgres::config::Host;
use crate::postgres::error::{Failure, failure};

/// How long the answers of the other hosts are believed.
const FRESH: Duration = Duration::from_secs(1);

/// When a host is asked again that has refused to answer, for lack of a right or of the functions.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

impl Connector {
    /// Returns once it is known whether another host has become the primary, or nobody says.
    pub(super) async fn know_primary(self: &Arc<Self>) {
        let Some(primaries) = self.primaries() else {
            return;
        };
        let mut known = primaries.known.subscribe();
        if primaries.is_due() {
            tokio::spawn(Arc::clone(self).ask_others());
        }
        if primaries.is_answered.load(Ordering::Relaxed) {
            let _ = timeout(self.patience(), known.wait_for(is_fresh)).await;
        }
    }

    /// Whether the session is on a server that was the primary before another one was promoted.
    pub(in crate::postgres) fn is_former(&self, session: &Session) -> bool {
        match (self.primaries(), &session.era) {
            (Some(primaries), Some(era)) => primaries.has_later(era),
            _ => false,
        }
    }

    /// Notes what was found at a host. If it has been promoted, all that is held is asked after there.
    pub(super) fn note(&self, host: usize, found: Option<&Era>) {
        if let Some(primaries) = self.primaries()
            && primaries.note(host, found)
        {
            self.losses().tell();
        }
    }

    /// Asks all hosts but the one in use.
    async fn ask_others(self: Arc<Self>) {
        let Some(primaries) = self.primaries() else {
            return;
        };
        let (begun, limit) = (Instant::now(), self.patience());
        let mut asking = JoinSet::new();
        for index in (0..primaries.hosts.len()).filter(|index| *index != self.in_use()) {
            let connector = Arc::clone(&self);
            asking.spawn(async move { timeout(limit, connector.ask(index)).await.is_ok() });
        }
        let is_answered = asking.join_all().await.into_iter().all(|answered| answered);
        primaries.is_answered.store(is_answered, Ordering::Relaxed);
        primaries.known.send_replace(Some(begun));
    }

    /// Asks one host, and notes what it says.
    async fn ask(&self, index: usize) {
        let (Some(seen), Some(host)) = (
            self.primaries().and_then(|all| all.hosts.get(index)),
            self.hosts().get(index),
        ) else {
            return;
        };
        if lock(&seen.pause).is_some_and(|until| Instant::now() < until) {
            return;
        }
        // Of a session that does not answer, nothing is left here.
        let mut place = seen.session.lock().await;
        let kept = place.take().filter(|session| !session.client.is_closed());
        match self.ask_over(kept, host).await {
            Ok((session, era)) => {
                self.note(index, era.as_ref());
                *place = Some(session);
            }
            // While a server is starting or full, it cannot answer.
            Err(failure) => {
                if failure
                    .class()
                    .is_some_and(|class| !["08", "53", "57"].contains(&class))
                {
                    *lock(&seen.pause) = Some(Instant::now() + REFUSED_PAUSE);
                }
            }
        }
    }

    async fn ask_over(
        &self,
        kept: Option<Session>,
        host: &Host,
    ) -> Result<(Session, Option<Era>), Failure> {
        let Some(session) = kept else {
            let session = self.open(host, Purpose::Look).await?;
            let era = session.era.clone();
            return Ok((session, era));
        };
        let rows = session.client.query_typed(ERA, &[]).await;
        let rows = rows.map_err(|error| failure(&error, session.arrivals.end()))?;
        Ok((session, Era::of(&rows)))
    }
}

fn is_fresh(known: &Option<Instant>) -> bool {
    known.is_some_and(|known| known.elapsed() < FRESH)
}
