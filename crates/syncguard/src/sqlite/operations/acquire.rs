use std::borrow::Cow;
use std::sync::LazyLock;

use rusqlite::{Connection, ToSql, params, params_from_iter};

use super::group;
use super::labels;
use super::mark;
use super::slots::held_slots;
use crate::asking::granting::{FoundLock, Granting, NoSlot, grant};
use crate::asking::outcome::{AcquireOutcome, Grant};
use crate::asking::request::AcquireRequest;
use crate::sqlite::connection::schema::KEYS;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::from_sqlite;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::claim::{Claim, ClaimKind};
use crate::values::due::DoneMark;
use crate::values::fence::Fence;
use crate::values::key::{Key, split_reader};
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;
use crate::values::time::is_held;

const READ: &str = include_str!("acquire_read.sql");
static READ_HELD: LazyLock<String> =
    LazyLock::new(|| labels::write_into(include_str!("acquire_held.sql")));
static WRITE_LOCK: LazyLock<String> =
    LazyLock::new(|| labels::write_into(include_str!("acquire_lock.sql")));
const WRITE_FENCE: &str = include_str!("acquire_fence.sql");

/// The key and the names of a lock that a claim is to get.
struct WantedRow<'a> {
    key: Cow<'a, Key>,
    lock_key: String,
    fence_key: String,
}

/// Acquires all the locks unless somebody holds one of them. Every check comes before the first write.
pub(in crate::sqlite) fn acquire(
    store: &Store,
    request: &AcquireRequest,
) -> Result<AcquireOutcome, Error> {
    // Read inside the transaction, so that the time does not include the wait for the write lock.
    let now_ms = store.now_ms();
    let claims = request.claims.as_slice();
    if let Some(mark) = done(store, request, now_ms)? {
        return Ok(AcquireOutcome::Done(mark));
    }
    let mut wanted: Batch<WantedRow<'_>> = Batch::new();
    for same in claims.chunk_by(|a, b| a.key == b.key) {
        match keys_of(store, same, now_ms)? {
            Ok(keys) => {
                for key in keys {
                    wanted.push(WantedRow::of(key)?);
                }
            }
            Err(none) => return Ok(none.answer(wanted.len())),
        }
    }
    let found = wanted.iter().zip(claims);
    let found: Batch<FoundLock> = found
        .map(|(lock, claim)| read(store, lock, claim, now_ms))
        .collect::<Result<_, Error>>()?;
    let joins: Batch<bool> = found.iter().map(|lock| lock.joins.is_some()).collect();
    let grants = match grant(claims, &found, request.ttl, now_ms)? {
        Granting::Answer(answer) => return Ok(answer),
        Granting::Write(grants) => grants,
    };
    store.whole(|connection| {
        for ((lock, grant), joins) in wanted.iter().zip(&grants).zip(joins) {
            let shared = split_reader(&lock.lock_key);
            if let Some((lock_key, _)) = &shared {
                if joins {
                    group::raise(connection, lock_key, grant.expires_at_ms)?;
                } else {
                    group::clear(connection, lock_key)?;
                    let row = NewRow {
                        lock_key,
                        lock_id: &LockId::group(lock_key),
                        user_key: lock.key.base(),
                        labels: &Labels::default(),
                    };
                    write(connection, &row, grant, now_ms)?;
                }
            }
            let row = NewRow {
                lock_key: &lock.lock_key,
                lock_id: &grant.lock_id,
                user_key: lock.key.as_str(),
                labels: &request.labels,
            };
            write(connection, &row, grant, now_ms)?;
            // A reader that joins a group has the group's fence.
            if !joins {
                connection.prepare_cached(WRITE_FENCE)?.execute(params![
                    lock.fence_key,
                    grant.fence.get().cast_signed(),
                    shared.map_or(lock.key.as_str(), |_| lock.key.base()),
                ])?;
            }
        }
        Ok(())
    })?;
    Ok(AcquireOutcome::Acquired(grants))
}

