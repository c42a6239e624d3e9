//! Which server is the primary by what Sentinels say: the one that most of them name.
//!
//! Pure: what was said, and the time, are given.

use std::cmp::Reverse;
use std::time::Duration;

use tokio::time::Instant;

use super::super::term::{Address, Named};

/// How long those that have not answered are waited for where no server is named by most.
pub(super) const MINORITY: Duration = Duration::from_millis(500);
/// How long a later epoch keeps a server the primary although most name another one: those may have forgotten what they knew, and
/// learn it from the others again.
const OUTVOTED: Duration = Duration::from_secs(10);

/// The server that more than half of all Sentinels name, with the latest epoch that one of those tells.
pub(super) fn majority<'a>(
    sentinels: usize,
    answers: impl Iterator<Item = &'a Named> + Clone,
) -> Option<Named> {
    let voices = |address: &Address| {
        let same = answers.clone().filter(|named| named.address == *address);
        same.count()
    };
    answers
        .clone()
        .filter(|named| voices(&named.address) > sentinels / 2)
        .max_by_key(|named| named.epoch)
        .cloned()
}

/// The server of the latest epoch. Of several, that which most name, else the same one for everybody who asks.
pub(super) fn newest<'a>(answers: impl Iterator<Item = &'a Named> + Clone) -> Option<Named> {
    let rank = |named: &Named| {
        let same = answers
            .clone()
            .filter(|other| other.address == named.address);
        (named.epoch, same.count(), Reverse(named.address.clone()))
    };
    answers.clone().max_by_key(|named| rank(named)).cloned()
}

/// What follows from the answers for those who go by one server already.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// That is the primary.
    Is(Named),
    /// It is if nothing has changed until then.
    IsAt(Instant),
    /// Nobody says anything.
    Open,
}

/// Since when the answers contradict what is known, and in favour of which server.
#[derive(Default)]
pub(super) struct Contradiction(Option<(Address, Instant)>);

