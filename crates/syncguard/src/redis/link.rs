//! One connection that is made when it is needed, and made again when it is lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::error::{Error, ErrorKind};
use crate::random;

/// The wait after the first failed attempt; it doubles with each that follows.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// A connection that lasted less counts as a failed attempt.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// Makes connections.
#[async_trait]
pub(super) trait Dial: Send + Sync + 'static {
    type Connection: Connection;
    async fn dial(&self) -> Result<Self::Connection, Error>;
}

/// One that was made.
pub(super) trait Connection: Send + Sync + 'static {
    fn is_open(&self) -> bool;
    fn close(&self);
}

/// Shares one connection among all callers.
pub(super) struct Link<D: Dial> {
    dial: Arc<D>,
    /// How long a call waits for a server that refuses connections: it may be restarting.
    patience: Duration,
    state: Arc<Mutex<State<D::Connection>>>,
}

enum State<C> {
    Down(Rest),
    Dialing(watch::Receiver<Progress<C>>),
    Up {
        connection: Arc<C>,
        since: Instant,
        attempts: u32,
    },
    Closed,
}

/// Between attempts.
#[derive(Clone)]
struct Rest {
    attempts: u32,
    until: Instant,
    refusal: Option<Error>,
}

struct Progress<C> {
    refusal: Option<Error>,
    connection: Option<Arc<C>>,
}

impl<D: Dial> Link<D> {
    pub(super) fn new(dial: D, patience: Duration) -> Self {
        Self {
            dial: Arc::new(dial),
            patience,
            state: Arc::new(Mutex::new(State::Down(Rest {
                attempts: 0,
                until: Instant::now(),
                refusal: None,
            }))),
        }
    }

    /// The connection. Waits for it to be made; nothing has been sent when this fails.
    pub(super) async fn get(&self) -> Result<Arc<D::Connection>, Error> {
        let deadline = Instant::now() + self.patience;
        loop {
            let mut progress = match self.ask()? {
                Ok(connection) => return Ok(connection),
                Err(progress) => progress,
            };
            if let Some(answer) = wait(&mut progress, deadline).await {
                return answer;
            }
            // The attempts ended without a word: their runtime was shut down. Start over.
            self.forget(&progress);
        }
    }

    /// The connection if there is one, else where to wait for it.
    #[allow(clippy::type_complexity)]
    fn ask(
        &self,
    ) -> Result<Result<Arc<D::Connection>, watch::Receiver<Progress<D::Connection>>>, Error> {
        let mut state = lock(&self.state);
        let rest = match &*state {
            State::Up { connection, .. } if connection.is_open() => {
                return Ok(Ok(Arc::clone(connection)));
            }
            State::Up {
                since, attempts, ..
            } => {
                let stable = since.elapsed() >= STABLE_AFTER;
                Rest::after(if stable { 0 } else { *attempts }, None)
            }
            State::Dialing(progress) => return Ok(Err(progress.clone())),
            State::Down(rest) => match &rest.refusal {
                Some(refusal) if !may_pass(refusal) && Instant::now() < rest.until => {
                    return Err(refusal.clone());
                }
                _ => rest.clone(),
            },
            State::Closed => return Err(closed()),
        };
        let (sender, progress) = watch::channel(Progress {
            refusal: rest.refusal.clone(),
            connection: None,
        });
        *state = State::Dialing(progress.clone());
        let attempts = dial(
            Arc::clone(&self.dial),
            Arc::clone(&self.state),
            rest,
            sender,
        );
        tokio::spawn(attempts);
        Ok(Err(progress))
    }

    fn forget(&self, progress: &watch::Receiver<Progress<D::Connection>>) {
        let mut state = lock(&self.state);
        if matches!(&*state, State::Dialing(current) if current.same_channel(progress)) {
            *state = State::Down(Rest::after(0, None));
        }
    }

    /// Gives `connection` up, if it is still the one in use.
    pub(super) fn replace(&self, connection: &Arc<D::Connection>) {
        let mut state = lock(&self.state);
        if let State::Up {
            connection: current,
            since,
            attempts,
        } = &*state
            && Arc::ptr_eq(current, connection)
        {
            let stable = since.elapsed() >= STABLE_AFTER;
            *state = State::Down(Rest::after(if stable { 0 } else { *attempts + 1 }, None));
        }
    }

    /// Ends the connection for good.
    pub(super) fn close(&self) {
        let state = std::mem::replace(&mut *lock(&self.state), State::Closed);
        if let State::Up { connection, .. } = state {
            connection.close();
        }
    }
}

impl Rest {
    /// The wait after that many failed attempts in a row.
    fn after(attempts: u32, refusal: Option<Error>) -> Self {
        let wait = match attempts {
            0 => Duration::ZERO,
            more => FIRST_WAIT
                .saturating_mul(1 << more.min(10).saturating_sub(1))
                .min(LONGEST_WAIT),
        };
        // Clients that lost the same server must not come back all at once.
        let scatter = random::unit().unwrap_or(0.5).mul_add(0.5, 0.5);
        Self {
            attempts,
            until: Instant::now() + wait.mul_f64(scatter),
            refusal,
        }
    }
}

/// Tries until it works, nobody waits any more, or it cannot work.
async fn dial<D: Dial>(
    dialer: Arc<D>,
    state: Arc<Mutex<State<D::Connection>>>,
    mut rest: Rest,
    progress: watch::Sender<Progress<D::Connection>>,
) {
    loop {
        sleep_until(rest.until).await;
        let refusal = match dialer.dial().await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                let mut state = lock(&state);
                if matches!(&*state, State::Closed) {
                    connection.close();
                    return;
                }
                *state = State::Up {
                    connection: Arc::clone(&connection),
                    since: Instant::now(),
                    attempts: rest.attempts,
                };
                progress.send_modify(|now| now.connection = Some(connection));
                return;
            }
            Err(refusal) => refusal,
        };
        rest = Rest::after(rest.attempts + 1, Some(refusal.clone()));
        let give_up = !may_pass(&refusal);
        let mut state = lock(&state);
        if matches!(&*state, State::Closed) {
            return;
        }
        // One receiver is the state's own.
        if give_up || progress.receiver_count() <= 1 {
            *state = State::Down(rest);
            progress.send_modify(|now| now.refusal = Some(refusal));
            return;
        }
        progress.send_modify(|now| now.refusal = Some(refusal));
    }
}

/// Waits for an answer; `None` when there will be none.
async fn wait<C>(
    progress: &mut watch::Receiver<Progress<C>>,
    deadline: Instant,
) -> Option<Result<Arc<C>, Error>> {
    loop {
        let late = Instant::now() >= deadline;
        {
            let now = progress.borrow_and_update();
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
            () = sleep(deadline.saturating_duration_since(Instant::now())), if !late => {}
        }
    }
}

/// Whether another attempt may end otherwise.
fn may_pass(refusal: &Error) -> bool {
    refusal.kind().is_transient() || refusal.kind() == ErrorKind::RateLimited
}

fn lock<C>(state: &Mutex<State<C>>) -> MutexGuard<'_, State<C>> {
    // Nothing panics while it is held, and every value it can hold is valid.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn closed() -> Error {
    Error::invalid("the backend is closed")
}
