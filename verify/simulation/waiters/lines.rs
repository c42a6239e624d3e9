//! In which lines claims are waited for.

use crate::values::claim::{Claim, ClaimKind, Slots};
use crate::values::key::{readers_name, split_readers};

/// What is wanted of one key: itself, alone or shared, or so many of so many slots.
#[derive(PartialEq, Eq)]
pub(super) struct Want {
    /// That of the line in which it is waited for: readers have their own.
    pub(super) name: String,
    pub(super) slots: u16,
    pub(super) take: usize,
}

impl Want {
    /// Whether only one can have it, and so only one asks at a time.
    pub(super) fn is_alone(&self) -> bool {
        self.slots == 0 && !self.is_shared()
    }

    pub(super) fn is_shared(&self) -> bool {
        split_readers(&self.name).is_some()
    }
}

/// The name of the line in which a claim is waited for.
pub(super) fn line_of(claim: &Claim) -> String {
    let key = claim.key.as_str();
    match claim.kind {
        ClaimKind::Shared => readers_name(key),
        ClaimKind::Exclusive | ClaimKind::SlotOf(_) => key.to_owned(),
    }
}

/// What these claims want of each key.
pub(super) fn wants_of(claims: &[Claim]) -> Vec<Want> {
    let mut wants: Vec<Want> = Vec::new();
    for claim in claims {
        let name = line_of(claim);
        match wants.iter_mut().find(|want| want.name == name) {
            Some(want) => want.take += 1,
            None => wants.push(Want {
                name,
                slots: claim.kind.slots().map_or(0, Slots::count),
                take: 1,
            }),
        }
    }
    wants
}
