//! What Redis holds, byte for byte, and that what others write there is understood.

#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/redis_server.rs"]
mod redis_server;
#[path = "support/resp.rs"]
mod resp;

use redis_server::RedisServer;
use resp::{Answer, Resp};
use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{
    Absence, AcquireOutcome, AcquireRequest, Backend, ErrorKind, ExtendOutcome, Grant, Key, LockId,
    Lookup, Owner, ReleaseOutcome, Ttl,
};

/// Names that end strings, look like members, or are long.
fn hostile_names() -> Vec<String> {
    vec![
        "plain".to_owned(),
        "\"".to_owned(),
        "\\".to_owned(),
        "\\\"".to_owned(),
        "{}[]:,".to_owned(),
        "\"expiresAtMs\":1".to_owned(),
        "x\",\"expiresAtMs\":1,\"y\":\"".to_owned(),
        "x\"expiresAtMs".to_owned(),
        "{\"lockId\":\"AAAAAAAAAAAAAAAAAAAAAA\",\"expiresAtMs\":1,\"".to_owned(),
        "\u{1}\u{8}\t\n\r\u{1f}\u{7f}".to_owned(),
        "é漢😀\u{2028}\u{202e}".to_owned(),
        "%d%s%%1".to_owned(),
        "x".repeat(512),
        "\"".repeat(255),
    ]
}

struct Stage {
    server: RedisServer,
    raw: Resp,
    backend: RedisBackend,
}

impl Stage {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut RedisConfig)) -> Self {
        let server = RedisServer::start();
        let mut config = RedisConfig::from_url(&server.url()).unwrap();
        change(&mut config);
        Self {
            raw: server.connect(),
            backend: RedisBackend::new(config).unwrap(),
            server,
        }
    }

    async fn acquire(&self, key: &str, ttl_ms: i64) -> Grant {
        match self.try_acquire(key, ttl_ms).await {
            AcquireOutcome::Acquired(grant) => grant,
            AcquireOutcome::Locked => panic!("locked"),
        }
    }

    async fn try_acquire(&self, key: &str, ttl_ms: i64) -> AcquireOutcome {
        self.backend.acquire(&request(key, ttl_ms)).await.unwrap()
    }

    fn get(&mut self, key: &str) -> String {
        self.raw.call(&["GET", key]).text().to_owned()
    }

    fn exists(&mut self, key: &str) -> bool {
        self.raw.call(&["EXISTS", key]).int() == 1
    }

    fn now(&mut self) -> i64 {
        let time = self.raw.call(&["TIME"]);
        let number = |index: usize| time.list()[index].text().parse::<i64>().unwrap();
        number(0) * 1000 + number(1) / 1000
    }

    /// Writes a lock as another library would, expiring `after_ms` from now.
    fn write(&mut self, json: &str, key: &str, id: &LockId, after_ms: i64) -> String {
        let expires = (self.now() + after_ms).to_string();
        let json = json
            .replace("$EXPIRES", &expires)
            .replace("$ID", id.as_str());
        let lock_key = format!("syncguard:{key}");
        self.raw.call(&["SET", &lock_key, &json]);
        let index = format!("syncguard:id:{}", id.as_str());
        self.raw.call(&["SET", &index, &lock_key]);
        json
    }
}

fn request(key: &str, ttl_ms: i64) -> AcquireRequest {
    AcquireRequest::new(Key::new(key).unwrap(), Ttl::from_millis(ttl_ms).unwrap()).unwrap()
}

fn ttl(ms: i64) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
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
        let lock_key = space.lock_key(&Key::new(&name).unwrap()).unwrap();
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

#[tokio::test]
async fn hostile_names_stay_locked_and_can_be_worked_with() {
    let t = Stage::new();
    for name in hostile_names() {
        let mut request = request(&name, 30_000);
        request.owner = Some(Owner::new(name.chars().take(60).collect::<String>()).unwrap());
        let AcquireOutcome::Acquired(grant) = t.backend.acquire(&request).await.unwrap() else {
            panic!("locked");
        };
        assert_eq!(t.try_acquire(&name, 1000).await, AcquireOutcome::Locked);
        assert!(t.backend.is_locked(&request.key).await.unwrap());
        let extended = t.backend.extend(&grant.lock_id, ttl(60_000)).await.unwrap();
        let ExtendOutcome::Extended { expires_at_ms } = extended else {
            panic!("gone");
        };
        for lookup in [
            Lookup::Key(request.key.clone()),
            Lookup::LockId(grant.lock_id.clone()),
        ] {
            let record = t.backend.lookup(&lookup).await.unwrap().unwrap();
            assert_eq!(record.key, request.key);
            assert_eq!(record.owner, request.owner);
            assert_eq!(record.fence, grant.fence);
            assert_eq!(record.expires_at_ms, expires_at_ms);
            assert_eq!(record.acquired_at_ms, grant.expires_at_ms - 30_000);
            assert!(record.is_live());
        }
        assert_eq!(
            t.backend.release(&grant.lock_id).await.unwrap(),
            ReleaseOutcome::Released
        );
        assert!(!t.backend.is_locked(&request.key).await.unwrap());
    }
}

