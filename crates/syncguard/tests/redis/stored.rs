//! Whatever stands in the place of a lock, its index entry or its counter: each operation answers as
//! docs/format.md, "Redis" says, or fails, and destroys nothing that is not its own.

use std::fmt::{self, Debug, Formatter};
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use serde_json::Value;
use syncguard::LockId;

use crate::stage::Stage;
use crate::support::inputs::{KEY, LOCK_ID, Operation, SECRETS, Verdict, any_text, call, for_each};
use crate::support::locks::recently;
use crate::support::resp::{Answer, Resp};
use crate::support::suite::tests;

tests![whatever_is_stored_is_answered_and_kept];

/// What is stored under a name.
#[derive(Clone, PartialEq)]
enum Stored {
    Nothing,
    Bytes(Vec<u8>),
    List,
    Hash,
}

impl Debug for Stored {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::List => f.write_str("a list"),
            Self::Hash => f.write_str("a hash"),
        }
    }
}

impl Stored {
    fn write(&self, raw: &mut Resp, name: &str) {
        match self {
            Self::Nothing => return,
            Self::Bytes(bytes) => raw.send_bytes(&[b"SET", name.as_bytes(), bytes]),
            Self::List => raw.send(&["RPUSH", name, LOCK_ID]),
            Self::Hash => raw.send(&["HSET", name, "lockId", LOCK_ID]),
        }
        raw.read();
    }
}

/// What a stored value is to the scripts.
#[derive(Debug, Clone, PartialEq)]
enum Meaning {
    Nothing,
    Lock {
        is_ours: bool,
        expires_at_ms: f64,
    },
    NoLock,
    /// The server's JSON reader takes more for JSON than JSON's definition.
    Unclear,
}

fn meaning(stored: &Stored, operation: Operation) -> Meaning {
    let bytes = match stored {
        Stored::Nothing => return Meaning::Nothing,
        Stored::List | Stored::Hash => return Meaning::NoLock,
        Stored::Bytes(bytes) => bytes,
    };
    if operation != Operation::ForceRelease
        && let Some(own) = own_form(bytes)
    {
        return own;
    }
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Meaning::NoLock;
    }
    let Ok(json) = serde_json::from_slice::<Value>(bytes) else {
        return Meaning::Unclear;
    };
    match json["expiresAtMs"].as_f64() {
        Some(expires_at_ms) => Meaning::Lock {
            is_ours: json["lockId"] == LOCK_ID,
            expires_at_ms,
        },
        None => Meaning::NoLock,
    }
}

