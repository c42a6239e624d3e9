//! Backends on a cluster, and where their locks are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncguard::redis::{ClientPrefix, Names, RedisBackend, RedisConfig, acquire, key_slot};
use syncguard::{AcquireOutcome, Backend, Error, Operation, ReleaseOutcome, Ttl};

use crate::support::locks::{key, prepared};
use crate::support::redis_cluster::RedisCluster;

/// A backend with the URL of a cluster.
pub(crate) fn backend(url: &str) -> Arc<dyn Backend> {
    backend_with(url, |_| {})
}

pub(crate) fn backend_with(url: &str, change: impl FnOnce(&mut RedisConfig)) -> Arc<dyn Backend> {
    let mut config = RedisConfig::from_url(url).unwrap();
    change(&mut config);
    Arc::new(RedisBackend::new(config).unwrap())
}

/// The names of lock, index and fence of `name` under the default prefix, for some lock id.
pub(crate) fn names_of(backend: &dyn Backend, name: &str) -> Vec<String> {
    let names = Names::in_cluster("syncguard", ClientPrefix::None).unwrap();
    let request = prepared(backend, &key(name), Ttl::DEFAULT);
    let plan = acquire::plan(&names, &request).unwrap();
    plan.keys().map(str::to_owned).collect()
}

/// The slot of a lock under the default prefix.
pub(crate) fn slot_of(backend: &dyn Backend, name: &str) -> u16 {
    key_slot(&names_of(backend, name)[0])
}

/// A name whose lock is on that primary at the start.
pub(crate) fn name_on(backend: &dyn Backend, primary: usize) -> String {
    names()
        .find(|name| RedisCluster::first_owner(slot_of(backend, name)) == primary)
        .unwrap()
}

/// So many names whose locks are in that slot.
pub(crate) fn names_in(backend: &dyn Backend, slot: u16, count: usize) -> Vec<String> {
    names()
        .filter(|name| slot_of(backend, name) == slot)
        .take(count)
        .collect()
}

fn names() -> impl Iterator<Item = String> {
    (0..).map(|number| format!("name:{number}"))
}

/// Asks about `name` until that works; fails after a minute.
pub(crate) async fn until_it_works(backend: &Arc<dyn Backend>, name: &str) {
    let start = Instant::now();
    while let Err(error) = pair(backend, name).await {
        assert!(start.elapsed() < Duration::from_secs(60), "{error:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Takes a lock, if it is free, and gives it back.
pub(crate) async fn pair(backend: &Arc<dyn Backend>, name: &str) -> Result<(), Error> {
    use std::future::pending;
    use syncguard::operation::{self, CallOptions};
    let request = syncguard::AcquireRequest::new(key(name), Ttl::DEFAULT).unwrap();
    let call = CallOptions::default();
    let outcome = operation::run::<AcquireOutcome>(
        backend,
        Operation::Acquire(request),
        call.clone(),
        pending(),
    )
    .await?;
    if let syncguard::AcquireOutcome::Acquired(grant) = outcome {
        operation::run::<ReleaseOutcome>(
            backend,
            Operation::Release([grant[0].lock_id.clone()].into()),
            call,
            pending(),
        )
        .await?;
    }
    Ok(())
}