/// Forms in which another library may write the same lock.
const FOREIGN: [&str; 5] = [
    // JSON.stringify, in the order of the documents.
    r#"{"lockId":"$ID","expiresAtMs":$EXPIRES,"acquiredAtMs":1700000000000,"key":"k","fence":"000000000000007"}"#,
    // cjson.encode, in whatever order its table has; slashes escaped, numbers as it likes.
    r#"{"key":"k","fence":"000000000000007","acquiredAtMs":1.7e+12,"expiresAtMs":$EXPIRES,"lockId":"$ID"}"#,
    r#"{"fence":7,"lockId":"$ID","acquiredAtMs":1700000000000,"key":"k","expiresAtMs":$EXPIRES}"#,
    // Blanks, and members that nobody knows.
    r#"{ "x" : {"a":[],"n":12345678901234567890}, "expiresAtMs" : $EXPIRES , "lockId" : "$ID", "acquiredAtMs": 1700000000000, "key": "k", "fence": "000000000000007" }"#,
    // Texts that look like members.
    r#"{"note":"\"expiresAtMs\":1,\"lockId\":\"AAAAAAAAAAAAAAAAAAAAAA\"","expiresAtMs":$EXPIRES,"lockId":"$ID","acquiredAtMs":1700000000000,"key":"k","fence":"000000000000007","end":"\\"}"#,
];

#[tokio::test]
async fn what_others_write_is_held_read_extended_and_released() {
    let mut t = Stage::new();
    let key = Key::new("k").unwrap();
    for form in FOREIGN {
        let id = LockId::generate().unwrap();
        let written = t.write(form, "k", &id, 30_000);
        assert_eq!(t.try_acquire("k", 1000).await, AcquireOutcome::Locked);
        assert!(t.backend.is_locked(&key).await.unwrap());
        for lookup in [Lookup::Key(key.clone()), Lookup::LockId(id.clone())] {
            let record = t.backend.lookup(&lookup).await.unwrap().unwrap();
            assert_eq!(record.lock_id, id);
            assert_eq!(record.fence.get(), 7);
            assert_eq!(record.acquired_at_ms, 1_700_000_000_000);
            assert_eq!(record.key, key);
        }

        let before = json(&written)["expiresAtMs"].to_string();
        let extended = t.backend.extend(&id, ttl(90_000)).await.unwrap();
        let ExtendOutcome::Extended { expires_at_ms } = extended else {
            panic!("gone");
        };
        // Nothing but the one number changes.
        let after = written.replace(&before, &expires_at_ms.to_string());
        assert_eq!(t.get("syncguard:k"), after);
        let index = format!("syncguard:id:{}", id.as_str());
        for name in ["syncguard:k", &index] {
            let late = t.raw.call(&["PEXPIRETIME", name]).int() - (expires_at_ms + 1000);
            assert!((0..100).contains(&late), "{late}");
        }

        assert_eq!(
            t.backend.release(&id).await.unwrap(),
            ReleaseOutcome::Released
        );
        assert!(!t.exists("syncguard:k") && !t.exists(&index));
    }
}

#[tokio::test]
async fn extend_keeps_unknown_members_where_text_cannot_be_replaced() {
    let mut t = Stage::new();
    let id = LockId::generate().unwrap();
    // Two members of that name at two depths: which text is which is not told by looking.
    let form = r#"{"x":{"expiresAtMs":5},"expiresAtMs":$EXPIRES,"lockId":"$ID","acquiredAtMs":1,"key":"k","fence":"000000000000007"}"#;
    t.write(form, "k", &id, 30_000);
    let extended = t.backend.extend(&id, ttl(90_000)).await.unwrap();
    let ExtendOutcome::Extended { expires_at_ms } = extended else {
        panic!("gone");
    };
    let stored = json(&t.get("syncguard:k"));
    assert_eq!(stored["x"]["expiresAtMs"], 5);
    assert_eq!(stored["expiresAtMs"], expires_at_ms);
    assert_eq!(stored["fence"], "000000000000007");
}

#[tokio::test]
async fn expired_locks_of_others_are_free_and_removed() {
    let mut t = Stage::new();
    let key = Key::new("k").unwrap();
    for form in FOREIGN {
        for round in 0..2 {
            let id = LockId::generate().unwrap();
            t.write(form, "k", &id, -1500);
            assert!(!t.backend.is_locked(&key).await.unwrap());
            assert!(t.exists("syncguard:k"), "no cleanup unless asked for");
            let lookup = Lookup::LockId(id.clone());
            assert_eq!(t.backend.lookup(&lookup).await.unwrap(), None);
            if round == 0 {
                assert_eq!(
                    t.backend.release(&id).await.unwrap(),
                    ReleaseOutcome::Absent(Absence::Expired)
                );
            } else {
                assert_eq!(
                    t.backend.extend(&id, ttl(1000)).await.unwrap(),
                    ExtendOutcome::Absent(Absence::Expired)
                );
            }
            assert!(!t.exists("syncguard:k"));
            assert!(!t.exists(&format!("syncguard:id:{}", id.as_str())));
        }
        // One in the way of an acquisition is replaced.
        t.write(form, "k", &LockId::generate().unwrap(), -1500);
        let grant = t.acquire("k", 1000).await;
        t.backend.release(&grant.lock_id).await.unwrap();
    }
}

