//! Grants that count once replicas have them, and counters that go.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncguard::operation::{self, CallOptions};
use syncguard::redis::{RedisBackend, RedisConfig, RedisLocks};
use syncguard::{
    AcquireOutcome, AutoExtend, Backend, Error, ErrorKind, LockOptions, Operation, lock,
};

use crate::load::until_it_works;
use crate::support::attempts::Attempts as _;
use crate::support::claims::{asking, ids, plain, release, slot, try_take};
use crate::support::locks::{acquire, eventually, key, request, ttl};
use crate::support::redis_server::{ADMIN, RedisServer};
use crate::support::resp::{Answer, Resp};
use crate::support::suite::tests;

tests![
    a_lock_is_on_the_replica_when_it_is_granted,
    several_locks_are_on_the_replica_when_they_are_granted,
    a_lock_that_too_few_replicas_have_is_released,
    an_extension_that_too_few_replicas_have_does_not_count,
    a_release_before_its_least_time_needs_no_replicas,
    many_extensions_wait_together,
    acquisitions_that_wait_for_replicas_hold_nobody_else_up,
    who_may_not_ask_for_replicas_gets_no_lock,
    a_url_may_ask_for_replicas,
    over_a_client_of_the_applications_own_it_is_refused,
    a_lock_that_was_granted_is_there_after_a_failover,
    a_counter_goes_when_nobody_has_used_it_for_long,
];

const CALL: CallOptions = CallOptions::DEFAULT;

fn backend(url: &str, change: impl FnOnce(&mut RedisLocks)) -> Arc<dyn Backend> {
    let mut config = RedisConfig::from_url(url).unwrap();
    change(&mut config.locks);
    Arc::new(RedisBackend::new(config).unwrap())
}

fn replicated(url: &str, replicas: u32) -> Arc<dyn Backend> {
    backend(url, |locks| {
        locks.replicas = replicas;
        // So that replicas have the longest time that there is, which a busy machine needs.
        locks.operation_timeout = Duration::from_secs(10);
    })
}

/// A primary with a replica that follows it.
async fn pair() -> (RedisServer, RedisServer) {
    let primary = RedisServer::start();
    let replica = RedisServer::start_with(&[&format!("replicaof 127.0.0.1 {}", primary.port())]);
    let mut raw = replica.connect();
    eventually("the replica follows", async || {
        raw.call(&["ROLE"]).list()[3].text() == "connected"
    })
    .await;
    // The primary counts it once it has acknowledged something, which may take a second.
    let mut raw = primary.connect();
    eventually("the primary counts the replica", async || {
        raw.call(&["WAIT", "1", "50"]) == Answer::Int(1)
    })
    .await;
    (primary, replica)
}

async fn attempt(backend: &Arc<dyn Backend>, name: &str) -> Result<AcquireOutcome, Error> {
    operation::run::<AcquireOutcome>(backend, Operation::Acquire(request(name)), CALL, pending())
        .await
}

fn has(raw: &mut Resp, name: &str) -> bool {
    raw.call(&["EXISTS", &format!("syncguard:{name}")]) == Answer::Int(1)
}

async fn a_lock_is_on_the_replica_when_it_is_granted() {
    let (primary, replica) = pair().await;
    let backend = replicated(&primary.url(), 1);
    let mut raw = replica.connect();
    for number in 0..50 {
        let name = number.to_string();
        let grant = acquire(&*backend, &name).await;
        assert!(has(&mut raw, &name), "{number}");
        assert!(attempt(&backend, &name).await.unwrap().is_locked());
        backend.release(&grant.lock_id).await.unwrap();
    }
}

async fn several_locks_are_on_the_replica_when_they_are_granted() {
    let (primary, replica) = pair().await;
    let backend = replicated(&primary.url(), 1);
    let mut raw = replica.connect();
    for number in 0..50 {
        let (one, other) = (format!("a{number}"), format!("b{number}"));
        let claims = [plain(&one), plain(&other), slot("p", 3)];
        let request = asking(backend.as_ref(), claims);
        let outcome = backend.acquire(&request).await.unwrap();
        let AcquireOutcome::Acquired(grants) = &outcome else {
            panic!("locked");
        };
        let of_slot = format!("p\u{37e}{}", grants[2].slot.unwrap());
        for name in [&one, &other, &of_slot] {
            assert!(has(&mut raw, name), "{number}");
        }
        assert_eq!(backend.acquire(&request).await.unwrap(), outcome);
        release(backend.as_ref(), ids(grants)).await;
    }
    // None counts that too few have.
    replica.signal("STOP");
    let hasty = self::backend(&primary.url(), |locks| {
        locks.replicas = 1;
        locks.operation_timeout = Duration::from_secs(2);
    });
    let error = try_take(hasty.as_ref(), [plain("a"), slot("p", 3)]).await;
    let error = error.unwrap_err();
    assert!(error.message().contains("replicas"), "{error}");
    assert!(error.is_outcome_unknown());
    replica.signal("CONT");
}

