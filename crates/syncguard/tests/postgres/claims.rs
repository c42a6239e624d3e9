//! Several locks at once: what is stored, what stands in the way, and what it costs.

use std::collections::BTreeSet;

use syncguard::postgres::{PostgresBackend, PostgresConfig, Tables};
use syncguard::{Absence, AcquireOutcome, ErrorKind, ExtendOutcome, LockId, Owner, ReleaseOutcome};

use crate::canonical::Canonical;
use crate::flights::{Flights, Proxy};
use crate::stage::{backend, count, options, server, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::claims::{asking, extend, ids, plain, release, slot, take, try_take};
use crate::support::locks::{AHEAD, key, ttl};
use crate::support::suite::tests;

tests![
    each_lock_is_stored_as_if_it_were_alone,
    an_older_table_gets_no_labels,
    four_keys_are_one_round_trip,
    a_repeated_acquisition_is_answered_as_it_was_granted,
    what_is_in_the_way_is_named,
    a_counter_at_its_limit_leaves_nothing,
    another_writers_lock_is_in_the_way,
    a_lock_that_is_written_meanwhile_leaves_nothing,
    a_lock_that_is_extended_meanwhile_leaves_nothing,
    an_extension_is_of_all_or_none,
    a_release_is_of_each_for_itself,
];

/// How many rows one of the tables has.
pub(crate) async fn rows(tables: &Tables, of: impl Fn(&Tables) -> &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {}", of(tables));
    let client = server().client().await;
    client.query_one(&sql, &[]).await.unwrap().get(0)
}

async fn each_lock_is_stored_as_if_it_were_alone() {
    let (ours, tables) = backend(server().unix()).await;
    let mut request = asking(&ours, [plain("k7"), slot("p", 2), slot("p", 2)]);
    request.labels.owner = Some(Owner::new("me").unwrap());
    let AcquireOutcome::Acquired(grants) = ours.acquire(&request).await.unwrap() else {
        panic!("locked");
    };
    let slots: BTreeSet<_> = grants.iter().map(|grant| grant.slot).collect();
    assert_eq!(slots, [None, Some(1), Some(2)].into());
    let client = server().client().await;
    for grant in &grants {
        let name = match grant.slot {
            None => "k7".to_owned(),
            Some(number) => format!("p\u{37e}{number}"),
        };
        let sql = format!(
            "SELECT user_key, lock_id, lock.fence, expires_at_ms - acquired_at_ms, expires_at_ms, owner, last.fence, \
             key_debug FROM {} AS lock JOIN {} AS last ON fence_key = 'fence:' || key WHERE key = $1",
            tables.locks(),
            tables.fences()
        );
        let row = client.query_one(&sql, &[&name]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), name);
        assert_eq!(row.get::<_, String>(1), grant.lock_id.as_str());
        assert_eq!(row.get::<_, String>(2), grant.fence.to_string());
        assert_eq!(row.get::<_, i64>(3), request.ttl.as_millis());
        assert_eq!(row.get::<_, i64>(4), grant.expires_at_ms);
        let label = format!("{}:me", grant.lock_id.as_str());
        assert_eq!(row.get::<_, String>(5), label);
        assert_eq!(row.get::<_, i64>(6).unsigned_abs(), grant.fence.get());
        assert_eq!(row.get::<_, String>(7), name);
    }
    assert_eq!(rows(&tables, Tables::locks).await, 3);
    release(&ours, ids(&grants)).await;
    assert_eq!(rows(&tables, Tables::locks).await, 0);
    assert_eq!(rows(&tables, Tables::fences).await, 3);
}

async fn an_older_table_gets_no_labels() {
    let (ours, tables) = backend(server().unix()).await;
    let sql = format!("ALTER TABLE {} DROP COLUMN owner", tables.locks());
    server().client().await.batch_execute(&sql).await.unwrap();
    for _ in 0..2 {
        let mut request = asking(&ours, [plain("older"), slot("olds", 3)]);
        request.labels.owner = Some(Owner::new("me").unwrap());
        assert!(!ours.acquire(&request).await.unwrap().is_locked());
        release(&ours, request.lock_ids()).await;
    }
}

