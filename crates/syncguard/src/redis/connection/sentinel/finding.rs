//! Decides which of the servers that Sentinels name is the primary.

use std::time::Duration;

use tokio::time::Instant;

use super::super::term::{Address, Named};
use super::asking::no_primary;
use crate::text::error::Error;

/// How long to wait for the other Sentinels once a reachable primary is named by most of them, or has a later epoch than the known one:
/// in a failover, the Sentinel that leads it is the first to name the new primary.
const LAST_WORD: Duration = Duration::from_millis(50);
/// How long to wait for them where neither is so, because they may name another one.
const DISPUTED: Duration = Duration::from_millis(500);

/// Collects the answers of Sentinels, and of the servers that they name. `S` is a stream to a primary.
pub(super) struct PrimarySearch<S> {
    sentinels: usize,
    /// How many of them have named a primary.
    said: usize,
    /// How many of them have neither answered nor failed.
    silent: usize,
    /// The epoch of the primary that was known before.
    known: Option<u64>,
    /// The servers that Sentinels name, each once.
    candidates: Vec<Candidate>,
    /// The candidates that were reached and say that they are primaries.
    found: Vec<(Address, S)>,
    /// When the first of them was reached.
    since: Option<Instant>,
    /// The last error that does not pass by itself.
    refusal: Option<Error>,
    /// The last other error.
    last: Option<Error>,
}

struct Candidate {
    /// Its address, with the latest epoch that a Sentinel has said.
    named: Named,
    /// How many Sentinels name it.
    votes: usize,
    /// Whether it could not be reached, or says that it is no primary.
    is_dead: bool,
}

/// The two servers between which the Sentinels disagree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dispute {
    /// The one with the latest epoch, which nobody can reach.
    pub(super) latest: Named,
    /// The one that most name, which was reached.
    most: Named,
}

impl<S> PrimarySearch<S> {
    pub(super) fn new(sentinels: usize, known: Option<&Named>) -> Self {
        Self {
            sentinels,
            said: 0,
            silent: sentinels,
            known: known.map(|known| known.epoch),
            candidates: Vec::new(),
            found: Vec::new(),
            since: None,
            refusal: None,
            last: None,
        }
    }

    /// Notes the answer of one Sentinel. Gives the address to try, if it is a new one.
    pub(super) fn said(&mut self, answer: Result<Named, Error>) -> Option<Address> {
        self.silent = self.silent.saturating_sub(1);
        let named = match answer {
            Ok(named) => named,
            Err(error) => {
                self.failed(error);
                return None;
            }
        };
        self.said += 1;
        let mut candidates = self.candidates.iter_mut();
        if let Some(known) = candidates.find(|known| known.named.address == named.address) {
            known.named.epoch = known.named.epoch.max(named.epoch);
            known.votes += 1;
            return None;
        }
        let address = named.address.clone();
        self.candidates.push(Candidate {
            named,
            votes: 1,
            is_dead: false,
        });
        Some(address)
    }

    /// Notes what came of trying an address.
    pub(super) fn tried(&mut self, address: Address, answer: Result<S, Error>) {
        match answer {
            Ok(primary) => {
                self.found.push((address, primary));
                self.since.get_or_insert_with(Instant::now);
            }
            Err(error) => {
                let mut candidates = self.candidates.iter_mut();
                if let Some(tried) = candidates.find(|tried| tried.named.address == address) {
                    tried.is_dead = true;
                }
                self.failed(error);
            }
        }
    }

    fn failed(&mut self, error: Error) {
        // A wrong password, for example, is more useful to report than that no primary was found.
        let place = match error.kind().is_transient() {
            true => &mut self.last,
            false => &mut self.refusal,
        };
        *place = Some(error);
    }

    /// When to decide without the Sentinels that are still silent. `None` while no primary was reached.
    pub(super) fn decides_at(&self) -> Option<Instant> {
        let is_news = |each: &Candidate| self.known.is_some_and(|known| each.named.epoch > known);
        let mut candidates = self.candidates.iter();
        let is_clear = candidates.any(|each| self.has_most(each) || is_news(each));
        Some(self.since? + if is_clear { LAST_WORD } else { DISPUTED })
    }

    fn has_most(&self, candidate: &Candidate) -> bool {
        candidate.votes > self.sentinels / 2
    }