/// A lock to write.
struct NewRow<'a> {
    lock_key: &'a str,
    lock_id: &'a LockId,
    user_key: &'a str,
    labels: &'a Labels,
}

fn write(
    connection: &Connection,
    row: &NewRow<'_>,
    grant: &Grant,
    now_ms: i64,
) -> rusqlite::Result<()> {
    let (lock_id, fence) = (row.lock_id.as_str(), grant.fence.to_string());
    let columns: [&dyn ToSql; 6] = [
        &row.lock_key,
        &lock_id,
        &grant.expires_at_ms,
        &now_ms,
        &fence,
        &row.user_key,
    ];
    let labels = row.labels.texts();
    let labels = labels.iter().map(|text| text as &dyn ToSql);
    connection
        .prepare_cached(&WRITE_LOCK)?
        .execute(params_from_iter(columns.into_iter().chain(labels)))
        .map(drop)
}

/// The mark of the key, if the period that is asked for is done, or a later one.
fn done(store: &Store, request: &AcquireRequest, now_ms: i64) -> Result<Option<DoneMark>, Error> {
    let (Some(due), Some(claim)) = (&request.due, request.claims.first()) else {
        return Ok(None);
    };
    let mark = mark::read(store, &mark::name_of(&claim.key)?)?;
    let Some(mark) = mark.filter(|mark| mark.covers(due)) else {
        return Ok(None);
    };
    // If the caller has the lock already, from a call whose answer was lost, it was granted for this period.
    let wanted = WantedRow::of(Cow::Borrowed(&claim.key))?;
    let is_own = read(store, &wanted, claim, now_ms)?.own_fence.is_some();
    Ok((!is_own).then_some(mark))
}

/// The keys of the locks that the claims of one key are to get, or the answer if there are too few free slots.
type Keys<'a> = Result<Batch<Cow<'a, Key>>, NoSlot>;

fn keys_of<'a>(store: &Store, claims: &'a [Claim], now_ms: i64) -> Result<Keys<'a>, Error> {
    let Some(Claim { key, kind, .. }) = claims.first() else {
        return Ok(Ok(Batch::new()));
    };
    let slots = match kind {
        ClaimKind::Exclusive => return Ok(Ok(Batch::from([Cow::Borrowed(key)]))),
        ClaimKind::Shared => {
            let readers = claims.iter().map(|claim| key.reader(&claim.lock_id));
            return Ok(Ok(readers.map(Cow::Owned).collect()));
        }
        ClaimKind::SlotOf(slots) => slots,
    };
    let slots_key = KEYS.slots_key(key)?;
    let held = held_slots(
        store.connection(),
        &slots_key,
        slots.count(),
        claims,
        now_ms,
    );
    let chosen = held.map_err(from_sqlite)?.choose(slots.first()?);
    Ok(chosen.map(|numbers| {
        let numbers = numbers.into_iter();
        numbers.map(|number| Cow::Owned(key.slot(number))).collect()
    }))
}

impl<'a> WantedRow<'a> {
    fn of(key: Cow<'a, Key>) -> Result<Self, Error> {
        let lock_key = KEYS.lock_key(&key)?;
        Ok(Self {
            fence_key: KEYS.fence_key(&lock_key)?,
            lock_key,
            key,
        })
    }
}

