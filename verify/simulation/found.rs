//! Single cases that random runs have found.

use super::world::{Cut, How};
use super::*;
use crate::asking::hold::AutoExtend;
use crate::asking::outcome::Outcome;
use crate::asking::request::Operation;
use crate::holding::guard::LockGuard;
use crate::holding::lock::{LockOptions, lock};
use crate::values::claim::Claim;
use crate::values::key::Key;
use crate::values::ttl::Ttl;

/// One process, a network on which nothing goes wrong by itself, and a lock for six seconds.
async fn alone(auto_extend: Option<AutoExtend>) -> (Sim, Arc<dyn Backend>, LockGuard) {
    let sim = Sim::new(0, false);
    sim.with(|world| world.plan.is_calm = true);
    let process: Arc<dyn Backend> = Process::new(&sim, 0);
    let options = LockOptions {
        ttl: Ttl::from_millis(6000).unwrap(),
        auto_extend,
        ..LockOptions::default()
    };
    let key = Key::new("0").unwrap();
    let guard = lock(&process, &key, &options).await.unwrap();
    (sim, process, guard)
}

#[tokio::test(start_paused = true)]
async fn an_extension_without_an_answer_may_have_made_the_lock_shorter() {
    let (sim, _backend, mut guard) = alone(None).await;
    let (until, how) = (Instant::now() + Duration::from_secs(60), How::Lost);
    sim.with(|world| world.links[0].cut = Some(Cut { until, how }));
    let (lost, sent) = (guard.lost(), Instant::now());
    let (patience, short) = (Duration::from_millis(500), Ttl::from_millis(2000).unwrap());
    assert!(timeout(patience, guard.extend(short)).await.is_err());
    lost.await;
    assert_eq!(sent.elapsed().as_millis(), 2000);
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_is_not_sent_leaves_the_lock_as_it_is() {
    for auto_extend in [None, Some(AutoExtend::default())] {
        let start = Instant::now();
        let (_sim, backend, mut guard) = alone(auto_extend).await;
        backend.close().await;
        let lost = guard.lost();
        let short = Ttl::from_millis(500).unwrap();
        assert!(guard.extend(short).await.is_err());
        lost.await;
        assert_eq!(start.elapsed().as_millis(), 6000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_with_a_gate_leaves_in_time_although_nobody_answers() {
    let sim = Sim::new(0, false);
    sim.with(|world| world.plan.is_calm = true);
    let process: Arc<dyn Backend> = Process::new(&sim, 0);
    let key = Key::new("0").unwrap();
    let options = LockOptions {
        ttl: Ttl::from_millis(60_000).unwrap(),
        ..LockOptions::default()
    };
    let shared = Claim::shared(key.clone()).unwrap();
    let _reading = lock(&process, shared, &options).await.unwrap();
    let cut = async {
        sleep(Duration::from_millis(3500)).await;
        let (until, how) = (Instant::now() + Duration::from_secs(60), How::Lost);
        sim.with(|world| world.links[0].cut = Some(Cut { until, how }));
    };
    let start = Instant::now();
    let (writing, ()) = tokio::join!(lock(&process, &key, &options), cut);
    assert!(writing.is_err());
    let longest = Duration::from_millis(5_100) + waiters::SLACK;
    assert!(start.elapsed() <= longest, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_extended_for_less_is_released_for_as_long_as_it_may_last() {
    let (sim, backend, mut guard) = alone(Some(AutoExtend::default())).await;
    assert!(guard.extend(Ttl::from_millis(100).unwrap()).await.unwrap());
    // A heartbeat has followed.
    sleep(Duration::from_millis(100)).await;
    let (until, how) = (Instant::now() + Duration::from_secs(4), How::Refused);
    sim.with(|world| world.links[0].cut = Some(Cut { until, how }));
    drop(guard);
    sleep(Duration::from_millis(5500)).await;
    let asked = Operation::IsLocked(Key::new("0").unwrap());
    let is_locked = backend.run(&asked).await.unwrap();
    assert_eq!(is_locked, Outcome::IsLocked(false));
}
