//! The connection on which a server, or one node of a cluster, tells what was freed, by Redis' Pub/Sub.
//!
//! The scripts publish a message on a channel with the name of the lock's key, also the client's own prefix
//! before it, whenever they remove a lock. Channels know nothing of database numbers: a lock of the same name in
//! another database of the server wakes for nothing, which costs one attempt.

use std::pin::pin;
use std::sync::Arc;

use redis::{Value, cmd, parse_redis_value_async};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until, timeout};

use crate::redis::answer::{former, lost};
use crate::redis::connection::limited::Limited;
use crate::redis::connection::term::over;
use crate::redis::error::{Cause, driver_error, error_text, to_error, to_error_hiding};
use crate::text::error::{Error, ErrorKind};
use crate::waiting::listener::{ANSWER, SILENCE, StoreMessage};

/// One connection, which is tested when it is silent. It ends when this is dropped.
pub(super) struct Feed(UnboundedSender<FeedChange>);

/// A name, and whether to tell of it.
type FeedChange = (Arc<str>, bool);

impl Feed {
    /// On what `stream` opens in the background. `tell` gets what the server says, or why it says nothing any more, and
    /// knows whether anybody still listens.
    pub(super) fn start(
        stream: impl Future<Output = Result<Limited, Error>> + Send + 'static,
        has_slots: bool,
        mut tell: impl FnMut(Result<Value, Error>) -> bool + Send + 'static,
    ) -> Self {
        let (changes, received) = unbounded_channel();
        tokio::spawn(async move {
            let served = async { serve(stream.await?, has_slots, received, &mut tell).await };
            if let Err(error) = served.await {
                tell(Err(error));
            }
        });
        Self(changes)
    }

    /// Asks the server to tell of that name (`true`), or no longer.
    pub(super) fn change(&self, name: &Arc<str>, is_wanted: bool) {
        // If the connection has ended, that is told.
        let _ = self.0.send((Arc::clone(name), is_wanted));
    }
}

/// Writes requests and reads what the server tells, until nobody listens any more.
async fn serve(
    stream: Limited,
    has_slots: bool,
    mut changes: UnboundedReceiver<FeedChange>,
    tell: &mut impl FnMut(Result<Value, Error>) -> bool,
) -> Result<(), Error> {
    let mut is_over = pin!(over(stream.term()));
    let mut stream = BufReader::new(stream);
    let has_shard_channels = match has_slots {
        true => timeout(ANSWER, has_shard_channels(&mut stream)).await,
        false => Ok(Ok(false)),
    };
    let commands = match has_shard_channels.map_err(|_| silent())?? {
        true => ["SUNSUBSCRIBE", "SSUBSCRIBE"],
        false => ["UNSUBSCRIBE", "SUBSCRIBE"],
    };
    let mut decoder = Default::default();
    // What this side asks for in the meantime is no sign of the server's life.
    let (mut last_heard, mut tested) = (Instant::now(), None);
    let mut request = Vec::new();
    loop {
        let end = match tested {
            None => last_heard + SILENCE,
            Some(tested) => tested + ANSWER,
        };
        tokio::select! {
            // What was read so far is in the decoder, so that nothing is lost when another branch is taken.
            value = parse_redis_value_async(&mut decoder, &mut stream) => {
                let value = value.map_err(|error| driver_error(&error, false))?;
                stream.get_mut().reply_is_complete();
                (last_heard, tested) = (Instant::now(), None);
                if !tell(Ok(value)) {
                    return Ok(());
                }
                continue;
            }
            change = changes.recv() => {
                if change.is_none() {
                    return Ok(());
                }
                // One at a time, because channels in one call must be of one hash slot; all that are there in one write.
                let further = std::iter::from_fn(|| changes.try_recv().ok());
                for (name, is_wanted) in change.into_iter().chain(further) {
                    let mut command = cmd(commands[usize::from(is_wanted)]);
                    command.arg(&*name).write_packed_command(&mut request);
                }
            }
            // Another server tells of what is freed from now on.
            () = &mut is_over => return Err(former()),
            () = sleep_until(end) => {
                if tested.is_some() {
                    return Err(silent());
                }
                tested = Some(Instant::now());
                cmd("PING").write_packed_command(&mut request);
            }
        }
        stream.write_all(&request).await.map_err(|_| lost())?;
        stream.flush().await.map_err(|_| lost())?;
        request.clear();
    }
}

