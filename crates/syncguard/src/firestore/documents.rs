//! The documents of a lock, and their fields.

use super::ids::DocumentIds;
use crate::asking::inspection::LockRecord;
use crate::text::error::{Error, ErrorKind};
use crate::values::due::{DoneMark, Due};
use crate::values::fence::Fence;
use crate::values::key::Key;
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;
use crate::values::time::is_held;

/// The field with the lock id, by which release and extend find the lock.
pub const LOCK_ID_FIELD: &str = "lockId";

/// The field that says when a lock ends: the only one that extend writes.
pub const EXPIRES_AT_FIELD: &str = "expiresAtMs";

/// The value of a field, of the types that locks use.
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// A string.
    Text(String),
    /// A number: an integer of Firestore, or a double as JavaScript may write it.
    Number(f64),
}

/// The part of a lock that decides whether and by whom it is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockState {
    /// The id of the document.
    pub document_id: String,
    /// The lock id, as stored.
    pub lock_id: String,
    /// When it ends, in milliseconds since the Unix epoch.
    pub expires_at_ms: i64,
    /// Its labels.
    pub labels: Labels,
}

impl LockState {
    /// Reads it from the document of that id, whose fields `field` gives.
    ///
    /// # Errors
    /// `Internal` when a field is missing or has another type. Such a document is not overwritten.
    pub fn read(
        document_id: impl Into<String>,
        field: impl Fn(&str) -> Option<Field>,
    ) -> Result<Self, Error> {
        Ok(Self {
            document_id: document_id.into(),
            lock_id: text(&field, LOCK_ID_FIELD)?,
            expires_at_ms: number(&field, EXPIRES_AT_FIELD)?,
            labels: labels(&field),
        })
    }

    /// Whether it is the lock of those who share a key, which has a lock id that nobody owns.
    pub fn is_group(&self) -> bool {
        LockId::parse(&self.lock_id).is_ok_and(|lock_id| lock_id.is_group_of(&self.document_id))
    }

    /// Whether somebody holds it at `now_ms`.
    pub fn is_live(&self, now_ms: i64) -> bool {
        is_held(self.expires_at_ms, now_ms)
    }
}

fn labels(field: impl Fn(&str) -> Option<Field>) -> Labels {
    Labels::read(|name| match field(name) {
        Some(Field::Text(label)) => Some(label),
        _ => None,
    })
}

/// A complete lock.
#[derive(Clone, PartialEq, Eq)]
pub struct LockDocument {
    /// Who owns it.
    pub lock_id: LockId,
    /// When it ends.
    pub expires_at_ms: i64,
    /// When it was granted.
    pub acquired_at_ms: i64,
    /// What it locks.
    pub key: Key,
    /// Its fencing token.
    pub fence: Fence,
    /// Its labels.
    pub labels: Labels,
}

impl LockDocument {
    /// Reads it from a document whose fields `field` gives.
    ///
    /// # Errors
    /// `Internal` when a field is missing or makes no sense.
    pub fn read(field: impl Fn(&str) -> Option<Field>) -> Result<Self, Error> {
        // Without the causes, which would show the text.
        Ok(Self {
            lock_id: LockId::parse(&text(&field, LOCK_ID_FIELD)?).map_err(|_| malformed())?,
            expires_at_ms: number(&field, EXPIRES_AT_FIELD)?,
            acquired_at_ms: number(&field, "acquiredAtMs")?,
            key: Key::stored(&text(&field, "key")?).map_err(|_| malformed())?,
            fence: Fence::parse(&text(&field, "fence")?)?,
            labels: labels(&field),
        })
    }

    /// All its fields (docs/format.md, "Firestore"). Labels are our addition: writers that do not know them drop
    /// them when they replace the document.
    pub fn fields(&self) -> Vec<(&'static str, Field)> {
        let mut fields = vec![
            (LOCK_ID_FIELD, Field::Text(self.lock_id.as_str().to_owned())),
            (EXPIRES_AT_FIELD, Field::Number(self.expires_at_ms as f64)),
            ("acquiredAtMs", Field::Number(self.acquired_at_ms as f64)),
            ("key", Field::Text(self.key.as_str().to_owned())),
            ("fence", Field::Text(self.fence.to_string())),
        ];
        let labels = self.labels.iter();
        fields.extend(labels.map(|(name, text)| (name, Field::Text(text.to_owned()))));
        fields
    }

    /// Whether it is the lock of those who share the key.
    fn is_group(&self) -> bool {
        DocumentIds::of(&self.key).is_ok_and(|ids| self.lock_id.is_group_of(&ids.lock))
    }

    /// Whether somebody holds it at `now_ms`.
    pub(super) fn is_live(&self, now_ms: i64) -> bool {
        is_held(self.expires_at_ms, now_ms)
    }

