//! Slots of a key: their fences, who hears of them, and what it takes to find one.

use std::collections::BTreeSet;

use syncguard::{AcquireOutcome, Key, LockId, PageRequest};

use crate::stage::{FOREIGN, Stage, scripts};
use crate::support::attempts::Attempts as _;
use crate::support::claims::{ids, plain, release, slot, take, try_take};
use crate::support::locks::{AHEAD, key};
use crate::support::suite::tests;

tests![
    fences_of_slots_are_counted_each_for_itself,
    freed_slots_are_told_of_under_the_name_of_their_key,
    slots_are_listed,
    the_search_begins_anywhere,
    within_the_tolerance_a_slot_is_held,
    a_slot_that_has_ended_is_found_among_a_thousand,
    a_thousand_slots_take_the_server_little_time,
];

async fn fences_of_slots_are_counted_each_for_itself() {
    let mut t = Stage::new();
    for slot in 1..=2_u64 {
        let counter = format!("syncguard:fence:syncguard:p\u{37e}{slot}");
        t.raw
            .call(&["SET", &counter, &(AHEAD + 100 * slot).to_string()]);
    }
    for round in 1..=3 {
        let grants = take(&t.backend, [slot("p", 2), slot("p", 2)]).await;
        for grant in &grants {
            let slot = u64::from(grant.slot.unwrap());
            assert_eq!(grant.fence.get(), AHEAD + 100 * slot + round);
        }
        release(&t.backend, ids(&grants)).await;
    }
}

async fn freed_slots_are_told_of_under_the_name_of_their_key() {
    let mut t = Stage::with(|config| config.locks.cleanup_in_is_locked = true);
    let mut listener = t.server.connect();
    listener.call(&["PSUBSCRIBE", "*"]);
    let mut told = || listener.read().list()[2].text().to_owned();
    let own = slot("p", 2);
    let grants = take(&t.backend, [plain("k"), own.clone(), slot("p", 2)]).await;
    release(&t.backend, ids(&grants[..2])).await;
    assert_eq!([told(), told()], ["syncguard:k", "syncguard:p"]);
    t.backend.release(&grants[2].lock_id).await.unwrap();
    assert_eq!(told(), "syncguard:p");
    let grants = take(&t.backend, [own]).await;
    let number = grants[0].slot.unwrap();
    let key = key("p").slot(number);
    assert!(t.backend.force_release(&key).await.unwrap());
    assert_eq!(told(), "syncguard:p");
    let name = format!("p\u{37e}{number}");
    t.write(FOREIGN[0], &name, &grants[0].lock_id, -2500);
    assert!(!t.backend.is_locked(&key).await.unwrap());
    assert_eq!(told(), "syncguard:p");
}

async fn slots_are_listed() {
    let t = Stage::new();
    let grants = take(&t.backend, [plain("k"), slot("p", 3), slot("p", 3)]).await;
    let all = PageRequest {
        limit: 100,
        ..PageRequest::default()
    };
    let page = t.backend.list(&all).await.unwrap();
    let number = |key: &Key| (key.base().to_owned(), key.slot_number());
    let mut found: Vec<_> = page.locks.iter().map(|lock| number(&lock.key)).collect();
    found.sort();
    let base = |grant: &syncguard::Grant| match grant.slot {
        None => ("k".to_owned(), None),
        slot => ("p".to_owned(), slot),
    };
    let mut expected: Vec<_> = grants.iter().map(base).collect();
    expected.sort();
    assert_eq!(found, expected);
}

async fn the_search_begins_anywhere() {
    let t = Stage::new();
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        let grants = take(&t.backend, [slot("p", 4)]).await;
        seen.insert(grants[0].slot.unwrap());
        release(&t.backend, ids(&grants)).await;
    }
    assert_eq!(seen, (1..=4).collect());
}

async fn within_the_tolerance_a_slot_is_held() {
    let mut t = Stage::new();
    for form in FOREIGN {
        // Wherever the search begins, it goes on from the first to the second.
        for _ in 0..8 {
            t.raw.call(&["FLUSHALL"]);
            for (slot, after_ms) in [(1, -300), (2, -1500)] {
                let name = format!("p\u{37e}{slot}");
                t.write(form, &name, &LockId::generate().unwrap(), after_ms);
            }
            let grants = take(&t.backend, [slot("p", 2)]).await;
            assert_eq!(grants[0].slot, Some(2));
            let outcome = try_take(&t.backend, [slot("p", 2)]).await.unwrap();
            let AcquireOutcome::Locked { free_in, .. } = outcome else {
                panic!("granted twice");
            };
            assert!(free_in.unwrap().as_millis() <= 700, "{free_in:?}");
        }
    }
}

/// Takes a thousand slots but those.
async fn fill(t: &mut Stage, but: &[u16]) {
    for _ in 0..10 {
        let claims = std::iter::repeat_with(|| slot("p", 1000)).take(100);
        take(&t.backend, claims).await;
    }
    for number in but {
        assert!(
            t.backend
                .force_release(&key("p").slot(*number))
                .await
                .unwrap()
        );
    }
    scripts(&mut t.raw);
}

async fn a_slot_that_has_ended_is_found_among_a_thousand() {
    let mut t = Stage::new();
    fill(&mut t, &[500, 501]).await;
    // Written by somebody who does not let it expire.
    t.write(
        FOREIGN[1],
        "p\u{37e}500",
        &LockId::generate().unwrap(),
        -1500,
    );
    let two = || [slot("p", 1000), slot("p", 1000)];
    let grants = take(&t.backend, two()).await;
    let numbers: BTreeSet<_> = grants.iter().map(|grant| grant.slot).collect();
    assert_eq!(numbers, [Some(500), Some(501)].into());
    t.backend.release(&grants[0].lock_id).await.unwrap();
    let outcome = try_take(&t.backend, two()).await.unwrap();
    assert!(matches!(outcome, AcquireOutcome::Locked { claim: 1, .. }));
}

async fn a_thousand_slots_take_the_server_little_time() {
    const ROUNDS: u64 = 20;
    let mut t = Stage::new();
    fill(&mut t, &[1000]).await;
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let grants = take(&t.backend, [slot("p", 1000)]).await;
        took.push(scripts(&mut t.raw).1);
        assert_eq!(grants[0].slot, Some(1000));
        release(&t.backend, ids(&grants)).await;
        scripts(&mut t.raw);
    }
    // What else the machine does only adds to it, so the shortest counts: a third of a millisecond.
    assert!(*took.iter().min().unwrap() < 3000, "{took:?} µs");
}
