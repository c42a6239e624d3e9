//! Decides what an acquisition is granted, for stores that have no script to do that.

use std::time::Duration;

use crate::asking::outcome::{AcquireOutcome, Grant};
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::claim::Claim;
use crate::values::fence::Fence;
use crate::values::labels::Labels;
use crate::values::time::{held_for, is_held};
use crate::values::ttl::Ttl;

/// What a store has where the lock of a claim is to be written.
pub(crate) struct FoundLock {
    /// The number of the slot, if the claim is to get one.
    pub(crate) slot: Option<u16>,
    /// When the lock that is there ends.
    pub(crate) expires_at_ms: Option<i64>,
    /// The fence of the lock that is there, if it is the claim's own from a call whose answer was lost.
    pub(crate) own_fence: Option<Fence>,
    /// The fence counter; 0 if there is none yet.
    pub(crate) counter: i64,
    /// The labels of the lock that is there.
    pub(crate) labels: Labels,
    /// The fence of the group, if the claim is to join one.
    pub(crate) joins: Option<Fence>,
    /// Whether the lock that is there is a group.
    pub(crate) is_shared: bool,
}

impl FoundLock {
    /// Makes the answer where nothing is there but a fence counter.
    pub(crate) fn free(counter: i64) -> Self {
        Self {
            slot: None,
            expires_at_ms: None,
            own_fence: None,
            counter,
            labels: Labels::default(),
            joins: None,
            is_shared: false,
        }
    }

    /// When the lock that is there ends, if somebody holds it.
    fn live_until(&self, now_ms: i64) -> Option<i64> {
        let end = self.expires_at_ms;
        end.filter(|at| is_held(*at, now_ms))
    }
}

/// The decision on an acquisition.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Granting {
    /// There is nothing to write, and this is the answer.
    Answer(AcquireOutcome),
    /// Everything is granted, once these locks and their fences are written.
    Write(Batch<Grant>),
}

/// Grants all claims if nobody holds any of the locks, which are in the order of the claims.
///
/// If the live locks that are found are the claims' own, they come from a call whose answer was lost. They are granted again as they
/// were, and cost no second fence. If only some of the claims have theirs, these stand in the way.
///
/// # Errors
/// `Internal` when a counter has no fence left to give.
pub(crate) fn grant(
    claims: &[Claim],
    found: &[FoundLock],
    ttl: Ttl,
    now_ms: i64,
) -> Result<Granting, Error> {
    let each = || claims.iter().zip(found);
    let grant_of = |claim: &Claim, lock: &FoundLock, fence, expires_at_ms| Grant {
        lock_id: claim.lock_id.clone(),
        slot: lock.slot,
        fence,
        expires_at_ms,
    };
    let before: Option<Batch<Grant>> = each()
        .map(|(claim, lock)| {
            let (fence, end) = (lock.own_fence?, lock.live_until(now_ms)?);
            Some(grant_of(claim, lock, fence, end))
        })
        .collect();
    if let Some(before) = before {
        return Ok(Granting::Answer(AcquireOutcome::Acquired(before)));
    }
    let ends = found.iter().map(|lock| lock.live_until(now_ms));
    if let Some((claim, end)) = ends.enumerate().find_map(|(at, end)| Some((at, end?))) {
        let free_in = Some(held_for(end, now_ms));
        let labels = found[claim].labels.clone();
        return Ok(Granting::Answer(AcquireOutcome::Locked {
            claim,
            free_in,
            labels,
            is_shared: found[claim].is_shared,
        }));
    }
    let expires_at_ms = now_ms.saturating_add(ttl.as_millis());
    let grants = each().map(|(claim, lock)| {
        let fence = match lock.joins {
            Some(fence) => fence,
            None => Fence::after(lock.counter, now_ms)?,
        };
        Ok(grant_of(claim, lock, fence, expires_at_ms))
    });
    Ok(Granting::Write(grants.collect::<Result<_, Error>>()?))
}

/// The answer where a key has too few free slots.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoSlot {
    /// Which claim of the key gets no slot.
    pub(crate) claim: usize,
    /// How long until the held slot that ends first does.
    pub(crate) free_in: Option<Duration>,
    /// The labels of that slot.
    pub(crate) labels: Labels,
}

impl NoSlot {
    /// Makes this the answer to the whole acquisition. `before` is how many claims come before those of this key.
    pub(crate) fn answer(self, before: usize) -> AcquireOutcome {
        AcquireOutcome::Locked {
            claim: before + self.claim,
            free_in: self.free_in,
            labels: self.labels,
            is_shared: false,
        }
    }
}

