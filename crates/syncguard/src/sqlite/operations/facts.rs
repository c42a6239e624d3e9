use crate::asking::inspection::{Fact, Facts};
use crate::sqlite::connection::schema;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::from_sqlite;
use crate::text::error::Error;

const COUNTS: &str = "SELECT (SELECT count(*) FROM syncguard_locks), (SELECT count(*) FROM syncguard_fence_counters)";

/// How the database is set up. That its file is in order, on a local file system and not used by another copy of the
/// library was checked when it was opened.
pub(in crate::sqlite) fn facts(store: &Store) -> Result<Facts, Error> {
    let connection = store.connection();
    let text =
        |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, String>(0));
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let mut facts = Facts::default();
    facts.add("version", rusqlite::version());
    facts.add("journalMode", text("journal_mode").map_err(from_sqlite)?);
    facts.add(
        "schemaVersion",
        number("user_version").map_err(from_sqlite)?,
    );
    facts.add("schemaVersionExpected", i64::from(schema::VERSION));
    let pages = number("page_count").map_err(from_sqlite)?;
    let page_size = number("page_size").map_err(from_sqlite)?;
    facts.add("sizeBytes", pages.saturating_mul(page_size));
    let (locks, counters) = connection
        .query_row(COUNTS, [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })
        .map_err(from_sqlite)?;
    facts.add("locks", locks);
    facts.add("counters", counters);
    // "ok", or the first thing that is wrong.
    let check = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))
        .map_err(from_sqlite)?;
    facts.add("isIntact", check == "ok");
    facts.facts.push(("isFile", Fact::Flag(store.is_file())));
    Ok(facts)
}
