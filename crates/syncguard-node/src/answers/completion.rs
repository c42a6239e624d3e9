//! Finished operations on their way back to JavaScript, in batches.

use std::fmt::Write as _;
use std::sync::Arc;

use napi_derive::napi;
use serde_json::{Map, Value, json};
use syncguard::{
    Absence, Backend, Batch, Busy, Claim, Error, Fence, Grant, Key, LockId, LockRecord, Ttl,
    operation,
};
use tokio::time::Instant;

use crate::convert::error::causes;
use crate::convert::inspection::shown_key;
use crate::io_thread;

/// What an operation came to.
pub(crate) enum Completion {
    Acquired(Granted),
    /// A lock that was waited for.
    Waited(Granted, WaitStats),
    /// What ended the waiting for a lock.
    GaveUp(Error, WaitStats),
    Locked {
        /// Which key stood in the way, of several.
        key: Option<Key>,
        /// What the store has said of it.
        busy: Busy,
    },
    Done,
    /// Of several locks: whether each was released.
    Released(Vec<bool>),
    Extended {
        expires_at_ms: i64,
    },
    Absent {
        /// Which lock is gone.
        lock: usize,
        absence: Absence,
    },
    Answer(bool),
    Found(Box<LockRecord>),
    NotFound,
    /// JSON.
    Text(String),
    Failed(Error),
    /// Not an outcome: a lock that extends itself ends at this time now. The number is the hold's.
    Held {
        expires_at_ms: i64,
    },
    /// Not an outcome: such a lock is lost, or one of several.
    Lost {
        error: Error,
        place: Option<usize>,
    },
    /// Not an outcome: a question to a client in JavaScript. Its number is its own.
    Ask {
        client: u32,
        text: String,
    },
}

/// Locks that were granted and not yet delivered. If they are dropped before that, they are released: the environment that
/// asked for them has ended, and nobody else knows their lock ids.
pub(crate) struct Granted {
    grants: Batch<Grant>,
    /// What was asked for, where that is more than one key itself.
    claims: Vec<Claim>,
    ttl: Ttl,
    backend: Arc<dyn Backend>,
    is_delivered: bool,
}

impl Granted {
    pub(crate) fn new(
        grants: Batch<Grant>,
        claims: Vec<Claim>,
        ttl: Ttl,
        backend: Arc<dyn Backend>,
    ) -> Self {
        Self {
            grants,
            claims,
            ttl,
            backend,
            is_delivered: false,
        }
    }

    /// Hands the locks over to JavaScript, which is going to release them.
    pub(crate) fn deliver(&mut self) -> &[Grant] {
        self.is_delivered = true;
        &self.grants
    }

    /// The keys of the locks where they are several, or slots.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.claims.iter().map(|claim| &claim.key)
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if self.is_delivered {
            return;
        }
        // Without the I/O thread nothing can be sent, and the locks end with their TTL.
        let Ok(runtime) = io_thread::runtime() else {
            return;
        };
        let _on_it = runtime.enter();
        let lock_ids: Vec<LockId> = self
            .grants
            .iter()
            .map(|grant| grant.lock_id.clone())
            .collect();
        operation::release_in_background(&self.backend, &lock_ids, self.ttl);
    }
}

/// What the waiting for a lock took.
pub(crate) struct WaitStats {
    pub(crate) attempts: u32,
    pub(crate) contended: u32,
    pub(crate) wakeups: u32,
    /// When the store was asked for the lock that it has granted.
    pub(crate) asked: Option<Instant>,
}

impl Completion {
    /// Whether an operation ends with it.
    pub(crate) fn is_outcome(&self) -> bool {
        !matches!(
            self,
            Self::Ask { .. } | Self::Held { .. } | Self::Lost { .. }
        )
    }
}

/// How outcomes are numbered in a batch.
#[napi]
pub enum Tag {
    Acquired,
    /// Several locks: JSON.
    AcquiredAll,
    Locked,
    Done,
    /// JSON.
    Released,
    Extended,
    Expired,
    NotFound,
    Yes,
    No,
    Found,
    Nothing,
    Text,
    Failed,
    /// Not an outcome: a lock that extends itself ends later now.
    Held,
    /// Not an outcome: a lock that extends itself is lost.
    Lost,
    /// Not an outcome: a question to a client.
    Ask,
}