/// The slots of a key that somebody holds.
pub(crate) struct HeldSlots<'a> {
    claims: &'a [Claim],
    /// The slot that each claim holds already, from a call whose answer was lost.
    own: Batch<Option<u16>>,
    /// Whether each slot is held. The index is its number less one.
    is_held: Vec<bool>,
    /// When the held slot that ends first does, and its labels.
    first: Option<(i64, Labels)>,
    now_ms: i64,
}

impl<'a> HeldSlots<'a> {
    /// Starts with none of `count` slots held. Each of `claims` wants one.
    pub(crate) fn new(claims: &'a [Claim], count: u16, now_ms: i64) -> Self {
        Self {
            claims,
            own: claims.iter().map(|_| None).collect(),
            is_held: vec![false; usize::from(count)],
            first: None,
            now_ms,
        }
    }

    /// Notes the lock on a slot. A number above the count is ignored: somebody with a larger limit has taken that slot.
    pub(crate) fn add(
        &mut self,
        number: u16,
        lock_id: &str,
        expires_at_ms: i64,
        labels: impl FnOnce() -> Labels,
    ) {
        let at = usize::from(number).checked_sub(1);
        let Some(held) = at.and_then(|at| self.is_held.get_mut(at)) else {
            return;
        };
        if !is_held(expires_at_ms, self.now_ms) {
            return;
        }
        *held = true;
        if self
            .first
            .as_ref()
            .is_none_or(|(end, _)| expires_at_ms < *end)
        {
            self.first = Some((expires_at_ms, labels()));
        }
        for (claim, own) in self.claims.iter().zip(&mut self.own) {
            if claim.lock_id.as_str() == lock_id {
                *own = Some(number);
            }
        }
    }

    /// Whether a slot is free.
    pub(crate) fn is_one_free(&self) -> bool {
        self.is_held.contains(&false)
    }

