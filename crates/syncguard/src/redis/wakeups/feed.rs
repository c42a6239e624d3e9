//! The connection on which one node of a cluster tells what was freed.

use std::sync::Arc;

use redis::{Value, cmd, parse_redis_value_async};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until, timeout};

use super::listen::read;
use crate::error::{Error, ErrorKind};
use crate::redis::answer::lost;
use crate::redis::connection::cluster::redirect::Redirect;
use crate::redis::connection::cluster::routes::Node;
use crate::redis::connection::limited::Limited;
use crate::redis::error::{driver_error, error_text};
use crate::waiting::listener::{ANSWER, Heard, SILENCE};

/// What a node tells.
pub(super) enum FeedMessage {
    Heard(Heard),
    /// The slot is at that host and port now: a channel of it that was asked for is not told of here.
    Moved(u16, String, u16),
}

/// Which feed tells, and what.
pub(super) type Event = (u64, Result<FeedMessage, Error>);

/// One connection. It ends when this is dropped.
pub(super) struct Feed {
    pub(super) node: Arc<Node>,
    /// What it was asked not to tell of any more, and has not confirmed yet.
    pub(super) leaving: Vec<Arc<str>>,
    requests: UnboundedSender<(Arc<str>, bool)>,
}

impl Feed {
    /// Connects in the background.
    pub(super) fn start(node: Arc<Node>, number: u64, events: UnboundedSender<Event>) -> Self {
        let (requests, received) = unbounded_channel();
        let at = Arc::clone(&node);
        tokio::spawn(async move {
            let told = |told| events.send((number, Ok(told))).is_ok();
            if let Err(error) = serve(&at, received, told).await {
                // Nobody may listen any more.
                let _ = events.send((number, Err(error)));
            }
        });
        Self {
            node,
            leaving: Vec::new(),
            requests,
        }
    }

    /// Asks the node to tell of that name (`true`), or no longer.
    pub(super) fn change(&mut self, name: &Arc<str>, is_wanted: bool) {
        if !is_wanted {
            self.leaving.push(Arc::clone(name));
        }
        // If the connection has ended, that is told.
        let _ = self.requests.send((Arc::clone(name), is_wanted));
    }

    /// Whether that the node does not tell of the name any more is what it was asked for.
    pub(super) fn has_left(&mut self, name: &str) -> bool {
        let place = self.leaving.iter().position(|left| **left == *name);
        place.map(|place| self.leaving.swap_remove(place)).is_some()
    }
}

/// Writes requests and reads what the node tells, until nobody listens any more.
async fn serve(
    node: &Node,
    mut requests: UnboundedReceiver<(Arc<str>, bool)>,
    mut tell: impl FnMut(FeedMessage) -> bool,
) -> Result<(), Error> {
    let mut stream = BufReader::new(node.target.open().await?);
    let has_shard_channels = timeout(ANSWER, has_shard_channels(&mut stream)).await;
    let commands = match has_shard_channels.map_err(|_| silent())?? {
        true => ["SUNSUBSCRIBE", "SSUBSCRIBE"],
        false => ["UNSUBSCRIBE", "SUBSCRIBE"],
    };
    let mut decoder = Default::default();
    // What this side asks for in the meantime is no sign of the node's life.
    let (mut last_heard, mut tested) = (Instant::now(), None);
    loop {
        let end = match tested {
            None => last_heard + SILENCE,
            Some(tested) => tested + ANSWER,
        };
        let request = tokio::select! {
            // What was read so far is in the decoder, so that nothing is lost when another branch is taken.
            value = parse_redis_value_async(&mut decoder, &mut stream) => {
                let value = value.map_err(|error| driver_error(&error, false))?;
                stream.get_mut().reply_is_complete();
                (last_heard, tested) = (Instant::now(), None);
                if !tell(understand(value)?) {
                    return Ok(());
                }
                continue;
            }
            request = requests.recv() => {
                let Some((name, is_wanted)) = request else {
                    return Ok(());
                };
                // One at a time: channels in one call must be of one slot.
                let mut request = cmd(commands[usize::from(is_wanted)]);
                request.arg(&*name);
                request
            }
            () = sleep_until(end) => {
                if tested.is_some() {
                    return Err(silent());
                }
                tested = Some(Instant::now());
                cmd("PING")
            }
        };
        let bytes = request.get_packed_command();
        stream.write_all(&bytes).await.map_err(|_| lost())?;
        stream.flush().await.map_err(|_| lost())?;
    }
}

fn silent() -> Error {
    Error::new(ErrorKind::NetworkTimeout, "the server is silent")
}

/// Whether the server has channels that belong to a slot, as it has from version 7 on. Without them, a message
/// reaches all nodes. Asks in a way that subscribes to nothing and that needs no right: by a mistake.
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

fn understand(value: Value) -> Result<FeedMessage, Error> {
    if let Value::ServerError(error) = &value {
        let text = error_text(error);
        let slot = text.split(' ').nth(1).and_then(|slot| slot.parse().ok());
        if let (Some(Redirect::Moved(host, port)), Some(slot)) = (Redirect::read(&text), slot) {
            return Ok(FeedMessage::Moved(slot, host.to_owned(), port));
        }
    }
    read(value).map(FeedMessage::Heard)
}
