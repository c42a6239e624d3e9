//! Creates the tables.

use std::time::Duration;

use tokio_postgres::error::SqlState;

use super::changes::{TableChanges, WaitsFor};
use super::error::Failure;
use super::product;
use super::reply;
use super::statement::{Param, Statement, Transport};
use super::tables::{MAX_NAME_BYTES, Tables, quoted};
use crate::text::error::{Error, ErrorKind};
use crate::values::labels::Labels;

const SQL: &str = include_str!("schema.sql");

const NAME_SQL: &str = "ALTER TABLE {fences} ADD COLUMN IF NOT EXISTS key_debug TEXT;";

/// Adds the columns for labels that are missing.
fn labels_sql() -> String {
    let add = |name| format!("ALTER TABLE {{locks}} ADD COLUMN IF NOT EXISTS {name} TEXT;");
    Labels::NAMES.map(add).concat()
}

/// Adds the index on the locks of readers.
fn readers_sql() -> String {
    let lines = SQL.lines();
    lines
        .filter(|line| line.contains("{readers_index}"))
        .collect()
}

const MARK_SQL: &str = "ALTER TABLE {fences} ADD COLUMN IF NOT EXISTS done_due TEXT, \
     ADD COLUMN IF NOT EXISTS done_at_ms BIGINT, ADD COLUMN IF NOT EXISTS done_lock_id TEXT;";

/// Serialises set-ups, because `IF NOT EXISTS` does not protect against a simultaneous `CREATE`. The number is
/// "syncgrd!" in ASCII.
const LOCK: &str = "SELECT pg_advisory_xact_lock(8320803159760069665);";

/// Programs that create the same tables without that lock can still interfere, so set-up is tried again.
const MAX_RETRIES: u32 = 10;

/// How long setting up may take: others may have long transactions on the tables.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// Creates what is missing. Returns whether there are columns for labels.
pub(super) async fn setup(transport: &dyn Transport, tables: &Tables) -> Result<bool, Error> {
    let names = IndexNames::new(tables)?;
    product::ask(transport, tables).await?;
    let (inspection, quoted) = (inspection(tables), names.quoted());
    let mut changes = TableChanges::new(transport, tables, &quoted);
    let mut tries = 0;
    let (mut may_label, mut may_mark, mut may_index) = (true, true, true);
    loop {
        let there = inspect(transport, &inspection, &quoted).await?;
        let (sql, waits_for) = match there {
            SchemaState {
                complete: false, ..
            } => (names.tables_sql(), WaitsFor::Writers),
            SchemaState { named: false, .. } => (names.under_lock(NAME_SQL), WaitsFor::All),
            SchemaState {
                labelled: false, ..
            } if may_label => (names.under_lock(&labels_sql()), WaitsFor::All),
            SchemaState { marked: false, .. } if may_mark => {
                (names.under_lock(MARK_SQL), WaitsFor::All)
            }
            SchemaState { indexed: false, .. } if may_index => (
                names.under_lock(&names.write_into(&readers_sql())),
                WaitsFor::Writers,
            ),
            there => return Ok(there.labelled),
        };
        match changes.make(&sql, waits_for).await {
            Ok(true) => {}
            Ok(false) => continue,
            // Only the tables' owner may alter them. Without that right, locks have no labels, nothing is done once, and readers are
            // found among all locks.
            Err(failure)
                if there.complete
                    && there.named
                    && failure.state() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) =>
            {
                if !there.labelled && may_label {
                    may_label = false;
                } else if !there.marked && may_mark {
                    may_mark = false;
                } else {
                    may_index = false;
                }
            }
            Err(failure) if was_made_meanwhile(&failure) && tries < MAX_RETRIES => {}
            Err(failure) => return Err(failure.into()),
        }
        tries += 1;
        if tries > MAX_RETRIES {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the tables exist in another form: compare them with the documented schema",
            ));
        }
    }
}

