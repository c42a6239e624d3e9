//! Scripts of the caller's under a lock: where their keys must be, and that they follow a slot.

use std::sync::Arc;

use syncguard::redis::key_slot;
use syncguard::{Backend, ErrorKind, LockGuard, LockOptions, Reply, lock};

use crate::layout::{at, primaries};
use crate::stage::{backend, backend_with, name_on, names_in, names_of, slot_of};
use crate::support::attempts::Attempts as _;
use crate::support::claims::plain;
use crate::support::locks::key;
use crate::support::redis_cluster::RedisCluster;
use crate::support::suite::tests;

tests![
    keys_must_be_in_the_slot_of_the_lock,
    locks_must_be_in_one_slot,
    nothing_runs_without_the_lock_on_any_node,
    a_script_follows_its_slot,
];

const INCR: &str = "return redis.call('INCR', KEYS[1])";

async fn held(backend: &Arc<dyn Backend>, name: &str) -> LockGuard {
    lock(backend, &key(name), &LockOptions::default())
        .await
        .unwrap()
}

/// A name of data that is beside the lock.
fn beside(backend: &dyn Backend, name: &str) -> String {
    let lock_key = names_of(backend, name).remove(0);
    let (tag, _) = lock_key.split_once('}').unwrap();
    format!("{tag}}}data")
}

async fn keys_must_be_in_the_slot_of_the_lock() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    let guard = held(&backend, "k").await;
    let data = beside(backend.as_ref(), "k");
    assert_eq!(
        guard.eval(INCR, [data.clone()], ["x"]).await.unwrap(),
        Reply::Int(1)
    );
    let none: [&str; 0] = [];
    assert_eq!(
        guard.eval("return 7", none, none).await.unwrap(),
        Reply::Int(7)
    );
    let error = guard
        .eval(INCR, [data.as_str(), "elsewhere"], none)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error
            .message()
            .starts_with("keys[1] is in another hash slot"),
        "{error}"
    );
    assert!(!error.message().contains("elsewhere"), "{error}");
    assert_eq!(guard.eval(INCR, [data], none).await.unwrap(), Reply::Int(2));
    // With a tag in the prefix, locks are where the data is.
    let tagged = backend_with(&cluster.url(), |config| {
        config.locks.key_prefix = "{account:1}".to_owned();
    });
    let guard = held(&tagged, "anything").await;
    let reply = guard.eval(INCR, ["{account:1}:balance"], none).await;
    assert_eq!(reply.unwrap(), Reply::Int(1));
    // A prefix of the client's own counts, too.
    let prefixed = backend_with(&cluster.url(), |config| {
        config.client_key_prefix = "{c}:".to_owned();
    });
    let guard = held(&prefixed, "anything").await;
    assert_eq!(
        guard.eval(INCR, ["data"], none).await.unwrap(),
        Reply::Int(1)
    );
    let mut raw = primaries(&cluster);
    assert_eq!(
        at(&mut raw, "{c}:data").call(&["GET", "{c}:data"]).text(),
        "1"
    );
}

async fn locks_must_be_in_one_slot() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    let none: [&str; 0] = [];
    let apart = [0, 1].map(|primary| plain(&name_on(backend.as_ref(), primary)));
    let guard = lock(&backend, apart.to_vec(), &LockOptions::default())
        .await
        .unwrap();
    let error = guard.eval("return 1", none, none).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("several hash slots"), "{error}");
    let slot = slot_of(backend.as_ref(), "k");
    let together = names_in(backend.as_ref(), slot, 3);
    let claims: Vec<_> = together.iter().map(|name| plain(name)).collect();
    let guard = lock(&backend, claims, &LockOptions::default())
        .await
        .unwrap();
    let data = beside(backend.as_ref(), "k");
    assert_eq!(key_slot(&data), slot);
    assert_eq!(
        guard.eval(INCR, [data.clone()], none).await.unwrap(),
        Reply::Int(1)
    );
    backend.force_release(&key(&together[1])).await.unwrap();
    let error = guard.eval(INCR, [data], none).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LockLost);
}

async fn nothing_runs_without_the_lock_on_any_node() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    let mut raw = primaries(&cluster);
    for (primary, raw) in raw.iter_mut().enumerate() {
        let name = name_on(backend.as_ref(), primary);
        let data = beside(backend.as_ref(), &name);
        let guard = held(&backend, &name).await;
        guard.eval(INCR, [data.clone()], ["x"]).await.unwrap();
        backend.force_release(&key(&name)).await.unwrap();
        let other = held(&backend, &name).await;
        let error = guard.eval(INCR, [data.clone()], ["x"]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LockLost);
        assert_eq!(raw.call(&["GET", &data]).text(), "1");
        other.eval(INCR, [data.clone()], ["x"]).await.unwrap();
        assert_eq!(raw.call(&["GET", &data]).text(), "2");
    }
}

async fn a_script_follows_its_slot() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    let name = name_on(backend.as_ref(), 0);
    let data = beside(backend.as_ref(), &name);
    let guard = held(&backend, &name).await;
    assert_eq!(
        guard.eval(INCR, [data.clone()], ["x"]).await.unwrap(),
        Reply::Int(1)
    );
    cluster.move_slot(slot_of(backend.as_ref(), &name), 0, 1, || {});
    assert_eq!(
        guard.eval(INCR, [data.clone()], ["x"]).await.unwrap(),
        Reply::Int(2)
    );
    let mut raw = primaries(&cluster);
    assert_eq!(raw[1].call(&["GET", &data]).text(), "2");
    assert!(guard.release().await.unwrap());
}
