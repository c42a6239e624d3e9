//! Hears from each Sentinel when it takes another server for the primary.
//!
//! From the first connection to a primary on, there is one to each Sentinel. It is made again when it is lost. Each Sentinel is asked as
//! soon as it is reached, when it tells of another primary, and every ten seconds: it does not tell when somebody lets it watch
//! another server.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use redis::parse_redis_value_async;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::super::limited::Limited;
use super::super::session::late;
use super::super::term::Address;
use super::asking::{
    ANSWERS, connect, is_message, is_news, named, named_and_followed, question_of_subscriber,
    read_for_subscriber,
};
use super::set::SentinelSet;
use crate::race::Race;
use crate::random;
use crate::redis::answer::lost;
use crate::redis::error::driver_error;
use crate::text::error::Error;

/// The pause after a Sentinel could not be reached. It doubles with each further time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often each is asked, and how long the answer may take.
const AGAIN: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(2);
/// How often a Sentinel is asked that may not be subscribed to.
const POLL: Duration = Duration::from_millis(500);

/// Follows all Sentinels, for as long as that [matters](super::set::Followed) to anybody.
pub(super) async fn follow(following: Following) {
    let sentinels = &*following.0;
    let mut race = Race::new();
    for node in &sentinels.set.nodes {
        race.start(follow_one(sentinels, node));
    }
    tokio::select! {
        _ = race.next() => {}
        () = wait_for_verdicts(sentinels) => {}
        () = sentinels.primary.closed() => {}
    }
}

/// Counts again what Sentinels have said, where only time can tell what it means.
async fn wait_for_verdicts(sentinels: &SentinelSet) {
    loop {
        sentinels.undecided.notified().await;
        while let Some(at) = sentinels.count_votes() {
            sleep_until(at).await;
        }
    }
}

/// Counts as following until it is dropped, also with its runtime.
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
        match was_reached {
            true => pause = FIRST_PAUSE,
            false => sentinels.forget(node),
        }
        sleep(random::scattered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Listens until the connection fails.
async fn listen(
    sentinels: &SentinelSet,
    node: &Address,
    was_reached: &mut bool,
) -> Result<(), Error> {
    let SentinelSet { set, tls, .. } = sentinels;
    let limit = sentinels.connect_timeout;
    let opening = async {
        let mut stream = connect(node, set, tls.as_ref()).await?;
        let (named, is_followed) = named_and_followed(&mut stream, set).await?;
        Ok::<_, Error>((stream, named, is_followed))
    };
    let (mut stream, now, is_followed) = timeout(limit, opening).await.map_err(|_| late())??;
    *was_reached = true;
    sentinels.note_answer(node, &now);
    if is_followed {
        return hear(sentinels, node, &mut stream).await;
    }
    loop {
        sleep(random::scattered(POLL)).await;
        let asked = timeout(ANSWER, named(&mut stream, set)).await;
        let now = asked.map_err(|_| late())??;
        sentinels.note_answer(node, &now);
    }
}

/// Asks a Sentinel when it tells of another primary, because only so the epoch is told with it, and every ten seconds.
async fn hear(sentinels: &SentinelSet, node: &Address, stream: &mut Limited) -> Result<(), Error> {
    let set = &sentinels.set;
    let mut decoder = Default::default();
    let question = question_of_subscriber(set);
    loop {
        let at = Instant::now() + AGAIN;
        while let Ok(message) = timeout_at(at, parse_redis_value_async(&mut decoder, stream)).await
        {
            let message = message.map_err(|error| driver_error(&error, false))?;
            stream.reply_is_complete();
            if is_news(&message, &set.name) {
                break;
            }
        }
        let asking = async {
            stream.write_all(&question).await.map_err(|_| lost())?;
            stream.flush().await.map_err(|_| lost())?;
            let mut answers = Vec::new();
            while answers.len() < ANSWERS {
                let answer = parse_redis_value_async(&mut decoder, stream).await;
                let answer = answer.map_err(|error| driver_error(&error, false))?;
                stream.reply_is_complete();
                // What comes in between is older than the answer.
                if !is_message(&answer) {
                    answers.push(answer);
                }
            }
            read_for_subscriber(&answers)
        };
        let now = timeout(ANSWER, asking).await.map_err(|_| late())??;
        sentinels.note_answer(node, &now);
    }
}