async fn four_keys_are_one_round_trip() {
    const ONE: Flights = Flights {
        requests: 1,
        replies: 1,
    };
    let (_, tables) = backend(server().unix()).await;
    let proxy = Proxy::start(server().port()).await;
    for prepare in [true, false] {
        let config = PostgresConfig {
            prepare,
            ..proxy.config(server().tcp())
        };
        let ours = PostgresBackend::new(config, options(&tables)).unwrap();
        let check = |what| assert_eq!(proxy.take(), ONE, "{what}");
        for round in 0..3 {
            // The first prepares. All others find new keys and old ones.
            let names = [0, 1, 2 + round, 5 + round].map(|number| format!("trip {number}"));
            let claims = || names.iter().map(|name| plain(name));
            let all = || claims().chain([slot("trips", 5), slot("trips", 5)]);
            if round == 0 {
                let grants = take(&ours, all()).await;
                extend(&ours, ids(&grants), ttl(60_000)).await;
                release(&ours, ids(&grants)).await;
                continue;
            }
            proxy.take();
            let grants = take(&ours, claims()).await;
            check("acquire");
            assert!(try_take(&ours, all()).await.unwrap().is_locked());
            check("acquire what is held");
            extend(&ours, ids(&grants), ttl(60_000)).await;
            check("extend");
            release(&ours, ids(&grants)).await;
            check("release");
            let grants = take(&ours, all()).await;
            check("acquire with slots");
            release(&ours, ids(&grants)).await;
            check("release with slots");
        }
    }
}

async fn a_repeated_acquisition_is_answered_as_it_was_granted() {
    let (ours, tables) = backend(server().unix()).await;
    let request = asking(
        &ours,
        [plain("again"), slot("agains", 9), slot("agains", 9)],
    );
    let first = ours.acquire(&request).await.unwrap();
    assert!(!first.is_locked());
    for _ in 0..10 {
        assert_eq!(ours.acquire(&request).await.unwrap(), first);
    }
    assert_eq!(rows(&tables, Tables::fences).await, 3);
    // Once one is gone, the rest is in the way, and no other slot is taken under the same lock id.
    ours.release(&request.claims[0].lock_id).await.unwrap();
    let AcquireOutcome::Locked {
        claim: 1, free_in, ..
    } = ours.acquire(&request).await.unwrap()
    else {
        panic!("half a grant");
    };
    assert!(free_in.unwrap().as_millis() > 20_000);
    assert_eq!(rows(&tables, Tables::locks).await, 2);
}

async fn what_is_in_the_way_is_named() {
    let (ours, tables) = backend(server().unix()).await;
    for (held, claim) in [("way a", 0), ("way b", 1), ("way d", 3)] {
        let other = take(&ours, [plain(held)]).await;
        let claims = ["way a", "way b", "way c", "way d"].map(plain);
        let outcome = try_take(&ours, claims).await.unwrap();
        let AcquireOutcome::Locked {
            claim: found,
            free_in,
            ..
        } = outcome
        else {
            panic!("nothing was in the way");
        };
        assert_eq!(found, claim);
        assert!((29_000..=31_000).contains(&free_in.unwrap().as_millis()));
        assert_eq!(rows(&tables, Tables::locks).await, 1);
        release(&ours, ids(&other)).await;
    }
    // Of slots, the first to end says when.
    let mut brief = asking(&ours, [slot("ways", 3)]);
    brief.ttl = ttl(10_000);
    assert!(!ours.acquire(&brief).await.unwrap().is_locked());
    let others = take(&ours, [slot("ways", 3), slot("ways", 3)]).await;
    let claims = || [plain("way a"), slot("ways", 3), slot("ways", 3)];
    let outcome = try_take(&ours, claims()).await.unwrap();
    let AcquireOutcome::Locked {
        claim: 1, free_in, ..
    } = outcome
    else {
        panic!("{outcome:?}");
    };
    assert!((9_000..=11_000).contains(&free_in.unwrap().as_millis()));
    // One is free, and its old row has long ended.
    let expire = format!(
        "UPDATE {} SET expires_at_ms = 1 WHERE lock_id = $1",
        tables.locks()
    );
    let client = server().client().await;
    let expired = others[0].lock_id.as_str();
    client.execute(&expire, &[&expired]).await.unwrap();
    let outcome = try_take(&ours, claims()).await.unwrap();
    let AcquireOutcome::Locked {
        claim: 2, free_in, ..
    } = outcome
    else {
        panic!("{outcome:?}");
    };
    assert!((8_000..=11_000).contains(&free_in.unwrap().as_millis()));
    assert_eq!(rows(&tables, Tables::locks).await, 3);
    // With a smaller limit, those who came with a larger one count as well.
    assert!(
        try_take(&ours, [slot("ways", 1)])
            .await
            .unwrap()
            .is_locked()
            != (others[0].slot == Some(1))
    );
}

