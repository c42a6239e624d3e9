//! The lock of those who share a key. It is an ordinary lock with a lock id that its document's id gives. Each of them has a lock of
//! his own besides, with the same fence.
//!
//! The group's lock ends no earlier than theirs, and mostly later: [`group_end`] adds something, so that its document, of which
//! Firestore takes about one write per second, is not written by each heartbeat. Whether somebody shares the key yet is known by
//! a look at their locks.

use std::iter;

use crate::asking::granting::FoundLock;
use crate::asking::outcome::Grant;
use crate::asking::request::AcquireRequest;
use crate::firestore::decision::Write;
use crate::firestore::documents::{LockDocument, LockState};
use crate::firestore::ids::{DocumentIds, group_of, reader_ids};
use crate::firestore::transport::{Documents, ReadSet};
use crate::text::error::Error;
use crate::values::claim::Claim;
use crate::values::key::Key;
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;
use crate::values::ttl::Ttl;

/// How many locks are read at a time if the first ones that were read have all ended.
const PAGE: usize = 100;

/// The ids of what all have together who share a key.
pub(super) struct GroupIds {
    pub(super) key: Key,
    pub(super) lock: String,
    pub(super) gate: String,
}

impl GroupIds {
    pub(super) fn of(key: &Key) -> Result<Self, Error> {
        Ok(Self {
            lock: DocumentIds::of(key)?.lock,
            gate: DocumentIds::of(&key.gate())?.lock,
            key: key.clone(),
        })
    }
}

/// When the lock of a group ends of which one ends then, who has that TTL.
pub(super) fn group_end(expires_at_ms: i64, ttl: Ttl) -> i64 {
    expires_at_ms.saturating_add(ttl.as_millis() / 2)
}

/// The group's lock, if the lock with this document id is one, and is live.
pub(super) fn live(
    found: &Documents,
    id: &str,
    now_ms: i64,
) -> Result<Option<LockDocument>, Error> {
    match found.lock_of(id)? {
        Some(lock) if lock.is_live(now_ms) && lock.is_group() => {
            found.lock_document_of(id).map(Some)
        }
        _ => Ok(None),
    }
}

/// The group's lock with that id, if it is live, and has the fence of the lock `reader`, so that this is one of it.
pub(super) fn of_reader(
    found: &Documents,
    id: &str,
    reader: &str,
    now_ms: i64,
) -> Result<Option<LockDocument>, Error> {
    let fence = found.lock_document_of(reader)?.fence;
    let group = live(found, id, now_ms)?;
    Ok(group.filter(|group| group.fence == fence))
}

/// Whether the lock with this document id is held as far as its group goes: it is no reader's, or one of a group.
pub(super) fn has(found: &Documents, id: &str, now_ms: i64) -> Result<bool, Error> {
    match group_of(id) {
        Some(group) => Ok(of_reader(found, &group, id, now_ms)?.is_some()),
        None => Ok(true),
    }
}

/// What is there for one who wants to share a key.
pub(super) fn found_lock(
    reader: &DocumentIds,
    ids: &GroupIds,
    claim: &Claim,
    found: &Documents,
    now_ms: i64,
) -> Result<FoundLock, Error> {
    let counter = found.counter_of(&reader.counter)?;
    let free = FoundLock::free(counter.map_or(0, |counter| counter.fence));
    let in_the_way = |lock: LockState, own_fence| FoundLock {
        expires_at_ms: Some(lock.expires_at_ms),
        own_fence,
        labels: lock.labels,
        ..FoundLock::free(0)
    };
    let read = |id: &str| Ok::<_, Error>(found.lock_of(id)?.filter(|lock| lock.is_live(now_ms)));
    let group = live(found, &ids.lock, now_ms)?;
    if let Some(own) = read(&reader.lock)?
        && own.lock_id == claim.lock_id.as_str()
        && let Some(group) = of_reader(found, &ids.lock, &own.document_id, now_ms)?
    {
        return Ok(in_the_way(own, Some(group.fence)));
    }
    if let Some(lock) = read(&ids.lock)?.filter(|_| group.is_none()) {
        return Ok(in_the_way(lock, None));
    }
    if let Some(gate) = read(&ids.gate)? {
        return Ok(in_the_way(gate, None));
    }
    let joins = group.map(|group| group.fence);
    Ok(FoundLock { joins, ..free })
}

/// What makes the group of one who is to share a key, or makes it end later.
pub(super) fn writes(
    group: &GroupIds,
    request: &AcquireRequest,
    grant: &Grant,
    found: &Documents,
    now_ms: i64,
) -> Result<Vec<Write>, Error> {
    let document_id = group.lock.clone();
    let expires_at_ms = group_end(grant.expires_at_ms, request.ttl);
    Ok(match live(found, &group.lock, now_ms)? {
        Some(joined) if joined.expires_at_ms >= grant.expires_at_ms => Vec::new(),
        Some(_) => vec![Write::ExtendLock {
            document_id,
            expires_at_ms,
        }],
        None => vec![Write::SetLock {
            lock: LockDocument {
                lock_id: LockId::group(&document_id),
                expires_at_ms,
                acquired_at_ms: now_ms,
                key: group.key.clone(),
                fence: grant.fence,
                labels: Labels::default(),
            },
            document_id,
        }],
    })
}

