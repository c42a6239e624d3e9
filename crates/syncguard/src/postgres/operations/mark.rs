//! Reads and changes the mark of a key, which says for which period something was done last.

use tokio_postgres::error::SqlState;

use crate::postgres::error::Failure;
use crate::postgres::names::PrimaryKeys;
use crate::postgres::reply;
use crate::postgres::statement::{Param, Plan, Row, Statement};
use crate::postgres::tables::Tables;
use crate::text::error::Error;
use crate::values::due::{DoneMark, Due, MarkChange};
use crate::values::key::Key;
use crate::values::lock_id::LockId;

/// The clause that stores a mark beside a fence counter. A later period stays, which somebody may have set by force.
pub(super) const KEEP_LATER: &str = "ON CONFLICT (fence_key) DO UPDATE SET
    done_due = excluded.done_due,
    done_at_ms = excluded.done_at_ms,
    done_lock_id = excluded.done_lock_id
    WHERE last.done_due IS NULL
      OR left(last.done_due, 1) = left(excluded.done_due, 1) AND last.done_due < excluded.done_due COLLATE \"C\"";

/// The error for a table of fence counters that is older than the columns of marks.
pub(super) const LACKS_COLUMNS: &str = "the table of fence counters was made by an older version and has no columns for what is \
                                        done once: add them with setupSchema() or `syncguard setup`";

/// The statements that read and change the mark of a key.
#[derive(Debug)]
pub(in crate::postgres) struct Mark {
    read: Statement,
    set: Statement,
}

impl Mark {
    pub(in crate::postgres) fn new(tables: &Tables) -> Self {
        Self {
            read: Statement::new(include_str!("mark.sql"), tables, &["mark"]),
            set: Statement::new(include_str!("set_mark.sql"), tables, &["mark", "commit"]),
        }
    }

    /// Makes the statement that reads the mark.
    pub(in crate::postgres) fn plan<'a>(&'a self, names: &'a PrimaryKeys) -> Plan<'a> {
        self.read.bind(vec![Param::Text(&names.fence)])
    }

    /// Makes the statement that carries out `change` and reads the mark before it. A new mark gets `lock_id`.
    pub(in crate::postgres) fn plan_change<'a>(
        &'a self,
        key: &'a Key,
        names: &'a PrimaryKeys,
        change: &'a MarkChange,
        lock_id: &'a LockId,
    ) -> Plan<'a> {
        let due = match change {
            MarkChange::Set(due) => due.as_stored(),
            MarkChange::Keep | MarkChange::Clear => "",
        };
        self.set.bind(vec![
            Param::Text(&names.fence),
            Param::Text(key.as_str()),
            Param::Text(due),
            Param::Text(lock_id.as_str()),
        ])
    }
}

/// Reads the mark from the row of either statement.
pub(in crate::postgres) fn outcome(row: Option<&Row>) -> Result<Option<DoneMark>, Error> {
    match row {
        None => Ok(None),
        Some(_) => reply::optional(row, 0)?.map(read).transpose(),
    }
}

/// Parses a mark: when it was stored, under which lock id, and for which period, which may contain spaces.
fn read(text: &str) -> Result<DoneMark, Error> {
    let mut parts = text.splitn(3, ' ');
    let mut part = || parts.next().ok_or_else(reply::malformed);
    Ok(DoneMark {
        done_at_ms: part()?.parse().map_err(|_| reply::malformed())?,
        lock_id: LockId::parse(part()?).map_err(|_| reply::malformed())?,
        due: Due::stored(part()?).map_err(|_| reply::malformed())?,
    })
}

/// Reads the mark because of which an acquisition was refused.
pub(super) fn done(row: Option<&Row>, column: usize) -> Result<DoneMark, Error> {
    read(reply::text(row, column)?)
}

/// Turns a failure into an error, which names the cause if the table is older than the columns of marks.
pub(in crate::postgres) fn to_error(failure: Failure) -> Error {
    if failure.state() != Some(&SqlState::UNDEFINED_COLUMN) {
        return failure.into();
    }
    Error::invalid(LACKS_COLUMNS).with_source(Error::from(failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let id = "AAAAAAAAAAAAAAAAAAAAAA";
        let row = vec![Some(format!("1700000000000 {id} tone two  three"))];
        let mark = outcome(Some(&row)).unwrap().unwrap();
        assert_eq!(mark.due, Due::new("one two  three").unwrap());
        assert_eq!(
            (mark.done_at_ms, mark.lock_id.as_str()),
            (1_700_000_000_000, id)
        );
        assert_eq!(outcome(None).unwrap(), None);
        assert_eq!(outcome(Some(&vec![None])).unwrap(), None);
        for bad in [
            "",
            "1",
            &format!("1 {id}"),
            &format!("x {id} ta"),
            "1 AAA ta",
        ] {
            assert!(outcome(Some(&vec![Some(bad.to_owned())])).is_err(), "{bad}");
        }
    }
}