async fn a_counter_at_its_limit_leaves_nothing() {
    for name in ["full", "p\u{37e}1"] {
        let (ours, tables) = backend(server().unix()).await;
        let sql = format!(
            "INSERT INTO {} VALUES ('fence:{name}', 900000000000000), ('fence:full a', {AHEAD})",
            tables.fences()
        );
        let client = server().client().await;
        client.batch_execute(&sql).await.unwrap();
        let claims = [
            plain("full a"),
            plain("full"),
            slot("p", 1),
            plain("full z"),
        ];
        let error = try_take(&ours, claims).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.message().contains("limit") && !error.is_outcome_unknown());
        assert_eq!(rows(&tables, Tables::locks).await, 0);
        assert_eq!(rows(&tables, Tables::fences).await, 2);
        let sql = format!(
            "SELECT max(fence) FROM {} WHERE fence_key = 'fence:full a'",
            tables.fences()
        );
        let counter: i64 = client.query_one(&sql, &[]).await.unwrap().get(0);
        assert_eq!(counter.unsigned_abs(), AHEAD);
    }
}

/// SyncGuard for TypeScript knows nothing of sets, and single locks exclude.
async fn another_writers_lock_is_in_the_way() {
    let (ours, tables) = backend(server().unix()).await;
    let mut other = Canonical::new(server().client().await, &tables);
    let held = other
        .acquire(&key("other b"), 30_000)
        .await
        .unwrap()
        .unwrap();
    let claims = || ["other a", "other b", "other c"].map(plain);
    let outcome = try_take(&ours, claims()).await.unwrap();
    assert!(matches!(outcome, AcquireOutcome::Locked { claim: 1, .. }));
    assert!(other.release(&held.lock_id).await.unwrap());
    let grants = take(&ours, claims()).await;
    assert!(grants[1].fence.get() > held.fence.unsigned_abs());
    for name in ["other a", "other b", "other c"] {
        assert!(other.acquire(&key(name), 30_000).await.unwrap().is_none());
    }
    // What it holds is extended and released with others.
    release(&ours, ids(&grants[1..2])).await;
    let held = other
        .acquire(&key("other b"), 30_000)
        .await
        .unwrap()
        .unwrap();
    let all = || {
        [grants[0].lock_id.clone(), held.lock_id.clone()]
            .into_iter()
            .collect()
    };
    let extended = extend(&ours, all(), ttl(60_000)).await;
    assert!(matches!(extended, ExtendOutcome::Extended { .. }));
    assert_eq!(
        release(&ours, all()).await[..],
        [ReleaseOutcome::Released; 2]
    );
}

/// Ours waits for the turn of one key, and then finds what a writer without turn and counter has written.
async fn a_lock_that_is_written_meanwhile_leaves_nothing() {
    let name = "written";
    let (ours, tables) = backend(PostgresConfig {
        application_name: Some(name.to_owned()),
        ..server().unix()
    })
    .await;
    let (mut writer, watcher) = (server().client().await, server().client().await);
    let t = writer.transaction().await.unwrap();
    let advisory = "SELECT pg_advisory_xact_lock(hashtext('written b'))";
    t.execute(advisory, &[]).await.unwrap();
    let waiter = tokio::spawn(async move {
        let claims = ["written a", "written b", "written c"].map(plain);
        try_take(&ours, claims).await.unwrap()
    });
    until_waiting(&watcher, name, 1).await;
    let write = format!(
        "INSERT INTO {} VALUES ('written c', 'AAAAAAAAAAAAAAAAAAAAAA', \
         floor(extract(epoch FROM now()) * 1000) + 60000, 0, '000000000000001', 'written c')",
        tables.locks(),
    );
    t.batch_execute(&write).await.unwrap();
    t.commit().await.unwrap();
    assert!(matches!(
        waiter.await.unwrap(),
        AcquireOutcome::Locked { claim: 2, .. }
    ));
    assert_eq!(rows(&tables, Tables::locks).await, 1);
    assert_eq!(rows(&tables, Tables::fences).await, 0);
}

