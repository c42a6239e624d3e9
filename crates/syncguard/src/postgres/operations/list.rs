//! Lists locks, page by page.

use serde_json::Value;

use super::lookup::record;
use crate::asking::inspection::{LockPage, PageRequest};
use crate::postgres::reply;
use crate::postgres::statement::{Param, Plan, Row, Statement};
use crate::postgres::tables::Tables;
use crate::text::error::Error;

/// The statement that lists locks in `tables`.
pub(in crate::postgres) fn statement(tables: &Tables) -> Statement {
    Statement::new(include_str!("list.sql"), tables, &["now_ms", "page"])
}

/// Binds it for a page.
pub(in crate::postgres) fn plan<'a>(
    statement: &'a Statement,
    page: &'a PageRequest,
) -> Result<Plan<'a>, Error> {
    let limit = i64::try_from(page.checked_limit()?).unwrap_or(i64::MAX);
    // Every name comes after the empty text.
    let after = page.after.as_deref().unwrap_or_default();
    // The server would refuse it, with an error that says less.
    if after.contains('\0') {
        return Err(crate::asking::inspection::bad_cursor());
    }
    Ok(statement.bind(vec![Param::Text(after), Param::BigInt(limit)]))
}

/// Reads the page from its row.
///
/// # Errors
/// `Internal` for a row that makes no sense.
pub(in crate::postgres) fn outcome(row: Option<&Row>, limit: usize) -> Result<LockPage, Error> {
    let read_at_ms = reply::number(row, 0)?;
    let rows: Vec<Value> =
        serde_json::from_str(reply::text(row, 1)?).map_err(|_| reply::malformed())?;
    let is_full = rows.len() >= limit;
    let mut page = LockPage::default();
    for row in &rows {
        let record = record(row, read_at_ms).ok_or_else(reply::malformed)?;
        // Readers are listed, and their group is not.
        if !record.is_group() {
            page.locks.push(record);
        }
        page.next = row["key"].as_str().map(str::to_owned);
    }
    page.next = page.next.filter(|_| is_full);
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;

    const ROW: &str = r#"{"key":"n1","user_key":"k","lock_id":"AAAAAAAAAAAAAAAAAAAAAA","expires_at_ms":2,
        "acquired_at_ms":1,"fence":"000000000000042","owner":"BBBBBBBBBBBBBBBBBBBBBB somebody else"}"#;

    fn page(rows: &str, limit: usize) -> Result<LockPage, Error> {
        let row = vec![Some("5".to_owned()), Some(rows.to_owned())];
        outcome(Some(&row), limit)
    }

    #[test]
    fn a_full_page_says_where_the_next_one_begins() {
        let full = page(&format!("[{ROW}]"), 1).unwrap();
        assert_eq!(full.next.as_deref(), Some("n1"));
        let lock = &full.locks[0];
        assert_eq!((lock.key.as_str(), lock.fence.get()), ("k", 42));
        assert_eq!(lock.read_at_ms, 5);
        assert_eq!(page(&format!("[{ROW}]"), 2).unwrap().next, None);
        assert_eq!(page("[]", 1).unwrap().next, None);
    }

    #[test]
    fn anything_else_is_malformed() {
        for rows in ["", "{}", "[1]", "[{}]", &format!("[{ROW},null]")] {
            assert_eq!(page(rows, 9).unwrap_err().kind(), ErrorKind::Internal);
        }
        assert!(outcome(None, 1).is_err());
    }

    #[test]
    fn limits_and_cursors_are_checked() {
        let statement = statement(&Tables::default());
        for (after, limit) in [(None, 0), (None, 101), (Some("a\0b".to_owned()), 1)] {
            let error = plan(&statement, &PageRequest { after, limit }).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }
}
