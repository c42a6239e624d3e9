//! Keeps the connection on which a store tells which locks were freed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::topics::Topics;
use crate::random;
use crate::text::error::Error;

/// How long a connection stays open while nobody waits.
const IDLE: Duration = Duration::from_secs(10);
/// A connection that was silent for so long is tested, if somebody waits. The time is short, because waiters hear nothing while the
/// connection is lost.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);
/// How long the answer to a test may take.
pub(crate) const ANSWER: Duration = Duration::from_secs(2);
/// The pause after the first failure. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The pause after a refusal that will hardly pass by itself, such as a missing right.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// Opens the connections on which a store tells which locks were freed.
#[async_trait]
pub(crate) trait Listen: Send + Sync + 'static {
    /// Opens a connection, which tells of nothing yet. It ends when it is dropped.
    async fn open(&self) -> Result<Box<dyn Listener>, Error>;
}

/// An open connection.
#[async_trait]
pub(crate) trait Listener: Send {
    /// Asks the store to tell of these names (`true`), or no longer to do so (`false`). Need not wait for its answer.
    async fn change(&mut self, names: &[(Arc<str>, bool)]) -> Result<(), Error>;

    /// Asks the store for a sign of life, which [`next`](Self::next) gives as [`StoreMessage::Alive`].
    async fn test(&mut self) -> Result<(), Error>;

    /// How long the connection may be silent before it is tested.
    fn silence(&self) -> Duration {
        SILENCE
    }

    /// Waits for the next message of the store. If the future is dropped, no message is lost.
    async fn next(&mut self) -> Result<StoreMessage, Error>;
}

/// A message of a store.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StoreMessage {
    /// The store tells of this name from now on.
    Listening(String),
    /// The store does not tell of this name any more, or not at the moment.
    Unsubscribed(String),
    /// The lock of this name may have been freed.
    Freed(String),
    /// The store is alive, and has nothing new.
    Alive,
}

/// Listens for as long as somebody waits, and makes a new connection whenever one is lost.
pub(super) async fn run(topics: &Topics, store: &dyn Listen) {
    let mut pause = FIRST_PAUSE;
    loop {
        let mut first_heard = None;
        let Err(error) = listen(topics, store, &mut first_heard).await else {
            return;
        };
        topics.disconnected();
        // A server may accept each connection and end it at once, so one that did not last does not end the growth of the pause.
        if first_heard.is_some_and(|since| since.elapsed() > pause) {
            pause = FIRST_PAUSE;
        }
        let wait = if error.kind().is_transient() {
            pause
        } else {
            REFUSED_PAUSE
        };
        pause = (pause * 2).min(LONGEST_PAUSE);
        let until = Instant::now() + random::scattered(wait);
        while timeout_at(until, topics.changed.notified()).await.is_ok() {
            if topics.is_closed() {
                return;
            }
        }
        if topics.is_idle() {
            return;
        }
    }
}

/// Listens on one connection, until nobody needs it any more or it fails. `first_heard` becomes the time of the first message.
async fn listen(
    topics: &Topics,
    store: &dyn Listen,
    first_heard: &mut Option<Instant>,
) -> Result<(), Error> {
    let mut listener = store.open().await?;
    listener.change(&topics.take_all()).await?;
    // Only messages of the store count as a sign of life, and not what is sent to it.
    let (mut last_heard, mut tested) = (Instant::now(), None);
    loop {
        let end = match tested {
            _ if topics.is_idle() => Instant::now() + IDLE,
            None => last_heard + listener.silence(),
            Some(tested) => tested + ANSWER,
        };
        tokio::select! {
            biased;
            () = topics.changed.notified() => {
                if topics.is_closed() {
                    return Ok(());
                }
                let changes = topics.take_changes();
                if !changes.is_empty() {
                    listener.change(&changes).await?;
                }
            }
            heard = listener.next() => {
                let heard = heard?;
                (last_heard, tested) = (Instant::now(), None);
                first_heard.get_or_insert_with(Instant::now);
                match heard {
                    StoreMessage::Listening(name) => topics.listening(&name),
                    StoreMessage::Unsubscribed(name) => topics.unsubscribed(&name),
                    StoreMessage::Freed(name) => topics.freed(&name),
                    StoreMessage::Alive => {}
                }
            }
            () = sleep_until(end) => {
                if topics.is_idle() {
                    return Ok(());
                }
                if tested.is_some() {
                    return Err(Error::new(
                        crate::text::error::ErrorKind::NetworkTimeout,
                        "the server is silent",
                    ));
                }
                tested = Some(end.max(Instant::now()));
                listener.test().await?;
            }
        }
    }
}

#[cfg(test)]
mod tests;
