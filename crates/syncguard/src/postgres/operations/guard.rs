//! Checks, in a transaction of the user's own, that locks are held.

use tokio_postgres::error::SqlState;

use crate::asking::check::LockCheck;
use crate::asking::request::Finish;
use crate::postgres::held;
use crate::postgres::names::PrimaryKeys;
use crate::postgres::operations::mark::{KEEP_LATER, LACKS_COLUMNS};
use crate::postgres::readers::may_be_shared;
use crate::postgres::reply;
use crate::postgres::schema::IndexNames;
use crate::postgres::tables::Tables;
use crate::text::error::{Error, ErrorKind};
use crate::values::lock_id::LockId;

/// The server's error when locks are not held. In a savepoint, the transaction around it could be committed.
const LOST: &str =
    "LockLost: roll the whole transaction back, because locks of it are not held any more";

/// Its error when the index is missing or unusable.
const NO_INDEX: &str = "InvalidArgument: the table of locks lacks its unique index on lock_id, without which nothing can be guarded";

/// Added to [`LOST`] if row level security may hide the locks from the role.
const MAY_BE_HIDDEN: &str = ", or row level security hides them from the role of the transaction";

/// Added to [`LOST`] in a transaction that goes on seeing what was there when it began.
const MAY_BE_OLDER: &str =
    ", or its snapshot is older than their last extension, so that it has to be run again";

/// Whether the session knows that the index is there. To ask the catalogue takes as long as the rest of the statement, so a
/// session asks once and keeps the number of the index in a setting. An index that is made anew has another number.
const INDEX_IS_KNOWN: &str =
    "to_regclass('{lock_id_index}')::oid::text = current_setting('syncguard.lock_id_index', true)";

/// Asks the catalogue and keeps the answer in the setting. It is NULL if the index is missing or unusable.
const FOUND_INDEX: &str = "(
        SELECT set_config('syncguard.lock_id_index', indexrelid::text, false)
        FROM pg_index
        WHERE indexrelid = to_regclass('{lock_id_index}') AND indrelid = '{locks}'::regclass
          AND indisunique AND indisvalid AND indpred IS NULL AND indnkeyatts = 1
      )";

/// The text of the error when locks are not held, with the other reasons why the transaction may not see them.
const LOST_OR: &str = "concat(
    '{lost}',
    CASE WHEN row_security_active('{locks}'::text) THEN '{may_be_hidden}' END,
    CASE WHEN current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN '{may_be_older}' END
  )";

/// Run this in a transaction in which a [`LockCheck`] has failed, so that nobody can commit the transaction by ignoring the failure.
/// In a savepoint, the server has failed the savepoint alone, and no statement there can reach beyond it. So this rolls back the
/// whole transaction with its savepoints, and puts one that has failed in its place. It is several statements, which need the
/// simple protocol. It always fails; outside of a transaction it does nothing else.
pub const STOP_TRANSACTION: &str =
    "ROLLBACK AND CHAIN; SELECT concat('LockLost: the transaction cannot be committed')::integer";

/// When the lock ends, if it is there.
const END: &str = "SELECT expires_at_ms FROM {locks} WHERE lock_id = $1::text FOR KEY SHARE";

/// When the first of several locks ends, if all are there. They are locked in the order of their keys, so that two guards do not
/// wait for each other. The ids are unpacked in a subquery, because the planner would plan anew each time if it knew how many
/// they are.
const FIRST_END: &str = "
    SELECT CASE WHEN count(*) = cardinality(string_to_array($1::text, ',')) THEN min(expires_at_ms) END
    FROM (
      SELECT expires_at_ms FROM {locks}
      WHERE lock_id = ANY ((SELECT string_to_array($1::text, ','))::text[])
      ORDER BY key
      FOR KEY SHARE
    ) locked
  ";

