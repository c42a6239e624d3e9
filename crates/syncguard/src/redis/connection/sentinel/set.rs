//! Knows which server is the primary, by what the Sentinels of a set have said.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::super::session::late;
use super::super::term::{Address, Named};
use super::super::tls::TlsContext;
use super::asking;
use super::disputes::{self, SetId};
use crate::mutex::lock;
use crate::network::switches::Switches;
use crate::redis::config::{FewSentinels, FewSentinelsHook, RedisConfig, RedisSentinel};
use crate::text::error::Error;

/// After Sentinels have disagreed for so long, the server that most of them name counts more than a later epoch. They tell each
/// other every two seconds, and until then the server that most name may be a former primary that has come back empty.
const AGREEMENT: Duration = Duration::from_secs(10);

/// A Sentinel that has not answered for so long is taken to be gone, with what it said. Each is asked every ten seconds.
const GONE: Duration = Duration::from_secs(30);

/// The Sentinels of a set, and what they say.
pub(super) struct SentinelSet {
    pub(super) set: RedisSentinel,
    pub(super) tls: Option<TlsContext>,
    pub(super) connect_timeout: Duration,
    /// Which server is the primary, as far as is known.
    pub(super) primary: watch::Sender<Option<Named>>,
    /// How often another server has become the primary.
    switch_count: AtomicU64,
    /// Those who hear of such switches.
    switches: Switches,
    pub(super) is_followed: AtomicBool,
    pub(super) is_asked: AtomicBool,
    /// The last answer of each Sentinel. It was asked by the first search, by whoever follows it, or because somebody doubted.
    answers: Mutex<HashMap<Address, LastAnswer>>,
    since: Instant,
    id: SetId,
    on_few: Option<FewSentinelsHook>,
    /// The server that some Sentinels name and that could not be reached from here, while most name another one.
    dispute: Mutex<Option<Named>>,
}

/// What a Sentinel has said.
struct LastAnswer {
    named: Named,
    at: Instant,
    /// When it answered the last time before.
    before: Option<Instant>,
}

impl LastAnswer {
    fn new(named: &Named, before: Option<&Self>) -> Self {
        Self {
            named: named.clone(),
            at: Instant::now(),
            before: before.map(|before| before.at),
        }
    }

    /// Whether it answers again and again. While this process is cut off, all are silent.
    fn is_regular(&self) -> bool {
        self.before.is_some_and(|before| before.elapsed() < GONE)
    }
}

/// Whoever has this lets the Sentinels be followed, from the first connection to a primary on.
pub(in crate::redis::connection) type Followed = watch::Receiver<Option<Named>>;

impl SentinelSet {
    /// Does no I/O.
    pub(super) fn new(config: &RedisConfig, set: &RedisSentinel, tls: Option<&TlsContext>) -> Self {
        Self {
            set: set.clone(),
            tls: tls.cloned(),
            connect_timeout: config.connect_timeout,
            primary: watch::Sender::new(None),
            switch_count: AtomicU64::new(0),
            switches: Switches::default(),
            is_followed: AtomicBool::new(false),
            is_asked: AtomicBool::new(false),
            answers: Mutex::default(),
            since: Instant::now(),
            id: SetId::of(set),
            on_few: config.on_few_sentinels.clone(),
            dispute: Mutex::default(),
        }
    }

    pub(super) fn switches(&self) -> &Switches {
        &self.switches
    }

    pub(super) fn followed(&self) -> Followed {
        self.primary.subscribe()
    }

    /// How often another server has become the primary.
    pub(super) fn switch_count(&self) -> u64 {
        self.switch_count.load(SeqCst)
    }

    /// Completes when another server becomes the primary.
    pub(super) async fn moved(&self) {
        let address = |named: &Option<Named>| named.as_ref().map(|named| named.address.clone());
        let mut primary = self.followed();
        let before = address(&primary.borrow_and_update());
        // The sender lives as long as `self`, so this cannot fail.
        let _ = primary.wait_for(|named| address(named) != before).await;
    }

    /// Asks one Sentinel which server is the primary.
    pub(super) async fn ask(&self, node: &Address) -> Result<Named, Error> {
        let answer = async {
            let mut stream = asking::connect(node, &self.set, self.tls.as_ref()).await?;
            asking::named(&mut stream, &self.set).await
        };
        let answer = timeout(self.connect_timeout, answer).await;
        answer.unwrap_or_else(|_| Err(late()))
    }

