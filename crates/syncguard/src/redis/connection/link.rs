//! Shares one connection among callers. It is made when somebody needs it, and made again when it is lost.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use crate::random;
use crate::redis::error::{Cause, to_error};
use crate::text::error::{Error, ErrorKind};

/// The wait after the first failed attempt to connect. It doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// If a connection ends sooner than this, the next one is made after a pause, which does not grow.
const STABLE_AFTER: Duration = Duration::from_secs(1);
const SHORT_WAIT: Duration = Duration::from_millis(25);
/// Whoever comes when the last refusal is older than this does not get it as an answer: another attempt is made at once.
const FRESH: Duration = Duration::from_millis(100);

/// Makes connections.
#[async_trait]
pub(in crate::redis) trait Dial: Send + Sync + 'static {
    type Connection: Connection;
    async fn dial(&self) -> Result<Self::Connection, Error>;

    /// How often the server to which connections lead has changed.
    fn switch_count(&self) -> u64 {
        0
    }

    /// Completes at the next such change.
    async fn moved(&self) {
        pending().await
    }

    /// A connection has been made.
    fn made(&self) {}
}

/// A connection that was made.
pub(in crate::redis) trait Connection: Send + Sync + 'static {
    fn is_open(&self) -> bool;
    /// Why the connection is not open any more, if that is known.
    fn reason(&self) -> Option<&Error> {
        None
    }
    /// It was found not to be open any more.
    fn lost(&self) {}
    fn close(&self);
}

/// Shares one connection among all callers.
pub(in crate::redis) struct Link<D: Dial> {
    dial: Arc<D>,
    /// How long a call waits while the server refuses connections, because it may be restarting.
    patience: Duration,
    state: Arc<watch::Sender<LinkState<D::Connection>>>,
    /// Notified when the next attempt may start before [`LinkState::until`] as it was.
    sooner: Arc<Notify>,
}

/// What is known of the connection.
struct LinkState<C> {
    connection: Option<Arc<C>>,
    /// When it was made.
    made_at: Instant,
    /// Whether a task tries to make one.
    is_dialing: bool,
    is_closed: bool,
    /// How many attempts have ended.
    ended: u64,
    /// How many attempts have failed in a row.
    failed: u32,
    /// Why the last attempt failed; `None` if it did not.
    refusal: Option<Error>,
    refused_at: Instant,
    /// When the first attempt of that row failed.
    failing_since: Instant,
    /// When the next attempt may start.
    until: Instant,
    /// The [switch count](Dial::switch_count) of the last attempts.
    switch_count: u64,
}

/// What a caller is told to do.
enum LinkAnswer<C> {
    Take(Arc<C>),
    /// Wait for a change, and give up at this time if nothing got better.
    Wait(Instant),
}

impl<D: Dial> Link<D> {
    pub(super) fn new(dial: D, patience: Duration) -> Self {
        let now = Instant::now();
        let state = LinkState {
            connection: None,
            made_at: now,
            is_dialing: false,
            is_closed: false,
            ended: 0,
            failed: 0,
            refusal: None,
            refused_at: now,
            failing_since: now,
            until: now,
            switch_count: dial.switch_count(),
        };
        Self {
            dial: Arc::new(dial),
            patience,
            state: Arc::new(watch::Sender::new(state)),
            sooner: Arc::default(),
        }
    }

    /// Gives the connection, and waits until it is made. When this fails, nothing has been sent.
    pub(in crate::redis) async fn get(&self) -> Result<Arc<D::Connection>, Error> {
        match self.current().filter(|connection| connection.is_open()) {
            Some(connection) => Ok(connection),
            // Boxed, so that the many calls that find a connection need no room for the wait.
            None => Box::pin(self.make()).await,
        }
    }

    async fn make(&self) -> Result<Arc<D::Connection>, Error> {
        // Attempts go on only while somebody is subscribed.
        let mut changes = self.state.subscribe();
        let seen = changes.borrow().ended;
        let deadline = Instant::now() + self.patience;
        loop {
            let end = match self.ask(deadline, seen)? {
                LinkAnswer::Take(connection) => return Ok(connection),
                LinkAnswer::Wait(end) => end,
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(end), if Instant::now() < end => {}
            }
        }
    }

    /// Answers a caller who waits until `deadline` and came when `seen` attempts had ended. Starts a task that tries to connect
    /// if there is none.
    fn ask(&self, deadline: Instant, seen: u64) -> Result<LinkAnswer<D::Connection>, Error> {
        let (mut lost, mut starts) = (None, false);
        let mut step = Ok(LinkAnswer::Wait(deadline));
        self.state.send_if_modified(|state| {
            if let Some(connection) = &state.connection
                && (connection.is_open() || state.ended != seen)
            {
                step = Ok(LinkAnswer::Take(Arc::clone(connection)));
                return false;
            }
            lost = state.lose();
            state.aim(self.dial.switch_count());
            if state.ended == seen && state.is_to_be_tried_now() {
                state.until = Instant::now();
                self.sooner.notify_one();
            }
            step = state
                .wait(deadline, seen, self.patience)
                .map(LinkAnswer::Wait);
            starts = step.is_ok() && !state.is_dialing;
            if starts {
                state.is_dialing = true;
                // An error that does not pass by itself was the answer until now. From here on, the new attempt decides.
                state.refusal = state.refusal.take().filter(may_pass);
            }
            false
        });
        // Only now that the state is unlocked: this ends the connection, and its callers may come back here at once.
        if let Some(connection) = lost {
            connection.lost();
        }
        if starts {
            tokio::spawn(dial(
                Arc::clone(&self.dial),
                Dialing(Arc::clone(&self.state)),
                Arc::clone(&self.sooner),
            ));
        }
        step
    }

