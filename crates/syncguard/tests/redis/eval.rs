//! Scripts of the caller's under a lock: what they see and give.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use syncguard::redis::{RedisBackend, RedisConfig, RedisLocks};
use syncguard::{Backend, Error, ErrorKind, IntoClaims, LockGuard, LockOptions, Reply, lock};

use crate::fake;
use crate::stage::{Stage, scripts};
use crate::support::clients::{fred, manager, multiplexed};
use crate::support::locks::key;
use crate::support::redis_server::{RedisServer, Version};
use crate::support::resp::Answer;
use crate::support::suite::tests;

tests![
    a_script_sees_its_own_keys_and_arguments,
    replies_are_what_the_script_returns,
    errors_are_the_scripts_own_words,
    a_script_is_one_call_and_its_text_is_sent_once,
    a_clients_own_prefix_stands_before_the_keys,
    a_long_reply_ends_nothing,
    a_script_whose_answer_is_lost_has_run_once,
    a_script_that_takes_too_long_may_have_run,
    clients_run_scripts_too,
];

pub(crate) const INCR: &str = "return redis.call('INCR', KEYS[1])";
pub(crate) const NONE: [&str; 0] = [];

pub(crate) fn backend_at(server: &RedisServer) -> Arc<dyn Backend> {
    Arc::new(RedisBackend::new(RedisConfig::from_url(&server.url()).unwrap()).unwrap())
}

pub(crate) async fn held(backend: &Arc<dyn Backend>, claims: impl IntoClaims) -> LockGuard {
    lock(backend, claims, &LockOptions::default())
        .await
        .unwrap()
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

pub(crate) fn assert_lost(answer: Result<Reply, Error>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LockLost, "{error}");
    assert!(!error.is_outcome_unknown());
}

