//! Those who share a lock and those who want it alone wait for each other, and nobody for ever.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering::SeqCst};
use std::time::Duration;

use syncguard::{
    AcquireOutcome, AutoExtend, Backend, Claim, ClaimKind, Error, ErrorKind, Key, LockGuard,
    LockOptions, RetryPolicy, Ttl, lock,
};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::claims::{PATIENCE, attempt, patient, plain, shared};
use crate::faulty::{Fault, Faulty};
use crate::fixture::{Context, LONG, Stage, eventually, tests, ttl};
use crate::shared::{joins, leaves, refused_by_readers, whole};

tests![
    Sharing:
    each_is_woken_by_the_other,
    all_who_wait_read_together_when_a_writer_is_gone,
    a_reader_outlives_its_time_while_a_writer_waits,
    a_writer_waits_for_the_readers_that_are_left,
    a_writer_gets_through_among_readers,
    no_writer_is_beside_anybody,
    who_waits_in_vain_says_so_and_leaves_nothing,
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

/// Begins to wait as [`told`] says.
fn waits(backend: &Arc<dyn Backend>, claim: Claim) -> JoinHandle<LockGuard> {
    let backend = Arc::clone(backend);
    let options = told(backend.as_ref(), &claim.key);
    tokio::spawn(async move { lock(&backend, claim, &options).await.unwrap() })
}

async fn gets_in(waiter: JoinHandle<LockGuard>) -> LockGuard {
    timeout(PATIENCE, waiter).await.unwrap().unwrap()
}

/// Waits until a writer has passed the time in which it only asks.
async fn until_gate(t: &Context, key: &Key) {
    eventually("it has the gate", async || t.is_locked(&key.slot(0)).await).await;
}

async fn each_is_woken_by_the_other(stage: Stage) {
    let t = stage.open().await;
    let (key, peer) = (t.key("a"), t.fixture.peer());
    let readers = [
        joins(peer.as_ref(), &key, LONG).await,
        joins(t.backend.as_ref(), &key, LONG).await,
    ];
    let writer = waits(&t.backend, plain(&key));
    until_gate(&t, &key).await;
    let waiting: Vec<_> = (0..3)
        .map(|number| waits([&t.backend, &peer][number % 2], shared(&key)))
        .collect();
    for reader in &readers {
        assert!(!writer.is_finished());
        leaves(&t, reader).await;
    }
    let writer = gets_in(writer).await;
    assert!(waiting.iter().all(|reader| !reader.is_finished()));
    assert!(writer.release().await.unwrap());
    for reader in waiting {
        assert!(gets_in(reader).await.release().await.unwrap());
    }
    t.until_free(&key).await;
}

/// It leaves, or it is dead. None of the readers goes before all are in.
async fn all_who_wait_read_together_when_a_writer_is_gone(stage: Stage) {
    let t = stage.open().await;
    let (key, peer) = (t.key("a"), t.fixture.peer());
    for is_dead in [false, true] {
        let lasts = if is_dead { ttl(2_000) } else { LONG };
        let outcome = attempt(peer.as_ref(), vec![plain(&key)], lasts).await;
        let AcquireOutcome::Acquired(writer) = outcome else {
            panic!("{outcome:?}");
        };
        let mut processes = vec![Faulty::new(&t.backend, Fault::Nothing)];
        if !Arc::ptr_eq(&t.backend, &peer) {
            processes.push(Faulty::new(&peer, Fault::Nothing));
        }
        let waiting: Vec<_> = (0..22)
            .map(|number| {
                let process: Arc<dyn Backend> =
                    Arc::clone(&processes[number / 20 % processes.len()]) as _;
                waits(&process, shared(&key))
            })
            .collect();
        // Each process has been refused.
        for process in &processes {
            process.done.acquire().await.unwrap().forget();
        }
        if is_dead {
            t.pass_ms(whole(2_000)).await;
        } else {
            leaves(&t, &writer[0]).await;
        }
        let mut inside = Vec::new();
        for reader in waiting {
            inside.push(gets_in(reader).await);
        }
        assert_eq!(refused_by_readers(&t, &key).await, Some(true));
        for reader in inside {
            assert!(reader.release().await.unwrap());
        }
        assert!(!t.is_locked(&key).await);
    }
}

/// Another, whose heartbeats fail, does not.
async fn a_reader_outlives_its_time_while_a_writer_waits(stage: Stage) {
    let t = stage.open().await;
    // A busy machine may be late with a heartbeat.
    for ttl_ms in [2_000, 8_000, 32_000] {
        if reader_outlives(&t, ttl_ms).await {
            return;
        }
    }
    panic!("it was lost, three times");
}

async fn reader_outlives(t: &Context, ttl_ms: u32) -> bool {
    let (key, peer) = (t.key(&ttl_ms.to_string()), t.fixture.peer());
    let options = LockOptions {
        ttl: ttl(ttl_ms.into()),
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    };
    let cut_off: Arc<dyn Backend> = Faulty::new(&peer, Fault::NoExtensions);
    let dead = lock(&cut_off, shared(&key), &options).await.unwrap();
    let reader = lock(&t.backend, shared(&key), &options).await.unwrap();
    let writer = waits(&peer, plain(&key));
    until_gate(t, &key).await;
    for _ in 0..5 {
        let before = reader.expires_at_ms();
        t.pass_ms(u64::from(ttl_ms / 3)).await;
        eventually("it is extended, or lost", async || {
            reader.expires_at_ms() > before || reader.assert_held().is_err()
        })
        .await;
    }
    let lost = timeout(PATIENCE, dead.lost()).await.unwrap();
    assert_eq!(lost.kind(), ErrorKind::LockLost);
    assert_eq!(t.by_id(dead.lock_id()).await, None);
    if reader.assert_held().is_err() {
        return false;
    }
    assert!(!writer.is_finished());
    if !reader.release().await.unwrap() {
        return false;
    }
    let writer = gets_in(writer).await;
    assert!(!dead.release().await.unwrap());
    assert!(writer.release().await.unwrap());
    true
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
    until_gate(&t, &key).await;
    leaves(&t, &reader).await;
    t.pass_ms(whole(3_000)).await;
    let writer = gets_in(writer).await;
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

/// Several of both wait in two processes.
async fn no_writer_is_beside_anybody(stage: Stage) {
    let t = stage.open().await;
    let (key, peer) = (t.key("a"), t.fixture.peer());
    // The readers that are inside; far below zero with a writer.
    let inside = Arc::new(AtomicIsize::new(0));
    let mut loops = JoinSet::new();
    for number in 0..8 {
        let backend = Arc::clone([&t.backend, &peer][number % 2]);
        let is_writer = number / 2 % 2 == 1;
        let change = if is_writer { -1_000 } else { 1 };
        let (key, inside) = (key.clone(), Arc::clone(&inside));
        loops.spawn(async move {
            for _ in 0..5 {
                let claim = if is_writer { plain(&key) } else { shared(&key) };
                let guard = lock(&backend, claim, &patient()).await.unwrap();
                let others = inside.fetch_add(change, SeqCst);
                assert!(others == 0 || (others > 0 && !is_writer), "{others}");
                sleep(Duration::from_millis(3)).await;
                inside.fetch_sub(change, SeqCst);
                assert!(guard.release().await.unwrap());
            }
        });
    }
    while let Some(ended) = timeout(3 * PATIENCE, loops.join_next()).await.unwrap() {
        ended.unwrap();
    }
    assert!(!t.is_locked(&key).await);
}

/// The error of a wait whose time is over. It takes longer where a busy machine needs that for an answer, or a writer for the gate.
async fn waits_in_vain(t: &Context, backend: &Arc<dyn Backend>, claim: fn(&Key) -> Claim) -> Error {
    let key = t.key("a");
    let gate = key.slot(0);
    let needs_gate = claim(&key).kind == ClaimKind::Exclusive;
    for timeout_ms in [500.0, 2_000.0, 8_000.0, 32_000.0] {
        let mut options = patient();
        options.retry.timeout_ms = timeout_ms;
        let mut waiting = pin!(lock(backend, claim(&key), &options));
        let mut had_gate = false;
        let error = loop {
            tokio::select! {
                outcome = &mut waiting => break outcome.unwrap_err(),
                is_locked = t.is_locked(&gate) => had_gate |= is_locked,
            }
            sleep(Duration::from_millis(5)).await;
        };
        let is_answered = error.kind() != ErrorKind::NetworkTimeout;
        if is_answered && (had_gate || !needs_gate) {
            return error;
        }
    }
    panic!("the store does not answer");
}

async fn who_waits_in_vain_says_so_and_leaves_nothing(stage: Stage) {
    let t = stage.open().await;
    let (key, peer) = (t.key("a"), t.fixture.peer());
    let is_told = |error: &Error| {
        assert_eq!(error.kind(), ErrorKind::AcquisitionTimeout, "{error}");
        assert_eq!(error.busy().unwrap().key.as_deref(), Some(key.as_str()));
    };
    let reader = joins(t.backend.as_ref(), &key, ttl(600_000)).await;
    for backend in [&t.backend, &peer] {
        is_told(&waits_in_vain(&t, backend, plain).await);
        eventually("the gate is free", async || {
            !t.is_locked(&key.slot(0)).await
        })
        .await;
        let beside = joins(peer.as_ref(), &key, LONG).await;
        leaves(&t, &beside).await;
    }
    // Readers behind a writer who waits, and behind one who writes.
    let writer = waits(&peer, plain(&key));
    until_gate(&t, &key).await;
    is_told(&waits_in_vain(&t, &t.backend, shared).await);
    leaves(&t, &reader).await;
    let writer = gets_in(writer).await;
    is_told(&waits_in_vain(&t, &peer, shared).await);
    assert!(writer.release().await.unwrap());
    assert!(!t.is_locked(&key).await);
}

/// One who waits before the gate of `key`, which somebody shares for good.
async fn waits_before(t: &Context, backend: &Arc<dyn Backend>, key: &Key) -> JoinHandle<()> {
    joins(t.backend.as_ref(), key, LONG).await;
    let (backend, claim) = (Arc::clone(backend), plain(key));
    let writer = tokio::spawn(async move {
        let _ = lock(&backend, claim, &patient()).await;
    });
    until_gate(t, key).await;
    writer
}

async fn a_writer_who_gives_up_lets_readers_in(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let writer = waits_before(&t, &t.fixture.peer(), &key).await;
    let reader = waits(&t.backend, shared(&key));
    let outcome = attempt(t.backend.as_ref(), vec![shared(&key)], LONG).await;
    assert!(outcome.is_locked() && !reader.is_finished());
    writer.abort();
    assert!(gets_in(reader).await.release().await.unwrap());
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
