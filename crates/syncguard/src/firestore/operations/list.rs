//! Listing locks, in the order of their document ids.

use super::group;
use crate::asking::inspection::{LockPage, bad_cursor};
use crate::firestore::ids::group_of;
use crate::firestore::transport::{Document, Documents};
use crate::text::error::Error;

/// The documents that a cursor can name.
pub(in crate::firestore) fn after(cursor: Option<&str>) -> Result<Option<&str>, Error> {
    match cursor {
        Some(id) if id.is_empty() || id.contains('/') => Err(bad_cursor()),
        id => Ok(id),
    }
}

/// The ids of what those in these documents have together who share a key.
pub(in crate::firestore) fn groups(documents: &[Document]) -> Vec<String> {
    let mut groups: Vec<_> = documents.iter().filter_map(|it| group_of(&it.id)).collect();
    groups.dedup();
    groups
}

/// The live locks among the first `count` documents. A document that is no lock is left out: it does not hide the others.
/// Who shares a key is listed, and their common lock is not.
pub(in crate::firestore) fn outcome(
    found: &Documents,
    count: usize,
    limit: usize,
    now_ms: i64,
) -> LockPage {
    let listed = &found.locks[..count];
    let locks = listed.iter().filter_map(|document| {
        let record = document.lock().ok()?.into_record(now_ms);
        let is_held = record.is_live() && group::has(found, &document.id, now_ms).ok()?;
        (is_held && !record.is_group()).then_some(record)
    });
    let last = listed.last().map(|found| found.id.clone());
    LockPage {
        locks: locks.collect(),
        next: last.filter(|_| count >= limit),
    }
}