    /// The lock as callers see it, read at that time.
    pub fn into_record(self, read_at_ms: i64) -> LockRecord {
        LockRecord {
            is_shared: self.key.reader_id().is_some() || self.is_group(),
            key: self.key,
            lock_id: self.lock_id,
            expires_at_ms: self.expires_at_ms,
            acquired_at_ms: self.acquired_at_ms,
            fence: self.fence,
            labels: self.labels,
            read_at_ms,
        }
    }
}

/// A fence counter. It is never deleted.
#[derive(Clone, PartialEq, Eq)]
pub struct CounterDocument {
    /// The last fence given; 0 for none yet.
    pub fence: i64,
}

impl CounterDocument {
    /// Reads it from a document whose fields `field` gives.
    ///
    /// # Errors
    /// `Internal` when it holds no number of 15 digits.
    pub fn read(field: impl Fn(&str) -> Option<Field>) -> Result<Self, Error> {
        let digits = text(&field, "fence")?;
        if digits.len() != 15 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed());
        }
        Ok(Self {
            fence: digits.parse().map_err(|_| malformed())?,
        })
    }

    /// The fields of the counter of `key` with the value `fence`.
    pub fn fields(fence: Fence, key: &Key) -> Vec<(&'static str, Field)> {
        vec![
            ("fence", Field::Text(fence.to_string())),
            ("keyDebug", Field::Text(key.as_str().to_owned())),
        ]
    }
}

/// What is stored of the periods of a key.
pub struct MarkDocument;

impl MarkDocument {
    /// Reads it from a document whose fields `field` gives. `None`: no period is done.
    ///
    /// # Errors
    /// `Internal` when it makes no sense.
    pub fn read(field: impl Fn(&str) -> Option<Field>) -> Result<Option<DoneMark>, Error> {
        if field(DUE_FIELD).is_none() {
            return Ok(None);
        }
        Ok(Some(DoneMark {
            due: Due::stored(&text(&field, DUE_FIELD)?).map_err(|_| malformed())?,
            done_at_ms: number(&field, "doneAtMs")?,
            lock_id: LockId::parse(&text(&field, LOCK_ID_FIELD)?).map_err(|_| malformed())?,
        }))
    }

    /// The fields of what is stored for `key`.
    pub fn fields(mark: Option<&DoneMark>, key: &Key) -> Vec<(&'static str, Field)> {
        let mut fields = vec![("keyDebug", Field::Text(key.as_str().to_owned()))];
        if let Some(mark) = mark {
            fields.extend([
                (DUE_FIELD, Field::Text(mark.due.as_stored().to_owned())),
                ("doneAtMs", Field::Number(mark.done_at_ms as f64)),
                (LOCK_ID_FIELD, Field::Text(mark.lock_id.as_str().to_owned())),
            ]);
        }
        fields
    }
}

/// The field with the last period for which something was done.
const DUE_FIELD: &str = "due";

/// The error for a stored document that no client of this format writes.
pub(super) fn malformed() -> Error {
    Error::new(
        ErrorKind::Internal,
        "a document in the collections of locks is malformed",
    )
}

fn text(field: &impl Fn(&str) -> Option<Field>, name: &str) -> Result<String, Error> {
    match field(name) {
        Some(Field::Text(text)) => Ok(text),
        _ => Err(malformed()),
    }
}

/// Milliseconds, which JavaScript writes as an integer or a double. A fraction is cut off.
fn number(field: &impl Fn(&str) -> Option<Field>, name: &str) -> Result<i64, Error> {
    match field(name) {
        Some(Field::Number(number)) if number.is_finite() => Ok(number as i64),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::owner::Owner;

    #[test]
    fn a_lock_is_read_as_it_was_written() {
        let lock = LockDocument {
            lock_id: LockId::generate().unwrap(),
            expires_at_ms: 1_700_000_030_000,
            acquired_at_ms: 1_700_000_000_000,
            key: Key::new("k").unwrap(),
            fence: Fence::from_counter(42).unwrap(),
            labels: Owner::new("me").unwrap().into(),
        };
        let fields = lock.fields();
        let field = |name: &str| {
            let found = fields.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone())
        };
        assert!(LockDocument::read(field).unwrap() == lock);
        let state = LockState::read("k", field).unwrap();
        assert_eq!(state.lock_id, lock.lock_id.as_str());
        assert!(LockState::read("k", |name| field(name).filter(|_| name != "lockId")).is_err());
        assert!(LockDocument::read(|_| Some(Field::Number(1.0))).is_err());
    }

    #[test]
    fn counters_are_fifteen_digits() {
        let read = |text: &str| {
            CounterDocument::read(|_| Some(Field::Text(text.to_owned())))
                .map(|counter| counter.fence)
        };
        assert_eq!(read("000000000000000").unwrap(), 0);
        assert_eq!(read("999999999999999").unwrap(), 999_999_999_999_999);
        for bad in [
            "",
            "1",
            "00000000000000x",
            "-00000000000001",
            "0000000000000001",
        ] {
            assert_eq!(read(bad).unwrap_err().kind(), ErrorKind::Internal);
        }
        assert!(CounterDocument::read(|_| Some(Field::Number(1.0))).is_err());
    }
}
