//! The check of locks in a transaction of the user's own.

use crate::check::LockCheck;
use crate::error::{Error, ErrorKind};
use crate::lock_id::LockId;
use crate::postgres::reply;
use crate::postgres::schema::IndexNames;
use crate::postgres::tables::Tables;
use crate::time::TIME_TOLERANCE_MS;

/// With this the server begins what it says of locks that are not held.
const LOST: &str =
    "LockLost: the transaction cannot be committed, because locks of it are not held any more: ";

/// What it says where the index is missing, or is of no use.
const NO_INDEX: &str = "InvalidArgument: the table of locks lacks its unique index on lock_id, without which nothing can be guarded";

/// The statement that fails, and the transaction with it, unless these locks are held.
///
/// # Errors
/// `InvalidArgument` for a table name whose index names would be too long.
pub(in crate::postgres) fn check(tables: &Tables, lock_ids: &[LockId]) -> Result<LockCheck, Error> {
    let names = IndexNames::new(tables)?;
    let sql = names
        .write_into(statement(include_str!("guard.sql")))
        .replace("{no_index}", NO_INDEX)
        .replace("{lost}", LOST)
        .replace("{tolerance}", &TIME_TOLERANCE_MS.to_string());
    Ok(LockCheck {
        text: tables.write_into(&sql),
        values: vec![reply::joined(lock_ids)],
    })
}

/// The statement without the comment before it.
fn statement(file: &str) -> &str {
    file.find("SELECT").map_or(file, |at| file[at..].trim_end())
}

/// What an error of the server says of the locks of a [`LockCheck`], by its SQLSTATE and its message: `LockLost`, or
/// `InvalidArgument` or `AuthFailed` where nothing can be guarded. `None` for any other error.
pub fn check_failure(state: &str, message: &str) -> Option<Error> {
    match state {
        "42P01" => {
            return Some(Error::invalid(
                "the transaction does not see the table of locks: it is of another database, or has another search_path",
            ));
        }
        "42501" => {
            let text = "the role of the transaction needs SELECT on the table of locks, and UPDATE on one of its columns";
            return Some(Error::new(ErrorKind::AuthFailed, text));
        }
        _ => {}
    }
    // It stands among the server's own words, in whatever language.
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

    #[test]
    fn the_statement_has_its_names_and_no_lock_id_in_its_text() {
        let lock_ids = [LockId::generate().unwrap(), LockId::generate().unwrap()];
        let LockCheck { text, values } =
            check(&Tables::new("mine", "fences").unwrap(), &lock_ids).unwrap();
        assert!(
            text.starts_with("SELECT") && text.contains("FROM \"mine\""),
            "{text}"
        );
        assert!(
            text.contains("'\"idx_mine_lock_id\"'") && !text.contains(['{', '}']),
            "{text}"
        );
        assert!(
            !text.contains("--") && !text.contains(lock_ids[0].as_str()),
            "{text}"
        );
        assert_eq!(
            values,
            [format!("{},{}", lock_ids[0].as_str(), lock_ids[1].as_str())]
        );
    }

    #[test]
    fn the_servers_error_is_understood_in_any_language() {
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