    fn is_found(&self, candidate: &Candidate) -> bool {
        let mut found = self.found.iter();
        found.any(|(address, _)| *address == candidate.named.address)
    }

    /// Gives the primary once it is clear which one that is: the candidate with the latest epoch that anybody knows, and of several
    /// with that epoch the one that most Sentinels name. If as many name another one, the address decides, so that all who search find
    /// the same.
    pub(super) fn decided(&mut self) -> Option<(Named, S)> {
        let has_all = self.silent == 0;
        if !has_all && self.decides_at()? > Instant::now() {
            return None;
        }
        let epochs = self.candidates.iter().map(|each| each.named.epoch);
        let latest = epochs.max()?;
        // If most Sentinels have answered, the known epoch does not count: after a restart in containers they may have forgotten
        // everything, and count from the start again.
        let has_majority = has_all && self.said > self.sentinels / 2;
        let least = if has_majority {
            latest
        } else {
            latest.max(self.known.unwrap_or_default())
        };
        let is_late = self.decides_at().is_some_and(|at| at <= Instant::now());
        let candidates = self.candidates.iter();
        let best = candidates
            .filter(|each| !each.is_dead)
            .filter(|each| each.named.epoch >= least)
            // When time is up, a candidate that few name and that was not reached yet holds nobody up.
            .filter(|each| !is_late || self.has_most(each) || self.is_found(each))
            .max_by(|a, b| a.rank().cmp(&b.rank()))?;
        let named = best.named.clone();
        self.take(named)
    }

    /// How many Sentinels have named the server at that address.
    pub(super) fn naming(&self, address: &Address) -> usize {
        let mut candidates = self.candidates.iter();
        let named = candidates.find(|each| each.named.address == *address);
        named.map_or(0, |named| named.votes)
    }

    /// Takes out the stream to that server, if it was reached.
    fn take(&mut self, named: Named) -> Option<(Named, S)> {
        let mut found = self.found.iter();
        let place = found.position(|(address, _)| *address == named.address)?;
        let (_, primary) = self.found.swap_remove(place);
        Some((named, primary))
    }

    /// The disagreement, if most Sentinels name a primary that was reached, and others name one of a later epoch that nobody can reach.
    pub(super) fn dispute(&self) -> Option<Dispute> {
        let mut candidates = self.candidates.iter();
        let most = candidates.find(|each| self.has_most(each) && self.is_found(each))?;
        let latest = self.candidates.iter().max_by_key(|each| each.named.epoch)?;
        let is_later = latest.is_dead && latest.named.epoch > most.named.epoch;
        is_later.then(|| Dispute {
            latest: latest.named.clone(),
            most: most.named.clone(),
        })
    }

    /// Takes the primary that most Sentinels name, although another one has a later epoch.
    pub(super) fn overrule(&mut self, dispute: Dispute) -> Option<(Named, S)> {
        self.take(dispute.most)
    }

    /// Why no primary was found.
    pub(super) fn error(self) -> Error {
        let because = |error: Error| {
            let none = no_primary();
            let message = format!("{}: {}", none.message(), error.message());
            Error::new(none.kind(), message).with_source(error)
        };
        let last = || self.last.map_or_else(no_primary, because);
        self.refusal.unwrap_or_else(last)
    }
}

