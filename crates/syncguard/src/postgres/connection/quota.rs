//! How many connections one key may use at a time.
//!
//! Statements that wait for the same row in the server each hold a connection while they wait. Without
//! a quota, a row that somebody's idle transaction has locked would use up the whole pool and so block
//! every other key too.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::mutex::lock;
use crate::postgres::readers::beginning;
use crate::values::batch::Batch;
use crate::values::lock_id::LockId;

/// What a statement may have to wait for in the server. Statements on different subjects do not wait for
/// each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::postgres) enum Subject<'a> {
    /// Acquiring the lock on this storage key.
    Key(&'a str),
    /// Changing an existing lock, named by its lock id or storage key. An acquisition of the key may wait
    /// for the same row, so one row can use up both quotas.
    Row(&'a str),
    /// Changing the lock that the readers of a key share, named by how their lock ids begin. A join is an acquisition of the key.
    Readers(&'a str),
}

impl<'a> Subject<'a> {
    pub(in crate::postgres) fn name(self) -> &'a str {
        match self {
            Self::Key(name) | Self::Row(name) | Self::Readers(name) => name,
        }
    }
}

/// The rows of these locks.
pub(in crate::postgres) fn rows(lock_ids: &[LockId]) -> Batch<Subject<'_>> {
    let rows = lock_ids
        .iter()
        .map(|lock_id| Subject::Row(lock_id.as_str()));
    rows.collect()
}

/// What is extended with these locks: their rows, and what the readers among them share.
pub(in crate::postgres) fn extended(lock_ids: &[LockId]) -> Batch<Subject<'_>> {
    let readers = lock_ids.iter().filter_map(beginning).map(Subject::Readers);
    rows(lock_ids).into_iter().chain(readers).collect()
}

/// The quota of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::postgres) struct QuotaId {
    hash: u64,
    most: usize,
}

/// The quotas of one pool: one for each subject in use.
#[derive(Debug)]
pub(in crate::postgres) struct Quotas {
    per_key: usize,
    per_row: usize,
    hasher: RandomState,
    /// By the hash of the subject. Two of the few subjects in use at a time hardly ever have the same; if
    /// they do, they share a quota.
    in_use: Mutex<HashMap<u64, Quota>>,
}

#[derive(Debug)]
struct Quota {
    permits: Arc<Semaphore>,
    /// How many statements have a permit or wait for one.
    users: usize,
}

/// Permission to use a connection for one statement on a subject, until this is dropped.
pub(in crate::postgres) struct QuotaPermit<'a> {
    quotas: &'a Quotas,
    hash: u64,
    _semaphore_permit: Option<OwnedSemaphorePermit>,
}

impl Quotas {
    /// For a pool of that many connections. A key may use half of them and a row another quarter, so a
    /// locked row leaves a quarter to all other keys.
    pub(super) fn new(connections: usize) -> Self {
        Self {
            per_key: (connections / 2).max(1),
            per_row: (connections / 4).max(1),
            hasher: RandomState::new(),
            in_use: Mutex::default(),
        }
    }

    /// The quota of which a statement on this subject needs a permit.
    pub(in crate::postgres) fn id_of(&self, subject: Subject<'_>) -> QuotaId {
        let most = match subject {
            Subject::Key(_) => self.per_key,
            Subject::Row(_) | Subject::Readers(_) => self.per_row,
        };
        let hash = self.hasher.hash_one(subject);
        QuotaId { hash, most }
    }

    /// Whether another statement would have to wait for a permit.
    pub(in crate::postgres) fn is_used_up(&self, id: QuotaId) -> bool {
        let in_use = self.lock();
        let quota = in_use.get(&id.hash);
        quota.is_some_and(|quota| quota.permits.available_permits() == 0)
    }

    /// Waits for a permit for each of these subjects. All who need several take them in one order, and none twice.
    pub(in crate::postgres) async fn acquire(
        &self,
        subjects: &[Subject<'_>],
    ) -> Batch<QuotaPermit<'_>> {
        let ids = subjects.iter().map(|subject| self.id_of(*subject));
        let mut ids: Batch<_> = ids.collect();
        ids.sort_unstable();
        ids.dedup();
        let mut permits = Batch::new();
        for id in ids {
            permits.push(self.acquire_at(id).await);
        }
        permits
    }

    /// Waits for a permit of one quota.
    pub(in crate::postgres) async fn acquire_at(&self, id: QuotaId) -> QuotaPermit<'_> {
        let permits = {
            let mut in_use = self.lock();
            let quota = in_use.entry(id.hash).or_insert_with(|| Quota {
                permits: Arc::new(Semaphore::new(id.most)),
                users: 0,
            });
            quota.users += 1;
            Arc::clone(&quota.permits)
        };
        // Made before the wait, so that `users` is also right when this future is dropped while it waits.
        let mut permit = QuotaPermit {
            quotas: self,
            hash: id.hash,
            _semaphore_permit: None,
        };
        permit._semaphore_permit = permits.acquire_owned().await.ok();
        permit
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Quota>> {
        lock(&self.in_use)
    }
}

impl Drop for QuotaPermit<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut quota) = self.quotas.lock().entry(self.hash) {
            quota.get_mut().users -= 1;
            if quota.get().users == 0 {
                quota.remove();
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

    async fn waits(
        future: &mut std::pin::Pin<&mut impl Future<Output = Batch<QuotaPermit<'_>>>>,
    ) -> bool {
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
    }

    #[tokio::test]
    async fn one_key_gets_its_quota_and_leaves_the_rest() {
        let quotas = Quotas::new(4);
        let first = quotas.acquire(&[Subject::Key("a")]).await;
        let _second = quotas.acquire(&[Subject::Key("a")]).await;
        let mut third = pin!(quotas.acquire(&[Subject::Key("a")]));
        assert!(waits(&mut third).await);
        let _other = quotas.acquire(&[Subject::Key("b")]).await;
        let _row = quotas.acquire(&[Subject::Row("a")]).await;
        let mut second_per_row = pin!(quotas.acquire(&[Subject::Row("a")]));
        assert!(waits(&mut second_per_row).await);
        drop(first);
        third.await;
    }

    #[tokio::test]
    async fn no_quota_is_kept_that_nobody_uses_or_waits_for() {
        let quotas = Quotas::new(1);
        let first = quotas.acquire(&[Subject::Key("a")]).await;
        {
            let mut second = pin!(quotas.acquire(&[Subject::Key("a")]));
            assert!(waits(&mut second).await);
        }
        drop(first);
        assert!(quotas.lock().is_empty());
        drop(quotas.acquire(&[Subject::Key("a")]).await);
        assert!(quotas.lock().is_empty());
    }

    #[tokio::test]
    async fn several_take_their_permits_in_one_order_and_none_twice() {
        let quotas = Quotas::new(1);
        let [a, b] = ["a", "b"].map(Subject::Key);
        let reversed = [b, a];
        for _ in 0..10 {
            let both = quotas.acquire(&[a, b, a]).await;
            assert_eq!(both.len(), 2);
            let mut others = pin!(quotas.acquire(&reversed));
            assert!(waits(&mut others).await);
            drop(both);
            others.await;
        }
        assert!(quotas.lock().is_empty());
    }
}
