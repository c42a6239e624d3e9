//! Hears from each Sentinel when it takes another server for the primary.
//!
//! From the first connection to a primary on, this keeps a connection to each Sentinel. It is made anew when it is lost or has been
//! silent for a while. A Sentinel is asked as soon as it is reached, so nothing that happened in between is missed.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use redis::parse_redis_value_async;
use tokio::time::{sleep, timeout};

use super::super::limited::Limited;
use super::super::session::late;
use super::super::term::Address;
use super::asking::{connect, is_news, named, named_and_followed};
use super::set::SentinelSet;
use crate::race::Race;
use crate::random;
use crate::redis::error::driver_error;
use crate::text::error::Error;

/// The pause after a Sentinel could not be reached. It doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A Sentinel that has been silent for so long is asked anew.
const SILENCE: Duration = Duration::from_secs(10);
/// A Sentinel that allows no subscription is asked again after this pause, and may take this long to answer.
const POLL: Duration = Duration::from_millis(500);
const ANSWER: Duration = Duration::from_secs(2);

/// Follows all Sentinels for as long as somebody has a [`Followed`](super::set::Followed).
pub(super) async fn follow(following: Following) {
    let sentinels = &*following.0;
    let mut race = Race::new();
    for node in &sentinels.set.nodes {
        race.start(follow_one(sentinels, node));
    }
    tokio::select! {
        _ = race.next() => {}
        () = sentinels.primary.closed() => {}
    }
}

/// Stands for the task that follows. When it is dropped, with its runtime for example, another task may begin.
pub(super) struct Following(Arc<SentinelSet>);

impl Following {
    /// `None` if somebody follows already.
    pub(super) fn of(sentinels: &Arc<SentinelSet>) -> Option<Self> {
        let is_first = !sentinels.is_followed.swap(true, SeqCst);
        is_first.then(|| Self(Arc::clone(sentinels)))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.0.is_followed.store(false, SeqCst);
    }
}

async fn follow_one(sentinels: &SentinelSet, node: &Address) {
    let mut pause = FIRST_PAUSE;
    loop {
        let mut was_reached = false;
        let _ = listen(sentinels, node, &mut was_reached).await;
        if was_reached {
            pause = FIRST_PAUSE;
        }
        sleep(random::scattered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Listens until a connection fails.
async fn listen(
    sentinels: &SentinelSet,
    node: &Address,
    was_reached: &mut bool,
) -> Result<(), Error> {
    let SentinelSet { set, tls, .. } = sentinels;
    let limit = sentinels.connect_timeout;
    loop {
        let opening = async {
            let mut stream = connect(node, set, tls.as_ref()).await?;
            let (named, is_followed) = named_and_followed(&mut stream, set).await?;
            Ok::<_, Error>((stream, named, is_followed))
        };
        let (mut stream, answer, is_followed) =
            timeout(limit, opening).await.map_err(|_| late())??;
        *was_reached = true;
        sentinels.note_answer(node, &answer);
        match is_followed {
            // News come without an epoch, so the Sentinel is asked anew after them.
            true => until_news(&mut stream, &set.name).await?,
            false => loop {
                sleep(random::scattered(POLL)).await;
                let asked = timeout(ANSWER, named(&mut stream, set)).await;
                let answer = asked.map_err(|_| late())??;
                sentinels.note_answer(node, &answer);
            },
        }
    }
}

/// Completes when a Sentinel tells of another primary under this name, or has told of nothing for a while. Then it is asked anew:
/// it tells nobody that it was made to watch another server (`SENTINEL MONITOR`), and the connection may be gone.
async fn until_news(stream: &mut Limited, name: &str) -> Result<(), Error> {
    let mut decoder = Default::default();
    loop {
        let message = parse_redis_value_async(&mut decoder, stream);
        let Ok(message) = timeout(random::scattered(SILENCE), message).await else {
            return Ok(());
        };
        let message = message.map_err(|error| driver_error(&error, false))?;
        stream.reply_is_complete();
        if is_news(&message, name) {
            return Ok(());
        }
    }
}
