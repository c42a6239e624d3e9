//! The connection on which the server tells what was freed, by Redis' Pub/Sub.
//!
//! The scripts publish a message on a channel with the name of the lock's key, also the client's own prefix
//! before it, whenever they remove a lock. Channels know nothing of database numbers: a lock of the same name in
//! another database of the server wakes for nothing, which costs one attempt.

use std::sync::Arc;

use async_trait::async_trait;
use redis::{Cmd, Value, cmd, parse_redis_value_async};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::error::Error;
use crate::redis::answer::lost;
use crate::redis::connection::limited::Limited;
use crate::redis::connection::target::Target;
use crate::redis::error::{Cause, driver_error, error_text, to_error, to_error_hiding};
use crate::waiting::listener::{Heard, Listen, Listener};

/// Opens such connections.
pub(in crate::redis) struct Subscriptions(pub(in crate::redis) Arc<Target>);

/// One that is open. It ends when this is dropped.
struct Subscriber {
    requests: UnboundedSender<Vec<u8>>,
    heard: UnboundedReceiver<Result<Heard, Error>>,
}

#[async_trait]
impl Listen for Subscriptions {
    async fn open(&self) -> Result<Box<dyn Listener>, Error> {
        let stream = self.0.open().await?;
        let (requests, received) = unbounded_channel();
        let (sender, heard) = unbounded_channel();
        tokio::spawn(async move {
            if let Err(error) = serve(stream, received, &sender).await {
                // Nobody may listen any more.
                let _ = sender.send(Err(error));
            }
        });
        Ok(Box::new(Subscriber { requests, heard }))
    }
}

#[async_trait]
impl Listener for Subscriber {
    async fn change(&mut self, names: &[(Arc<str>, bool)]) -> Result<(), Error> {
        for (command, is_wanted) in [("SUBSCRIBE", true), ("UNSUBSCRIBE", false)] {
            let mut request = cmd(command);
            let chosen = names.iter().filter(|(_, wanted)| *wanted == is_wanted);
            chosen.for_each(|(name, _)| {
                request.arg(&**name);
            });
            // Without a name, the second would mean all.
            if request.args_iter().len() > 1 {
                self.send(&request)?;
            }
        }
        Ok(())
    }

    async fn test(&mut self) -> Result<(), Error> {
        self.send(&cmd("PING"))
    }

    async fn next(&mut self) -> Result<Heard, Error> {
        self.heard.recv().await.unwrap_or_else(|| Err(lost()))
    }
}

impl Subscriber {
    fn send(&self, request: &Cmd) -> Result<(), Error> {
        let bytes = request.get_packed_command();
        self.requests.send(bytes).map_err(|_| lost())
    }
}

/// Writes requests and reads what the server tells, until nobody listens any more.
async fn serve(
    stream: Limited,
    mut requests: UnboundedReceiver<Vec<u8>>,
    heard: &UnboundedSender<Result<Heard, Error>>,
) -> Result<(), Error> {
    let mut stream = BufReader::new(stream);
    let mut decoder = Default::default();
    loop {
        tokio::select! {
            // What was read so far is in the decoder, so that nothing is lost when the other branch is taken.
            value = parse_redis_value_async(&mut decoder, &mut stream) => {
                let value = value.map_err(|error| driver_error(&error, false))?;
                stream.get_mut().reply_is_complete();
                if heard.send(Ok(read(value)?)).is_err() {
                    return Ok(());
                }
            }
            request = requests.recv() => {
                let Some(request) = request else {
                    return Ok(());
                };
                stream.write_all(&request).await.map_err(|_| lost())?;
                stream.flush().await.map_err(|_| lost())?;
            }
        }
    }
}

/// What a message of the server means (Redis' documentation, "Pub/Sub", "Format of pushed messages").
pub(super) fn read(value: Value) -> Result<Heard, Error> {
    let items = match value {
        Value::Array(items) => items,
        // Its words may name a channel, and so a key.
        Value::ServerError(error) => {
            let text = error_text(&error);
            let code = text.split(' ').next().unwrap_or_default();
            return Err(to_error_hiding(Cause::Reply(code), false, []));
        }
        _ => return Ok(Heard::Alive),
    };
    let mut texts = items.into_iter().map(|item| match item {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    });
    let (kind, name) = (texts.next().flatten(), texts.next().flatten());
    match (kind.as_deref(), name) {
        (Some("subscribe" | "ssubscribe"), Some(name)) => Ok(Heard::Listening(name)),
        (Some("message" | "smessage"), Some(name)) => Ok(Heard::Freed(name)),
        // Also unasked, when the slot moves to another node.
        (Some("sunsubscribe"), Some(name)) => Ok(Heard::Unsubscribed(name)),
        (Some("unsubscribe" | "pong"), _) => Ok(Heard::Alive),
        _ => Err(to_error(Cause::Unreadable, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn array(items: &[&str]) -> Value {
        let bulk = |text: &&str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(items.iter().map(bulk).collect())
    }

    #[test]
    fn messages_are_understood() {
        let heard = |items: &[&str]| read(array(items)).unwrap();
        assert_eq!(heard(&["message", "s:k", ""]), Heard::Freed("s:k".into()));
        assert_eq!(
            heard(&["subscribe", "s:k", "1"]),
            Heard::Listening("s:k".into())
        );
        assert_eq!(heard(&["unsubscribe", "s:k", "0"]), Heard::Alive);
        assert_eq!(heard(&["smessage", "s:k", ""]), Heard::Freed("s:k".into()));
        assert_eq!(
            heard(&["ssubscribe", "s:k", "1"]),
            Heard::Listening("s:k".into())
        );
        assert_eq!(
            heard(&["sunsubscribe", "s:k", "0"]),
            Heard::Unsubscribed("s:k".into())
        );
        assert_eq!(heard(&["pong", ""]), Heard::Alive);
        assert_eq!(
            read(Value::SimpleString("PONG".into())).unwrap(),
            Heard::Alive
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