/// What begins as SyncGuard's own form does is not read as JSON.
fn own_form(bytes: &[u8]) -> Option<Meaning> {
    let text = String::from_utf8_lossy(bytes);
    let (id, rest) = text.strip_prefix(r#"{"lockId":""#)?.split_once('"')?;
    let (digits, _) = rest.strip_prefix(r#","expiresAtMs":"#)?.split_once(",\"")?;
    let is_of_id = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_own = !id.is_empty()
        && id.chars().all(is_of_id)
        && !digits.is_empty()
        && digits.chars().all(|c| c.is_ascii_digit());
    is_own.then(|| Meaning::Lock {
        is_ours: id == LOCK_ID,
        expires_at_ms: digits.parse().unwrap(),
    })
}

/// Times far from now, so that it does not matter how long a test takes, and what is no time.
fn time() -> impl Strategy<Value = String> {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now_ms = i64::try_from(now_ms.as_millis()).unwrap();
    prop_oneof![
        6 => Just((now_ms + 600_000).to_string()),
        3 => Just((now_ms - 600_000).to_string()),
        1 => Just(format!("{}.5e3", now_ms / 1000 + 600)),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => any::<f64>().prop_map(|number| number.to_string()),
        3 => prop::sample::select(
            &["0", "-1", "9223372036854775808", "1e300", "-1e300", "1e400", "NaN", "Infinity", "0x7fffffffffff",
              "007", "null", "true", "[]", "{}", "\"1\""][..]
        ).prop_map(str::to_owned),
    ]
}

fn quoted(text: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    text.prop_map(|text| Value::from(text).to_string())
}

fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|is| is.to_string()),
        time(),
        quoted(any_text()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let names = ["lockId", "expiresAtMs", "fence", "key", "", KEY];
        let name = prop_oneof![
            prop::sample::select(names.to_vec()).prop_map(str::to_owned),
            any_text()
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((quoted(name), inner), 0..4).prop_map(|members| {
                let members = members
                    .iter()
                    .map(|(name, value)| format!("{name}:{value}"));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

/// Objects that are locks, but for a member or two.
fn almost_a_lock() -> impl Strategy<Value = String> {
    let id = prop_oneof![
        6 => Just(format!("\"{LOCK_ID}\"")),
        2 => Just("\"AAAAAAAAAAAAAAAAAAAAAA\"".to_owned()),
        1 => any_json(),
    ];
    let or_any = |usual: &str| {
        let usual = usual.to_owned();
        prop_oneof![4 => Just(usual), 1 => any_json()]
    };
    let members = (
        id,
        time(),
        or_any("1700000000000"),
        or_any("\"000000000000007\""),
        or_any(&format!("\"{KEY}\"")),
        any_json(),
    );
    (members, any::<prop::sample::Index>(), 0..4_u8).prop_flat_map(|(members, left_out, order)| {
        let (id, expires, acquired, fence, key, owner) = members;
        let mut members = vec![
            format!("\"lockId\":{id}"),
            format!("\"expiresAtMs\":{expires}"),
            format!("\"acquiredAtMs\":{acquired}"),
            format!("\"fence\":{fence}"),
            format!("\"key\":{key}"),
            format!("\"owner\":{owner}"),
        ];
        if order % 2 == 1 {
            members.remove(left_out.index(members.len()));
        }
        let members = Just(members);
        let members = if order > 1 {
            members.prop_shuffle().boxed()
        } else {
            members.boxed()
        };
        members.prop_map(|members| format!("{{{}}}", members.join(",")))
    })
}

fn in_place_of_a_lock() -> impl Strategy<Value = Stored> {
    prop_oneof![
        1 => Just(Stored::Nothing),
        1 => Just(Stored::List),
        1 => Just(Stored::Hash),
        8 => almost_a_lock().prop_map(|text| Stored::Bytes(text.into())),
        // Cut off.
        1 => (almost_a_lock(), any::<prop::sample::Index>()).prop_map(|(text, end)| {
            Stored::Bytes(text.as_bytes()[..end.index(text.len())].to_vec())
        }),
        3 => any_json().prop_map(|text| Stored::Bytes(text.into())),
        1 => any_text().prop_map(|text| Stored::Bytes(text.into())),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Stored::Bytes),
    ]
}

fn in_place_of_an_index(names: &[String; 3]) -> impl Strategy<Value = Stored> + use<> {
    let bytes = |text: String| Stored::Bytes(text.into());
    prop_oneof![
        8 => Just(bytes(names[0].clone())),
        1 => prop::sample::select(names.to_vec()).prop_map(bytes),
        1 => Just(Stored::Nothing),
        1 => Just(Stored::List),
        1 => any_text().prop_map(bytes),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Stored::Bytes),
    ]
}

fn in_place_of_a_counter() -> impl Strategy<Value = Stored> {
    let numbers = [
        "0",
        "1",
        "41",
        "-1",
        "-7",
        "899999999999999",
        "900000000000000",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        " 1",
        "01",
        "1.0",
        "1e3",
        "0x10",
        "nan",
        "inf",
        "-inf",
        "",
    ];
    prop_oneof![
        2 => Just(Stored::Nothing),
        1 => Just(Stored::Hash),
        6 => prop::sample::select(numbers.to_vec()).prop_map(|text| Stored::Bytes(text.into())),
        1 => any_text().prop_map(|text| Stored::Bytes(text.into())),
    ]
}

/// One more than the counter; `None` if no fence can be given.
fn next_fence(counter: &Stored) -> Option<u64> {
    match counter {
        Stored::Nothing => Some(1),
        Stored::Bytes(bytes) => {
            let text = std::str::from_utf8(bytes).ok()?;
            let number: u64 = text.parse().ok()?;
            (number.to_string() == text && number < 900_000_000_000_000).then_some(number + 1)
        }
        Stored::List | Stored::Hash => None,
    }
}

/// Fingerprints of what is stored under the names, whatever its type.
fn look(raw: &mut Resp, names: &[String; 3]) -> Vec<Answer> {
    let script = "local found = {} \
        for at, name in ipairs(KEYS) do \
          local dump = redis.call('DUMP', name) \
          found[at] = dump and redis.sha1hex(dump) \
        end \
        return found";
    let [lock, index, counter] = names;
    raw.call(&["EVAL", script, "3", lock, index, counter])
        .list()
        .to_vec()
}

async fn whatever_is_stored_is_answered_and_kept() {
    let Stage {
        server: _server,
        mut raw,
        backend,
    } = Stage::new();
    let id = LockId::parse(LOCK_ID).unwrap();
    let lock = format!("syncguard:{KEY}");
    let index = format!("syncguard:id:{}", id.as_str());
    let counter = format!("syncguard:fence:{lock}");
    let names = [lock, index, counter];
    let inputs = (
        in_place_of_a_lock(),
        in_place_of_an_index(&names),
        in_place_of_a_counter(),
    );
    for_each(250, &inputs, async |(lock, index, counter)| {
        let stored = [lock, index, counter];
        for operation in Operation::ALL {
            raw.call(&["FLUSHALL"]);
            for (stored, name) in stored.iter().zip(&names) {
                stored.write(&mut raw, name);
            }
            let before = look(&mut raw, &names);
            let told = call(&backend, operation).await;
            let after = look(&mut raw, &names);
            let is_kept = [0, 1, 2].map(|at| before[at] == after[at]);
            let is_there = [0, 1, 2].map(|at| after[at] != Answer::Nil);
            let seen = Seen {
                operation,
                told,
                is_kept,
                is_there,
            };
            seen.check(&stored, &names);
        }
    });
    assert!(!format!("{backend:?}").contains(SECRETS[0]));
}

/// What an operation did with the lock, its index entry and its counter.
#[derive(Debug)]
struct Seen {
    operation: Operation,
    told: Verdict,
    is_kept: [bool; 3],
    is_there: [bool; 3],
}

const KEPT: [bool; 3] = [true; 3];

impl Seen {
    fn check(&self, stored: &[Stored; 3], names: &[String; 3]) {
        if self.operation.only_reads() {
            assert_eq!(self.is_kept, KEPT, "{self:?} {stored:?}");
        }
        let is_right = match self.operation {
            Operation::Acquire => self.is_right_acquisition(stored),
            Operation::IsLocked | Operation::LookUpKey | Operation::ForceRelease => {
                self.is_right_by_key(meaning(&stored[0], self.operation))
            }
            Operation::Release | Operation::Extend | Operation::LookUpLock => {
                self.is_right_by_lock_id(stored, names)
            }
        };
        assert!(is_right, "{self:?} {stored:?}");
    }

    fn has_refused(&self) -> bool {
        self.told == Verdict::Failed && self.is_kept == KEPT
    }

    fn is_right_acquisition(&self, stored: &[Stored; 3]) -> bool {
        let is_granted = match next_fence(&stored[2]) {
            Some(next) => {
                self.told.is_granted_after(next, &recently()) && self.is_there == [true; 3]
            }
            // Without a fence, nothing is written.
            None => self.has_refused(),
        };
        match meaning(&stored[0], self.operation) {
            Meaning::Nothing => is_granted,
            Meaning::NoLock => self.has_refused(),
            Meaning::Lock {
                is_ours,
                expires_at_ms,
            } if is_live(expires_at_ms) => {
                let is_told = match self.told {
                    Verdict::No => true,
                    // An attempt that is repeated is told what the first one was given.
                    Verdict::Acquired(_) => is_ours,
                    // No such time can be told, or such a fence.
                    _ => expires_at_ms > 9e15 || is_ours,
                };
                is_told && self.is_kept == KEPT
            }
            Meaning::Lock { .. } => is_granted,
            Meaning::Unclear => true,
        }
    }

    fn is_right_by_key(&self, lock: Meaning) -> bool {
        let is_forced = self.operation == Operation::ForceRelease;
        match lock {
            Meaning::Nothing => self.told == Verdict::No && self.is_kept == KEPT,
            Meaning::NoLock => self.has_refused(),
            Meaning::Lock { expires_at_ms, .. } => {
                let is_told = match self.told {
                    Verdict::Yes => is_live(expires_at_ms),
                    Verdict::No => !is_live(expires_at_ms),
                    // It is live, but its other members make no sense.
                    _ => self.operation == Operation::LookUpKey && is_live(expires_at_ms),
                };
                is_told && (!is_forced || (!self.is_there[0] && self.is_kept[2]))
            }
            Meaning::Unclear => true,
        }
    }

    fn is_right_by_lock_id(&self, stored: &[Stored; 3], names: &[String; 3]) -> bool {
        let name = match &stored[1] {
            Stored::Nothing => return self.told == Verdict::No && self.is_kept == KEPT,
            Stored::List | Stored::Hash => return self.has_refused(),
            Stored::Bytes(name) => name,
        };
        let place = names.iter().position(|one| one.as_bytes() == name);
        let leads_to = place.map_or(&Stored::Nothing, |place| &stored[place]);
        let only_reads = self.operation.only_reads();
        match meaning(leads_to, self.operation) {
            // An index entry that leads nowhere is cleared away.
            Meaning::Nothing => {
                self.told == Verdict::No
                    && self.is_there[1] == only_reads
                    && self.is_kept[0]
                    && self.is_kept[2]
            }
            Meaning::NoLock => self.has_refused(),
            Meaning::Lock { is_ours: false, .. } => {
                self.told == Verdict::No && self.is_kept == KEPT
            }
            Meaning::Lock { expires_at_ms, .. } if !is_live(expires_at_ms) => match only_reads {
                true => self.told == Verdict::No,
                false => self.told == Verdict::Expired && self.is_there[..2] == [false; 2],
            },
            Meaning::Lock { .. } => match self.operation {
                Operation::LookUpLock => self.told == Verdict::Yes || self.told == Verdict::Failed,
                Operation::Extend => self.told == Verdict::Yes && self.is_there[..2] == [true; 2],
                _ => self.told == Verdict::Yes && self.is_there[..2] == [false; 2],
            },
            Meaning::Unclear => true,
        }
    }
}

fn is_live(expires_at_ms: f64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    expires_at_ms > now.as_secs_f64() * 1000.0 - 1000.0
}