    /// Why there is no connection, if the last attempt to make one failed.
    pub(super) fn trouble(&self) -> Option<Error> {
        self.state.borrow().refusal.clone()
    }

    /// The connection, if there is one.
    pub(super) fn current(&self) -> Option<Arc<D::Connection>> {
        self.state.borrow().connection.clone()
    }

    /// Ends the connection for good.
    pub(super) fn close(&self) {
        let mut last = None;
        self.state.send_modify(|state| {
            state.is_closed = true;
            state.refusal = None;
            last = state.connection.take();
        });
        if let Some(connection) = last {
            connection.close();
        }
    }
}

impl<C: Connection> LinkState<C> {
    /// Until when a caller waits for a connection. Fails for a caller who is not to wait any more.
    fn wait(&self, deadline: Instant, seen: u64, patience: Duration) -> Result<Instant, Error> {
        if self.is_closed {
            return Err(Error::closed());
        }
        let Some(refusal) = &self.refusal else {
            return Ok(deadline);
        };
        let now = Instant::now();
        let is_between_attempts = now < self.until;
        // Patience counts from the first failure for whoever comes between two attempts.
        let end = match is_between_attempts {
            true => deadline.min(self.failing_since + patience),
            false => deadline,
        };
        let is_over = match may_pass(refusal) {
            true => now >= end,
            false => is_between_attempts || self.ended != seen,
        };
        match is_over {
            true => Err(refusal.clone()),
            false => Ok(end),
        }
    }

    /// Whether the last refusal is too old for whoever comes now, so that the next attempt starts at once.
    fn is_to_be_tried_now(&self) -> bool {
        let now = Instant::now();
        let is_old = now >= self.refused_at + FRESH && now < self.until;
        is_old && self.refusal.as_ref().is_some_and(may_pass)
    }

    /// Takes out a connection that is lost. If it did not last, the next attempt comes after a pause.
    fn lose(&mut self) -> Option<Arc<C>> {
        let lost = self.connection.take()?;
        if self.made_at.elapsed() < STABLE_AFTER {
            // The refusal repeats what the server has said, for example that it is a replica. It must not say anything about
            // calls that were sent, so it is made anew.
            let reason = lost.reason().filter(|reason| may_pass(reason));
            let refusal = match reason {
                Some(reason) => Error::new(reason.kind(), reason.message()),
                None => to_error(Cause::Closed, false),
            };
            self.refuse(refusal, SHORT_WAIT);
        }
        self.failed = 0;
        Some(lost)
    }

    /// Forgets earlier failures if connections lead to another server now.
    fn aim(&mut self, switch_count: u64) {
        if self.switch_count != switch_count {
            self.switch_count = switch_count;
            self.failed = 0;
            self.refusal = None;
            self.until = Instant::now();
        }
    }

    /// Notes a failed attempt. The pause before the next one grows with each.
    fn fail(&mut self, refusal: Error) {
        let pause = FIRST_WAIT.saturating_mul(1 << self.failed.min(10));
        self.failed = self.failed.saturating_add(1);
        self.refuse(refusal, pause.min(LONGEST_WAIT));
    }

    fn refuse(&mut self, refusal: Error, pause: Duration) {
        let now = Instant::now();
        if self.refusal.is_none() {
            self.failing_since = now;
        }
        self.refusal = Some(refusal);
        self.refused_at = now;
        self.until = now + random::scattered(pause);
    }
}

/// Stands for the task that tries to connect. When it is dropped, with its runtime for example, another task may begin.
struct Dialing<C>(Arc<watch::Sender<LinkState<C>>>);

impl<C> Drop for Dialing<C> {
    fn drop(&mut self) {
        self.0.send_modify(|state| state.is_dialing = false);
    }
}

/// Tries to connect until that works, until nobody waits any more, or until an error does not pass by itself.
async fn dial<D: Dial>(dialer: Arc<D>, dialing: Dialing<D::Connection>, sooner: Arc<Notify>) {
    let state = &dialing.0;
    loop {
        let attempt = async {
            loop {
                let until = state.borrow().until;
                tokio::select! {
                    biased;
                    () = sleep_until(until) => break,
                    () = sooner.notified() => {}
                }
            }
            dialer.dial().await.map(Arc::new)
        };
        let answer = tokio::select! {
            biased;
            answer = attempt => answer,
            () = dialer.moved() => {
                state.send_modify(|state| state.aim(dialer.switch_count()));
                continue;
            }
        };
        let is_waited_for = state.receiver_count() > 0;
        let (mut is_over, mut is_made, mut unused) = (true, false, None);
        state.send_modify(|state| {
            state.ended += 1;
            match answer {
                _ if state.is_closed => unused = answer.ok(),
                Ok(connection) => {
                    state.connection = Some(connection);
                    is_made = true;
                    state.made_at = Instant::now();
                    state.refusal = None;
                }
                Err(refusal) => {
                    is_over = !is_waited_for || !may_pass(&refusal);
                    state.fail(refusal);
                }
            }
        });
        if let Some(connection) = unused {
            connection.close();
        }
        if is_made {
            dialer.made();
        }
        if is_over {
            return;
        }
    }
}

/// Whether another attempt may succeed after this error.
fn may_pass(refusal: &Error) -> bool {
    refusal.kind().is_transient() || refusal.kind() == ErrorKind::RateLimited
}

#[cfg(test)]
mod tests;
