//! One connection that is made when it is needed, and made again when it is lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::error::{Error, ErrorKind};
use crate::mutex::lock;
use crate::random;
use crate::redis::error::{Cause, to_error};

/// The wait after the first failed attempt to connect. It doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// A connection that ends sooner than this counts as a failed attempt.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// Makes connections.
#[async_trait]
pub(in crate::redis) trait Dial: Send + Sync + 'static {
    type Connection: Connection;
    async fn dial(&self) -> Result<Self::Connection, Error>;
}

/// A connection that was made.
pub(in crate::redis) trait Connection: Send + Sync + 'static {
    fn is_open(&self) -> bool;
    /// Why it is not open any more, if that is known.
    fn reason(&self) -> Option<&Error> {
        None
    }
    fn close(&self);
}

/// Shares one connection among all callers.
pub(in crate::redis) struct Link<D: Dial> {
    dial: Arc<D>,
    /// How long a call waits while the server refuses connections, because it may be restarting.
    patience: Duration,
    state: Arc<Mutex<LinkState<D::Connection>>>,
}

enum LinkState<C> {
    Down(ReconnectBackoff),
    Dialing(watch::Receiver<Progress<C>>),
    Up {
        connection: Arc<C>,
        since: Instant,
        attempts: u32,
    },
    Closed,
}

/// The wait before the next attempt to connect.
#[derive(Clone)]
struct ReconnectBackoff {
    /// How many attempts in a row have failed.
    attempts: u32,
    /// When the first of them had failed.
    since: Instant,
    /// When the next attempt may start.
    until: Instant,
    /// Why the last attempt failed.
    refusal: Option<Error>,
}

/// What callers that wait for a connection can see of the attempts to make it.
struct Progress<C> {
    /// Why the last attempt failed.
    refusal: Option<Error>,
    /// Set between two attempts: when the first one failed.
    waiting_since: Option<Instant>,
    connection: Option<Arc<C>>,
}

impl<D: Dial> Link<D> {
    pub(super) fn new(dial: D, patience: Duration) -> Self {
        Self {
            dial: Arc::new(dial),
            patience,
            state: Arc::new(Mutex::new(LinkState::Down(ReconnectBackoff {
                attempts: 0,
                since: Instant::now(),
                until: Instant::now(),
                refusal: None,
            }))),
        }
    }

    /// The connection. Waits for it to be made. When this fails, nothing has been sent.
    pub(in crate::redis) async fn get(&self) -> Result<Arc<D::Connection>, Error> {
        match self.current().filter(|connection| connection.is_open()) {
            Some(connection) => Ok(connection),
            // Boxed, because nearly all calls find a connection, and need no room for the wait.
            None => Box::pin(self.make()).await,
        }
    }

    async fn make(&self) -> Result<Arc<D::Connection>, Error> {
        let deadline = Instant::now() + self.patience;
        loop {
            let mut progress = match self.ask()? {
                Ok(connection) => return Ok(connection),
                Err(progress) => progress,
            };
            if let Some(answer) = wait(&mut progress, deadline, self.patience).await {
                return answer;
            }
            // The task that tries was dropped, because its runtime was shut down. Start over.
            self.forget(&progress);
        }
    }

    /// The connection if there is one, else where to wait for it.
    #[allow(clippy::type_complexity)]
    fn ask(
        &self,
    ) -> Result<Result<Arc<D::Connection>, watch::Receiver<Progress<D::Connection>>>, Error> {
        // Dropped after the mutex is unlocked: this ends the connection, and whoever had called on it may call again.
        let _lost: LinkState<D::Connection>;
        let mut state = lock(&self.state);
        let backoff = match &*state {
            LinkState::Up { connection, .. } if connection.is_open() => {
                return Ok(Ok(Arc::clone(connection)));
            }
            LinkState::Up {
                connection,
                since,
                attempts,
            } => ReconnectBackoff::after_connection(connection.as_ref(), *since, *attempts),
            LinkState::Dialing(progress) => return Ok(Err(progress.clone())),
            LinkState::Down(backoff) => match &backoff.refusal {
                Some(refusal)
                    if Instant::now() < backoff.until
                        && (!may_pass(refusal) || backoff.since.elapsed() >= self.patience) =>
                {
                    return Err(refusal.clone());
                }
                _ => backoff.clone(),
            },
            LinkState::Closed => return Err(Error::closed()),
        };
        let (sender, progress) = watch::channel(Progress {
            // An error that does not pass by itself was the answer until the backoff was over. Now a new
            // attempt decides, so it is not passed on.
            refusal: backoff.refusal.clone().filter(may_pass),
            waiting_since: (Instant::now() < backoff.until).then_some(backoff.since),
            connection: None,
        });
        _lost = std::mem::replace(&mut *state, LinkState::Dialing(progress.clone()));
        let attempts = dial(
            Arc::clone(&self.dial),
            Arc::clone(&self.state),
            backoff,
            sender,
        );
        tokio::spawn(attempts);
        Ok(Err(progress))
    }

    fn forget(&self, progress: &watch::Receiver<Progress<D::Connection>>) {
        let mut state = lock(&self.state);
        if matches!(&*state, LinkState::Dialing(current) if current.same_channel(progress)) {
            *state = LinkState::Down(ReconnectBackoff::after(0, None, Instant::now()));
        }
    }