/// The same where some may be readers'. With those, their groups are locked, so that nobody takes a group over or frees it.
const FIRST_SHARED_END: &str = "
    WITH groups AS MATERIALIZED (
      SELECT shared.lock_id
      FROM {locks} AS lock JOIN {locks} AS shared ON shared.key = left(lock.key, -24) AND shared.fence = lock.fence
      WHERE lock.lock_id = ANY ((SELECT string_to_array($1::text, ','))::text[]) AND {is_reader}
    ), locked AS MATERIALIZED (
      SELECT key, lock_id, fence, expires_at_ms FROM {locks}
      WHERE lock_id = ANY ((SELECT string_to_array($1::text, ',') || ARRAY(SELECT lock_id FROM groups))::text[])
      ORDER BY key
      FOR KEY SHARE
    )
    SELECT CASE WHEN count(*) = cardinality(string_to_array($1::text, ',')) THEN min(least(lock.expires_at_ms, shared.expires_at_ms)) END
    FROM locked AS lock LEFT JOIN locked AS shared
      ON {is_reader} AND shared.key = left(lock.key, -24) AND shared.fence = lock.fence
    WHERE lock.lock_id = ANY (string_to_array($1::text, ','))
      AND NOT {is_group}
      AND ({is_reader} IS NOT TRUE OR shared.key IS NOT NULL)
  ";

/// The statements of guards. Unless the locks are held, each fails, and the transaction with it, or in a savepoint that alone.
#[derive(Debug)]
pub(in crate::postgres) struct Checks {
    single: String,
    several: String,
    shared: String,
    /// Checks one lock, and stores in the same step that something is done.
    done: String,
}

impl Checks {
    /// For the locks in `tables`.
    ///
    /// # Errors
    /// `InvalidArgument` for a table name whose index names would be too long.
    pub(in crate::postgres) fn new(tables: &Tables) -> Result<Self, Error> {
        let names = IndexNames::new(tables)?;
        let of = |file, first_end| {
            let sql = statement(file)
                .replace("{first_end}", first_end)
                .replace("{index_is_known}", INDEX_IS_KNOWN)
                .replace("{found_index}", FOUND_INDEX)
                .replace("{keep_later}", KEEP_LATER)
                .replace("{lost_or}", LOST_OR)
                .replace("{no_index}", NO_INDEX)
                .replace("{lost}", LOST)
                .replace("{may_be_hidden}", MAY_BE_HIDDEN)
                .replace("{may_be_older}", MAY_BE_OLDER);
            tables.write_into(&names.write_into(&held::write_into(&sql)))
        };
        let held = include_str!("guard.sql");
        Ok(Self {
            single: of(held, END),
            several: of(held, FIRST_END),
            shared: of(held, FIRST_SHARED_END),
            done: of(include_str!("guard_done.sql"), ""),
        })
    }

    /// The statement for these locks.
    pub(in crate::postgres) fn of(
        &self,
        lock_ids: &[LockId],
        done: Option<&Finish>,
    ) -> Result<LockCheck, Error> {
        let mut values = vec![reply::joined(lock_ids)];
        let Some(Finish { key, due }) = done else {
            let text = match lock_ids {
                _ if lock_ids.iter().any(may_be_shared) => self.shared.clone(),
                [_] => self.single.clone(),
                _ => self.several.clone(),
            };
            return Ok(LockCheck { text, values });
        };
        let PrimaryKeys { lock, fence } = PrimaryKeys::new(key)?;
        let (key, due) = (key.as_str().to_owned(), due.as_stored().to_owned());
        values.extend([lock, fence, key, due]);
        let text = self.done.clone();
        Ok(LockCheck { text, values })
    }
}

/// The statement without the comment before it.
fn statement(file: &str) -> &str {
    let is_sql = |line: &str| !line.starts_with("--");
    let start = file
        .split_inclusive('\n')
        .take_while(|line| !is_sql(line))
        .map(str::len)
        .sum::<usize>();
    file[start..].trim_end()
}

