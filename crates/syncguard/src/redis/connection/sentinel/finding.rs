//! Which of the primaries that Sentinels name is taken.

use std::time::Duration;

use tokio::time::Instant;

use super::super::term::{Address, Named};
use super::asking::no_primary;
use crate::text::error::Error;

/// How long the word of Sentinels that have not answered is waited for once there is a primary.
const LAST_WORD: Duration = Duration::from_millis(50);

/// What is found out while Sentinels answer, and the servers that they name. `S` is what a primary is reached by.
pub(super) struct PrimarySearch<S> {
    sentinels: usize,
    /// How many of them have named a primary, and how many have neither answered nor failed.
    said: usize,
    silent: usize,
    /// The latest epoch that was known before.
    known: u64,
    /// Each address once, with its latest epoch.
    named: Vec<Named>,
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
            said: 0,
            silent: sentinels,
            known: known.map_or(0, |known| known.epoch),
            named: Vec::new(),
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
        self.said += 1;
        let mut named = self.named.iter_mut();
        if let Some(known) = named.find(|named| named.address == now.address) {
            known.epoch = known.epoch.max(now.epoch);
            return None;
        }
        let address = now.address.clone();
        self.named.push(now);
        Some(address)
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
        Some(self.since? + LAST_WORD)
    }

    /// The primary, once it is clear which one that is: of the latest epoch of which anybody knows.
    pub(super) fn decided(&mut self) -> Option<(Named, S)> {
        let has_all = self.silent == 0;
        if !has_all && self.decides_at()? > Instant::now() {
            return None;
        }
        let latest = self.named.iter().map(|named| named.epoch).max()?;
        // Sentinels that have forgotten all, as after a restart in containers, count from the start again.
        let has_majority = has_all && self.said > self.sentinels / 2;
        let least = if has_majority {
            latest
        } else {
            latest.max(self.known)
        };
        let mut named = self.named.iter().filter(|named| named.epoch >= least);
        let (place, named) = named.find_map(|named| {
            let mut found = self.found.iter();
            let place = found.position(|(address, _)| *address == named.address)?;
            Some((place, named.clone()))
        })?;
        let (_, primary) = self.found.swap_remove(place);
        Some((named, primary))
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
        let failed = finding.said(Err(no_primary()));
        assert!(failed.is_none());
        tokio::time::advance(LAST_WORD).await;
        assert_eq!(decided(&mut finding), Some(1));
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
}
