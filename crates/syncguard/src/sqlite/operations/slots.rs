//! Finds out which slots of a key are held.

use std::sync::LazyLock;

use rusqlite::Connection;

use super::labels;
use crate::asking::granting::HeldSlots;
use crate::values::claim::Claim;
use crate::values::key::{slot_range, split_slot};

static READ: LazyLock<String> = LazyLock::new(|| labels::write_into(include_str!("slots.sql")));

/// Which of the first `count` slots are held, whose names begin with `slots_key`. Each of `claims` wants one.
pub(super) fn held_slots<'a>(
    connection: &Connection,
    slots_key: &str,
    count: u16,
    claims: &'a [Claim],
    now_ms: i64,
) -> rusqlite::Result<HeldSlots<'a>> {
    let mut held = HeldSlots::new(claims, count, now_ms);
    let mut read = connection.prepare_cached(&READ)?;
    let mut rows = read.query(slot_range(slots_key))?;
    while let Some(row) = rows.next()? {
        if let Some((_, number)) = split_slot(row.get_ref(0)?.as_str()?) {
            let lock_id = row.get_ref(1)?.as_str()?;
            held.add(number, lock_id, row.get(2)?, || labels::read(row));
        }
    }
    Ok(held)
}