/// What an error of the server says of the locks of a [`LockCheck`], by its SQLSTATE and its message: `LockLost`;
/// `ServiceUnavailable` if the transaction has to be run again to know; or `InvalidArgument` or `AuthFailed` where nothing can be
/// guarded. `None` for any other error.
pub fn check_failure(state: &str, message: &str) -> Option<Error> {
    match SqlState::from_code(state) {
        SqlState::UNDEFINED_TABLE => {
            return Some(Error::invalid(
                "the transaction does not see the tables of locks: it is of another database, or has another search_path",
            ));
        }
        SqlState::INSUFFICIENT_PRIVILEGE => {
            let text = "the role of the transaction needs SELECT on the table of locks, and UPDATE on one of its columns; to store what \
                        is done also SELECT, INSERT and UPDATE on the table of fence counters";
            return Some(Error::new(ErrorKind::AuthFailed, text));
        }
        SqlState::UNDEFINED_COLUMN => return Some(Error::invalid(LACKS_COLUMNS)),
        _ => {}
    }
    // Our text stands among the server's own words, which may be in any language.
    if message.contains(MAY_BE_HIDDEN) {
        let text = "row level security may hide the lock from the role of the transaction, or the lock was lost: give the role a policy \
                    for all rows (docs/postgres.md, \"Row level security\")";
        return Some(Error::new(ErrorKind::AuthFailed, text));
    }
    if message.contains(MAY_BE_OLDER) {
        let text = "the snapshot of the transaction is older than the lock's grant, its last extension or its loss: run the transaction \
                    again, and let the guard be its first statement";
        return Some(Error::new(ErrorKind::ServiceUnavailable, text));
    }
    if message.contains(LOST) {
        let text = "the lock was lost: it was gone when it was to be guarded";
        return Some(Error::new(ErrorKind::LockLost, text));
    }
    if message.contains(NO_INDEX) {
        return Some(Error::invalid(
            "nothing can be guarded, because the table of locks lacks its unique index on lock_id: call setupSchema",
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::due::Due;
    use crate::values::key::Key;

    #[test]
    fn the_statements_have_their_names_and_no_value_in_their_text() {
        let lock_ids = [LockId::generate().unwrap(), LockId::generate().unwrap()];
        let tables = Tables::new("mine", "fences").unwrap();
        let done = Finish {
            key: Key::new("night").unwrap(),
            due: Due::new("42").unwrap(),
        };
        let checks = Checks::new(&tables).unwrap();
        let guard = checks.of(&lock_ids, None).unwrap();
        let stores = checks.of(&lock_ids[..1], Some(&done)).unwrap();
        let joined = format!("{},{}", lock_ids[0].as_str(), lock_ids[1].as_str());
        assert_eq!(guard.values, [joined]);
        let (key, due) = (done.key.as_str(), done.due.as_stored());
        assert_eq!(stores.values[..1], [lock_ids[0].as_str()]);
        assert_eq!(stores.values[3..], [key, due]);
        for (LockCheck { text, .. }, first) in [(guard, "SELECT"), (stores, "WITH")] {
            assert!(
                text.starts_with(first) && text.contains("FROM \"mine\""),
                "{text}"
            );
            assert!(text.contains("'\"idx_mine_lock_id\"'"), "{text}");
            let private = [lock_ids[0].as_str(), key, due];
            assert!(!private.iter().any(|value| text.contains(value)), "{text}");
            assert!(!text.contains("--") && !text.contains(['{', '}']), "{text}");
        }
    }

    #[test]
    fn the_servers_error_is_understood_in_any_language() {
        for (words, kind) in [
            (
                format!("{LOST}{MAY_BE_HIDDEN}{MAY_BE_OLDER}"),
                ErrorKind::AuthFailed,
            ),
            (
                format!("{LOST}{MAY_BE_OLDER}"),
                ErrorKind::ServiceUnavailable,
            ),
        ] {
            assert_eq!(check_failure("22P02", &words).unwrap().kind(), kind);
        }
        let lost = format!("ungültige Eingabe: \"{LOST}1\"");
        assert_eq!(
            check_failure("22P02", &lost).unwrap().kind(),
            ErrorKind::LockLost
        );
        let unusable = check_failure("22P02", &format!("\"{NO_INDEX}\"")).unwrap();
        assert_eq!(unusable.kind(), ErrorKind::InvalidArgument);
        assert!(check_failure("22P02", "invalid input syntax for type integer: \"x\"").is_none());
    }
}
