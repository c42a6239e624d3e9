//! Which of the primaries that Sentinels name is taken.

use tokio::time::Instant;

use super::super::term::{Address, Named};
use super::asking::no_primary;
use super::vote::{MINORITY, majority, newest};
use crate::text::error::Error;

/// What is found out while Sentinels answer, and the servers that they name. `S` is what a primary is reached by.
pub(super) struct PrimarySearch<S> {
    sentinels: usize,
    /// How many of them have neither answered nor failed.
    silent: usize,
    /// The latest epoch that was known before.
    known: u64,
    /// What each has said.
    answers: Vec<Named>,
    found: Vec<(Address, S)>,
    /// When the first of them was found.
    since: Option<Instant>,
    refusal: Option<Error>,
    last: Option<Error>,
}

impl<S> PrimarySearch<S> {
    pub(super) fn new(sentinels: usize, known: Option<&Named>) -> Self {
        Self {
            sentinels,
            silent: sentinels,
            known: known.map_or(0, |known| known.epoch),
            answers: Vec::new(),
            found: Vec::new(),
            since: None,
            refusal: None,
            last: None,
        }
    }

    /// Notes what one Sentinel has answered. Gives an address that is to be tried.
    pub(super) fn said(&mut self, answer: Result<Named, Error>) -> Option<Address> {
        self.silent = self.silent.saturating_sub(1);
        let now = match answer {
            Ok(now) => now,
            Err(error) => {
                self.failed(error);
                return None;
            }
        };
        let is_new = self.answers.iter().all(|said| said.address != now.address);
        let address = is_new.then(|| now.address.clone());
        self.answers.push(now);
        address
    }

    /// Notes what came of trying an address.
    pub(super) fn tried(&mut self, address: Address, answer: Result<S, Error>) {
        match answer {
            Ok(primary) => {
                self.found.push((address, primary));
                self.since.get_or_insert_with(Instant::now);
            }
            Err(error) => self.failed(error),
        }
    }

    fn failed(&mut self, error: Error) {
        // Such as a wrong password: more useful to report than that no primary was found.
        let place = match error.kind().is_transient() {
            true => &mut self.last,
            false => &mut self.refusal,
        };
        *place = Some(error);
    }

    /// When to look at what there is, if there is something.
    pub(super) fn decides_at(&self) -> Option<Instant> {
        Some(self.since? + MINORITY)
    }

    /// The primary, once it is clear which one that is and it was reached.
    pub(super) fn decided(&mut self) -> Option<(Named, S)> {
        let named = match majority(self.sentinels, self.answers.iter()) {
            Some(named) => named,
            None => self.newest_of_few()?,
        };
        let mut found = self.found.iter();
        let place = found.position(|(address, _)| *address == named.address)?;
        let (_, primary) = self.found.swap_remove(place);
        Some((named, primary))
    }

    /// Of servers that are named by fewer than most, that of the latest epoch of which anybody knows; once all have said what they
    /// can, or have had time to.
    fn newest_of_few(&self) -> Option<Named> {
        if self.silent > 0 && self.decides_at()? > Instant::now() {
            return None;
        }
        let latest = self.answers.iter().map(|named| named.epoch).max()?;
        let least = latest.max(self.known);
        let is_found = |named: &&Named| {
            self.found
                .iter()
                .any(|(address, _)| *address == named.address)
        };
        let found = self.answers.iter().filter(is_found);
        newest(found.filter(|named| named.epoch >= least))
    }

    /// Why there is none.
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
    async fn what_most_name_is_taken_without_the_others() {
        let mut finding = finding(0);
        say(&mut finding, 1, 5);
        assert_eq!(decided(&mut finding), None, "others may name another one");
        say(&mut finding, 2, 9);
        tokio::time::advance(MINORITY / 2).await;
        assert_eq!(decided(&mut finding), None);
        say(&mut finding, 1, 5);
        assert_eq!(decided(&mut finding), Some(1));
        let mut fast = self::finding(0);
        say(&mut fast, 1, 5);
        say(&mut fast, 1, 5);
        assert_eq!(decided(&mut fast), Some(1), "one of them is silent");
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_epoch_of_one_does_not_keep_others_from_what_most_name() {
        let mut finding = finding(5);
        let dead = finding.said(Ok(named(2, 9))).unwrap();
        finding.tried(dead, Err(no_primary()));
        say(&mut finding, 1, 5);
        say(&mut finding, 1, 5);
        assert_eq!(decided(&mut finding), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_majority_the_latest_epoch_counts_after_a_while() {
        let mut finding = finding(0);
        say(&mut finding, 1, 5);
        say(&mut finding, 2, 6);
        assert_eq!(decided(&mut finding), None, "the third may decide");
        tokio::time::advance(MINORITY).await;
        assert_eq!(decided(&mut finding), Some(2));
        // At once where nobody else will say anything.
        let mut failing = self::finding(0);
        say(&mut failing, 1, 5);
        say(&mut failing, 2, 6);
        let _ = failing.said(Err(no_primary()));
        assert_eq!(decided(&mut failing), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_former_primary_is_not_gone_back_to_for_one_alone() {
        let mut finding = finding(6);
        say(&mut finding, 1, 5);
        let _ = finding.said(Err(no_primary()));
        let _ = finding.said(Err(no_primary()));
        tokio::time::advance(MINORITY * 9).await;
        assert_eq!(decided(&mut finding), None);
        // Most of them have forgotten all, as after a restart in containers, and count from the start again.
        let mut forgetful = self::finding(6);
        say(&mut forgetful, 1, 0);
        say(&mut forgetful, 1, 0);
        assert_eq!(decided(&mut forgetful), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_most_name_is_waited_for() {
        let mut finding = finding(0);
        say(&mut finding, 1, 5);
        let address = finding.said(Ok(named(2, 6))).unwrap();
        assert!(finding.said(Ok(named(2, 6))).is_none());
        tokio::time::advance(MINORITY * 9).await;
        assert_eq!(
            decided(&mut finding),
            None,
            "the other one is a former primary"
        );
        finding.tried(address, Ok(2));
        assert_eq!(decided(&mut finding), Some(2));
    }
}
