//! Slots of a key: locks under names of their own.

use std::collections::BTreeSet;
use std::time::Instant;

use syncguard::postgres::PostgresConfig;
use syncguard::{ErrorKind, Lookup, PageRequest, ReleaseOutcome};

use crate::scene::Scene;
use crate::stage::{backend, server};
use crate::support::attempts::Attempts as _;
use crate::support::claims::{extend, ids, plain, release, slot, take, try_take};
use crate::support::locks::{AHEAD, key, ttl};
use crate::support::suite::tests;
use crate::support::waiters::soon;

tests![
    fences_of_slots_are_counted_each_for_itself,
    slots_are_listed_and_looked_up,
    freed_slots_are_told_of_under_the_name_of_their_key,
    names_of_slots_are_no_matter_of_the_encoding,
    a_slot_that_has_ended_is_found_among_a_thousand,
];

async fn fences_of_slots_are_counted_each_for_itself() {
    let (ours, tables) = backend(server().unix()).await;
    for number in 1..=2_u64 {
        let sql = format!(
            "INSERT INTO {} VALUES ('fence:counted\u{37e}{number}', {})",
            tables.fences(),
            AHEAD + 100 * number
        );
        server().client().await.batch_execute(&sql).await.unwrap();
    }
    for round in 1..=3 {
        let grants = take(&ours, [slot("counted", 2), slot("counted", 2)]).await;
        for grant in &grants {
            let number = u64::from(grant.slot.unwrap());
            assert_eq!(grant.fence.get(), AHEAD + 100 * number + round);
        }
        release(&ours, ids(&grants)).await;
    }
}

async fn slots_are_listed_and_looked_up() {
    let (ours, _) = backend(server().unix()).await;
    let grants = take(
        &ours,
        [plain("shown"), slot("shown p", 3), slot("shown p", 3)],
    )
    .await;
    let all = PageRequest {
        limit: 100,
        ..PageRequest::default()
    };
    let page = ours.list(&all).await.unwrap();
    let found: BTreeSet<_> = page
        .locks
        .iter()
        .map(|lock| (lock.key.base().to_owned(), lock.key.slot_number()))
        .collect();
    let base = |grant: &syncguard::Grant| {
        if grant.slot.is_none() {
            "shown"
        } else {
            "shown p"
        }
    };
    let expected = grants
        .iter()
        .map(|grant| (base(grant).to_owned(), grant.slot));
    assert_eq!(found, expected.collect());
    for grant in &grants[1..] {
        let key = key("shown p").slot(grant.slot.unwrap());
        assert!(ours.is_locked(&key).await.unwrap());
        let by_id = Lookup::LockId(grant.lock_id.clone());
        for lookup in [Lookup::Key(key.clone()), by_id] {
            let record = ours.lookup(&lookup).await.unwrap().unwrap();
            assert_eq!((&record.key, record.fence), (&key, grant.fence));
        }
        assert!(ours.force_release(&key).await.unwrap());
        assert!(!ours.is_locked(&key).await.unwrap());
    }
}

async fn freed_slots_are_told_of_under_the_name_of_their_key() {
    let t = Scene::new("slots").await;
    let claim = || slot(t.key("p").as_str(), 3);
    let grants = take(&*t.holder, [claim(), claim(), claim()]).await;
    let watch = t.waiter.watch(&claim()).unwrap();
    soon(watch.freed()).await;
    t.holder.release(&grants[0].lock_id).await.unwrap();
    soon(watch.freed()).await;
    release(&*t.holder, ids(&grants[1..])).await;
    soon(watch.freed()).await;
    let grants = take(&*t.holder, [claim()]).await;
    let key = t.key("p").slot(grants[0].slot.unwrap());
    assert!(t.holder.force_release(&key).await.unwrap());
    soon(watch.freed()).await;
}

/// A database whose encoding has no U+037E keeps plain locks as ever.
async fn names_of_slots_are_no_matter_of_the_encoding() {
    let create = "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0";
    server().client().await.batch_execute(create).await.unwrap();
    let config = PostgresConfig {
        database: Some("latin".to_owned()),
        ..server().unix()
    };
    let (ours, _) = backend(config).await;
    let grants = take(&ours, [plain("latin é"), plain("latin 7")]).await;
    extend(&ours, ids(&grants), ttl(60_000)).await;
    let released = release(&ours, ids(&grants)).await;
    assert_eq!(released[..], [ReleaseOutcome::Released; 2]);
    let error = try_take(&ours, [slot("latin", 3)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

async fn a_slot_that_has_ended_is_found_among_a_thousand() {
    let (ours, tables) = backend(server().unix()).await;
    let thousand = || slot("many", 1000);
    for _ in 0..10 {
        take(&ours, std::iter::repeat_with(thousand).take(100)).await;
    }
    assert!(try_take(&ours, [thousand()]).await.unwrap().is_locked());
    let client = server().client().await;
    let expire = format!(
        "UPDATE {} SET expires_at_ms = 1 WHERE key = $1",
        tables.locks()
    );
    client.execute(&expire, &[&"many\u{37e}500"]).await.unwrap();
    assert!(ours.force_release(&key("many").slot(501)).await.unwrap());
    let grants = take(&ours, [thousand(), thousand()]).await;
    let numbers: BTreeSet<_> = grants.iter().map(|grant| grant.slot).collect();
    assert_eq!(numbers, [Some(500), Some(501)].into());
    let mut took = Vec::new();
    for _ in 0..20 {
        ours.force_release(&key("many").slot(500)).await.unwrap();
        let begun = Instant::now();
        let found = take(&ours, [thousand()]).await;
        took.push(begun.elapsed());
        assert_eq!(found[0].slot, Some(500));
    }
    took.sort_unstable();
    assert!(took[10].as_millis() < 100, "{took:?}");
}