    /// Chooses a slot for each claim: free ones from number `first` on, and then those before it. If there are too few, the error
    /// has the claim that gets none, and the slot that ends first.
    pub(crate) fn choose(&self, first: u16) -> Result<Batch<u16>, NoSlot> {
        let numbered = || (1..).zip(&self.is_held);
        let behind = numbered().skip_while(|(number, _)| *number < first);
        let before = numbered().take_while(|(number, _)| *number < first);
        let mut free = behind.chain(before).filter(|(_, is_held)| !**is_held);
        let none = |at| {
            let first = self.first.as_ref();
            NoSlot {
                claim: at,
                free_in: first.map(|(end, _)| held_for(*end, self.now_ms)),
                labels: first.map_or_else(Labels::default, |(_, labels)| labels.clone()),
            }
        };
        let own = self.own.iter().enumerate();
        own.map(|(at, own)| match own {
            Some(number) => Ok(*number),
            None => free
                .next()
                .map(|(number, _)| number)
                .ok_or_else(|| none(at)),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;
    use crate::values::claim::Slots;
    use crate::values::key::Key;
    use crate::values::owner::Owner;

    const NOW: i64 = 1_700_000_000_000;

    fn claims(count: usize) -> Vec<Claim> {
        let slots = Slots::new(9).unwrap();
        (0..count)
            .map(|_| Claim::slot(Key::new("k").unwrap(), slots).unwrap())
            .collect()
    }

    fn free(counter: i64) -> FoundLock {
        FoundLock::free(counter)
    }

    fn owner(name: &str) -> Labels {
        Owner::new(name).unwrap().into()
    }

    fn held_until(expires_at_ms: i64) -> FoundLock {
        FoundLock {
            expires_at_ms: Some(expires_at_ms),
            labels: owner(&expires_at_ms.to_string()),
            ..free(7)
        }
    }

    fn own(fence: i64, expires_at_ms: i64) -> FoundLock {
        FoundLock {
            slot: Some(2),
            own_fence: Some(Fence::from_counter(fence).unwrap()),
            ..held_until(expires_at_ms)
        }
    }

    fn granting(found: &[FoundLock]) -> Result<Granting, Error> {
        grant(&claims(found.len()), found, Ttl::DEFAULT, NOW)
    }

    #[test]
    fn all_is_granted_or_nothing() {
        for (found, in_the_way) in [
            (vec![free(0)], None),
            (vec![held_until(NOW - 1000)], None),
            (vec![held_until(NOW - 999)], Some((0, 1))),
            (vec![free(0), held_until(NOW - 1000), free(3)], None),
            (vec![free(0), held_until(NOW)], Some((1, 1000))),
            (vec![held_until(NOW + 5), held_until(NOW)], Some((0, 1005))),
        ] {
            match (granting(&found).unwrap(), in_the_way) {
                (Granting::Write(grants), None) => assert_eq!(grants.len(), found.len()),
                (Granting::Answer(answer), Some((claim, free_in_ms))) => {
                    let free_in = Some(Duration::from_millis(free_in_ms));
                    let labels = found[claim].labels.clone();
                    let locked = AcquireOutcome::Locked {
                        claim,
                        free_in,
                        labels,
                        is_shared: false,
                    };
                    assert_eq!(answer, locked);
                }
                (decided, _) => panic!("{decided:?}"),
            }
        }
    }

    #[test]
    fn each_lock_has_the_next_fence_of_its_own_counter() {
        let found = [free(0), free(NOW + 41), own(1, NOW - 1000)];
        let Granting::Write(grants) = granting(&found).unwrap() else {
            panic!("not granted");
        };
        let fences = grants.iter().map(|grant| grant.fence.get().cast_signed());
        assert_eq!(fences.collect::<Vec<_>>(), [NOW, NOW + 42, NOW]);
        assert!(grants.iter().all(|it| it.expires_at_ms == NOW + 30_000));
        assert_eq!((grants[0].slot, grants[2].slot), (None, Some(2)));
    }

    #[test]
    fn an_exhausted_counter_is_an_error_whichever_it_is() {
        let last = 900_000_000_000_000;
        for found in [[free(last), free(0)], [free(0), free(last)]] {
            let error = granting(&found).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal);
        }
    }

    #[test]
    fn what_is_all_ones_own_is_given_as_it_was_granted() {
        let found = [own(41, NOW + 5), own(42, NOW + 6)];
        let Granting::Answer(AcquireOutcome::Acquired(grants)) = granting(&found).unwrap() else {
            panic!("not granted again");
        };
        let fence_and_end = |at: usize| (grants[at].fence.get(), grants[at].expires_at_ms);
        assert_eq!(
            (fence_and_end(0), fence_and_end(1)),
            ((41, NOW + 5), (42, NOW + 6))
        );
        // A part of it is in the way.
        for found in [[own(41, NOW), free(0)], [own(41, NOW), own(42, NOW - 1000)]] {
            let answer = granting(&found).unwrap();
            let in_the_way = AcquireOutcome::Locked {
                claim: 0,
                free_in: Some(Duration::from_millis(1000)),
                labels: found[0].labels.clone(),
                is_shared: false,
            };
            assert_eq!(answer, Granting::Answer(in_the_way));
        }
    }

    #[test]
    fn free_slots_are_taken_from_anywhere_on() {
        let wanted = claims(2);
        let mut held = HeldSlots::new(&wanted, 5, NOW);
        for (number, end) in [
            (2, NOW + 9),
            (3, NOW + 7),
            (4, NOW - 1000),
            (6, NOW),
            (0, NOW),
        ] {
            held.add(number, "another", end, || owner(&number.to_string()));
        }
        for (first, numbers) in [(1, [1, 4]), (2, [4, 5]), (4, [4, 5]), (5, [5, 1])] {
            assert_eq!(held.choose(first).unwrap()[..], numbers);
        }
        assert!(held.is_one_free());
        held.add(1, "another", NOW, || owner("1"));
        held.add(4, "another", NOW, || owner("4"));
        let free_in = Some(Duration::from_millis(1000));
        let none = |claim| NoSlot {
            claim,
            free_in,
            labels: owner("1"),
        };
        assert_eq!(held.choose(3).unwrap_err(), none(1));
        held.add(5, "another", NOW, Labels::default);
        assert!(!held.is_one_free());
        assert_eq!(held.choose(3).unwrap_err(), none(0));
    }

    #[test]
    fn a_claim_finds_the_slot_that_it_holds() {
        let wanted = claims(2);
        let mut held = HeldSlots::new(&wanted, 3, NOW);
        held.add(3, wanted[0].lock_id.as_str(), NOW, Labels::default);
        assert_eq!(held.choose(3).unwrap()[..], [3, 1]);
        // What has ended does not count.
        let mut held = HeldSlots::new(&wanted, 3, NOW);
        held.add(1, wanted[0].lock_id.as_str(), NOW - 1000, Labels::default);
        assert_eq!(held.choose(2).unwrap()[..], [2, 3]);
    }
}