/// Who shares a key.
pub(super) enum Readers {
    /// Somebody does, at least until then.
    Until(i64),
    /// Nobody.
    Nobody,
    /// That is not known before this is read.
    Unread(ReadSet),
}

/// Who shares the key of this group, whose document has that id, except for those whose documents have the ids `leaving`.
pub(super) fn readers(
    found: &Documents,
    id: &str,
    group: &LockDocument,
    leaving: &[&str],
    now_ms: i64,
) -> Result<Readers, Error> {
    let range = reader_ids(id);
    let others = found.between(&range)?.into_iter();
    let others = others.filter(|(id, lock)| !leaving.contains(id) && is_one(group, lock, now_ms));
    if let Some(end) = others.map(|(_, lock)| lock.expires_at_ms).max() {
        return Ok(Readers::Until(end));
    }
    let [_, before] = range;
    let (from, limit) = match found.rest_of(&before) {
        Some(None) => return Ok(Readers::Nobody),
        Some(Some(rest)) => (rest.to_owned(), PAGE),
        None => return Ok(Readers::Unread(first(id, leaving.len()))),
    };
    let limit = Some(limit);
    Ok(Readers::Unread(ReadSet::Between {
        from,
        before,
        limit,
    }))
}

/// What shows somebody who shares the key, beside so many who leave it.
fn first(id: &str, leaving: usize) -> ReadSet {
    let [from, before] = reader_ids(id);
    ReadSet::Between {
        from,
        before,
        limit: Some(leaving + 1),
    }
}

/// Whether the lock with this document id is held; the error is what must be read first.
pub(super) fn is_held(
    found: &Documents,
    id: &str,
    now_ms: i64,
) -> Result<Result<bool, ReadSet>, Error> {
    if !found.lock_of(id)?.is_some_and(|lock| lock.is_live(now_ms)) {
        return Ok(Ok(false));
    }
    let Some(group) = live(found, id, now_ms)? else {
        return has(found, id, now_ms).map(Ok);
    };
    Ok(match readers(found, id, &group, &[], now_ms)? {
        Readers::Until(_) => Ok(true),
        Readers::Nobody => Ok(false),
        Readers::Unread(what) => Err(what),
    })
}

/// The ids of the groups' locks of those who own these lock ids, each with the ids of their own locks.
pub(super) fn groups<'a>(
    found: &'a Documents,
    lock_ids: &[LockId],
) -> Result<Vec<(String, Vec<&'a str>)>, Error> {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for document in &found.locks {
        let Some(group) = group_of(&document.id) else {
            continue;
        };
        let lock_id = document.state()?.lock_id;
        if !lock_ids.iter().any(|known| known.as_str() == lock_id) {
            continue;
        }
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, readers)) => readers.push(&document.id),
            None => groups.push((group, vec![&document.id])),
        }
    }
    Ok(groups)
}

/// What is to be read of these groups before anything is decided; if the readers are to leave, also who is left then.
pub(super) fn unread(
    found: &Documents,
    groups: &[(String, Vec<&str>)],
    is_leaving: bool,
) -> Vec<ReadSet> {
    let unread = groups.iter().filter(|(id, _)| !found.has_looked_for(id));
    let locks: Vec<_> = unread.clone().map(|(id, _)| id.clone()).collect();
    if locks.is_empty() {
        return Vec::new();
    }
    let others = unread
        .filter(|_| is_leaving)
        .map(|(id, readers)| first(id, readers.len()));
    let counters = Vec::new();
    let locks = ReadSet::Named { locks, counters };
    iter::once(locks).chain(others).collect()
}

/// Deletes the lock of a group that nobody is left of when those with the ids `leaving` have left, and those of readers who have
/// ended. The error is what must be read first.
pub(super) fn tidy(
    found: &Documents,
    id: &str,
    leaving: &[&str],
    now_ms: i64,
) -> Result<Result<Vec<Write>, ReadSet>, Error> {
    let Some(group) = live(found, id, now_ms)? else {
        return Ok(Ok(Vec::new()));
    };
    let readers = readers(found, id, &group, leaving, now_ms)?;
    let mut writes = prune(found, id, &group, leaving, now_ms)?;
    match readers {
        Readers::Until(_) => {}
        Readers::Nobody => writes.push(delete(id)),
        Readers::Unread(what) => return Ok(Err(what)),
    }
    Ok(Ok(writes))
}

/// Deletes what was read of the locks that have ended of those who shared the key, also in earlier groups.
pub(super) fn prune(
    found: &Documents,
    id: &str,
    group: &LockDocument,
    leaving: &[&str],
    now_ms: i64,
) -> Result<Vec<Write>, Error> {
    let locks = found.between(&reader_ids(id))?.into_iter();
    let ended = locks.filter(|(id, lock)| !leaving.contains(id) && !is_one(group, lock, now_ms));
    Ok(ended.map(|(id, _)| delete(id)).collect())
}

/// Deletes the lock with this document id.
pub(super) fn delete(id: &str) -> Write {
    Write::DeleteLock {
        document_id: id.to_owned(),
    }
}

/// Whether the lock is that of one who shares the key with the group.
fn is_one(group: &LockDocument, lock: &LockDocument, now_ms: i64) -> bool {
    lock.fence == group.fence && lock.is_live(now_ms)
}