/// What [`PostgresBackend::setup_schema`](super::PostgresBackend::setup_schema) runs where nothing is there yet: for
/// migrations that somebody else runs.
///
/// # Errors
/// `InvalidArgument` for a table name whose index names would be too long.
pub fn schema_sql(tables: &Tables) -> Result<String, Error> {
    Ok(tables.write_into(&IndexNames::new(tables)?.template()))
}

/// Whether somebody else created the same thing at the same moment.
fn was_made_meanwhile(failure: &Failure) -> bool {
    matches!(
        failure.state(),
        Some(
            &(SqlState::UNIQUE_VIOLATION
                | SqlState::DUPLICATE_TABLE
                | SqlState::DUPLICATE_OBJECT
                | SqlState::DUPLICATE_COLUMN
                | SqlState::T_R_SERIALIZATION_FAILURE
                | SqlState::T_R_DEADLOCK_DETECTED
                | SqlState::INTERNAL_ERROR)
        )
    )
}

/// The statement that asks the catalog which parts of the schema exist.
fn inspection(tables: &Tables) -> Statement {
    let columns = &["complete", "named", "labelled", "marked", "indexed"];
    let labels = format!("'{}'", Labels::NAMES.join("', '"));
    let sql = include_str!("schema_inspect.sql").replace("{labels}", &labels);
    Statement::new(&sql, tables, columns)
}

async fn inspect(
    transport: &dyn Transport,
    inspection: &Statement,
    names: &[String],
) -> Result<SchemaState, Error> {
    let plan = inspection.bind(names.iter().map(|name| Param::Text(name)).collect());
    let row = transport.run(&plan).await?;
    let is = |column| Ok::<_, Error>(reply::text(row.as_ref(), column)? == "true");
    Ok(SchemaState {
        complete: is(0)?,
        named: is(1)?,
        labelled: is(2)?,
        marked: is(3)?,
        indexed: is(4)?,
    })
}

/// Which parts of the schema exist.
#[derive(Clone, Copy)]
struct SchemaState {
    /// Both tables, and the indexes that older ones have, too.
    complete: bool,
    /// The column in which fence counters have their key in clear.
    named: bool,
    /// The columns for labels.
    labelled: bool,
    /// The columns for what is done once.
    marked: bool,
    /// The index on the locks of readers.
    indexed: bool,
}

/// The quoted names of the indexes.
pub(super) struct IndexNames<'a> {
    tables: &'a Tables,
    lock_id_index: String,
    expires_index: String,
    readers_index: String,
}

impl<'a> IndexNames<'a> {
    pub(super) fn new(tables: &'a Tables) -> Result<Self, Error> {
        let name = |suffix| {
            let mut name = format!("idx_{}_{suffix}", tables.locks());
            // The server truncates longer names in the same way, for programs that leave it to the server.
            name.truncate(MAX_NAME_BYTES);
            quoted(&name)
        };
        let (lock_id_index, expires_index) = (name("lock_id"), name("expires"));
        if lock_id_index == expires_index {
            return Err(Error::invalid(
                "tableName must not exceed 57 bytes: longer ones give the indexes the same name",
            ));
        }
        Ok(Self {
            tables,
            lock_id_index,
            expires_index,
            readers_index: name("readers"),
        })
    }

    /// The quoted names of the tables of locks and fences, and of the indexes.
    pub(super) fn quoted(&self) -> [String; 5] {
        let [locks, fences] = [self.tables.locks(), self.tables.fences()].map(quoted);
        [
            locks,
            fences,
            self.lock_id_index.clone(),
            self.expires_index.clone(),
            self.readers_index.clone(),
        ]
    }

    fn tables_sql(&self) -> String {
        self.under_lock(&self.template())
    }

    fn template(&self) -> String {
        self.write_into(SQL)
    }

    /// `sql` with the names of the indexes.
    pub(super) fn write_into(&self, sql: &str) -> String {
        sql.replace("{lock_id_index}", &self.lock_id_index)
            .replace("{expires_index}", &self.expires_index)
            .replace("{readers_index}", &self.readers_index)
    }

    fn under_lock(&self, sql: &str) -> String {
        self.tables.write_into(&format!("{LOCK}\n{sql}"))
    }
}