/// Numbers of one finished operation: its own, the tag of its outcome, and its values.
pub(crate) const WIDTH: usize = 2 + VALUES;
const VALUES: usize = 7;
/// The length of the texts of a grant: see [`push_grant`].
const GRANT: usize = LockId::LENGTH + Fence::DIGITS;

/// Writes a batch into `numbers`, the count first, and gives the texts.
pub(crate) fn write(batch: &mut Vec<(u32, Completion)>, numbers: &mut [f64]) -> String {
    let mut texts = String::with_capacity(batch.len() * GRANT);
    let Some((count, records)) = numbers.split_first_mut() else {
        return texts;
    };
    *count = batch.len() as f64;
    for ((operation, completion), record) in batch.drain(..).zip(records.chunks_exact_mut(WIDTH)) {
        let (tag, values) = encode(completion, &mut texts);
        let head = [f64::from(operation), f64::from(tag as u8)];
        for (slot, number) in record.iter_mut().zip(head.into_iter().chain(values)) {
            *slot = number;
        }
    }
    texts
}

/// The tag and the values of an outcome. Its texts go to the end of `texts`, and the length of each
/// that has not always the same is one of the values.
#[expect(
    clippy::too_many_lines,
    reason = "a table: one arm per kind of completion"
)]
fn encode(outcome: Completion, texts: &mut String) -> (Tag, [f64; VALUES]) {
    let mut values = [0.0; VALUES];
    let tag = match outcome {
        Completion::Acquired(granted) => push_granted(texts, &mut values, granted),
        Completion::Waited(granted, stats) => {
            push_wait_stats(&mut values, &stats);
            push_granted(texts, &mut values, granted)
        }
        Completion::GaveUp(error, stats) => {
            values[0] = push_error(texts, &error);
            push_wait_stats(&mut values, &stats);
            Tag::Failed
        }
        Completion::Locked { key, busy } => {
            values[0] = retry_after_ms(&busy).unwrap_or(f64::NAN);
            values[1] = key.map_or(0.0, |key| push(texts, key.as_str()));
            values[2] = push_labels(texts, labels_json(busy_labels(&busy)));
            Tag::Locked
        }
        Completion::Done => Tag::Done,
        Completion::Released(each) => {
            values[0] = push(texts, &json!(each).to_string());
            Tag::Released
        }
        Completion::Extended { expires_at_ms } => {
            values[0] = expires_at_ms as f64;
            Tag::Extended
        }
        Completion::Absent { lock, absence } => {
            values[0] = lock as f64;
            match absence {
                Absence::Expired => Tag::Expired,
                Absence::NotFound => Tag::NotFound,
            }
        }
        Completion::Answer(true) => Tag::Yes,
        Completion::Answer(false) => Tag::No,
        Completion::Found(record) => {
            push_grant(texts, &record.lock_id, record.fence);
            values = [
                record.expires_at_ms as f64,
                record.acquired_at_ms as f64,
                record.read_at_ms as f64,
                push(texts, shown_key(&record)),
                push_labels(texts, labels_json(record.labels.iter())),
                f64::from(u8::from(record.is_shared)),
                0.0,
            ];
            Tag::Found
        }
        Completion::NotFound => Tag::Nothing,
        Completion::Text(text) => {
            values[0] = push(texts, &text);
            Tag::Text
        }
        Completion::Failed(error) => {
            values[0] = push_error(texts, &error);
            Tag::Failed
        }
        Completion::Held { expires_at_ms } => {
            values[0] = expires_at_ms as f64;
            Tag::Held
        }
        Completion::Lost { error, place } => {
            values[0] = push_error(texts, &error);
            values[1] = place.map_or(f64::NAN, |place| place as f64);
            Tag::Lost
        }
        Completion::Ask { client, text } => {
            values[0] = f64::from(client);
            values[1] = push(texts, &text);
            Tag::Ask
        }
    };
    (tag, values)
}