    /// Notes the first answer of a Sentinel. A later answer that names another server is a change of its mind.
    pub(super) fn note_first_answer(&self, node: &Address, answer: &Named) {
        let mut answers = lock(&self.answers);
        answers
            .entry(node.clone())
            .or_insert_with(|| LastAnswer::new(answer, None));
    }

    /// Notes an answer of a Sentinel, and takes the server that it names for the primary if that is news. It is news if its epoch is
    /// later than the known one, or if the Sentinel has changed its mind. A Sentinel does that only after a failover, or when it
    /// learns late of an earlier one. So an earlier epoch counts only if no Sentinel has a later one in its last answer: then all
    /// have forgotten what they knew, and count from the start again. If most Sentinels name the server, those that are gone are not
    /// heard.
    pub(super) fn note_answer(&self, node: &Address, answer: &Named) {
        let (has_changed, is_latest, is_of_most) = {
            let mut answers = lock(&self.answers);
            let before = answers.remove(node);
            let noted = LastAnswer::new(answer, before.as_ref());
            answers.insert(node.clone(), noted);
            let has_changed = before.is_some_and(|before| before.named.address != answer.address);
            let last_answers = || self.set.nodes.iter().map(|node| answers.get(node));
            let is_behind = |last: Option<&LastAnswer>| {
                last.is_some_and(|last| last.named.epoch <= answer.epoch)
            };
            let is_gone = |last: Option<&LastAnswer>| {
                last.map_or(self.since, |last| last.at).elapsed() >= GONE
            };
            let names_it =
                |last: &&LastAnswer| last.named.address == answer.address && last.is_regular();
            let naming = last_answers().flatten().filter(names_it).count();
            let is_of_most = 2 * naming > self.set.nodes.len()
                && last_answers().all(|last| is_behind(last) || is_gone(last));
            (has_changed, last_answers().all(is_behind), is_of_most)
        };
        self.settle_if(answer, |known| match known {
            Some(known) if known.address == answer.address => answer.epoch > known.epoch,
            Some(_) if self.is_overruled(answer) => false,
            Some(known) => {
                let may_be_next = answer.epoch == known.epoch || is_latest;
                answer.epoch > known.epoch || has_changed && may_be_next || is_of_most
            }
            // Nobody has connected yet.
            None => false,
        });
    }

    /// Takes `found`, the result of a search that began when `before` was known, for the primary. If something else has become
    /// known since, that is newer, unless `found` has a later epoch. Gives whether the found server is the primary.
    pub(super) fn found(&self, found: &Named, before: Option<&Named>) -> bool {
        let mut is_primary = true;
        self.settle_if(found, |known| {
            let newer = known.filter(|known| Some(*known) != before && known.epoch >= found.epoch);
            is_primary = newer.is_none_or(|newer| newer.address == found.address);
            newer.is_none()
        });
        is_primary
    }

    /// Notes that some Sentinels name `latest`, whose server cannot be reached, while most name another one.
    pub(super) fn note_dispute(&self, latest: &Named) {
        disputes::since(&self.id, latest);
        *lock(&self.dispute) = Some(latest.clone());
    }

    /// Whether the server that most Sentinels name counts although `latest` has a later epoch: the server of `latest` could not be
    /// reached from here, and the Sentinels have disagreed for long, whichever backend has noticed.
    pub(super) fn is_overruled(&self, latest: &Named) -> bool {
        let is_disputed = lock(&self.dispute).as_ref() == Some(latest);
        is_disputed && disputes::since(&self.id, latest).elapsed() >= AGREEMENT
    }

    /// Tells that a primary is used which only so many of the Sentinels have named, if that is not most of them.
    pub(super) fn tell_if_few(&self, naming: usize) {
        let known = self.set.nodes.len();
        if let Some(tell) = &self.on_few
            && naming <= known / 2
        {
            tell(FewSentinels { naming, known });
        }
    }

    /// Makes `named` the primary if `counts` says so of what is known, and so ends connections to another one.
    fn settle_if(&self, named: &Named, counts: impl FnOnce(Option<&Named>) -> bool) {
        let mut is_switch = false;
        self.primary.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(named) && counts(known.as_ref());
            if is_new {
                let before = known.replace(named.clone());
                is_switch = before.is_some_and(|before| before.address != named.address);
                // Counted before anybody can see the new primary.
                self.switch_count.fetch_add(u64::from(is_switch), SeqCst);
            }
            is_new
        });
        if is_switch {
            self.switches.tell();
        }
    }
}

#[cfg(test)]
mod tests;
