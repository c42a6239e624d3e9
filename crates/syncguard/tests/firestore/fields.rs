//! Whatever another program has written into the documents of locks and counters: each operation answers or fails,
//! and destroys nothing that is not its own.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::write::Operation as Change;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{ArrayValue, MapValue};
use proptest::option::weighted;
use proptest::prelude::*;

use crate::stage::{Server, document, fields, name, text, write};
use crate::support::inputs::{KEY, LOCK_ID, OWNER, Operation, Verdict, any_text, call, for_each};
use crate::support::locks::{ManualClock, eventually};
use crate::support::suite::tests;

tests![whatever_is_in_the_documents_is_answered_and_kept];

const NOW: i64 = 1_700_000_000_000;
const CLOCK: RangeInclusive<u64> = NOW.unsigned_abs()..=NOW.unsigned_abs();

type Fields = HashMap<String, ValueType>;

/// The lock of the key, another lock, and the counter of the key, if they are there.
type Stored = [Option<Fields>; 3];

fn paths() -> [String; 3] {
    [
        format!("locks/{KEY}"),
        "locks/another".to_owned(),
        format!("fence_counters/fence:{KEY}"),
    ]
}

/// A value of any type.
fn any_value() -> impl Strategy<Value = ValueType> {
    prop_oneof![
        Just(ValueType::NullValue(0)),
        any::<bool>().prop_map(ValueType::BooleanValue),
        any::<i64>().prop_map(ValueType::IntegerValue),
        any::<f64>().prop_map(ValueType::DoubleValue),
        prop::sample::select(
            &[
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                1e300,
                -1e300,
                -0.0
            ][..]
        )
        .prop_map(ValueType::DoubleValue),
        any_text().prop_map(ValueType::StringValue),
        any_text().prop_map(|text| ValueType::BytesValue(text.into_bytes())),
        Just(ValueType::ArrayValue(ArrayValue::default())),
        Just(ValueType::MapValue(MapValue::default())),
    ]
}

/// Boxed, because values of several such strategies are too large for the stack.
fn or_any(usual: ValueType) -> BoxedStrategy<Option<ValueType>> {
    weighted(0.95, prop_oneof![5 => Just(usual), 1 => any_value()]).boxed()
}

fn lock() -> impl Strategy<Value = Fields> {
    let time = prop_oneof![
        2 => or_any(ValueType::IntegerValue(NOW + 1)),
        2 => or_any(ValueType::IntegerValue(NOW - 1000)),
        1 => or_any(ValueType::DoubleValue(NOW as f64 + 0.5)),
    ];
    let id = prop_oneof![3 => or_any(text(LOCK_ID)), 1 => or_any(text("AAAAAAAAAAAAAAAAAAAAAA"))];
    let members = (
        id,
        time,
        or_any(ValueType::IntegerValue(NOW - 1)),
        or_any(text(KEY)),
        or_any(text("000000000000007")),
        or_any(text(OWNER)),
    );
    members.prop_map(|(id, expires, acquired, key, fence, owner)| {
        let members = [
            ("lockId", id),
            ("expiresAtMs", expires),
            ("acquiredAtMs", acquired),
            ("key", key),
            ("fence", fence),
            ("owner", owner),
        ];
        let members = members.into_iter();
        members
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    })
}

fn counter() -> impl Strategy<Value = Fields> {
    let numbers = [
        "000000000000000",
        "000000000000041",
        "899999999999999",
        "900000000000000",
        "999999999999999",
        "-00000000000001",
        "1",
    ];
    let fence = prop_oneof![
        4 => prop::sample::select(numbers.to_vec()).prop_map(|number| Some(text(number))),
        1 => or_any(ValueType::IntegerValue(7)),
    ];
    fence.prop_map(|fence| {
        let fence = fence.map(|fence| ("fence".to_owned(), fence));
        fence.into_iter().collect()
    })
}

/// One more than the counter; `None` if no fence can be given.
fn next_fence(counter: Option<&Fields>) -> Option<u64> {
    let Some(counter) = counter else {
        return Some(1);
    };
    match counter.get("fence")? {
        ValueType::StringValue(digits) if digits.len() == 15 => {
            let number = digits.parse::<u64>().ok()?;
            (number < 900_000_000_000_000).then_some(number + 1)
        }
        _ => None,
    }
}

/// What a document is.
#[derive(Clone, Copy, PartialEq)]
enum Meaning {
    Nothing,
    Lock { is_ours: bool, is_live: bool },
    NoLock { is_ours: bool },
}

fn meaning(stored: Option<&Fields>) -> Meaning {
    let Some(fields) = stored else {
        return Meaning::Nothing;
    };
    let id = fields.get("lockId");
    let is_ours = id == Some(&text(LOCK_ID));
    let expires_at_ms = match fields.get("expiresAtMs") {
        Some(ValueType::IntegerValue(number)) => *number as f64,
        Some(ValueType::DoubleValue(number)) if number.is_finite() => *number,
        _ => return Meaning::NoLock { is_ours },
    };
    match id {
        Some(ValueType::StringValue(_)) => Meaning::Lock {
            is_ours,
            is_live: expires_at_ms.trunc() > (NOW - 1000) as f64,
        },
        _ => Meaning::NoLock { is_ours },
    }
}