/// Ours finds a lock that has ended, and waits for its row while somebody else extends it, who came in time.
async fn a_lock_that_is_extended_meanwhile_leaves_nothing() {
    let name = "prolonged";
    let (ours, tables) = backend(PostgresConfig {
        application_name: Some(name.to_owned()),
        ..server().unix()
    })
    .await;
    count(&tables, "late a").await;
    let (mut writer, watcher) = (server().client().await, server().client().await);
    let write = format!(
        "INSERT INTO {} VALUES ('late b', 'AAAAAAAAAAAAAAAAAAAAAA', 1, 0, '000000000000001', 'late b')",
        tables.locks(),
    );
    writer.batch_execute(&write).await.unwrap();
    let t = writer.transaction().await.unwrap();
    let prolong = format!(
        "UPDATE {} SET expires_at_ms = floor(extract(epoch FROM now()) * 1000) + 60000",
        tables.locks()
    );
    t.batch_execute(&prolong).await.unwrap();
    let waiter = tokio::spawn(async move {
        let claims = ["late a", "late b"].map(plain);
        try_take(&ours, claims).await.unwrap()
    });
    until_waiting(&watcher, name, 1).await;
    t.commit().await.unwrap();
    assert!(matches!(
        waiter.await.unwrap(),
        AcquireOutcome::Locked { claim: 1, .. }
    ));
    assert_eq!(rows(&tables, Tables::locks).await, 1);
    let sql = format!("SELECT max(fence), count(*) FROM {}", tables.fences());
    let row = watcher.query_one(&sql, &[]).await.unwrap();
    let found = (row.get::<_, i64>(0).unsigned_abs(), row.get::<_, i64>(1));
    assert_eq!(found, (AHEAD, 1), "a number was spent");
}

async fn an_extension_is_of_all_or_none() {
    let (ours, tables) = backend(server().unix()).await;
    let grants = take(&ours, [plain("all a"), plain("all b"), slot("alls", 4)]).await;
    let before = grants[0].expires_at_ms;
    let ExtendOutcome::Extended { expires_at_ms } = extend(&ours, ids(&grants), ttl(60_000)).await
    else {
        panic!("not extended");
    };
    assert!(expires_at_ms > before + 25_000);
    let ends = async || {
        let sql = format!(
            "SELECT count(*), min(expires_at_ms), max(expires_at_ms) FROM {}",
            tables.locks()
        );
        let row = server().client().await.query_one(&sql, &[]).await.unwrap();
        (
            row.get::<_, i64>(0),
            row.get::<_, i64>(1),
            row.get::<_, i64>(2),
        )
    };
    assert_eq!(ends().await, (3, expires_at_ms, expires_at_ms));
    let gone = |lock, absence| ExtendOutcome::Absent { lock, absence };
    ours.release(&grants[1].lock_id).await.unwrap();
    let outcome = extend(&ours, ids(&grants), ttl(90_000)).await;
    assert_eq!(outcome, gone(1, Absence::NotFound));
    assert_eq!(ends().await, (2, expires_at_ms, expires_at_ms));
    let expire = format!(
        "UPDATE {} SET expires_at_ms = 1 WHERE lock_id = $1",
        tables.locks()
    );
    let client = server().client().await;
    let expired = grants[2].lock_id.as_str();
    client.execute(&expire, &[&expired]).await.unwrap();
    let rest = ids(&[grants[0].clone(), grants[2].clone()]);
    assert_eq!(
        extend(&ours, rest, ttl(90_000)).await,
        gone(1, Absence::Expired)
    );
    assert_eq!(ends().await, (1, expires_at_ms, expires_at_ms));
}

async fn a_release_is_of_each_for_itself() {
    let (ours, tables) = backend(server().unix()).await;
    let grants = take(&ours, [plain("each a"), plain("each b"), slot("eachs", 4)]).await;
    let expire = format!(
        "UPDATE {} SET expires_at_ms = 1 WHERE key = 'each b'",
        tables.locks()
    );
    server()
        .client()
        .await
        .batch_execute(&expire)
        .await
        .unwrap();
    let mut all = ids(&grants);
    all.insert(0, LockId::generate().unwrap());
    let absent = ReleaseOutcome::Absent;
    assert_eq!(
        release(&ours, all).await[..],
        [
            absent(Absence::NotFound),
            ReleaseOutcome::Released,
            absent(Absence::Expired),
            ReleaseOutcome::Released,
        ]
    );
    assert_eq!(rows(&tables, Tables::locks).await, 0);
}