async fn a_lock_that_too_few_replicas_have_is_released() {
    let (primary, replica) = pair().await;
    let mut raw = primary.connect();
    for (number, replicas) in [(0, 2), (1, 1)] {
        let backend = backend(&primary.url(), |locks| {
            locks.replicas = replicas;
            locks.operation_timeout = Duration::from_secs(2);
        });
        if replicas == 1 {
            replica.signal("STOP");
        }
        let name = number.to_string();
        let start = Instant::now();
        let error = attempt(&backend, &name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
        assert!(error.message().contains("replicas"), "{error}");
        assert!(start.elapsed() > Duration::from_millis(150));
        eventually("it is released", async || !has(&mut raw, &name)).await;
        // Somebody else may have it at once, if the primary's word is enough for him.
        acquire(&*replicated(&primary.url(), 0), &name).await;
    }
    replica.signal("CONT");
}

async fn an_extension_that_too_few_replicas_have_does_not_count() {
    let (primary, replica) = pair().await;
    let backend = replicated(&primary.url(), 1);
    let options = |auto_extend| LockOptions {
        ttl: ttl(5_000),
        auto_extend,
        ..LockOptions::default()
    };
    let by_itself = options(Some(AutoExtend::default()));
    let heartbeats = lock(&backend, &key("a"), &by_itself).await.unwrap();
    let mut own = lock(&backend, &key("b"), &options(None)).await.unwrap();
    let mut raw = primary.connect();
    let granted = heartbeats.expires_at_ms();
    assert!(own.extend(ttl(6_000)).await.unwrap());
    eventually("a heartbeat counts", async || {
        heartbeats.expires_at_ms() > granted
    })
    .await;
    replica.signal("STOP");
    let (ends, own_ends) = (heartbeats.expires_at_ms(), own.expires_at_ms());
    let error = own.extend(ttl(60_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    assert!(error.is_outcome_unknown());
    assert!(error.message().contains("had the extension"), "{error}");
    assert_eq!(own.expires_at_ms(), own_ends);
    // The primary has extended the lock again and again, and still it is lost.
    let lost = heartbeats.lost().await;
    assert_eq!(lost.kind(), ErrorKind::LockLost);
    let why = "it could not be extended before its end";
    assert!(lost.message().contains(why), "{lost}");
    // One may have been under way when the replica was stopped.
    assert!(heartbeats.expires_at_ms() <= ends + 5_000);
    assert!(has(&mut raw, "a"));
    assert_eq!(own.lost().await.kind(), ErrorKind::LockLost);
    replica.signal("CONT");
}

async fn a_release_before_its_least_time_needs_no_replicas() {
    let (primary, replica) = pair().await;
    let backend = replicated(&primary.url(), 1);
    let options = LockOptions {
        ttl: ttl(60_000),
        min_hold: Duration::from_secs(30),
        ..LockOptions::default()
    };
    let guard = lock(&backend, &key("a"), &options).await.unwrap();
    replica.signal("STOP");
    assert!(guard.release().await.unwrap());
    let mut raw = primary.connect();
    let Answer::Int(left) = raw.call(&["PTTL", "syncguard:a"]) else {
        panic!("no time is left");
    };
    // 30 s, and the tolerance of one.
    assert!((1..=31_000).contains(&left), "{left}");
    replica.signal("CONT");
}

/// One wait for each would take a hundred times as long as it may take while replicas are missing.
async fn many_extensions_wait_together() {
    let (primary, replica) = pair().await;
    let backend = replicated(&primary.url(), 1);
    let mut lock_ids = Vec::new();
    for number in 0..100 {
        lock_ids.push(acquire(&*backend, &number.to_string()).await.lock_id);
    }
    let extended = async || {
        let extend = |lock_id| backend.extend(lock_id, ttl(60_000));
        futures::future::join_all(lock_ids.iter().map(extend)).await
    };
    let mut raw = primary.connect();
    raw.call(&["CONFIG", "RESETSTAT"]);
    let outcomes = extended().await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    let stats = raw.call(&["INFO", "commandstats"]).text().to_owned();
    let (_, waits) = stats.split_once("cmdstat_wait:calls=").unwrap();
    let waits: u32 = waits.split(',').next().unwrap().parse().unwrap();
    assert!(waits < 50, "{waits} for 100 extensions");
    replica.signal("STOP");
    let start = Instant::now();
    let outcomes = extended().await;
    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
    // 80 s one after the other.
    assert!(start.elapsed() < Duration::from_secs(40));
    replica.signal("CONT");
}

async fn acquisitions_that_wait_for_replicas_hold_nobody_else_up() {
    let (primary, replica) = pair().await;
    let backend = replicated(&primary.url(), 1);
    let held = acquire(&*backend, "held").await;
    replica.signal("STOP");
    let waiting = {
        let backend = Arc::clone(&backend);
        tokio::spawn(async move { attempt(&backend, "waiting").await })
    };
    let mut raw = primary.connect();
    eventually("the script has run", async || has(&mut raw, "waiting")).await;
    assert!(backend.is_locked(&key("held")).await.unwrap());
    backend.release(&held.lock_id).await.unwrap();
    // Who had been held up by it would have waited for its end.
    assert!(!waiting.is_finished());
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    replica.signal("CONT");
    // The connection that waited is still good.
    eventually("the replica has caught up", async || {
        attempt(&backend, "next").await.is_ok()
    })
    .await;
}

async fn who_may_not_ask_for_replicas_gets_no_lock() {
    let server = RedisServer::start_with(&[
        ADMIN,
        "user locks on >secret ~syncguard:* &syncguard:* -@all +eval +evalsha +get +set +del +time +ping +publish",
    ]);
    let url = format!("redis://locks:secret@127.0.0.1:{}", server.port());
    let backend = replicated(&url, 1);
    let error = attempt(&backend, "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error:?}");
    let mut raw = server.connect();
    eventually("it is released", async || !has(&mut raw, "k")).await;
}

async fn a_url_may_ask_for_replicas() {
    let (primary, _replica) = pair().await;
    let asked = backend(&format!("{}?replicas=1", primary.url()), |_| {});
    acquire(&*asked, "k").await;
    let too_many = backend(&format!("{}?replicas=2", primary.url()), |_| {});
    let error = attempt(&too_many, "l").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    let error = RedisConfig::from_url("redis://h?replicas=-1").unwrap_err();
    assert!(error.message().starts_with("replicas"), "{error}");
}

async fn over_a_client_of_the_applications_own_it_is_refused() {
    {
        let server = RedisServer::start();
        let client = crate::support::clients::fred(server.port()).await;
        let locks = RedisLocks {
            replicas: 1,
            ..RedisLocks::default()
        };
        let error = syncguard_clients::fred::backend(&client, &locks).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().starts_with("replicas"), "{error}");
    }
}

/// The replica is cut off before the last acquisitions: they fail, and what was granted before is there afterwards.
async fn a_lock_that_was_granted_is_there_after_a_failover() {
    let (mut primary, replica) = pair().await;
    let sentinel = RedisServer::start_sentinel(&primary, &[]);
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port());
    let backend = replicated(&url, 1);
    until_it_works(&backend).await;
    let mut raw = sentinel.connect();
    eventually("the sentinel knows the replica", async || {
        let replicas = raw.call(&["SENTINEL", "REPLICAS", "main"]);
        format!("{replicas:?}").contains("\"master-link-status\"), Text(\"ok\")")
    })
    .await;
    let mut granted = Vec::new();
    for number in 0..20 {
        granted.push(acquire(&*backend, &number.to_string()).await);
    }
    let mut at_replica = replica.connect();
    at_replica.call(&["CONFIG", "SET", "masterauth", "wrong"]);
    at_replica.call(&["CLIENT", "KILL", "TYPE", "master"]);
    let error = attempt(&backend, "late").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    primary.kill();
    until_it_works(&backend).await;
    for (number, grant) in granted.iter().enumerate() {
        let lookup = syncguard::Lookup::LockId(grant.lock_id.clone());
        let record = backend.lookup(&lookup);
        assert_eq!(
            record.await.unwrap().unwrap().fence,
            grant.fence,
            "{number}"
        );
    }
}

async fn a_counter_goes_when_nobody_has_used_it_for_long() {
    const HOUR_MS: i64 = 3_600_000;
    let server = RedisServer::start();
    let mut raw = server.connect();
    let stays = backend(&server.url(), |_| {});
    let goes = backend(&server.url(), |locks| {
        locks.fence_ttl = Some(RedisLocks::LEAST_FENCE_TTL);
    });
    let counter = "syncguard:fence:syncguard:k";
    let mut pass = async |backend: &Arc<dyn Backend>| {
        let grant = acquire(&**backend, "k").await;
        backend.release(&grant.lock_id).await.unwrap();
        (grant.fence, raw.call(&["PTTL", counter]).int())
    };
    let (first, left_ms) = pass(&goes).await;
    assert!((HOUR_MS - 60_000..=HOUR_MS).contains(&left_ms), "{left_ms}");
    let (second, left_ms) = pass(&stays).await;
    assert!(second > first);
    assert_eq!(left_ms, -1, "who wants it to stay keeps it");
    // Ahead of the clock, it stays until the clock has come so far.
    let ahead = second.get() + 7 * HOUR_MS.unsigned_abs();
    server.connect().call(&["SET", counter, &ahead.to_string()]);
    let (third, left_ms) = pass(&goes).await;
    assert_eq!(third.get(), ahead + 1);
    assert!(
        (8 * HOUR_MS - 60_000..=8 * HOUR_MS + 1).contains(&left_ms),
        "{left_ms}"
    );
    for ttl in [Duration::from_secs(3599), RedisLocks::LONGEST_FENCE_TTL * 2] {
        let mut config = RedisConfig::from_url(&server.url()).unwrap();
        config.locks.fence_ttl = Some(ttl);
        let error = RedisBackend::new(config).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().starts_with("fenceTtlMs"), "{error}");
    }
}