async fn whatever_is_in_the_documents_is_answered_and_kept() {
    let server = Server::start();
    let backend = server.backend_on(ManualClock::at(NOW), |config| {
        config.on_warning = Some(std::sync::Arc::new(|warning| {
            assert!(!format!("{warning:?}").contains(LOCK_ID));
        }));
    });
    let mut client = server.client();
    let inputs = (
        weighted(0.9, lock()),
        weighted(0.3, lock()),
        weighted(0.7, counter()),
    );
    for_each(40, &inputs, async |(lock, another, counter)| {
        let before: Stored = [lock, another, counter];
        for operation in Operation::ALL {
            let changes = paths()
                .into_iter()
                .zip(&before)
                .map(|(path, stored)| match stored {
                    None => Change::Delete(name(&path)),
                    Some(fields) => {
                        let fields = fields
                            .iter()
                            .map(|(name, value)| (name.as_str(), value.clone()));
                        Change::Update(document(&path, fields))
                    }
                });
            write(&mut client, changes).await;
            let told = call(&*backend, operation).await;
            let mut after = Stored::default();
            for (path, after) in paths().iter().zip(&mut after) {
                *after = fields(&mut client, path).await;
            }
            let seen = Seen {
                operation,
                told,
                before: before.clone(),
                after,
            };
            assert!(seen.is_right(), "{seen:?}");
        }
    });
    eventually("no transaction is open", async || {
        server.emulator.open_transactions() == 0
    })
    .await;
}

#[derive(Debug)]
struct Seen {
    operation: Operation,
    told: Verdict,
    before: Stored,
    after: Stored,
}

impl Seen {
    fn is_right(&self) -> bool {
        match self.operation {
            Operation::Acquire => self.is_right_acquisition(),
            Operation::IsLocked | Operation::LookUpKey | Operation::ForceRelease => {
                self.is_right_by_key()
            }
            Operation::Release | Operation::Extend | Operation::LookUpLock => {
                self.is_right_by_lock_id()
            }
        }
    }

    /// Whether that document is what it was. NaN is not equal to itself.
    fn is_kept(&self, at: usize) -> bool {
        format!("{:?}", sorted(&self.before[at])) == format!("{:?}", sorted(&self.after[at]))
    }

    fn are_kept(&self) -> bool {
        (0..3).all(|at| self.is_kept(at))
    }

    fn has_refused(&self) -> bool {
        self.told == Verdict::Failed && self.are_kept()
    }

    fn is_right_acquisition(&self) -> bool {
        let counter = self.before[2].as_ref();
        let is_granted = match next_fence(counter) {
            Some(next) => {
                let stored = self.after[0].as_ref();
                let id = stored.and_then(|stored| stored.get("lockId"));
                self.told.is_granted_after(next, &CLOCK) && id == Some(&text(LOCK_ID))
            }
            // Without a fence, nothing is written.
            None => self.has_refused(),
        };
        match meaning(self.before[0].as_ref()) {
            Meaning::Nothing | Meaning::Lock { is_live: false, .. } => {
                is_granted && self.is_kept(1)
            }
            Meaning::NoLock { .. } => self.has_refused(),
            Meaning::Lock { is_ours, .. } => {
                let is_told = match self.told {
                    Verdict::No => !is_ours,
                    Verdict::Acquired(_) => is_ours,
                    // The lock has no fence that could be told, or the counter makes no sense.
                    _ => is_ours || next_fence(counter).is_none(),
                };
                is_told && self.are_kept()
            }
        }
    }

    fn is_right_by_key(&self) -> bool {
        let is_looked_up = self.operation == Operation::LookUpKey;
        match meaning(self.before[0].as_ref()) {
            Meaning::Nothing => self.told == Verdict::No && self.are_kept(),
            Meaning::NoLock { .. } => self.has_refused(),
            Meaning::Lock { is_live, .. } if self.operation == Operation::ForceRelease => {
                let is_told =
                    (self.told == Verdict::Yes) == is_live && self.told != Verdict::Failed;
                let is_gone = self.after[0].is_none();
                is_told && is_gone == is_live && self.is_kept(1) && self.is_kept(2)
            }
            Meaning::Lock { is_live, .. } => {
                let is_told = match self.told {
                    Verdict::Yes => is_live,
                    Verdict::No => !is_live,
                    // Its other fields make no sense.
                    _ => is_looked_up,
                };
                is_told && self.are_kept()
            }
        }
    }

    fn is_right_by_lock_id(&self) -> bool {
        let found = [0, 1].map(|at| meaning(self.before[at].as_ref()));
        if found.contains(&Meaning::NoLock { is_ours: true }) {
            return self.has_refused();
        }
        let count = |live| {
            let wanted = |one: &&Meaning| matches!(one, Meaning::Lock { is_ours: true, is_live } if *is_live == live);
            found.iter().filter(wanted).count()
        };
        if self.operation == Operation::LookUpLock {
            let is_told = match self.told {
                Verdict::Yes => count(true) == 1,
                Verdict::No => count(true) != 1,
                _ => count(true) == 1,
            };
            return is_told && self.are_kept();
        }
        let told = match (count(true), count(false)) {
            (1, _) => Verdict::Yes,
            (0, 1..) => Verdict::Expired,
            _ => Verdict::No,
        };
        // Nobody can tell which of several is the caller's.
        let is_unclear = count(true) > 1;
        let are_right = [0, 1].map(|at| match found[at] {
            Meaning::Lock {
                is_ours: true,
                is_live,
            } if !is_unclear => {
                let stays = is_live && self.operation == Operation::Extend;
                self.after[at].is_some() == stays
            }
            _ => self.is_kept(at),
        });
        self.told == told && are_right == [true; 2] && self.is_kept(2)
    }
}

fn sorted(fields: &Option<Fields>) -> Option<Vec<(&String, &ValueType)>> {
    let mut fields: Vec<_> = fields.as_ref()?.iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    Some(fields)
}
