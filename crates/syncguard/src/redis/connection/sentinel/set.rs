//! What is known of the primary, by what the Sentinels of a set have told.

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
use crate::mutex::lock;
use crate::network::switches::Switches;
use crate::redis::config::{RedisConfig, RedisSentinel};
use crate::text::error::Error;

/// How long Sentinels may disagree before what most of them name counts more than a later epoch. They tell each other every two
/// seconds, and until then the server that most name may be a former primary that has come back empty.
const AGREEMENT: Duration = Duration::from_secs(10);

/// The Sentinels of a set, and what they say.
pub(super) struct SentinelSet {
    pub(super) set: RedisSentinel,
    pub(super) tls: Option<TlsContext>,
    pub(super) connect_timeout: Duration,
    /// Which server is the primary, as far as is known.
    pub(super) primary: watch::Sender<Option<Named>>,
    /// How often another one has become it.
    goal: AtomicU64,
    /// Who hears of that.
    switches: Switches,
    pub(super) is_followed: AtomicBool,
    pub(super) is_asked: AtomicBool,
    /// What each has told last: to the first who searched, of itself, or when somebody doubted.
    answers: Mutex<HashMap<Address, Named>>,
    /// What some name that cannot be reached, while most name another server, and since when.
    dispute: Mutex<Option<(Named, Instant)>>,
}

/// Once there was a connection, Sentinels are followed for as long as somebody has this.
pub(in crate::redis::connection) type Followed = watch::Receiver<Option<Named>>;

impl SentinelSet {
    /// Does no I/O.
    pub(super) fn new(config: &RedisConfig, set: &RedisSentinel, tls: Option<&TlsContext>) -> Self {
        Self {
            set: set.clone(),
            tls: tls.cloned(),
            connect_timeout: config.connect_timeout,
            primary: watch::Sender::new(None),
            goal: AtomicU64::new(0),
            switches: Switches::default(),
            is_followed: AtomicBool::new(false),
            is_asked: AtomicBool::new(false),
            answers: Mutex::default(),
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
    pub(super) fn goal(&self) -> u64 {
        self.goal.load(SeqCst)
    }

    /// Completes when another server becomes the primary.
    pub(super) async fn moved(&self) {
        let address = |named: &Option<Named>| named.as_ref().map(|named| named.address.clone());
        let mut primary = self.followed();
        let before = address(&primary.borrow_and_update());
        // It lives as long as this does.
        let _ = primary.wait_for(|now| address(now) != before).await;
    }

    /// What one Sentinel says.
    pub(super) async fn ask(&self, node: &Address) -> Result<Named, Error> {
        let answer = async {
            let mut stream = asking::connect(node, &self.set, self.tls.as_ref()).await?;
            asking::named(&mut stream, &self.set).await
        };
        let answer = timeout(self.connect_timeout, answer).await;
        answer.unwrap_or_else(|_| Err(late()))
    }

    /// Notes what a Sentinel names to the first who search for the primary: if it names another one later, it has changed its mind.
    pub(super) fn note_first_answer(&self, node: &Address, now: &Named) {
        let mut answers = lock(&self.answers);
        answers.entry(node.clone()).or_insert_with(|| now.clone());
    }

    /// Goes by what a Sentinel names, if that is news: it is of a later epoch than what is known, or the Sentinel has changed its
    /// mind, which it only does after a failover, or when it learns late of an earlier one. So an earlier epoch counts only when no
    /// Sentinel has told a later one since: then all have forgotten what they knew, and count from the start again.
    pub(super) fn note_answer(&self, node: &Address, now: &Named) {
        let (has_changed, is_latest) = {
            let mut answers = lock(&self.answers);
            let before = answers.insert(node.clone(), now.clone());
            let has_changed = before.is_some_and(|before| before.address != now.address);
            let is_latest = self.set.nodes.iter().all(|node| {
                let named = answers.get(node);
                named.is_some_and(|named| named.epoch <= now.epoch)
            });
            (has_changed, is_latest)
        };
        self.settle_if(now, |known| match known {
            Some(known) if known.address == now.address => now.epoch > known.epoch,
            Some(_) if self.is_overruled(now) => false,
            Some(known) => {
                now.epoch > known.epoch || has_changed && (now.epoch == known.epoch || is_latest)
            }
            // Nobody has connected yet.
            None => false,
        });
    }

    /// Goes by what a search has found that began when `before` was known. What was settled since is newer, unless this is of a
    /// later epoch. Gives whether what was found is the primary.
    pub(super) fn found(&self, now: &Named, before: Option<&Named>) -> bool {
        let mut is_primary = true;
        self.settle_if(now, |known| {
            let newer = known.filter(|known| Some(*known) != before && known.epoch >= now.epoch);
            is_primary = newer.is_none_or(|newer| newer.address == now.address);
            newer.is_none()
        });
        is_primary
    }

    /// Notes that some Sentinels name `latest`, whose server cannot be reached, and most another one.
    pub(super) fn note_dispute(&self, latest: &Named) {
        let mut dispute = lock(&self.dispute);
        let is_known = dispute.as_ref().is_some_and(|(named, _)| named == latest);
        if !is_known {
            *dispute = Some((latest.clone(), Instant::now()));
        }
    }

    /// Whether what most Sentinels name counts, though `latest` is of a later epoch: its server cannot be reached, and they have not
    /// agreed for long.
    pub(super) fn is_overruled(&self, latest: &Named) -> bool {
        let dispute = lock(&self.dispute);
        let mut dispute = dispute.iter();
        dispute.any(|(named, since)| named == latest && since.elapsed() >= AGREEMENT)
    }

    /// From now on, that is the primary, and connections to another one end: if it is to count beside what is known.
    fn settle_if(&self, now: &Named, counts: impl FnOnce(Option<&Named>) -> bool) {
        let mut is_switch = false;
        self.primary.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(now) && counts(known.as_ref());
            if is_new {
                let before = known.replace(now.clone());
                is_switch = before.is_some_and(|before| before.address != now.address);
                // Before anybody sees what has changed.
                self.goal.fetch_add(u64::from(is_switch), SeqCst);
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