fn read(
    store: &Store,
    wanted: &WantedRow<'_>,
    claim: &Claim,
    now_ms: i64,
) -> Result<FoundLock, Error> {
    let connection = store.connection();
    let (expires_at_ms, counter): (Option<i64>, Option<i64>) = connection
        .prepare_cached(READ)
        .and_then(|mut read| {
            let names = [&wanted.lock_key, &wanted.fence_key];
            read.query_one(names, |row| Ok((row.get(0)?, row.get(1)?)))
        })
        .map_err(from_sqlite)?;
    let counter = counter.unwrap_or(0);
    if claim.kind == ClaimKind::Shared {
        return group::found(store, claim, &wanted.lock_key, counter, now_ms);
    }
    let found = FoundLock {
        slot: wanted.key.slot_number(),
        ..FoundLock::free(counter)
    };
    // Most of the time the key is free, and nothing more has to be read.
    let Some(end) = expires_at_ms.filter(|at| is_held(*at, now_ms)) else {
        return Ok(found);
    };
    let (own_fence, lock_id, labels): (Option<String>, String, Labels) = connection
        .prepare_cached(&READ_HELD)
        .and_then(|mut read| {
            let names = [&wanted.lock_key, claim.lock_id.as_str()];
            read.query_one(names, |row| {
                Ok((row.get(0)?, row.get(1)?, labels::read(row)))
            })
        })
        .map_err(from_sqlite)?;
    let is_shared = group::is_group_id(&lock_id, &wanted.lock_key);
    let end = match is_shared {
        // Readers may have ended before their group, or been released by a version that does not know of groups.
        true => group::readers_end(connection, &wanted.lock_key, now_ms).map_err(from_sqlite)?,
        false => Some(end),
    };
    Ok(FoundLock {
        expires_at_ms: end,
        own_fence: own_fence.map(|text| Fence::parse(&text)).transpose()?,
        labels,
        is_shared,
        ..found
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::sqlite::config::SqliteConfig;
    use crate::sqlite::connection::store::Durability;
    use crate::text::error::ErrorKind;
    use crate::values::time::SystemClock;
    use crate::values::ttl::Ttl;

    const LIMIT: i64 = 900_000_000_000_000;

    fn store_with_counter(counter: i64) -> Store {
        let deadline = Instant::now() + Duration::from_secs(5);
        let clock = Arc::new(SystemClock);
        let mut store =
            Store::open(&SqliteConfig::in_memory(), clock, Arc::default(), deadline).unwrap();
        assert!(store.begin(Durability::ForGood, deadline).unwrap());
        store
            .connection()
            .execute(WRITE_FENCE, params!["fence:a", counter, "a"])
            .unwrap();
        store
    }

    /// Asks for all of these at once.
    fn attempt(store: &Store, names: &[&str]) -> Result<AcquireOutcome, Error> {
        let claims = names.iter().map(|name| Claim::new(Key::new(name).unwrap()));
        let claims = claims.collect::<Result<Vec<_>, _>>()?;
        acquire(store, &AcquireRequest::of(claims, Ttl::DEFAULT)?)
    }

    /// How many locks there are, and the counter of "a".
    fn left(store: &Store) -> (i64, i64) {
        let sql = "SELECT (SELECT count(*) FROM syncguard_locks), \
             (SELECT fence FROM syncguard_fence_counters WHERE fence_key = 'fence:a')";
        let row = store
            .connection()
            .query_one(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
        row.unwrap()
    }

    #[test]
    fn the_last_fence_is_given_in_memory_too() {
        let store = store_with_counter(LIMIT - 1);
        let AcquireOutcome::Acquired(grants) = attempt(&store, &["a"]).unwrap() else {
            panic!("locked");
        };
        assert_eq!(grants[0].fence, Fence::MAX);
    }

    #[test]
    fn at_the_limit_nothing_is_written_in_memory_either() {
        for counter in [LIMIT, i64::MAX, -1] {
            let store = store_with_counter(counter);
            for names in [&["a"][..], &["Z", "a"], &["a", "b"]] {
                let error = attempt(&store, names).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Internal);
                assert_eq!(left(&store), (0, counter));
            }
        }
    }

    #[test]
    fn a_lock_whose_fence_cannot_be_counted_is_not_written() {
        let store = store_with_counter(41);
        store
            .connection()
            .execute_batch(
                "CREATE TRIGGER broken BEFORE UPDATE ON syncguard_fence_counters \
                 BEGIN SELECT RAISE(ABORT, 'broken'); END",
            )
            .unwrap();
        for names in [&["a"][..], &["Z", "a"]] {
            let error = attempt(&store, names).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal);
            // The transaction goes on, without the part that was written.
            assert!(store.in_transaction());
            assert_eq!(left(&store), (0, 41));
        }
    }
}