async fn a_script_sees_its_own_keys_and_arguments() {
    for version in [Version::Installed, Version::Oldest] {
        let server = RedisServer::start_version(version, &[]);
        let guard = held(&backend_at(&server), &key("k")).await;
        let all = "local all = {#KEYS, #ARGV}
            for _, key in ipairs(KEYS) do all[#all + 1] = key end
            for _, arg in ipairs(ARGV) do all[#all + 1] = arg end
            return all";
        let reply = guard.eval(all, NONE, NONE).await.unwrap();
        assert_eq!(reply, Reply::Array(vec![Reply::Int(0), Reply::Int(0)]));
        let hostile = ["a", "", "é\0\r\n\"\\"];
        let reply = guard.eval(all, hostile, ["1", hostile[2]]).await.unwrap();
        let texts = hostile.into_iter().chain(["1", hostile[2]]).map(bulk);
        let counts = [Reply::Int(3), Reply::Int(2)];
        assert_eq!(
            reply,
            Reply::Array(counts.into_iter().chain(texts).collect())
        );
        // Names of the check are not seen, and a script may use them.
        let reply = guard
            .eval(
                "local lost, call, now = 1, 2, 3 return lost + call + now",
                NONE,
                NONE,
            )
            .await;
        assert_eq!(reply.unwrap(), Reply::Int(6));
        for name in ["lost", "call", "now", "lock_key", "pop"] {
            let error = guard
                .eval(&format!("return {name}"), NONE, NONE)
                .await
                .unwrap_err();
            assert!(
                error.message().contains("nonexistent global variable"),
                "{error}"
            );
        }
    }
}

async fn replies_are_what_the_script_returns() {
    for version in [Version::Installed, Version::Oldest] {
        let server = RedisServer::start_version(version, &[]);
        let guard = held(&backend_at(&server), &key("k")).await;
        for (script, expected) in [
            ("", Reply::Nil),
            ("-- nothing", Reply::Nil),
            ("return nil", Reply::Nil),
            ("return false", Reply::Nil),
            ("return true", Reply::Int(1)),
            ("return 3.99", Reply::Int(3)),
            (
                "return -9007199254740991",
                Reply::Int(-9_007_199_254_740_991),
            ),
            ("return '3.99'", bulk("3.99")),
            ("return ''", bulk("")),
            ("return '\\255\\0'", Reply::Bulk(vec![255, 0])),
            ("return redis.status_reply('FINE')", bulk("FINE")),
            ("return redis.call('SET', 'a', 1)", bulk("OK")),
            ("return redis.call('GET', 'none')", Reply::Nil),
            ("return {}", Reply::Array(vec![])),
            ("return {1, nil, 3}", Reply::Array(vec![Reply::Int(1)])),
            (
                "return {{'a'}, redis.error_reply('MINE x'), false}",
                Reply::Array(vec![
                    Reply::Array(vec![bulk("a")]),
                    Reply::Error("MINE x".to_owned()),
                    Reply::Nil,
                ]),
            ),
            (
                "redis.setresp(3) return {map = {a = 1}}",
                Reply::Array(vec![bulk("a"), Reply::Int(1)]),
            ),
        ] {
            let reply = guard.eval(script, NONE, NONE).await;
            assert_eq!(reply.unwrap(), expected, "{script}");
        }
        guard.release().await.unwrap();
    }
}

async fn errors_are_the_scripts_own_words() {
    use ErrorKind::{Internal, InvalidArgument, ServiceUnavailable};
    for version in [Version::Installed, Version::Oldest] {
        let server = RedisServer::start_version(version, &[]);
        let guard = held(&backend_at(&server), &key("k")).await;
        let sha = 40;
        for (script, kind, words) in [
            (
                "return redis.error_reply('MINE text')",
                Internal,
                "MINE text",
            ),
            (
                "return redis.error_reply('own words')",
                Internal,
                "own words",
            ),
            ("error('boom')", Internal, "user_script:1: boom"),
            (
                "local a\n\nreturn a.b",
                Internal,
                "user_script:3: attempt to index",
            ),
            (
                "redis.call('SET', 'a', 1) return redis.call('LPUSH', 'a', 1)",
                Internal,
                "WRONGTYPE Operation",
            ),
            (
                "\nreturn return",
                InvalidArgument,
                "script: ERR Error compiling script (new function): user_script:2:",
            ),
            (
                "return redis.error_reply('READONLY x')",
                ServiceUnavailable,
                "READONLY x",
            ),
        ] {
            let error = guard.eval(script, NONE, NONE).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{script}: {error}");
            assert!(error.message().contains(words), "{script}: {error}");
            assert!(!error.is_outcome_unknown());
            for id in guard.lock_ids() {
                assert!(!error.message().contains(id.as_str()));
            }
        }
        let error = guard.eval(
            "return redis.error_reply('MINE ' .. KEYS[1] .. ARGV[1])",
            ["key"],
            ["arg"],
        );
        assert_eq!(error.await.unwrap_err().message(), "MINE keyarg");
        // Nothing ended with an error.
        assert_eq!(
            guard.eval("return 40", NONE, NONE).await.unwrap(),
            Reply::Int(sha)
        );
        assert!(guard.release().await.unwrap());
    }
    // What the server says of how a script is to run stands on the first line.
    let server = RedisServer::start();
    let guard = held(&backend_at(&server), &key("k")).await;
    let reading = "#!lua flags=no-writes\nreturn redis.call('SET', 'a', 1)";
    let error = guard.eval(reading, NONE, NONE).await.unwrap_err();
    assert!(error.message().contains("read-only scripts"), "{error}");
    assert!(error.message().contains("user_script:2."), "{error}");
}

async fn a_script_is_one_call_and_its_text_is_sent_once() {
    let t = Stage::new();
    let (backend, mut raw) = (backend_at(&t.server), t.server.connect());
    let guard = held(&backend, &key("k")).await;
    let with = |number: u32| guard.eval(INCR, ["n"], [number.to_string()]);
    assert_eq!(with(1).await.unwrap(), Reply::Int(1));
    scripts(&mut raw);
    for number in 2..12_u32 {
        assert_eq!(with(number).await.unwrap(), Reply::Int(number.into()));
    }
    assert_eq!(scripts(&mut raw).0, 10);
    raw.call(&["SCRIPT", "FLUSH"]);
    assert_eq!(with(12).await.unwrap(), Reply::Int(12));
    assert_eq!(with(13).await.unwrap(), Reply::Int(13));
    let text = raw.call(&["INFO", "commandstats"]).text().to_owned();
    assert!(text.contains("cmdstat_eval:calls=1,"), "{text}");
}

async fn a_clients_own_prefix_stands_before_the_keys() {
    let server = RedisServer::start();
    let mut config = RedisConfig::from_url(&server.url()).unwrap();
    config.client_key_prefix = "mine:".to_owned();
    let backend: Arc<dyn Backend> = Arc::new(RedisBackend::new(config).unwrap());
    let guard = held(&backend, &key("k")).await;
    let script = "redis.call('SET', KEYS[1], 1) return KEYS[1]";
    assert_eq!(
        guard.eval(script, ["n"], ["n"]).await.unwrap(),
        bulk("mine:n")
    );
    let mut raw = server.connect();
    assert_eq!(raw.call(&["GET", "mine:n"]), Answer::Text("1".to_owned()));
}

async fn a_long_reply_ends_nothing() {
    let t = Stage::new();
    let guard = held(&backend_at(&t.server), &key("k")).await;
    let script = "return {string.rep('x', 3000000), ARGV[1]}";
    let long = "y".repeat(2_000_000);
    let reply = guard.eval(script, NONE, [long.clone()]).await.unwrap();
    let Reply::Array(items) = reply else { panic!() };
    assert_eq!(items[0], bulk(&"x".repeat(3_000_000)));
    assert_eq!(items[1], bulk(&long));
    assert!(guard.release().await.unwrap());
}

async fn a_script_whose_answer_is_lost_has_run_once() {
    let server = RedisServer::start();
    let mut raw = server.connect();
    // Each has its own: what one does in the background must not lose the answer that another one is to lose.
    let mut lossy = Vec::new();
    for _ in 0..4 {
        lossy.push(fake::lossy(server.port()).await);
    }
    let port = |index: usize| lossy[index].0;
    let locks = RedisLocks::default();
    let config = RedisConfig::from_url(&format!("redis://127.0.0.1:{}", port(0))).unwrap();
    let backends: [Arc<dyn Backend>; 4] = [
        Arc::new(RedisBackend::new(config).unwrap()),
        Arc::new(syncguard_clients::fred::backend(&fred(port(1)).await, &locks).unwrap()),
        Arc::new(syncguard_clients::redis_rs::backend(&manager(port(2)).await, &locks).unwrap()),
        Arc::new(
            syncguard_clients::redis_rs::backend(&multiplexed(port(3)).await, &locks).unwrap(),
        ),
    ];
    for (backend, (_, losses)) in backends.iter().zip(&lossy) {
        raw.call(&["DEL", "n"]);
        let guard = held(backend, &key("k")).await;
        assert_eq!(guard.eval(INCR, ["n"], NONE).await.unwrap(), Reply::Int(1));
        losses.store(1, SeqCst);
        let error = guard.eval(INCR, ["n"], NONE).await.unwrap_err();
        assert!(error.is_outcome_unknown(), "{backend:?}: {error}");
        assert!(
            error.message().ends_with(": the script may have run"),
            "{error}"
        );
        assert_eq!(losses.load(SeqCst), 0);
        assert_eq!(raw.call(&["GET", "n"]).text(), "2", "{backend:?}");
        drop(guard);
        raw.call(&["FLUSHALL"]);
    }
}

async fn a_script_that_takes_too_long_may_have_run() {
    let t = Stage::new();
    let mut config = RedisConfig::from_url(&t.server.url()).unwrap();
    config.locks.operation_timeout = Duration::from_millis(300);
    let backend: Arc<dyn Backend> = Arc::new(RedisBackend::new(config).unwrap());
    let guard = held(&backend, &key("k")).await;
    let slow = "redis.call('INCR', KEYS[1])
        local from = redis.call('TIME')
        repeat local now = redis.call('TIME') until now[1] - from[1] >= 2";
    let error = guard.eval(slow, ["n"], NONE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error}");
    assert!(error.is_outcome_unknown());
    assert!(
        error.message().ends_with(": the script may have run"),
        "{error}"
    );
    let mut raw = t.server.connect();
    assert_eq!(raw.call(&["GET", "n"]).text(), "1");
    // A server that is not there has run nothing.
    drop(t);
    let error = guard.eval(slow, ["n"], NONE).await.unwrap_err();
    assert!(!error.is_outcome_unknown(), "{error}");
}

async fn clients_run_scripts_too() {
    let server = RedisServer::start();
    let (mut raw, port) = (server.connect(), server.port());
    let locks = RedisLocks::default();
    let backends: [Arc<dyn Backend>; 2] = [
        Arc::new(syncguard_clients::fred::backend(&fred(port).await, &locks).unwrap()),
        Arc::new(syncguard_clients::redis_rs::backend(&manager(port).await, &locks).unwrap()),
    ];
    for backend in backends {
        raw.call(&["FLUSHALL"]);
        let guard = held(&backend, &key("k")).await;
        let reply = guard
            .eval("return {KEYS[1], ARGV[1], 7, false}", ["a"], ["b"])
            .await;
        let expected = vec![bulk("a"), bulk("b"), Reply::Int(7), Reply::Nil];
        assert_eq!(reply.unwrap(), Reply::Array(expected));
        let error = guard
            .eval("return redis.error_reply('MINE x')", NONE, NONE)
            .await;
        assert_eq!(error.unwrap_err().message(), "MINE x");
        raw.call(&["DEL", "syncguard:k"]);
        assert_lost(guard.eval(INCR, ["n"], NONE).await);
        assert_eq!(raw.call(&["EXISTS", "n"]).int(), 0);
    }
}
