//! How many connections one key may take.
//!
//! Statements that wait for the same row in the server each hold a connection while they wait. Without
//! a bound, a row that somebody's idle transaction has locked would take the whole pool, and every
//! other key with it.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a statement is about: statements on different ones do not wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Subject<'a> {
    /// Taking the lock on a storage key.
    Key(&'a str),
    /// A lock that is there, by its lock id or storage key. The same row can be waited for by those who
    /// want to take it, so the shares of both come together.
    Row(&'a str),
}

/// The shares of a pool.
#[derive(Debug)]
pub(super) struct Shares {
    of_key: usize,
    of_row: usize,
    hasher: RandomState,
    /// By hash: that of the few keys in use at a time is one key's.
    in_use: Mutex<HashMap<u64, Share>>,
}

#[derive(Debug)]
struct Share {
    places: Arc<Semaphore>,
    /// Those who have a place and those who wait for one.
    users: usize,
}

/// A place among the statements on one subject. It is free again when this is dropped.
pub(super) struct Place<'a> {
    shares: &'a Shares,
    hash: u64,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Shares {
    /// For a pool of that many connections: half of them for one key, and a quarter for one row, so
    /// that a row that is locked leaves a quarter to the others.
    pub(super) fn new(connections: usize) -> Self {
        Self {
            of_key: (connections / 2).max(1),
            of_row: (connections / 4).max(1),
            hasher: RandomState::new(),
            in_use: Mutex::default(),
        }
    }

    /// Waits for a place.
    pub(super) async fn enter(&self, subject: Subject<'_>) -> Place<'_> {
        let hash = self.hasher.hash_one(subject);
        let most = match subject {
            Subject::Key(_) => self.of_key,
            Subject::Row(_) => self.of_row,
        };
        let places = {
            let mut in_use = self.lock();
            let share = in_use.entry(hash).or_insert_with(|| Share {
                places: Arc::new(Semaphore::new(most)),
                users: 0,
            });
            share.users += 1;
            Arc::clone(&share.places)
        };
        // Leaves also when nobody waits for the place any more.
        let mut place = Place {
            shares: self,
            hash,
            _permit: None,
        };
        place._permit = places.acquire_owned().await.ok();
        place
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Share>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut share) = self.shares.lock().entry(self.hash) {
            share.get_mut().users -= 1;
            if share.get().users == 0 {
                share.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    async fn waits(future: &mut std::pin::Pin<&mut impl Future<Output = Place<'_>>>) -> bool {
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
    }

    #[tokio::test]
    async fn one_key_takes_its_share_and_leaves_the_rest() {
        let shares = Shares::new(4);
        let first = shares.enter(Subject::Key("a")).await;
        let _second = shares.enter(Subject::Key("a")).await;
        let mut third = pin!(shares.enter(Subject::Key("a")));
        assert!(waits(&mut third).await);
        let _other = shares.enter(Subject::Key("b")).await;
        let _row = shares.enter(Subject::Row("a")).await;
        let mut second_of_row = pin!(shares.enter(Subject::Row("a")));
        assert!(waits(&mut second_of_row).await);
        drop(first);
        third.await;
    }

    #[tokio::test]
    async fn nothing_is_kept_of_those_who_have_left_or_given_up() {
        let shares = Shares::new(1);
        let first = shares.enter(Subject::Key("a")).await;
        {
            let mut second = pin!(shares.enter(Subject::Key("a")));
            assert!(waits(&mut second).await);
        }
        drop(first);
        assert!(shares.lock().is_empty());
        drop(shares.enter(Subject::Key("a")).await);
        assert!(shares.lock().is_empty());
    }
}