    /// Why there is no connection, if the last attempt to make one failed.
    pub(super) fn trouble(&self) -> Option<Error> {
        match &*lock(&self.state) {
            LinkState::Down(backoff) => backoff.refusal.clone(),
            LinkState::Dialing(progress) => progress.borrow().refusal.clone(),
            LinkState::Up { .. } | LinkState::Closed => None,
        }
    }

    /// The connection, if there is one.
    pub(super) fn current(&self) -> Option<Arc<D::Connection>> {
        match &*lock(&self.state) {
            LinkState::Up { connection, .. } => Some(Arc::clone(connection)),
            _ => None,
        }
    }

    /// Ends the connection for good.
    pub(super) fn close(&self) {
        let state = std::mem::replace(&mut *lock(&self.state), LinkState::Closed);
        if let LinkState::Up { connection, .. } = state {
            connection.close();
        }
    }
}

impl ReconnectBackoff {
    /// After a connection was lost: one that did not last counts as a failed attempt.
    fn after_connection(lost: &impl Connection, since: Instant, attempts: u32) -> Self {
        if since.elapsed() < STABLE_AFTER {
            // What its server has said, such as that it is a replica, and nothing about calls that were sent.
            let reason = lost.reason().filter(|reason| may_pass(reason));
            let refusal = match reason {
                Some(reason) => Error::new(reason.kind(), reason.message()),
                None => to_error(Cause::Closed, false),
            };
            Self::after(attempts.saturating_add(1), Some(refusal), Instant::now())
        } else {
            Self::after(0, None, Instant::now())
        }
    }

    /// The wait after that many failed attempts in a row.
    fn after(attempts: u32, refusal: Option<Error>, since: Instant) -> Self {
        let wait = match attempts {
            0 => Duration::ZERO,
            more => FIRST_WAIT
                .saturating_mul(1 << more.min(10).saturating_sub(1))
                .min(LONGEST_WAIT),
        };
        // Jitter, so that clients that lost the same server do not all come back at once.
        let scatter = random::unit().unwrap_or(0.5).mul_add(0.5, 0.5);
        Self {
            attempts,
            since,
            until: Instant::now() + wait.mul_f64(scatter),
            refusal,
        }
    }
}

/// Tries to connect until that works, nobody waits any more, or the error is one that does not pass by itself.
async fn dial<D: Dial>(
    dialer: Arc<D>,
    state: Arc<Mutex<LinkState<D::Connection>>>,
    mut backoff: ReconnectBackoff,
    progress: watch::Sender<Progress<D::Connection>>,
) {
    loop {
        sleep_until(backoff.until).await;
        progress.send_if_modified(|now| {
            now.waiting_since = None;
            false
        });
        let refusal = match dialer.dial().await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                let mut state = lock(&state);
                if matches!(&*state, LinkState::Closed) {
                    drop(state);
                    connection.close();
                    return;
                }
                *state = LinkState::Up {
                    connection: Arc::clone(&connection),
                    since: Instant::now(),
                    attempts: backoff.attempts,
                };
                progress.send_modify(|now| now.connection = Some(connection));
                return;
            }
            Err(refusal) => refusal,
        };
        let since = match backoff.refusal {
            Some(_) => backoff.since,
            None => Instant::now(),
        };
        backoff = ReconnectBackoff::after(
            backoff.attempts.saturating_add(1),
            Some(refusal.clone()),
            since,
        );
        let give_up = !may_pass(&refusal);
        let mut state = lock(&state);
        if matches!(&*state, LinkState::Closed) {
            return;
        }
        // One of the receivers is in the state itself; nobody waits if it is the only one.
        if give_up || progress.receiver_count() <= 1 {
            *state = LinkState::Down(backoff);
            progress.send_modify(|now| now.refusal = Some(refusal));
            return;
        }
        progress.send_modify(|now| {
            now.refusal = Some(refusal);
            now.waiting_since = Some(since);
        });
    }
}

/// Waits for the connection or the error; `None` if the task that tries has gone without either.
async fn wait<C>(
    progress: &mut watch::Receiver<Progress<C>>,
    deadline: Instant,
    patience: Duration,
) -> Option<Result<Arc<C>, Error>> {
    loop {
        let mut end = deadline;
        let mut late = Instant::now() >= end;
        {
            let now = progress.borrow_and_update();
            // Between attempts: whoever comes now waits only for the rest of the time since the first failure.
            if let Some(since) = now.waiting_since {
                end = end.min(since + patience);
                late = Instant::now() >= end;
            }
            if let Some(connection) = &now.connection {
                return Some(Ok(Arc::clone(connection)));
            }
            if let Some(refusal) = &now.refusal
                && (late || !may_pass(refusal))
            {
                return Some(Err(refusal.clone()));
            }
        }
        tokio::select! {
            changed = progress.changed() => {
                if changed.is_err() && progress.borrow().connection.is_none() {
                    return match &progress.borrow().refusal {
                        Some(refusal) if !may_pass(refusal) => Some(Err(refusal.clone())),
                        _ => None,
                    };
                }
            }
            () = sleep_until(end), if !late => {}
        }
    }
}

/// Whether another attempt may succeed after this error.
fn may_pass(refusal: &Error) -> bool {
    refusal.kind().is_transient() || refusal.kind() == ErrorKind::RateLimited
}

#[cfg(test)]
mod tests;
