//! What Redis holds, byte for byte, and what the scripts do with it.

use crate::support::attempts::Attempts as _;
use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{
    Absence, AcquireOutcome, ErrorKind, ExtendOutcome, LockId, Lookup, Owner, ReleaseOutcome, Ttl,
};

use crate::stage::{FOREIGN, Stage, hostile_names, json, request};
use crate::support::locks::{is_from_the_clock, key, ttl};
use crate::support::resp::Answer;
use crate::support::suite::tests;

tests![
    acquire_writes_lock_index_and_fence_in_the_agreed_form,
    hostile_names_stay_locked_and_can_be_worked_with,
    an_index_that_leads_to_anothers_lock_frees_nothing,
    contention_counts_no_fence_and_the_limit_leaves_nothing,
    ones_own_lock_is_held_as_it_was_granted,
    the_longest_ttl_is_written_in_full,
    what_is_not_a_lock_is_left_alone,
    a_server_that_lost_its_scripts_gets_them_again,
    cleanup_removes_what_expired_long_ago_and_never_the_fence,
    force_release_removes_lock_and_index_and_keeps_the_fence,
    a_clients_own_prefix_stands_before_all_keys,
    a_unix_socket_and_a_database_number_work,
];

async fn acquire_writes_lock_index_and_fence_in_the_agreed_form() {
    let mut t = Stage::new();
    for name in hostile_names() {
        let before = t.now();
        let grant = t.acquire(&name, 30_000).await;
        let space = syncguard::KeySpace {
            prefix: "syncguard",
            limit_bytes: 1000,
            reserve_bytes: 26,
        };
        let lock_key = space.lock_key(&key(&name)).unwrap();
        let fence_key = space.fence_key(&lock_key).unwrap();
        let index_key = space.index_key(grant.lock_id.as_str()).unwrap();
        let stored = json(&t.get(&lock_key));
        assert_eq!(
            stored,
            serde_json::json!({
                "lockId": grant.lock_id.as_str(),
                "expiresAtMs": grant.expires_at_ms,
                "acquiredAtMs": grant.expires_at_ms - 30_000,
                "fence": grant.fence.to_string(),
                "key": name,
                "owner": Owner::of_process().as_str(),
            })
        );
        let acquired = grant.expires_at_ms - 30_000;
        assert!((before..=t.now()).contains(&acquired));
        assert_eq!(t.get(&index_key), lock_key);
        assert_eq!(t.get(&fence_key), grant.fence.get().to_string());
        for key in [&lock_key, &index_key] {
            let expires = t.raw.call(&["PEXPIRETIME", key]).int();
            let late = expires - (grant.expires_at_ms + 1000);
            assert!((0..100).contains(&late), "{late}");
        }
        assert_eq!(t.raw.call(&["TTL", &fence_key]), Answer::Int(-1));
        // The server's own reader of JSON, which other libraries use, reads the same.
        let script = "return cjson.decode(redis.call('GET', KEYS[1])).key";
        assert_eq!(t.raw.call(&["EVAL", script, "1", &lock_key]).text(), name);
    }
}

async fn hostile_names_stay_locked_and_can_be_worked_with() {
    let t = Stage::new();
    for name in hostile_names() {
        let mut request = request(&name, 30_000);
        request.labels.owner = Some(Owner::new(name.chars().take(60).collect::<String>()).unwrap());
        let AcquireOutcome::Acquired(mut grants) = t.backend.acquire(&request).await.unwrap()
        else {
            panic!("locked");
        };
        let grant = grants.remove(0);
        assert!(t.try_acquire(&name, 1000).await.is_locked());
        assert!(t.backend.is_locked(&request.claims[0].key).await.unwrap());
        let extended = t.backend.extend(&grant.lock_id, ttl(60_000)).await.unwrap();
        let ExtendOutcome::Extended { expires_at_ms } = extended else {
            panic!("gone");
        };
        for lookup in [
            Lookup::Key(request.claims[0].key.clone()),
            Lookup::LockId(grant.lock_id.clone()),
        ] {
            let record = t.backend.lookup(&lookup).await.unwrap().unwrap();
            assert_eq!(record.key, request.claims[0].key);
            assert_eq!(record.labels, request.labels);
            assert_eq!(record.fence, grant.fence);
            assert_eq!(record.expires_at_ms, expires_at_ms);
            assert_eq!(record.acquired_at_ms, grant.expires_at_ms - 30_000);
            assert!(record.is_live());
        }
        assert_eq!(
            t.backend.release(&grant.lock_id).await.unwrap(),
            ReleaseOutcome::Released
        );
        assert!(!t.backend.is_locked(&request.claims[0].key).await.unwrap());
    }
}

