//! What people look at: a lock, lists of locks, and how a store is set up.

use crate::text::error::Error;
use crate::values::fence::Fence;
use crate::values::key::Key;
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;
use crate::values::time::is_held;

/// How to find a lock.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// By its key.
    Key(Key),
    /// By its lock id.
    LockId(LockId),
}

/// A live lock as the store shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRecord {
    /// Its key, as its holder gave it.
    pub key: Key,
    /// Its lock id.
    pub lock_id: LockId,
    /// When it ends, on the store's clock.
    pub expires_at_ms: i64,
    /// When it was granted, on the store's clock.
    pub acquired_at_ms: i64,
    /// Its fencing token.
    pub fence: Fence,
    /// What was stored with it.
    pub labels: Labels,
    /// Whether the key is shared. Then this is the lock of one reader, or, looked up by the key, that of their group.
    pub is_shared: bool,
    /// The time on the store's clock when it was read.
    pub read_at_ms: i64,
}

impl LockRecord {
    /// Whether it was held when it was read, by the liveness predicate of all backends.
    pub fn is_live(&self) -> bool {
        is_held(self.expires_at_ms, self.read_at_ms)
    }

    /// Whether this is the group of a key, and not the lock of one of its readers.
    pub(crate) fn is_group(&self) -> bool {
        self.is_shared && self.key.reader_id().is_none()
    }
}

/// The most locks that [`Operation::List`](crate::Operation::List) asks for at a time.
pub const MAX_PAGE: usize = 100;

/// Which locks to list.
#[derive(Debug, Clone, Default)]
pub struct PageRequest {
    /// The [`LockPage::next`] of the page before; `None` for the first page.
    pub after: Option<String>,
    /// How many locks to give, from 1 to [`MAX_PAGE`]. Redis may give more or fewer.
    pub limit: usize,
}

impl PageRequest {
    /// # Errors
    /// `InvalidArgument` for a limit that is out of range.
    pub(crate) fn checked_limit(&self) -> Result<usize, Error> {
        if (1..=MAX_PAGE).contains(&self.limit) {
            return Ok(self.limit);
        }
        Err(Error::invalid(format!(
            "limit must be from 1 to {MAX_PAGE}"
        )))
    }
}

/// Some of the live locks of a store, for people to look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockPage {
    /// The locks, in the order of the store. A page may be empty although others follow.
    pub locks: Vec<LockRecord>,
    /// Where the next page begins; `None` if this is the last one. It contains a key.
    pub next: Option<String>,
}

/// The error for a cursor that no page has given.
pub(crate) fn bad_cursor() -> Error {
    Error::invalid("the cursor is not one that a list has given")
}

/// What is known of one property of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

impl From<&str> for Fact {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Fact {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Fact {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Fact {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// How a store is set up: facts by name, without a judgement of them. A fact that cannot be found out is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The node of a cluster that they are about. Empty for other stores.
    pub node: String,
    /// The facts, by name.
    pub facts: Vec<(&'static str, Fact)>,
}

impl Facts {
    /// Adds a fact.
    pub(crate) fn add(&mut self, name: &'static str, fact: impl Into<Fact>) {
        self.facts.push((name, fact.into()));
    }
}