impl Contradiction {
    /// What the answers say at the time `now`, where `known` was the primary.
    pub(super) fn verdict<'a>(
        &mut self,
        sentinels: usize,
        answers: impl Iterator<Item = &'a Named> + Clone,
        known: &Named,
        now: Instant,
    ) -> Verdict {
        let is_known = |named: &Named| named.address == known.address;
        let is_upheld = answers
            .clone()
            .any(|named| is_known(named) && named.epoch >= known.epoch);
        let (named, patience) = match majority(sentinels, answers.clone()) {
            Some(named) if named.epoch < known.epoch && is_upheld => (named, OUTVOTED),
            Some(named) => (named, Duration::ZERO),
            None => match newest(answers) {
                None => return Verdict::Open,
                Some(named) if named.epoch < known.epoch => (named, OUTVOTED),
                Some(named) if named.epoch == known.epoch && is_upheld => (known.clone(), MINORITY),
                Some(named) => (named, MINORITY),
            },
        };
        if patience.is_zero() || is_known(&named) {
            self.0 = None;
            return Verdict::Is(named);
        }
        let since = match self.0.take() {
            Some((address, since)) if address == named.address => since,
            _ => now,
        };
        if now >= since + patience {
            return Verdict::Is(named);
        }
        self.0 = Some((named.address, since));
        Verdict::IsAt(since + patience)
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

    fn all(answers: &[(u16, u64)]) -> Vec<Named> {
        answers
            .iter()
            .map(|(port, epoch)| named(*port, *epoch))
            .collect()
    }

    #[test]
    fn most_name_it() {
        for (answers, expected) in [
            (&[(1, 5), (1, 6), (2, 9)][..], Some(named(1, 6))),
            (&[(1, 5), (2, 9)], None),
            (&[(1, 0), (1, 0)], Some(named(1, 0))),
            (&[(1, 0)], None),
            (&[], None),
        ] {
            assert_eq!(majority(3, all(answers).iter()), expected, "{answers:?}");
        }
        assert_eq!(majority(1, [named(1, 0)].iter()), Some(named(1, 0)));
        assert_eq!(majority(2, all(&[(1, 1), (2, 2)]).iter()), None);
    }

    #[test]
    fn the_newest_is_the_same_for_all() {
        for (answers, expected) in [
            (&[(1, 5), (2, 9)][..], Some(named(2, 9))),
            (&[(2, 5), (1, 5)], Some(named(1, 5))),
            (&[(1, 5), (2, 5)], Some(named(1, 5))),
            (&[(1, 5), (2, 5), (2, 4)], Some(named(2, 5))),
            (&[], None),
        ] {
            assert_eq!(newest(all(answers).iter()), expected, "{answers:?}");
        }
    }

    /// What three Sentinels mean for those who go by one, at once and in the end.
    fn verdicts(known: &Named, answers: &[(u16, u64)]) -> (Verdict, Option<Duration>, Verdict) {
        let (mut contradiction, start) = (Contradiction::default(), Instant::now());
        let answers = all(answers);
        let first = contradiction.verdict(3, answers.iter(), known, start);
        match first {
            Verdict::IsAt(at) => {
                let last = contradiction.verdict(3, answers.iter(), known, at);
                (first, Some(at - start), last)
            }
            first => (
                first,
                None,
                contradiction.verdict(3, answers.iter(), known, start),
            ),
        }
    }

    #[test]
    fn a_majority_counts_and_an_epoch_holds_it_up_for_ten_seconds_at_most() {
        let known = named(1, 6);
        for (answers, after, expected) in [
            // A failover, of which most have heard; and before they have.
            (&[(2, 7), (2, 7), (1, 6)][..], None, named(2, 7)),
            (&[(2, 7), (1, 6), (1, 6)], None, named(1, 6)),
            // One that lies.
            (&[(9, 99), (1, 6), (1, 6)], None, named(1, 6)),
            (&[(9, 99), (2, 7), (2, 7)], None, named(2, 7)),
            // All were told to watch another server, and have no epoch for it.
            (&[(2, 0), (2, 0), (2, 0)], None, named(2, 0)),
            // Two have forgotten what they knew.
            (&[(2, 0), (2, 0), (1, 6)], Some(OUTVOTED), named(2, 0)),
            // Fewer than most answer.
            (&[(2, 7)], Some(MINORITY), named(2, 7)),
            (&[(2, 7), (1, 6)], Some(MINORITY), named(2, 7)),
            (&[(2, 6), (1, 6)], None, known.clone()),
            (&[(2, 5)], Some(OUTVOTED), named(2, 5)),
            (&[(1, 3)], Some(OUTVOTED), named(1, 3)),
        ] {
            let (_, waited, last) = verdicts(&known, answers);
            let waited_as_said = waited == after || expected.address == known.address;
            assert!(waited_as_said, "{answers:?} {waited:?}");
            assert_eq!(last, Verdict::Is(expected), "{answers:?}");
        }
        assert_eq!(verdicts(&known, &[]).0, Verdict::Open);
    }

    #[test]
    fn what_contradicts_must_last() {
        let (mut contradiction, start) = (Contradiction::default(), Instant::now());
        let mut say = |port, ms| {
            let answers = all(&[(port, 7)]);
            let now = start + Duration::from_millis(ms);
            contradiction.verdict(3, answers.iter(), &named(1, 6), now)
        };
        assert!(matches!(say(2, 0), Verdict::IsAt(_)));
        // It has named what is known in between, and then another one.
        assert_eq!(say(1, 300), Verdict::Is(named(1, 7)));
        assert!(matches!(say(2, 600), Verdict::IsAt(_)));
        assert!(matches!(say(3, 1000), Verdict::IsAt(_)));
        assert!(matches!(say(3, 1499), Verdict::IsAt(_)));
        assert_eq!(say(3, 1500), Verdict::Is(named(3, 7)));
    }
}
