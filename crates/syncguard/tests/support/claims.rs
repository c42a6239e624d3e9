//! Several locks at once, and slots: short forms that fail the test.

#![allow(dead_code, reason = "each test file uses its part")]

use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Batch, Claim, Error, ExtendOutcome, Extension, Grant,
    LockId, Operation, ReleaseOutcome, Slots, Ttl,
};

use super::attempts::Attempts as _;
use super::locks::key;

pub(crate) fn plain(name: &str) -> Claim {
    Claim::new(key(name)).unwrap()
}

pub(crate) fn slot(name: &str, count: u16) -> Claim {
    Claim::slot(key(name), Slots::new(count).unwrap()).unwrap()
}

pub(crate) fn shared(name: &str) -> Claim {
    Claim::shared(key(name)).unwrap()
}

/// A request that can be given to `backend` directly.
pub(crate) fn asking(
    backend: &dyn Backend,
    claims: impl IntoIterator<Item = Claim>,
) -> AcquireRequest {
    let mut request = AcquireRequest::of(claims, Ttl::DEFAULT).unwrap();
    backend.prepare(&mut request);
    request
}

pub(crate) async fn try_take(
    backend: &dyn Backend,
    claims: impl IntoIterator<Item = Claim>,
) -> Result<AcquireOutcome, Error> {
    backend.acquire(&asking(backend, claims)).await
}

pub(crate) async fn take(
    backend: &dyn Backend,
    claims: impl IntoIterator<Item = Claim>,
) -> Batch<Grant> {
    match try_take(backend, claims).await.unwrap() {
        AcquireOutcome::Acquired(grants) => grants,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn ids(grants: &[Grant]) -> Batch<LockId> {
    grants.iter().map(|grant| grant.lock_id.clone()).collect()
}

pub(crate) async fn release(
    backend: &dyn Backend,
    lock_ids: Batch<LockId>,
) -> Batch<ReleaseOutcome> {
    backend
        .ask(Operation::Release(lock_ids.into()))
        .await
        .unwrap()
}

pub(crate) async fn extend(
    backend: &dyn Backend,
    lock_ids: Batch<LockId>,
    ttl: Ttl,
) -> ExtendOutcome {
    let extension = Extension::new(lock_ids, ttl);
    backend.ask(Operation::Extend(extension)).await.unwrap()
}
