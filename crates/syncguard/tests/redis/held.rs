//! When the time of a lock is over: for all scripts at the same millisecond.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use syncguard::redis::{Cause, ClientPrefix, Plan, RedisBackend, RedisLocks, Reply, Transport};
use syncguard::{Error, Eval, EvalOutcome, LockId, Operation, Sending, TIME_TOLERANCE_MS};

use crate::declared::reply;
use crate::support::attempts::Attempts as _;
use crate::support::held::Question;
use crate::support::locks::key;
use crate::support::redis_server::RedisServer;
use crate::support::resp::{Answer, Resp};
use crate::support::suite::tests;

tests![a_lock_is_over_for_all_scripts_at_the_same_millisecond];

const NOW_MS: i64 = 1_900_000_000_000;

/// A server for whose scripts the clock stands still.
struct Still(Mutex<Resp>);

impl std::fmt::Debug for Still {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Still")
    }
}

#[async_trait]
impl Transport for Still {
    async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        let source = plan.script().source();
        let script = source.replace("call('TIME')", "{ '1900000000', '0' }");
        let count = plan.keys().len().to_string();
        let mut words = vec!["EVAL", &script, &count];
        words.extend(plan.keys().chain(plan.args()));
        match self.0.lock().unwrap().call(&words) {
            Answer::Error(text) => Err(plan.error(Cause::Reply(&text))),
            answer => Ok(reply(answer)),
        }
    }
}

/// Puts the two locks into the database, which nothing else is in.
fn store(raw: &mut Resp, ids: &[LockId; 2], expires_at_ms: i64) {
    raw.call(&["FLUSHALL"]);
    for (name, id) in ["k", "s\u{37e}1"].into_iter().zip(ids) {
        let id = id.as_str();
        let lock = format!(
            r#"{{"lockId":"{id}","expiresAtMs":{expires_at_ms},"acquiredAtMs":1,"fence":"000000000000001","key":"{name}"}}"#
        );
        let lock_key = format!("syncguard:{name}");
        raw.call(&["SET", &lock_key, &lock]);
        raw.call(&["SET", &format!("syncguard:id:{id}"), &lock_key]);
    }
}

/// Whether a script of the caller's runs under the lock on the key.
async fn runs(backend: &RedisBackend, lock_id: &LockId) -> bool {
    let eval = Eval {
        locks: [(key("k"), lock_id.clone())].into_iter().collect(),
        script: "return 1".to_owned(),
        keys: Vec::new(),
        arguments: Vec::new(),
        sending: Sending::default(),
    };
    let outcome = backend.ask(Operation::Eval(eval)).await.unwrap();
    matches!(outcome, EvalOutcome::Done(_))
}

async fn a_lock_is_over_for_all_scripts_at_the_same_millisecond() {
    let server = RedisServer::start();
    let mut raw = server.connect();
    let still = Arc::new(Still(Mutex::new(server.connect())));
    let backend = RedisBackend::over(still, ClientPrefix::None, &RedisLocks::default()).unwrap();
    let ids = [LockId::generate().unwrap(), LockId::generate().unwrap()];
    for (over_for_ms, is_held) in [(TIME_TOLERANCE_MS - 1, true), (TIME_TOLERANCE_MS, false)] {
        for question in Question::ALL {
            store(&mut raw, &ids, NOW_MS - over_for_ms);
            let found = question.ask(&backend, &ids).await;
            assert_eq!(found, is_held, "{question:?}, {over_for_ms} ms over");
        }
        store(&mut raw, &ids, NOW_MS - over_for_ms);
        let found = runs(&backend, &ids[0]).await;
        assert_eq!(found, is_held, "a script, {over_for_ms} ms over");
    }
}