/// When the first of the locks ends, and for one whether its fence is near the limit and its slot, for others the length of the
/// JSON.
fn push_granted(texts: &mut String, values: &mut [f64; VALUES], mut granted: Granted) -> Tag {
    let ends = granted.grants.iter().map(|grant| grant.expires_at_ms);
    values[0] = ends.min().unwrap_or(0) as f64;
    if let [grant] = granted.grants.as_slice() {
        push_grant(texts, &grant.lock_id, grant.fence);
        values[1] = f64::from(u8::from(grant.fence.is_near_limit()));
        values[6] = f64::from(grant.slot.unwrap_or(0));
        granted.deliver();
        return Tag::Acquired;
    }
    let keys: Vec<_> = granted.keys().cloned().collect();
    let all = granted.deliver().iter().zip(&keys).map(|(grant, key)| {
        json!({
            "key": key.as_str(),
            "lockId": grant.lock_id.as_str(),
            "slot": grant.slot,
            "fence": grant.fence.to_string(),
            "expiresAtMs": grant.expires_at_ms,
            "fenceNearLimit": grant.fence.is_near_limit(),
        })
    });
    values[1] = push(texts, &Value::from_iter(all).to_string());
    Tag::AcquiredAll
}

/// For how many milliseconds a lock's time may have run, and how many attempts and wake-ups there have been.
fn push_wait_stats(values: &mut [f64; VALUES], stats: &WaitStats) {
    let past = |asked| syncguard::lock_time().saturating_duration_since(asked);
    let age = stats
        .asked
        .map_or(f64::NAN, |asked| past(asked).as_secs_f64() * 1000.0);
    let counts = [stats.attempts, stats.contended, stats.wakeups].map(f64::from);
    values[2] = age;
    values[3..6].copy_from_slice(&counts);
}

/// A lock id and a fence, which are always as long.
fn push_grant(texts: &mut String, lock_id: &LockId, fence: Fence) {
    texts.push_str(lock_id.as_str());
    // Writing to a string cannot fail.
    let _ = write!(texts, "{fence}");
}

/// An error as JSON: its code, its message, what it says of the lock that stood in the way, and the messages of its causes.
fn push_error(texts: &mut String, error: &Error) -> f64 {
    let busy = error.busy().map(|busy| {
        let mut members = labels_json(busy_labels(busy));
        if let Some(key) = &busy.key {
            members.insert("key".to_owned(), json!(key));
        }
        if let Some(ms) = retry_after_ms(busy) {
            members.insert("retryAfterMs".to_owned(), json!(ms));
        }
        Value::Object(members)
    });
    let mut parts = vec![
        error.kind().as_str().into(),
        error.message().into(),
        busy.unwrap_or_default(),
    ];
    parts.extend(causes(error).into_iter().map(Value::from));
    push(texts, &Value::Array(parts).to_string())
}

/// In whole milliseconds, and not before the time is over.
fn retry_after_ms(busy: &Busy) -> Option<f64> {
    let micros = busy.free_in?.as_micros();
    Some(micros.div_ceil(1000) as f64)
}

fn busy_labels(busy: &Busy) -> impl Iterator<Item = (&'static str, &str)> {
    let each = busy.labels.iter();
    each.map(|(name, text)| (*name, text.as_str()))
}

fn labels_json<'a>(each: impl Iterator<Item = (&'static str, &'a str)>) -> Map<String, Value> {
    each.map(|(name, text)| (name.to_owned(), text.into()))
        .collect()
}

/// Labels as JSON; nothing if there are none.
fn push_labels(texts: &mut String, labels: Map<String, Value>) -> f64 {
    match labels.is_empty() {
        true => 0.0,
        false => push(texts, &Value::Object(labels).to_string()),
    }
}

/// Adds `text` and gives the length that JavaScript sees: in UTF-16 code units.
fn push(texts: &mut String, text: &str) -> f64 {
    texts.push_str(text);
    if text.is_ascii() {
        text.len() as f64
    } else {
        text.encode_utf16().count() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_javascripts() {
        let mut texts = String::new();
        assert_eq!(push(&mut texts, "abc"), 3.0);
        assert_eq!(push(&mut texts, "é"), 1.0);
        assert_eq!(push(&mut texts, "💳"), 2.0);
        assert_eq!(push(&mut texts, ""), 0.0);
        assert_eq!(texts, "abcé💳");
    }
}
