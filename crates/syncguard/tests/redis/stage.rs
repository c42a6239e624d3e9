//! A backend on a server of its own, and a second connection to look at what it does there.

use crate::support::attempts::Attempts as _;
use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{AcquireOutcome, AcquireRequest, Grant, LockId};

use crate::support::locks;
use crate::support::redis_server::RedisServer;
use crate::support::resp::Resp;

/// Names that end strings, look like members, or are long.
pub(crate) fn hostile_names() -> Vec<String> {
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

pub(crate) struct Stage {
    pub(crate) server: RedisServer,
    pub(crate) raw: Resp,
    pub(crate) backend: RedisBackend,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut RedisConfig)) -> Self {
        let server = RedisServer::start();
        let mut config = RedisConfig::from_url(&server.url()).unwrap();
        change(&mut config);
        Self {
            raw: server.connect(),
            backend: RedisBackend::new(config).unwrap(),
            server,
        }
    }

    pub(crate) async fn acquire(&self, key: &str, ttl_ms: i64) -> Grant {
        match self.try_acquire(key, ttl_ms).await {
            AcquireOutcome::Acquired(grant) => grant[0].clone(),
            _ => panic!("locked"),
        }
    }

    pub(crate) async fn try_acquire(&self, key: &str, ttl_ms: i64) -> AcquireOutcome {
        self.backend.acquire(&request(key, ttl_ms)).await.unwrap()
    }

    pub(crate) fn get(&mut self, key: &str) -> String {
        self.raw.call(&["GET", key]).text().to_owned()
    }

    pub(crate) fn exists(&mut self, key: &str) -> bool {
        self.raw.call(&["EXISTS", key]).int() == 1
    }

    pub(crate) fn now(&mut self) -> i64 {
        let time = self.raw.call(&["TIME"]);
        let number = |index: usize| time.list()[index].text().parse::<i64>().unwrap();
        number(0) * 1000 + number(1) / 1000
    }

    /// Writes a lock as another library would, expiring `after_ms` from now.
    pub(crate) fn write(&mut self, json: &str, key: &str, id: &LockId, after_ms: i64) -> String {
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

/// How many scripts the server has run since the last time, and the microseconds that it has taken for them.
pub(crate) fn scripts(raw: &mut Resp) -> (u64, u64) {
    let stats = raw.call(&["INFO", "commandstats"]).text().to_owned();
    raw.call(&["CONFIG", "RESETSTAT"]);
    let lines = stats
        .lines()
        .filter(|line| line.starts_with("cmdstat_eval"));
    let number = |line: &str, name: &str| {
        let (_, rest) = line.split_once(name)?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    lines.fold((0, 0), |(calls, micros), line| {
        (
            calls + number(line, "calls=").unwrap(),
            micros + number(line, "usec=").unwrap(),
        )
    })
}

pub(crate) fn request(key: &str, ttl_ms: i64) -> AcquireRequest {
    AcquireRequest::new(locks::key(key), locks::ttl(ttl_ms)).unwrap()
}

pub(crate) fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

/// Forms in which another library may write the same lock.
pub(crate) const FOREIGN: [&str; 5] = [
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
