//! What is asked of one key.

use crate::random;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::key::Key;
use crate::values::lock_id::LockId;

/// The most claims in one acquisition.
pub const MAX_CLAIMS: usize = 100;

/// The most slots that a key can have.
pub const MAX_SLOTS: u16 = 1000;

/// A request for one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What to lock.
    pub key: Key,
    /// What of the key is asked for.
    pub kind: ClaimKind,
    /// The id that will own the lock. The caller generates it, so that it can undo an attempt whose answer is
    /// lost. [`Backend::prepare`](crate::Backend::prepare) may change it, before anything is sent.
    pub lock_id: LockId,
}

impl Claim {
    /// A claim of the key itself, under a new lock id.
    ///
    /// # Errors
    /// As [`LockId::generate`].
    pub fn new(key: Key) -> Result<Self, Error> {
        Ok(Self {
            key,
            kind: ClaimKind::Exclusive,
            lock_id: LockId::generate()?,
        })
    }

    /// A claim of one slot of the key, under a new lock id.
    ///
    /// # Errors
    /// As [`LockId::generate`].
    pub fn slot(key: Key, slots: Slots) -> Result<Self, Error> {
        Ok(Self {
            kind: ClaimKind::SlotOf(slots),
            ..Self::new(key)?
        })
    }

    /// A claim to share the key with all its other readers, under a new lock id. Whoever claims the key alone waits until all readers have left.
    ///
    /// # Errors
    /// As [`LockId::generate`].
    pub fn shared(key: Key) -> Result<Self, Error> {
        Ok(Self {
            kind: ClaimKind::Shared,
            ..Self::new(key)?
        })
    }
}

/// What of a key is asked for. The lock on a key does not exclude its slots, nor they the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimKind {
    /// The key itself, for one holder.
    Exclusive,
    /// The key itself, together with all its other readers.
    Shared,
    /// Any free slot of so many.
    SlotOf(Slots),
}

impl ClaimKind {
    /// How many slots the key has, if one of them is asked for.
    pub fn slots(self) -> Option<Slots> {
        match self {
            Self::Exclusive | Self::Shared => None,
            Self::SlotOf(slots) => Some(slots),
        }
    }

    /// Whether a store may grant `slot` for it: a number for slots, and none for the key itself.
    pub(crate) fn admits(self, slot: Option<u16>) -> bool {
        match self {
            Self::Exclusive | Self::Shared => slot.is_none(),
            Self::SlotOf(slots) => slot.is_some_and(|number| (1..=slots.count()).contains(&number)),
        }
    }
}

/// What can be claimed.
pub trait IntoClaims {
    /// The claims, under new lock ids.
    ///
    /// # Errors
    /// As [`LockId::generate`].
    fn into_claims(self) -> Result<Batch<Claim>, Error>;
}

/// The key itself.
impl IntoClaims for &Key {
    fn into_claims(self) -> Result<Batch<Claim>, Error> {
        Ok(Batch::from([Claim::new(self.clone())?]))
    }
}

impl IntoClaims for Claim {
    fn into_claims(self) -> Result<Batch<Claim>, Error> {
        Ok(Batch::from([self]))
    }
}

impl IntoClaims for Vec<Claim> {
    fn into_claims(self) -> Result<Batch<Claim>, Error> {
        Ok(self.into())
    }
}

/// How many slots a key has: at most so many hold it at a time.
///
/// Each slot is a lock of its own ([`Key::slot`]), with a number from 1 on. The limit is the claim's and not stored: where
/// claims with different limits are in use, there are never more holders than the largest of them says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots(u16);

impl Slots {
    /// So many slots.
    ///
    /// # Errors
    /// `InvalidArgument` unless there are 1 to [`MAX_SLOTS`].
    pub fn new(count: u16) -> Result<Self, Error> {
        if (1..=MAX_SLOTS).contains(&count) {
            return Ok(Self(count));
        }
        Err(Error::invalid(format!(
            "slots must be from 1 to {MAX_SLOTS}"
        )))
    }

    /// How many there are.
    pub fn count(self) -> u16 {
        self.0
    }

    /// The number of the slot at which to begin to look for a free one: a random one, so that those who come at the same
    /// time do not all ask for the same.
    ///
    /// # Errors
    /// `Internal` when the operating system has no random numbers to give.
    pub fn first(self) -> Result<u16, Error> {
        let at = random::unit()? * f64::from(self.0);
        // From 0 up to the count, without it.
        Ok((at as u16).min(self.0 - 1) + 1)
    }
}

