//! How a statement that frees a lock tells those who wait: NOTIFY, where somebody may hear it.

use crate::postgres::tables::Tables;

/// The first key of our advisory locks that have two: "sync" in ASCII.
const CLASS: &str = "1937337955";
/// What wakes those who wait for the row `lock`, which the statement deletes.
///
/// A session that listens for a lock holds the advisory lock of one of 64 buckets in shared mode (listen.sql). If
/// nobody does, the transaction that frees the lock gets that of the bucket and keeps it until its end. So
/// whoever begins to listen in the meantime goes on only after the commit, and then finds the lock free. NOTIFY
/// makes transactions commit one after the other, so it is sent only where somebody may hear it.
const TELL: &str = "CASE WHEN NOT pg_try_advisory_xact_lock({class}, ({hash} & 63)::integer) \
                    THEN pg_notify('syncguard_' || to_hex({hash}), '')::text END";
/// What stands for a lock in this database, and for all slots of a key, whose names end with U+037E and their number. Only
/// the server computes it. (Its regular expressions have the character also where its encoding does not.)
const HASH: &str = "hashtextextended(\
                    regexp_replace(lock.key, E'\\\\u037E[0-9]+$', ''), {table}::oid::bigint)";

/// `sql` of a statement that frees locks, with what wakes those who wait in place of `{tell}`.
pub(in crate::postgres) fn telling(sql: &str) -> String {
    sql.replace("{tell}", TELL)
        .replace("{hash}", HASH)
        .replace("{table}", "'{locks}'::regclass")
        .replace("{class}", CLASS)
}

/// The name of a lock among those for which somebody waits.
pub(in crate::postgres) fn watched_name(tables: &Tables, storage_key: &str) -> String {
    format!("\"{}\" {storage_key}", tables.locks())
}

/// `sql` of a statement for sessions that listen, with the hash of a lock in place of `{hash}`.
pub(super) fn with_hash(sql: &str) -> String {
    sql.replace("{hash}", HASH)
        .replace("{table}", "lock.locks")
        .replace("{class}", CLASS)
}

/// The channel on which the release of a lock is told, as [`TELL`] makes it.
pub(super) fn channel(hash: i64) -> String {
    format!("syncguard_{hash:x}")
}
