use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use syncguard::{AcquireOutcome, Backend, Jitter, LockOptions, ReleaseOutcome, RetryPolicy, lock};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::fixture::{Context, LONG, Stage, prepared, tests};
use crate::support::attempts::Attempts as _;

tests![
    of_64_tasks_one_wins_each_round,
    a_thousand_acquisitions_have_a_thousand_fences,
    tasks_on_different_keys_do_not_disturb_each_other,
    waiters_are_never_in_the_section_together,
];

/// The backend and its peer in turn.
fn either(t: &Context, number: usize) -> Arc<dyn Backend> {
    if number.is_multiple_of(2) {
        t.fixture.backend()
    } else {
        t.fixture.peer()
    }
}

async fn of_64_tasks_one_wins_each_round(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut last = None;
    for round in 1..=5 {
        let barrier = Arc::new(Barrier::new(64));
        let mut tasks = JoinSet::new();
        for number in 0..64 {
            let (backend, barrier) = (either(&t, number), Arc::clone(&barrier));
            let request = prepared(backend.as_ref(), &key, LONG);
            tasks.spawn(async move {
                barrier.wait().await;
                backend.acquire(&request).await.unwrap()
            });
        }
        let mut grants = Vec::new();
        for outcome in tasks.join_all().await {
            if let AcquireOutcome::Acquired(grant) = outcome {
                grants.push(grant);
            }
        }
        let [winner] = &grants[..] else {
            panic!("{} winners in round {round}", grants.len());
        };
        assert!(Some(winner[0].fence) > last);
        last = Some(winner[0].fence);
        assert_eq!(t.by_key(&key).await.unwrap().lock_id, winner[0].lock_id);
        t.backend.release(&winner[0].lock_id).await.unwrap();
    }
}

async fn a_thousand_acquisitions_have_a_thousand_fences(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let fences = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let (backend, key, fences) = (either(&t, number), key.clone(), Arc::clone(&fences));
        tasks.spawn(async move {
            for _ in 0..125 {
                let grant = loop {
                    let request = prepared(backend.as_ref(), &key, LONG);
                    match backend.acquire(&request).await.unwrap() {
                        AcquireOutcome::Acquired(grant) => break grant,
                        _ => tokio::task::yield_now().await,
                    }
                };
                // While it is held, nobody else writes here.
                fences.lock().unwrap().push(grant[0].fence);
                let released = backend.release(&grant[0].lock_id).await.unwrap();
                assert_eq!(released, ReleaseOutcome::Released);
            }
        });
    }
    tasks.join_all().await;
    let fences = fences.lock().unwrap();
    assert_eq!(fences.len(), 1000);
    assert!(fences.is_sorted_by(|earlier, later| earlier < later));
    let texts: HashSet<_> = fences.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 1000);
}

async fn tasks_on_different_keys_do_not_disturb_each_other(stage: Stage) {
    let t = stage.open().await;
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        let (backend, key) = (either(&t, number), t.key(&number.to_string()));
        tasks.spawn(async move {
            let mut last = None;
            for _ in 0..3 {
                let request = prepared(backend.as_ref(), &key, LONG);
                let AcquireOutcome::Acquired(mut grants) = backend.acquire(&request).await.unwrap()
                else {
                    panic!("nobody else takes this key");
                };
                let grant = grants.remove(0);
                assert!(Some(grant.fence) > last);
                last = Some(grant.fence);
                let released = backend.release(&grant.lock_id).await.unwrap();
                assert_eq!(released, ReleaseOutcome::Released);
            }
        });
    }
    assert_eq!(tasks.join_all().await.len(), 64);
}

async fn waiters_are_never_in_the_section_together(stage: Stage) {
    let t = stage.open().await;
    let options = LockOptions {
        retry: RetryPolicy {
            max_retries: f64::INFINITY,
            retry_delay_ms: 2.0,
            backoff: syncguard::Backoff::Fixed,
            jitter: Jitter::Full,
            timeout_ms: 60_000.0,
            ..RetryPolicy::default()
        },
        ..LockOptions::default()
    };
    let occupied = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for number in 0..16 {
        let (backend, key) = (either(&t, number), t.key("a"));
        let (options, occupied) = (options.clone(), Arc::clone(&occupied));
        tasks.spawn(async move {
            for _ in 0..5 {
                let guard = lock(&backend, &key, &options).await.unwrap();
                assert!(!occupied.swap(true, Ordering::SeqCst), "two holders");
                tokio::task::yield_now().await;
                occupied.store(false, Ordering::SeqCst);
                assert!(guard.release().await.unwrap());
            }
        });
    }
    assert_eq!(tasks.join_all().await.len(), 16);
}
