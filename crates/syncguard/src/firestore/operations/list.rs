//! Listing locks, in the order of their document ids.

use crate::asking::inspection::{LockPage, bad_cursor};
use crate::firestore::documents::LockDocument;
use crate::firestore::transport::Page;
use crate::text::error::Error;

/// The documents that a cursor can name.
pub(in crate::firestore) fn after(cursor: Option<&str>) -> Result<Option<&str>, Error> {
    match cursor {
        Some(id) if id.is_empty() || id.contains('/') => Err(bad_cursor()),
        id => Ok(id),
    }
}

/// The live locks in a page of documents. A document that is no lock is left out: it does not hide the others.
pub(in crate::firestore) fn outcome(page: &Page, limit: usize, now_ms: i64) -> LockPage {
    let locks = page.documents.iter().filter_map(|found| {
        let lock: LockDocument = found.lock().ok()?;
        let record = lock.into_record(now_ms);
        record.is_live().then_some(record)
    });
    let last = page.documents.last().map(|found| found.id.clone());
    LockPage {
        locks: locks.collect(),
        next: last.filter(|_| page.documents.len() >= limit),
    }
}