impl Candidate {
    fn rank(&self) -> (u64, usize, &Address) {
        (self.named.epoch, self.votes, &self.named.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(port: u16, epoch: u64) -> Named {
        Named {
            address: ("h".to_owned(), port),
            epoch,
        }
    }

    fn finding(known: u64) -> PrimarySearch<u16> {
        PrimarySearch::new(3, Some(&named(9, known)))
    }

    fn first_finding() -> PrimarySearch<u16> {
        PrimarySearch::new(3, None)
    }

    /// What was decided, as the port that was named and what it was reached by.
    fn decided(finding: &mut PrimarySearch<u16>) -> Option<u16> {
        finding.decided().map(|(named, primary)| {
            assert_eq!(named.address.1, primary);
            primary
        })
    }

    fn say(finding: &mut PrimarySearch<u16>, port: u16, epoch: u64) {
        if let Some((host, port)) = finding.said(Ok(named(port, epoch))) {
            finding.tried((host, port), Ok(port));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_latest_epoch_counts() {
        let mut finding = finding(0);
        say(&mut finding, 1, 5);
        assert_eq!(decided(&mut finding), None, "others may know better");
        say(&mut finding, 2, 6);
        assert_eq!(decided(&mut finding), None);
        say(&mut finding, 1, 5);
        assert_eq!(decided(&mut finding), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_not_waited_for() {
        let mut finding = finding(0);
        say(&mut finding, 1, 5);
        say(&mut finding, 1, 5);
        tokio::time::advance(LAST_WORD).await;
        assert_eq!(decided(&mut finding), Some(1));
        // Nor are those without whom there is no majority.
        for (mut alone, wait) in [(self::finding(0), LAST_WORD), (first_finding(), DISPUTED)] {
            say(&mut alone, 1, 5);
            assert!(alone.said(Err(no_primary())).is_none());
            tokio::time::advance(wait - Duration::from_millis(1)).await;
            assert_eq!(decided(&mut alone), None);
            tokio::time::advance(Duration::from_millis(1)).await;
            assert_eq!(decided(&mut alone), Some(1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_former_primary_is_not_gone_back_to() {
        let mut finding = finding(6);
        say(&mut finding, 1, 5);
        say(&mut finding, 1, 5);
        tokio::time::advance(LAST_WORD * 9).await;
        assert_eq!(
            decided(&mut finding),
            None,
            "one of them may know of the latest"
        );
        say(&mut finding, 2, 6);
        assert_eq!(decided(&mut finding), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn sentinels_that_have_forgotten_all_are_believed_together() {
        let mut finding = finding(6);
        say(&mut finding, 1, 0);
        let _ = finding.said(Err(no_primary()));
        say(&mut finding, 1, 0);
        assert_eq!(decided(&mut finding), Some(1));
        let mut alone = self::finding(6);
        say(&mut alone, 1, 0);
        let _ = alone.said(Err(no_primary()));
        let _ = alone.said(Err(no_primary()));
        assert_eq!(decided(&mut alone), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_new_primary_is_waited_for() {
        let mut finding = finding(0);
        say(&mut finding, 1, 5);
        let address = finding.said(Ok(named(2, 6))).unwrap();
        say(&mut finding, 1, 5);
        tokio::time::advance(LAST_WORD * 9).await;
        assert_eq!(
            decided(&mut finding),
            None,
            "the other one is a former primary"
        );
        finding.tried(address, Ok(2));
        assert_eq!(decided(&mut finding), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn of_one_epoch_what_most_name_counts() {
        for epoch in [0, 5] {
            let mut finding = first_finding();
            say(&mut finding, 2, epoch);
            tokio::time::advance(LAST_WORD).await;
            assert_eq!(decided(&mut finding), None, "others may name another");
            let address = finding.said(Ok(named(1, epoch))).unwrap();
            let _ = finding.said(Ok(named(1, epoch)));
            assert_eq!(decided(&mut finding), None, "it is still being tried");
            finding.tried(address, Ok(1));
            assert_eq!(decided(&mut finding), Some(1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_search_find_the_same_of_two_that_as_many_name() {
        for order in [[1, 2], [2, 1]] {
            let mut finding = first_finding();
            for port in order {
                say(&mut finding, port, 0);
            }
            assert_eq!(decided(&mut finding), None, "the third may know better");
            tokio::time::advance(DISPUTED).await;
            assert_eq!(decided(&mut finding), Some(2));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_epoch_gives_way_only_if_its_server_cannot_be_reached_and_most_name_another() {
        let searched = |named_twice: bool, is_dead: bool| {
            let mut finding = first_finding();
            say(&mut finding, 1, 5);
            let address = finding.said(Ok(named(2, 6))).unwrap();
            match named_twice {
                true => say(&mut finding, 1, 5),
                false => assert!(finding.said(Err(no_primary())).is_none()),
            }
            if is_dead {
                finding.tried(address, Err(no_primary()));
            }
            assert_eq!(decided(&mut finding), None, "a failover may be under way");
            finding
        };
        let mut finding = searched(true, true);
        let dispute = finding.dispute().unwrap();
        assert_eq!(dispute.latest, named(2, 6));
        let (found, reached) = finding.overrule(dispute).unwrap();
        assert_eq!((found, reached), (named(1, 5), 1));
        assert_eq!(searched(true, false).dispute(), None);
        assert_eq!(searched(false, true).dispute(), None);
    }
}
