use rusqlite::{Connection, params};

use crate::error::Error;
use crate::fence::Fence;
use crate::outcome::{AcquireOutcome, Grant};
use crate::request::AcquireRequest;
use crate::sqlite::connection::schema::KEYS;
use crate::sqlite::connection::store::Store;
use crate::sqlite::error::from_sqlite;
use crate::time::{TIME_TOLERANCE_MS, held_for, is_live};

const READ: &str = include_str!("acquire_read.sql");
const WRITE_LOCK: &str = include_str!("acquire_lock.sql");
const WRITE_FENCE: &str = include_str!("acquire_fence.sql");

/// Takes the lock unless somebody holds it. Every check comes before the first write.
pub(in crate::sqlite) fn acquire(
    store: &Store,
    request: &AcquireRequest,
) -> Result<AcquireOutcome, Error> {
    let claim = request.only()?;
    let lock_key = KEYS.lock_key(&claim.key)?;
    let fence_key = KEYS.fence_key(&lock_key)?;
    // Read inside the transaction, so that the time does not include the wait for the write lock.
    let now_ms = store.now_ms();
    let (expires_at_ms, counter) = read(store.connection(), &lock_key, &fence_key)?;
    if let Some(expires_at_ms) = expires_at_ms
        && is_live(expires_at_ms, now_ms, TIME_TOLERANCE_MS)
    {
        let free_in = Some(held_for(expires_at_ms, now_ms));
        return Ok(AcquireOutcome::Locked { claim: 0, free_in });
    }
    let fence = Fence::after(counter.unwrap_or(0), now_ms)?;
    let expires_at_ms = now_ms + request.ttl.as_millis();
    store.whole(|connection| {
        connection.prepare_cached(WRITE_LOCK)?.execute(params![
            lock_key,
            claim.lock_id.as_str(),
            expires_at_ms,
            now_ms,
            fence.to_string(),
            claim.key.as_str(),
            request.owner.as_ref().map(|owner| owner.as_str()),
        ])?;
        connection.prepare_cached(WRITE_FENCE)?.execute(params![
            fence_key,
            fence.get().cast_signed(),
            claim.key.as_str(),
        ])
    })?;
    Ok(AcquireOutcome::one(Grant {
        lock_id: claim.lock_id.clone(),
        slot: None,
        fence,
        expires_at_ms,
    }))
}

fn read(
    connection: &Connection,
    lock_key: &str,
    fence_key: &str,
) -> Result<(Option<i64>, Option<i64>), Error> {
    connection
        .prepare_cached(READ)
        .and_then(|mut read| {
            read.query_one([lock_key, fence_key], |row| Ok((row.get(0)?, row.get(1)?)))
        })
        .map_err(from_sqlite)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::error::ErrorKind;
    use crate::key::Key;
    use crate::sqlite::config::SqliteConfig;
    use crate::sqlite::connection::store::Durability;
    use crate::time::SystemClock;
    use crate::ttl::Ttl;

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

    fn attempt(store: &Store) -> Result<AcquireOutcome, Error> {
        let request = AcquireRequest::new(Key::new("a")?, Ttl::DEFAULT)?;
        acquire(store, &request)
    }

    #[test]
    fn the_last_fence_is_given_in_memory_too() {
        let store = store_with_counter(LIMIT - 1);
        let AcquireOutcome::Acquired(grants) = attempt(&store).unwrap() else {
            panic!("locked");
        };
        assert_eq!(grants[0].fence, Fence::MAX);
    }

    #[test]
    fn at_the_limit_nothing_is_written_in_memory_either() {
        for counter in [LIMIT, i64::MAX, -1] {
            let store = store_with_counter(counter);
            assert_eq!(attempt(&store).unwrap_err().kind(), ErrorKind::Internal);
            let left = read(store.connection(), "a", "fence:a").unwrap();
            assert_eq!(left, (None, Some(counter)));
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
        assert_eq!(attempt(&store).unwrap_err().kind(), ErrorKind::Internal);
        // The transaction goes on, without the half that was written.
        assert!(store.in_transaction());
        let left = read(store.connection(), "a", "fence:a").unwrap();
        assert_eq!(left, (None, Some(41)));
    }
}