/// Checks the claims of one acquisition and puts them into the order in which all acquire them.
///
/// # Errors
/// `InvalidArgument` for no claims, for too many, for a key that is claimed in two ways (alone, shared or by slots, or with two numbers of
/// slots), for the key of a slot beside other claims, and for the key of a reader. A key that is there twice counts once, but each claim of
/// slots asks for one more.
pub(crate) fn in_order(mut claims: Batch<Claim>) -> Result<Batch<Claim>, Error> {
    if claims.is_empty() {
        return Err(Error::invalid("keys must not be empty"));
    }
    // Stable, and by the bytes of the key, as in every process.
    claims.sort_by(|a, b| a.key.as_str().cmp(b.key.as_str()));
    claims.dedup_by(|next, last| {
        next.key == last.key && next.kind == last.kind && next.kind.slots().is_none()
    });
    if claims.len() > MAX_CLAIMS {
        return Err(Error::invalid(format!(
            "keys must not ask for more than {MAX_CLAIMS} locks at once: lock what contains them, such as their folder or their customer, \
             by a key of its own"
        )));
    }
    // A claim of slots beside it could be granted the same slot, which would have two holders.
    let is_alone = claims.len() == 1;
    let of_slot = |claim: &Claim| claim.key.slot_number().is_some();
    if claims
        .iter()
        .any(|claim| of_slot(claim) && !(is_alone && claim.kind == ClaimKind::Exclusive))
    {
        return Err(Error::invalid("keys must not contain the key of a slot"));
    }
    if claims.iter().any(|claim| claim.key.reader_id().is_some()) {
        return Err(Error::invalid("keys must not contain the key of a reader"));
    }
    for same in claims.chunk_by(|a, b| a.key == b.key) {
        let [first, others @ ..] = same else { continue };
        let is_shared = |claim: &Claim| claim.kind == ClaimKind::Shared;
        if same.iter().any(is_shared) && !same.iter().all(is_shared) {
            return Err(Error::invalid(
                "keys must not contain a key both with mode \"shared\" and without: a shared lock cannot become an exclusive one; \
                 release it and ask for the exclusive one",
            ));
        }
        if others.iter().any(|other| other.kind != first.kind) {
            return Err(Error::invalid(
                "keys must not contain a key and slots of it",
            ));
        }
        let slots = first.kind.slots();
        if slots.is_some_and(|slots| same.len() > usize::from(slots.count())) {
            return Err(Error::invalid("take must not be larger than slots"));
        }
    }
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(name: &str) -> Claim {
        Claim::new(Key::new(name).unwrap()).unwrap()
    }

    fn slot(name: &str, count: u16) -> Claim {
        Claim::slot(Key::new(name).unwrap(), Slots::new(count).unwrap()).unwrap()
    }

    fn shared(name: &str) -> Claim {
        Claim::shared(Key::new(name).unwrap()).unwrap()
    }

    fn error(claims: Vec<Claim>) -> String {
        in_order(claims.into()).unwrap_err().message().to_owned()
    }

    #[test]
    fn claims_are_taken_in_the_order_of_their_keys() {
        let claims =
            in_order(vec![plain("b"), slot("c", 3), plain("a"), slot("c", 3)].into()).unwrap();
        let keys: Vec<_> = claims.iter().map(|claim| claim.key.as_str()).collect();
        assert_eq!(keys, ["a", "b", "c", "c"]);
        let again = in_order(vec![plain("b"), plain("a"), plain("b")].into()).unwrap();
        assert_eq!(again.len(), 2);
        let again = in_order(vec![shared("b"), shared("a"), shared("b")].into()).unwrap();
        assert_eq!(again.len(), 2);
    }

    #[test]
    fn what_cannot_be_granted_is_refused() {
        assert!(error(vec![]).contains("empty"));
        let many = (0..=MAX_CLAIMS).map(|number| plain(&number.to_string()));
        assert!(error(many.collect()).contains("100"));
        for twice in [
            vec![plain("a"), slot("a", 2)],
            vec![slot("a", 3), slot("a", 2)],
        ] {
            assert!(error(twice).contains("slots of it"));
        }
        for twice in [
            vec![plain("a"), shared("a")],
            vec![shared("a"), slot("a", 2)],
        ] {
            assert!(error(twice).contains("mode"));
        }
        let id = LockId::generate().unwrap();
        let reader = Key::new("a").unwrap().reader(&id);
        for claim in [Claim::new(reader.clone()), Claim::shared(reader)] {
            assert!(error(vec![claim.unwrap()]).contains("of a reader"));
        }
        assert!(error(vec![slot("a", 1), slot("a", 1)]).starts_with("take"));
        let third = || Claim::new(Key::new("a").unwrap().slot(3)).unwrap();
        for twice in [vec![slot("a", 5), third()], vec![third(), plain("b")]] {
            assert!(error(twice).contains("of a slot"));
        }
        let slots = Slots::new(5).unwrap();
        let key = Key::new("a").unwrap().slot(3);
        assert!(error(vec![Claim::slot(key, slots).unwrap()]).contains("of a slot"));
        assert!(in_order(vec![third()].into()).is_ok());
        for count in [0, MAX_SLOTS + 1] {
            assert!(
                Slots::new(count)
                    .unwrap_err()
                    .message()
                    .starts_with("slots")
            );
        }
    }

    #[test]
    fn a_kind_admits_what_it_asks_for() {
        let three = ClaimKind::SlotOf(Slots::new(3).unwrap());
        for (kind, slot, is_admitted) in [
            (ClaimKind::Exclusive, None, true),
            (ClaimKind::Exclusive, Some(1), false),
            (ClaimKind::Shared, None, true),
            (ClaimKind::Shared, Some(1), false),
            (three, None, false),
            (three, Some(0), false),
            (three, Some(1), true),
            (three, Some(3), true),
            (three, Some(4), false),
        ] {
            assert_eq!(kind.admits(slot), is_admitted, "{kind:?} {slot:?}");
        }
    }

    #[test]
    fn the_search_begins_anywhere() {
        let slots = Slots::new(3).unwrap();
        let mut seen = [false; 3];
        for _ in 0..200 {
            seen[usize::from(slots.first().unwrap()) - 1] = true;
        }
        assert_eq!(seen, [true; 3]);
        assert_eq!(Slots::new(1).unwrap().first().unwrap(), 1);
    }
}