fn silent() -> Error {
    Error::new(ErrorKind::NetworkTimeout, "the server is silent")
}

/// Whether the server has channels that belong to a hash slot, as it has from version 7 on. Without them, a message
/// reaches all nodes, whether anybody listens there or not: on three of them, scripts that publish so reach two thirds of the
/// calls per second, at twice the CPU time. Asks in a way that subscribes to nothing and that needs no right: by a mistake.
async fn has_shard_channels(stream: &mut BufReader<Limited>) -> Result<bool, Error> {
    let mistake = cmd("SSUBSCRIBE").get_packed_command();
    stream.write_all(&mistake).await.map_err(|_| lost())?;
    stream.flush().await.map_err(|_| lost())?;
    let mut decoder = Default::default();
    let answer = parse_redis_value_async(&mut decoder, stream).await;
    stream.get_mut().reply_is_complete();
    match answer.map_err(|error| driver_error(&error, false))? {
        Value::ServerError(error) => Ok(!error_text(&error).starts_with("ERR unknown command")),
        _ => Ok(true),
    }
}

/// What a message of the server means (Redis' documentation, "Pub/Sub", "Format of pushed messages").
pub(super) fn read(value: Value) -> Result<StoreMessage, Error> {
    let items = match value {
        Value::Array(items) => items,
        // Its words may name a channel, and so a key.
        Value::ServerError(error) => {
            let text = error_text(&error);
            let code = text.split(' ').next().unwrap_or_default();
            return Err(to_error_hiding(Cause::Reply(code), false, []));
        }
        _ => return Ok(StoreMessage::Alive),
    };
    let mut texts = items.into_iter().map(|item| match item {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    });
    let (kind, name) = (texts.next().flatten(), texts.next().flatten());
    match (kind.as_deref(), name) {
        (Some("subscribe" | "ssubscribe"), Some(name)) => Ok(StoreMessage::Listening(name)),
        (Some("message" | "smessage"), Some(name)) => Ok(StoreMessage::Freed(name)),
        // Also unasked, when the hash slot moves to another node.
        (Some("sunsubscribe"), Some(name)) => Ok(StoreMessage::Unsubscribed(name)),
        (Some("unsubscribe" | "pong"), _) => Ok(StoreMessage::Alive),
        _ => Err(to_error(Cause::Unreadable, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;

    fn array(items: &[&str]) -> Value {
        let bulk = |text: &&str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(items.iter().map(bulk).collect())
    }

    #[test]
    fn messages_are_understood() {
        let heard = |items: &[&str]| read(array(items)).unwrap();
        assert_eq!(
            heard(&["message", "s:k", ""]),
            StoreMessage::Freed("s:k".into())
        );
        assert_eq!(
            heard(&["subscribe", "s:k", "1"]),
            StoreMessage::Listening("s:k".into())
        );
        assert_eq!(heard(&["unsubscribe", "s:k", "0"]), StoreMessage::Alive);
        assert_eq!(
            heard(&["smessage", "s:k", ""]),
            StoreMessage::Freed("s:k".into())
        );
        assert_eq!(
            heard(&["ssubscribe", "s:k", "1"]),
            StoreMessage::Listening("s:k".into())
        );
        assert_eq!(
            heard(&["sunsubscribe", "s:k", "0"]),
            StoreMessage::Unsubscribed("s:k".into())
        );
        assert_eq!(heard(&["pong", ""]), StoreMessage::Alive);
        assert_eq!(
            read(Value::SimpleString("PONG".into())).unwrap(),
            StoreMessage::Alive
        );
        for bad in [
            array(&[]),
            array(&["message"]),
            array(&["psubscribe", "x", "1"]),
        ] {
            assert!(read(bad).is_err());
        }
    }

    #[test]
    fn a_refusal_names_no_channel() {
        let error = redis::parse_redis_value(
            b"-NOPERM this user has no permissions to access the 'secret' channel\r\n",
        );
        let error = read(error.unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed);
        assert!(!error.to_string().contains("secret"));
    }
}
