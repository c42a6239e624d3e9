//! Those who share a lock and those who want it alone wait for each other, and nobody for ever.

use std::sync::Arc;
use std::time::Duration;

use syncguard::{Backend, Key, LockOptions, RetryPolicy, Ttl, lock};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::claims::{PATIENCE, attempt, patient, plain, shared};
use crate::faulty::{Fault, Faulty};
use crate::fixture::{Context, LONG, Stage, eventually, tests};
use crate::shared::{joins, leaves, refused_by_readers, whole};

tests![
    Sharing:
    each_is_woken_by_the_other,
    a_writer_waits_for_the_readers_that_are_left,
    a_writer_gets_through_among_readers,
    a_writer_who_gives_up_lets_readers_in,
    a_writer_who_dies_before_the_gate_costs_little,
];

/// Waits for messages: retries alone would come too late. Where nobody is told of releases, they come soon.
fn told(backend: &dyn Backend, key: &Key) -> LockOptions {
    if backend.watch(&shared(key)).is_none() {
        return patient();
    }
    LockOptions {
        ttl: LONG,
        retry: RetryPolicy {
            timeout_ms: 600_000.0,
            retry_delay_ms: 100_000.0,
            max_retry_delay_ms: 100_000.0,
            ..RetryPolicy::default()
        },
        ..LockOptions::default()
    }
}

async fn each_is_woken_by_the_other(stage: Stage) {
    let t = stage.open().await;
    let (key, peer) = (t.key("a"), t.fixture.peer());
    let readers = [
        joins(peer.as_ref(), &key, LONG).await,
        joins(t.backend.as_ref(), &key, LONG).await,
    ];
    let waits = |claim, backend: &Arc<dyn Backend>| {
        let backend = Arc::clone(backend);
        let options = told(backend.as_ref(), &key);
        tokio::spawn(async move { lock(&backend, claim, &options).await.unwrap() })
    };
    let writer = waits(plain(&key), &t.backend);
    // It has passed the time in which it only asks.
    eventually("it has the gate", async || t.is_locked(&key.slot(0)).await).await;
    let waiting: Vec<_> = (0..3)
        .map(|number| waits(shared(&key), [&t.backend, &peer][number % 2]))
        .collect();
    for reader in &readers {
        assert!(!writer.is_finished());
        leaves(&t, reader).await;
    }
    let writer = timeout(PATIENCE, writer).await.unwrap().unwrap();
    assert!(waiting.iter().all(|reader| !reader.is_finished()));
    assert!(writer.release().await.unwrap());
    for reader in waiting {
        let reader = timeout(PATIENCE, reader).await.unwrap().unwrap();
        assert!(reader.release().await.unwrap());
    }
    t.until_free(&key).await;
}

/// One of them is dead, and the other leaves long before its time.
async fn a_writer_waits_for_the_readers_that_are_left(stage: Stage) {
    let t = stage.open().await;
    let (key, peer) = (t.key("a"), t.fixture.peer());
    let short = Ttl::from_millis(2_000).unwrap();
    joins(peer.as_ref(), &key, short).await;
    let reader = joins(peer.as_ref(), &key, LONG).await;
    let backend = Arc::clone(&t.backend);
    let options = match t.fixture.tells_that_a_reader_left() {
        true => told(backend.as_ref(), &key),
        false => patient(),
    };
    let claim = plain(&key);
    let writer = tokio::spawn(async move { lock(&backend, claim, &options).await.unwrap() });
    eventually("it has the gate", async || t.is_locked(&key.slot(0)).await).await;
    leaves(&t, &reader).await;
    t.pass_ms(whole(3_000)).await;
    let writer = timeout(PATIENCE, writer).await.unwrap().unwrap();
    assert!(writer.release().await.unwrap());
}

/// Loops of readers in two processes whose locks overlap, until what this gives is dropped.
fn readers(t: &Context, key: &Key) -> JoinSet<()> {
    let mut loops = JoinSet::new();
    for number in 0..6 {
        let backend = [Arc::clone(&t.backend), t.fixture.peer()][number % 2].clone();
        let key = key.clone();
        loops.spawn(async move {
            loop {
                let guard = lock(&backend, shared(&key), &patient()).await.unwrap();
                sleep(Duration::from_millis(15 + 4 * number as u64)).await;
                guard.release().await.unwrap();
            }
        });
    }
    loops
}

async fn a_writer_gets_through_among_readers(stage: Stage) {
    let t = stage.open().await;
    let (key, beside) = (t.key("a"), t.key("b"));
    let _readers = readers(&t, &key);
    eventually("they read", async || t.is_locked(&key).await).await;
    for claims in [vec![plain(&key)], vec![plain(&key), plain(&beside)]] {
        for backend in [&t.backend, &t.fixture.peer()] {
            let options = patient();
            let waits = timeout(3 * PATIENCE, lock(backend, claims.clone(), &options));
            let guard = waits.await.unwrap().unwrap();
            assert_eq!(refused_by_readers(&t, &key).await, Some(false));
            assert!(guard.release().await.unwrap());
        }
    }
    // The gates are gone, too.
    eventually("no gate is left", async || !t.is_locked(&key.slot(0)).await).await;
}

/// One who waits before the gate of `key`, which somebody shares for good.
async fn waits_before(t: &Context, backend: &Arc<dyn Backend>, key: &Key) -> JoinHandle<()> {
    joins(t.backend.as_ref(), key, LONG).await;
    let (backend, claim) = (Arc::clone(backend), plain(key));
    let writer = tokio::spawn(async move {
        let _ = lock(&backend, claim, &patient()).await;
    });
    eventually("it has the gate", async || t.is_locked(&key.slot(0)).await).await;
    writer
}

async fn a_writer_who_gives_up_lets_readers_in(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let writer = waits_before(&t, &t.fixture.peer(), &key).await;
    let (backend, claim) = (Arc::clone(&t.backend), shared(&key));
    let options = told(backend.as_ref(), &key);
    let reader = tokio::spawn(async move { lock(&backend, claim, &options).await.unwrap() });
    let outcome = attempt(t.backend.as_ref(), vec![shared(&key)], LONG).await;
    assert!(outcome.is_locked() && !reader.is_finished());
    writer.abort();
    let reader = timeout(PATIENCE, reader).await.unwrap().unwrap();
    assert!(reader.release().await.unwrap());
    assert!(!t.is_locked(&key.slot(0)).await);
}

async fn a_writer_who_dies_before_the_gate_costs_little(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let dying: Arc<dyn Backend> = Faulty::new(&t.fixture.peer(), Fault::NoReleases);
    let writer = waits_before(&t, &dying, &key).await;
    writer.abort();
    assert!(writer.await.unwrap_err().is_cancelled());
    let outcome = attempt(t.backend.as_ref(), vec![shared(&key)], LONG).await;
    assert!(outcome.is_locked());
    t.pass_ms(whole(3_000)).await;
    joins(t.backend.as_ref(), &key, LONG).await;
}