#[tokio::test]
async fn within_the_tolerance_locks_of_others_are_held() {
    let mut t = Stage::new();
    for form in FOREIGN {
        let id = LockId::generate().unwrap();
        t.write(form, "k", &id, -300);
        assert_eq!(t.try_acquire("k", 1000).await, AcquireOutcome::Locked);
        assert_eq!(
            t.backend.release(&id).await.unwrap(),
            ReleaseOutcome::Released
        );
    }
}

#[tokio::test]
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
        ExtendOutcome::Absent(absent)
    );
    let lookup = Lookup::LockId(stranger);
    assert_eq!(t.backend.lookup(&lookup).await.unwrap(), None);
    let record = t.backend.lookup(&Lookup::LockId(grant.lock_id)).await;
    assert_eq!(record.unwrap().unwrap().expires_at_ms, grant.expires_at_ms);
}

#[tokio::test]
async fn contention_counts_no_fence_and_the_limit_leaves_nothing() {
    let mut t = Stage::new();
    t.acquire("k", 30_000).await;
    for _ in 0..3 {
        assert_eq!(t.try_acquire("k", 1000).await, AcquireOutcome::Locked);
    }
    assert_eq!(t.get("syncguard:fence:syncguard:k"), "1");

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

#[tokio::test]
async fn the_longest_ttl_is_written_in_full() {
    let mut t = Stage::new();
    let grant = t.acquire("k", Ttl::MAX_MS).await;
    let stored = json(&t.get("syncguard:k"));
    assert_eq!(stored["expiresAtMs"], grant.expires_at_ms);
    assert_eq!(t.try_acquire("k", 1000).await, AcquireOutcome::Locked);
    let extended = t.backend.extend(&grant.lock_id, ttl(Ttl::MAX_MS)).await;
    let ExtendOutcome::Extended { expires_at_ms } = extended.unwrap() else {
        panic!("gone");
    };
    assert_eq!(json(&t.get("syncguard:k"))["expiresAtMs"], expires_at_ms);
}

#[tokio::test]
async fn what_is_not_a_lock_is_left_alone() {
    let mut t = Stage::new();
    let key = Key::new("k").unwrap();
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

#[tokio::test]
async fn a_server_that_lost_its_scripts_gets_them_again() {
    let mut t = Stage::new();
    let key = Key::new("k").unwrap();
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

#[tokio::test]
async fn cleanup_removes_what_expired_long_ago_and_never_the_fence() {
    let mut t = Stage::with(|config| config.locks.cleanup_in_is_locked = true);
    let key = Key::new("k").unwrap();
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
    assert_eq!(grant.fence.get(), 8);
}

#[tokio::test]
async fn force_release_removes_lock_and_index_and_keeps_the_fence() {
    let mut t = Stage::new();
    let key = Key::new("k").unwrap();
    assert!(!t.backend.force_release(&key).await.unwrap());
    let grant = t.acquire("k", 30_000).await;
    assert!(t.backend.force_release(&key).await.unwrap());
    assert!(!t.exists("syncguard:k"));
    assert!(!t.exists(&format!("syncguard:id:{}", grant.lock_id.as_str())));
    assert_eq!(t.get("syncguard:fence:syncguard:k"), "1");
    t.write(FOREIGN[1], "k", &grant.lock_id, -1500);
    assert!(!t.backend.force_release(&key).await.unwrap());
    assert!(!t.exists("syncguard:k"));
}

#[tokio::test]
async fn a_clients_own_prefix_stands_before_all_keys() {
    let mut t = Stage::with(|config| config.client_key_prefix = "app:".to_owned());
    let key = Key::new("k").unwrap();
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

#[tokio::test]
async fn a_unix_socket_and_a_database_number_work() {
    let t = Stage::new();
    let url = format!("unix://{}?db=3", t.server.socket().display());
    let backend = RedisBackend::new(RedisConfig::from_url(&url).unwrap()).unwrap();
    backend.acquire(&request("k", 30_000)).await.unwrap();
    let mut raw = t.server.connect();
    raw.call(&["SELECT", "3"]);
    assert_eq!(raw.call(&["EXISTS", "syncguard:k"]), Answer::Int(1));
    assert!(!t.backend.is_locked(&Key::new("k").unwrap()).await.unwrap());
}
