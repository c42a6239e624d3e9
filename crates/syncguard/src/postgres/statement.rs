//! The statements of this backend as data: their text, their parameters and the rows they give.
//!
//! What runs them is a [`Transport`]: the connection pool of this crate, or a client that somebody
//! else brings. The statements and the meaning of their rows are the same for both.

use std::fmt;

use async_trait::async_trait;

use super::error::Failure;
use super::tables::Tables;

/// Everything this backend says to the server, but for the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Takes a lock.
    Acquire,
    /// Takes a lock and stores a label with it.
    AcquireLabelled,
    /// Takes several locks.
    AcquireGroup,
    /// Frees an owner's lock.
    Release,
    /// Frees the locks of several owners.
    ReleaseGroup,
    /// Extends an owner's lock.
    Extend,
    /// Asks whether a key is held.
    IsLocked,
    /// The same, and removes the lock if it is long expired.
    IsLockedCleanup,
    /// Reads the lock on a key.
    LookupByKey,
    /// Reads an owner's lock.
    LookupByLockId,
    /// Frees a key.
    ForceRelease,
    /// Asks the catalog what of the schema is there.
    InspectSchema,
}

impl Operation {
    /// How many there are.
    pub const COUNT: usize = 12;

    /// From 0 to [`COUNT`](Self::COUNT): for caches with one place each.
    pub fn index(self) -> usize {
        self as usize
    }

    fn template(self) -> &'static str {
        match self {
            Self::Acquire | Self::AcquireLabelled => super::acquire::SQL,
            Self::AcquireGroup => super::acquire::GROUP_SQL,
            Self::Release => super::release::SQL,
            Self::ReleaseGroup => super::release::GROUP_SQL,
            Self::Extend => super::extend::SQL,
            Self::IsLocked => super::is_locked::SQL,
            Self::IsLockedCleanup => super::is_locked::CLEANUP_SQL,
            Self::LookupByKey => super::lookup::BY_KEY_SQL,
            Self::LookupByLockId => super::lookup::BY_LOCK_ID_SQL,
            Self::ForceRelease => super::force_release::SQL,
            Self::InspectSchema => super::schema::INSPECT_SQL,
        }
    }

    /// Names of the columns of its row, in order. All of them are text.
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Acquire | Self::AcquireLabelled => &["outcome", "fence", "expires_at_ms"],
            Self::Release => &["lock_id", "outcome", "commit"],
            Self::AcquireGroup => &["outcomes"],
            Self::ReleaseGroup => &["outcomes", "commit"],
            Self::Extend => &["lock_id", "outcome", "expires_at_ms"],
            Self::IsLocked | Self::IsLockedCleanup | Self::ForceRelease => &["outcome"],
            Self::LookupByKey | Self::LookupByLockId => &[
                "user_key",
                "lock_id",
                "expires_at_ms",
                "acquired_at_ms",
                "fence",
                "owner",
                "now_ms",
            ],
            Self::InspectSchema => &["complete", "named", "labelled"],
        }
    }
}

/// A parameter of a statement. The statements cast the numbers, so a client may send them as text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Param<'a> {
    /// `text`
    Text(&'a str),
    /// `bigint`
    BigInt(i64),
}

impl fmt::Debug for Param<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Keys, lock ids and labels stay out of logs.
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::BigInt(number) => write!(f, "BigInt({number})"),
        }
    }
}

/// One statement with its parameters, to be run in one round trip, in a transaction of its own at
/// isolation level READ COMMITTED.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// Which one it is. The text is always the same for the same tables.
    pub operation: Operation,
    /// Its text, with `$1`, `$2` … for the parameters.
    pub sql: &'a str,
    /// Its parameters.
    pub params: Vec<Param<'a>>,
}

/// The row that a statement gave: the columns of [`Operation::columns`] as text, `None` for NULL.
pub type Row = Vec<Option<String>>;

/// What runs statements.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Runs one statement and gives its only row, if there is one.
    ///
    /// The row counts only when the transaction has committed. An implementation must bear to have
    /// the future dropped at any point, and must not hand a connection on whose reply is outstanding.
    async fn run(&self, call: &Call<'_>) -> Result<Option<Row>, Failure>;

    /// Runs a statement that is only known when there is a connection for it. A transport in which
    /// statements wait for connections should override this.
    async fn run_late<'a>(
        &self,
        call: &(dyn Fn() -> Call<'a> + Send + Sync),
    ) -> Result<Option<Row>, Failure> {
        self.run(&call()).await
    }

    /// How many statements it runs at a time where others wait for them; `None` if that is unknown.
    fn connections(&self) -> Option<usize> {
        None
    }

    /// Runs several statements without parameters as one transaction.
    async fn batch(&self, sql: &str) -> Result<(), Failure>;

    /// Ends connections.
    async fn close(&self);
}

/// The text of each statement for given tables.
#[derive(Clone)]
pub struct Statements([String; Operation::COUNT]);

impl Statements {
    /// Writes the tables' names, which [`Tables`] has checked, into the statements.
    pub fn new(tables: &Tables) -> Self {
        use Operation::*;
        let all = [
            Acquire,
            AcquireLabelled,
            AcquireGroup,
            Release,
            ReleaseGroup,
            Extend,
            IsLocked,
            IsLockedCleanup,
            LookupByKey,
            LookupByLockId,
            ForceRelease,
            InspectSchema,
        ];
        Self(all.map(|operation| {
            let label = match operation {
                AcquireLabelled => [
                    "$7 owner label",
                    ", owner",
                    ", $7",
                    ", owner = excluded.owner",
                ],
                _ => [""; 4],
            };
            let [param, column, value, set] = label;
            let sql = operation
                .template()
                .replace("{owner_param}", param)
                .replace("{owner_column}", column)
                .replace("{owner_value}", value)
                .replace("{owner_set}", set);
            tables.write_into(&sql)
        }))
    }

    /// The statement for `operation`.
    pub fn sql(&self, operation: Operation) -> &str {
        self.0.get(operation.index()).map_or("", String::as_str)
    }

    /// A statement with its parameters.
    pub fn call<'a>(&'a self, operation: Operation, params: Vec<Param<'a>>) -> Call<'a> {
        Call {
            operation,
            sql: self.sql(operation),
            params,
        }
    }
}

impl fmt::Debug for Statements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Statements(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_is_complete_and_in_its_place() {
        let statements = Statements::new(&Tables::new("my_locks", "my_fences").unwrap());
        for (operation, text) in [
            (Operation::Acquire, "pg_advisory_xact_lock"),
            (Operation::AcquireLabelled, ", owner = excluded.owner"),
            (Operation::AcquireGroup, "pg_try_advisory_xact_lock"),
            (Operation::Release, "DELETE FROM \"my_locks\" WHERE lock_id"),
            (Operation::ReleaseGroup, "string_to_array"),
            (Operation::Extend, "FOR UPDATE"),
            (Operation::IsLocked, "EXISTS"),
            (Operation::IsLockedCleanup, "SKIP LOCKED"),
            (Operation::LookupByKey, "WHERE key = $1"),
            (Operation::LookupByLockId, "WHERE lock_id = $1"),
            (
                Operation::ForceRelease,
                "DELETE FROM \"my_locks\" WHERE key",
            ),
            (Operation::InspectSchema, "pg_attribute"),
        ] {
            let sql = statements.sql(operation);
            assert!(sql.contains(text), "{operation:?}");
            assert!(!sql.contains('{') && !sql.contains('}'), "{operation:?}");
        }
        assert!(!statements.sql(Operation::Acquire).contains("owner"));
    }
}
