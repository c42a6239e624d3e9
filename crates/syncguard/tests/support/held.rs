//! Whether a store counts two locks as held, by each operation that has to know it. They end at the same time: one is on the
//! key `k`, and one on the only slot of `s`.

use std::time::Duration;

use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Claim, Due, ExtendOutcome, Extension, Finish, LockId,
    Lookup, Operation, Outcome, PageRequest, ReleaseOutcome, ReleaseRequest, Slots,
};

use super::attempts::Attempts as _;
use super::locks::{key, ttl};

/// An operation that shows whether they are held, some of them by what it does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Question {
    IsLocked,
    LookupKey,
    LookupLockId,
    List,
    Acquire,
    AcquireSlot,
    AcquireTwo,
    Extend,
    ExtendTwo,
    Release,
    ReleaseTwo,
    ReleaseDone,
    ForceRelease,
}

impl Question {
    pub(crate) const ALL: [Self; 13] = [
        Self::IsLocked,
        Self::LookupKey,
        Self::LookupLockId,
        Self::List,
        Self::Acquire,
        Self::AcquireSlot,
        Self::AcquireTwo,
        Self::Extend,
        Self::ExtendTwo,
        Self::Release,
        Self::ReleaseTwo,
        Self::ReleaseDone,
        Self::ForceRelease,
    ];

    /// The store's answer at a time at which the locks, if they are held, are so for one millisecond more.
    pub(crate) async fn ask(self, backend: &dyn Backend, ids: &[LockId; 2]) -> bool {
        let [a, b] = ids.clone();
        match self {
            Self::IsLocked => backend.is_locked(&key("k")).await.unwrap(),
            Self::LookupKey => finds(backend, Lookup::Key(key("k"))).await,
            Self::LookupLockId => finds(backend, Lookup::LockId(a)).await,
            Self::List => {
                let page = PageRequest {
                    after: None,
                    limit: 9,
                };
                !backend.list(&page).await.unwrap().locks.is_empty()
            }
            Self::Acquire => refuses(backend, [plain()]).await,
            Self::AcquireSlot => refuses(backend, [slot()]).await,
            Self::AcquireTwo => refuses(backend, [plain(), slot()]).await,
            Self::Extend => extends(backend, [a]).await,
            Self::ExtendTwo => extends(backend, [a, b]).await,
            Self::Release => releases(backend, [a].into()).await,
            Self::ReleaseTwo => releases(backend, [a, b].into()).await,
            Self::ReleaseDone => {
                let request = ReleaseRequest {
                    done: Some(done()),
                    ..[a].into()
                };
                releases(backend, request).await
            }
            Self::ForceRelease => backend.force_release(&key("k")).await.unwrap(),
        }
    }
}

pub(crate) fn plain() -> Claim {
    Claim::new(key("k")).unwrap()
}

pub(crate) fn slot() -> Claim {
    Claim::slot(key("s"), Slots::new(1).unwrap()).unwrap()
}

/// What is done under the lock on the key.
pub(crate) fn done() -> Finish {
    Finish {
        key: key("k"),
        due: Due::new("1").unwrap(),
    }
}

async fn finds(backend: &dyn Backend, lookup: Lookup) -> bool {
    backend.lookup(&lookup).await.unwrap().is_some()
}

async fn refuses(backend: &dyn Backend, claims: impl IntoIterator<Item = Claim>) -> bool {
    let mut request = AcquireRequest::of(claims, ttl(1000)).unwrap();
    backend.prepare(&mut request);
    match backend.acquire(&request).await.unwrap() {
        AcquireOutcome::Locked { free_in, .. } => {
            assert_eq!(free_in, Some(Duration::from_millis(1)));
            true
        }
        AcquireOutcome::Acquired(_) => false,
        AcquireOutcome::Done(_) => panic!("no period is asked for"),
    }
}

async fn extends<const N: usize>(backend: &dyn Backend, ids: [LockId; N]) -> bool {
    let extension = Extension::new(ids.into_iter().collect(), ttl(1000));
    let outcome = backend.ask(Operation::Extend(extension)).await.unwrap();
    matches!(outcome, ExtendOutcome::Extended { .. })
}

async fn releases(backend: &dyn Backend, request: ReleaseRequest) -> bool {
    let outcome = backend.run(&Operation::Release(request)).await;
    let Outcome::Release(each) = outcome.unwrap() else {
        panic!("not of a release");
    };
    each.iter().all(|one| *one == ReleaseOutcome::Released)
}