async fn an_index_that_leads_to_anothers_lock_frees_nothing() {
    let mut t = Stage::new();
    let grant = t.acquire("k", 30_000).await;
    let stranger = LockId::generate().unwrap();
    let index = format!("syncguard:id:{}", stranger.as_str());
    t.raw.call(&["SET", &index, "syncguard:k"]);
    let absent = Absence::NotFound;
    assert_eq!(
        t.backend.release(&stranger).await.unwrap(),
        ReleaseOutcome::Absent(absent)
    );
    assert_eq!(
        t.backend.extend(&stranger, ttl(1)).await.unwrap(),
        ExtendOutcome::absent(absent)
    );
    let lookup = Lookup::LockId(stranger);
    assert_eq!(t.backend.lookup(&lookup).await.unwrap(), None);
    let record = t.backend.lookup(&Lookup::LockId(grant.lock_id)).await;
    assert_eq!(record.unwrap().unwrap().expires_at_ms, grant.expires_at_ms);
}

async fn ones_own_lock_is_held_as_it_was_granted() {
    let mut t = Stage::new();
    for name in hostile_names() {
        let mut request = request(&name, 30_000);
        request.labels.owner = Some(Owner::new("\"fence\":\"9\"").unwrap());
        let first = t.backend.acquire(&request).await.unwrap();
        let AcquireOutcome::Acquired(grants) = &first else {
            panic!("locked");
        };
        let grant = &grants[0];
        let stored = t.raw.call(&["KEYS", "syncguard:*"]).list().len();
        let counters = counters(&mut t);
        assert_eq!(t.backend.acquire(&request).await.unwrap(), first);
        assert_eq!(t.raw.call(&["KEYS", "syncguard:*"]).list().len(), stored);
        assert!(t.try_acquire(&name, 1000).await.is_locked());
        // Extended in between, it ends when it now ends.
        let extended = t.backend.extend(&grant.lock_id, ttl(60_000)).await.unwrap();
        let AcquireOutcome::Acquired(mut agains) = t.backend.acquire(&request).await.unwrap()
        else {
            panic!("locked");
        };
        let again = agains.remove(0);
        let expires_at_ms = again.expires_at_ms;
        assert_eq!(extended, ExtendOutcome::Extended { expires_at_ms });
        assert_eq!(again.fence, grant.fence);
        // No number was spent on what was held already.
        assert_eq!(self::counters(&mut t), counters);
        t.backend.release(&grant.lock_id).await.unwrap();
        let next = t.acquire(&name, 1000).await;
        assert!(next.fence > grant.fence);
    }
}

/// The values of all fence counters.
fn counters(t: &mut Stage) -> Vec<String> {
    let found = t.raw.call(&["KEYS", "syncguard:fence:*"]);
    let mut names: Vec<&str> = found.list().iter().map(|name| name.text()).collect();
    names.sort_unstable();
    names.into_iter().map(|name| t.get(name)).collect()
}

