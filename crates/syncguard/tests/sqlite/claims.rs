//! Several locks at once and slots, between processes and in large numbers.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Batch, Claim, Operation, Owner, ReleaseOutcome, Slots,
    Ttl,
};

use crate::child;
use crate::stage::{backend, place};
use crate::support::attempts::Attempts as _;
use crate::support::locks::key;
use crate::support::readers;
use crate::support::suite::tests;

tests![
    processes_that_ask_in_opposite_orders_neither_block_nor_mix,
    one_free_slot_of_a_thousand_is_found_soon,
    sets_with_one_group_are_extended_at_once,
];

const ROUNDS: usize = 200;

/// Processes that want overlapping sets of keys, named in opposite orders. Whoever looks at the file at any time finds all
/// that one of them wants, or nothing.
async fn processes_that_ask_in_opposite_orders_neither_block_nor_mix() {
    let place = place();
    // Makes the tables.
    backend(&place.path).is_locked(&key("a")).await.unwrap();
    let file = Connection::open(&place.path).unwrap();
    let start = |scenario| {
        let mut command = child::command(scenario, &place.path);
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut children = ["forwards", "backwards"].map(start);
    let mut looks = [0, 0];
    while children
        .iter_mut()
        .any(|child| child.try_wait().unwrap().is_none())
    {
        let sql = "SELECT count(*), count(DISTINCT owner) FROM syncguard_locks";
        let row = file.query_one(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
        match row.unwrap() {
            (0, 0) => looks[0] += 1,
            (3, 1) => looks[1] += 1,
            found => panic!("{found:?}"),
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    assert!(looks[1] > 10, "{looks:?}");
    for child in children {
        let granted: usize = child::said(child.wait_with_output().unwrap())
            .parse()
            .unwrap();
        assert_eq!(granted, ROUNDS);
    }
}

/// The scenarios "forwards" and "backwards".
#[allow(clippy::print_stdout, reason = "the parent reads it")]
pub(crate) async fn take_turns(path: &Path, names: [&str; 3]) {
    let backend = backend(path);
    let mut granted = 0;
    while granted < ROUNDS {
        let claims = names.map(|name| Claim::new(key(name)).unwrap());
        let mut request = AcquireRequest::of(claims, Ttl::DEFAULT).unwrap();
        request.labels.owner = Some(Owner::new(names[0]).unwrap());
        let lock_ids = request.lock_ids();
        if backend.acquire(&request).await.unwrap().is_locked() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        granted += 1;
        let released: Batch<ReleaseOutcome> = backend
            .ask(Operation::Release(lock_ids.into()))
            .await
            .unwrap();
        assert_eq!(released[..], [ReleaseOutcome::Released; 3]);
    }
    println!("{granted}");
    backend.close().await;
}

async fn one_free_slot_of_a_thousand_is_found_soon() {
    let place = place();
    let backend = backend(&place.path);
    let all = Slots::new(1000).unwrap();
    let slot = || Claim::slot(key("a"), all).unwrap();
    for _ in 0..10 {
        let hundred = AcquireRequest::of((0..100).map(|_| slot()), Ttl::DEFAULT).unwrap();
        assert!(!backend.acquire(&hundred).await.unwrap().is_locked());
    }
    let mut times = Vec::new();
    for _ in 0..50 {
        backend.force_release(&key("a").slot(517)).await.unwrap();
        let one = AcquireRequest::of([slot()], Ttl::DEFAULT).unwrap();
        let start = Instant::now();
        let outcome = backend.acquire(&one).await.unwrap();
        times.push(start.elapsed());
        let AcquireOutcome::Acquired(grants) = outcome else {
            panic!("nobody holds the slot");
        };
        assert_eq!(grants[0].slot, Some(517));
        let none = AcquireRequest::of([slot()], Ttl::DEFAULT).unwrap();
        assert!(backend.acquire(&none).await.unwrap().is_locked());
    }
    times.sort();
    // With the write to the disk. A quarter of them, because the machine may be busy.
    assert!(times[12] < Duration::from_millis(50), "{times:?}");
}

async fn sets_with_one_group_are_extended_at_once() {
    let place = place();
    let backend = backend(&place.path);
    let names = ["a", "b", "c", "d"];
    readers::sets_with_one_group_are_extended_at_once(&backend, names, true).await;
    let file = Connection::open(&place.path).unwrap();
    let sql = "SELECT count(*) FROM syncguard_locks";
    let left: i64 = file.query_one(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}