async fn contention_counts_no_fence_and_the_limit_leaves_nothing() {
    let mut t = Stage::new();
    let grant = t.acquire("k", 30_000).await;
    for _ in 0..3 {
        assert!(t.try_acquire("k", 1000).await.is_locked());
    }
    let counter = t.get("syncguard:fence:syncguard:k");
    assert_eq!(counter, grant.fence.get().to_string());

    t.raw
        .call(&["SET", "syncguard:fence:syncguard:full", "900000000000000"]);
    let error = t.backend.acquire(&request("full", 1000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(!error.is_outcome_unknown());
    assert_eq!(t.get("syncguard:fence:syncguard:full"), "900000000000000");
    assert!(!t.exists("syncguard:full"));
    let ids = t.raw.call(&["KEYS", "syncguard:id:*"]);
    assert_eq!(ids.list().len(), 1, "only that of the first lock");
}

async fn the_longest_ttl_is_written_in_full() {
    let mut t = Stage::new();
    let grant = t.acquire("k", Ttl::MAX_MS).await;
    let stored = json(&t.get("syncguard:k"));
    assert_eq!(stored["expiresAtMs"], grant.expires_at_ms);
    assert!(t.try_acquire("k", 1000).await.is_locked());
    let extended = t.backend.extend(&grant.lock_id, ttl(Ttl::MAX_MS)).await;
    let ExtendOutcome::Extended { expires_at_ms } = extended.unwrap() else {
        panic!("gone");
    };
    assert_eq!(json(&t.get("syncguard:k"))["expiresAtMs"], expires_at_ms);
}

async fn what_is_not_a_lock_is_left_alone() {
    let mut t = Stage::new();
    let key = key("k");
    for value in [
        "",
        "hello",
        "[]",
        "1",
        "{}",
        "null",
        r#"{"expiresAtMs":"1"}"#,
    ] {
        t.raw.call(&["SET", "syncguard:k", value]);
        for error in [
            t.backend.acquire(&request("k", 1000)).await.err(),
            t.backend.is_locked(&key).await.err(),
            t.backend.lookup(&Lookup::Key(key.clone())).await.err(),
            t.backend.force_release(&key).await.err(),
        ] {
            assert_eq!(error.unwrap().kind(), ErrorKind::Internal, "{value}");
        }
        assert_eq!(t.get("syncguard:k"), value);
    }
    t.raw.call(&["DEL", "syncguard:k"]);
    t.raw.call(&["LPUSH", "syncguard:k", "x"]);
    let error = t.backend.acquire(&request("k", 1000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(!t.exists("syncguard:fence:syncguard:k"));
    t.raw.call(&["LPUSH", "syncguard:fence:syncguard:l", "x"]);
    let error = t.backend.acquire(&request("l", 1000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(!t.exists("syncguard:l"));
}

async fn a_server_that_lost_its_scripts_gets_them_again() {
    let mut t = Stage::new();
    let key = key("k");
    for _ in 0..2 {
        t.raw.call(&["SCRIPT", "FLUSH"]);
        let grant = t.acquire("k", 30_000).await;
        t.raw.call(&["SCRIPT", "FLUSH"]);
        assert!(t.backend.is_locked(&key).await.unwrap());
        t.raw.call(&["SCRIPT", "FLUSH"]);
        t.backend.extend(&grant.lock_id, ttl(1000)).await.unwrap();
        t.raw.call(&["SCRIPT", "FLUSH"]);
        assert_eq!(
            t.backend.release(&grant.lock_id).await.unwrap(),
            ReleaseOutcome::Released
        );
    }
    t.backend.is_locked(&key).await.unwrap();
    t.raw.call(&["CONFIG", "RESETSTAT"]);
    for _ in 0..5 {
        t.backend.is_locked(&key).await.unwrap();
    }
    let stats = t.raw.call(&["INFO", "commandstats"]);
    assert!(stats.text().contains("cmdstat_evalsha:calls=5,"));
    assert!(!stats.text().contains("cmdstat_eval:"));
}

async fn cleanup_removes_what_expired_long_ago_and_never_the_fence() {
    let mut t = Stage::with(|config| config.locks.cleanup_in_is_locked = true);
    let key = key("k");
    t.raw.call(&["SET", "syncguard:fence:syncguard:k", "7"]);
    for form in FOREIGN {
        let id = LockId::generate().unwrap();
        let index = format!("syncguard:id:{}", id.as_str());
        t.write(form, "k", &id, -1500);
        assert!(!t.backend.is_locked(&key).await.unwrap());
        assert!(t.exists("syncguard:k") && t.exists(&index), "too early");
        t.write(form, "k", &id, -2500);
        assert!(!t.backend.is_locked(&key).await.unwrap());
        assert!(!t.exists("syncguard:k") && !t.exists(&index));
        assert_eq!(t.get("syncguard:fence:syncguard:k"), "7");
    }
    let grant = t.acquire("k", 30_000).await;
    assert!(t.backend.is_locked(&key).await.unwrap());
    assert!(is_from_the_clock(grant.fence.get()));
}

async fn force_release_removes_lock_and_index_and_keeps_the_fence() {
    let mut t = Stage::new();
    let key = key("k");
    assert!(!t.backend.force_release(&key).await.unwrap());
    let grant = t.acquire("k", 30_000).await;
    assert!(t.backend.force_release(&key).await.unwrap());
    assert!(!t.exists("syncguard:k"));
    assert!(!t.exists(&format!("syncguard:id:{}", grant.lock_id.as_str())));
    let counter = t.get("syncguard:fence:syncguard:k");
    assert_eq!(counter, grant.fence.get().to_string());
    t.write(FOREIGN[1], "k", &grant.lock_id, -1500);
    assert!(!t.backend.force_release(&key).await.unwrap());
    assert!(!t.exists("syncguard:k"));
}

async fn a_clients_own_prefix_stands_before_all_keys() {
    let mut t = Stage::with(|config| config.client_key_prefix = "app:".to_owned());
    let key = key("k");
    let grant = t.acquire("k", 30_000).await;
    let index = format!("app:syncguard:id:{}", grant.lock_id.as_str());
    assert!(t.exists("app:syncguard:k") && t.exists("app:syncguard:fence:syncguard:k"));
    assert_eq!(t.get(&index), "app:syncguard:k");
    // As a client writes it that prefixes keys and not arguments.
    t.raw.call(&["SET", &index, "syncguard:k"]);
    // Another's lock of the bare name is not the one.
    t.raw.call(&["SET", "syncguard:k", "x"]);
    let lookup = Lookup::LockId(grant.lock_id.clone());
    assert!(t.backend.lookup(&lookup).await.unwrap().is_some());
    t.backend.extend(&grant.lock_id, ttl(1000)).await.unwrap();
    assert_eq!(t.get(&index), "app:syncguard:k");
    t.raw.call(&["SET", &index, "syncguard:k"]);
    assert_eq!(
        t.backend.release(&grant.lock_id).await.unwrap(),
        ReleaseOutcome::Released
    );
    assert!(!t.exists("app:syncguard:k") && !t.exists(&index));
    assert_eq!(t.get("syncguard:k"), "x");

    let grant = t.acquire("k", 30_000).await;
    assert!(t.backend.force_release(&key).await.unwrap());
    let index = format!("app:syncguard:id:{}", grant.lock_id.as_str());
    assert!(!t.exists("app:syncguard:k") && !t.exists(&index));
}

async fn a_unix_socket_and_a_database_number_work() {
    let t = Stage::new();
    let url = format!("unix://{}?db=3", t.server.socket().display());
    let backend = RedisBackend::new(RedisConfig::from_url(&url).unwrap()).unwrap();
    backend.acquire(&request("k", 30_000)).await.unwrap();
    let mut raw = t.server.connect();
    raw.call(&["SELECT", "3"]);
    assert_eq!(raw.call(&["EXISTS", "syncguard:k"]), Answer::Int(1));
    assert!(!t.backend.is_locked(&key("k")).await.unwrap());
}
