//! Scripts of the caller's run only while their locks are held.

use syncguard::{Claim, ErrorKind, LockId, Reply, Sending};

use crate::eval::{INCR, NONE, assert_lost, backend_at, held};
use crate::stage::Stage;
use crate::support::attempts::Attempts as _;
use crate::support::claims::{plain, slot};
use crate::support::locks::key;
use crate::support::redis_server::{RedisServer, Version};
use crate::support::resp::Resp;
use crate::support::suite::tests;

tests![
    nothing_runs_without_the_lock,
    no_text_comes_before_the_check,
    all_of_several_locks_must_be_held,
    the_lock_of_a_slot_must_be_held,
];

/// Writes a lock that ends so long from now.
fn write(raw: &mut Resp, name: &str, lock_id: &LockId, after_ms: i64) {
    let time = raw.call(&["TIME"]);
    let seconds: i64 = time.list()[0].text().parse().unwrap();
    let ends = seconds * 1000 + after_ms;
    let id = lock_id.as_str();
    let json = format!(
        "{{\"lockId\":\"{id}\",\"expiresAtMs\":{ends},\"acquiredAtMs\":1,\"fence\":\"000000000000007\",\"key\":\"k\"}}"
    );
    raw.call(&["SET", name, &json]);
}

/// What ends a lock, of which it is told the lock id.
type LockEnd<'a> = &'a dyn Fn(&mut Resp, &LockId);

async fn nothing_runs_without_the_lock() {
    for version in [Version::Installed, Version::Oldest] {
        let server = RedisServer::start_version(version, &[]);
        let (backend, mut raw) = (backend_at(&server), server.connect());
        let other = LockId::generate().unwrap();
        let ways: [LockEnd<'_>; 5] = [
            &|raw, _| drop(raw.call(&["DEL", "syncguard:k"])),
            &|raw, _| write(raw, "syncguard:k", &other, 60_000),
            &|raw, own| write(raw, "syncguard:k", own, -2000),
            &|raw, _| drop(raw.call(&["FLUSHALL"])),
            &|raw, own| {
                let foreign = format!("{{\"expiresAtMs\":1,\"lockId\":\"{}\"}}", own.as_str());
                raw.call(&["SET", "syncguard:k", &foreign]);
            },
        ];
        for (number, way) in ways.iter().enumerate() {
            let guard = held(&backend, &key("k")).await;
            assert_eq!(guard.eval(INCR, ["n"], NONE).await.unwrap(), Reply::Int(1));
            way(&mut raw, guard.lock_id());
            let before = raw.call(&["GET", "n"]);
            assert_lost(guard.eval(INCR, ["n"], NONE).await);
            assert_eq!(raw.call(&["GET", "n"]), before, "{number}");
            assert_eq!(guard.lost().await.kind(), ErrorKind::LockLost);
            // From now on it is not even asked.
            raw.call(&["FLUSHALL"]);
            write(&mut raw, "syncguard:k", guard.lock_id(), 60_000);
            assert_lost(guard.eval(INCR, ["n"], NONE).await);
            assert_eq!(raw.call(&["EXISTS", "n"]).int(), 0);
            drop(guard);
            backend.force_release(&key("k")).await.unwrap();
        }
        // Within the tolerance nobody else gets it, so that it is held.
        let guard = held(&backend, &key("k")).await;
        write(&mut raw, "syncguard:k", guard.lock_id(), 0);
        raw.call(&["DEL", "n"]);
        write(&mut raw, "syncguard:k", guard.lock_id(), 500);
        assert_eq!(guard.eval(INCR, ["n"], NONE).await.unwrap(), Reply::Int(1));
        // What is no lock is told of as elsewhere.
        raw.call(&["SET", "syncguard:k", "no lock"]);
        let error = guard.eval(INCR, ["n"], NONE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.message().contains("is no lock"), "{error}");
        assert_eq!(raw.call(&["GET", "n"]).text(), "1");
    }
}

async fn no_text_comes_before_the_check() {
    let t = Stage::new();
    let backend = backend_at(&t.server);
    let (mut raw, guard) = (t.server.connect(), held(&backend, &key("k")).await);
    let id = guard.lock_ids();
    raw.call(&["DEL", "syncguard:k"]);
    let write = "redis.call('SET', 'written', 1)";
    for text in [
        format!("{write} end"),
        format!("end {write} do"),
        format!("end end end {write}"),
        format!("until true {write} repeat"),
        format!("else {write}"),
        format!("]] {write} --[["),
        format!("') {write} ('"),
        format!("\"{write}\n{write}"),
        format!("--[[\n{write}"),
        format!("\n#!lua\n{write}"),
        format!("return {write}"),
        format!("({write})"),
        format!("; {write}"),
        format!("= {write}"),
        format!("KEYS, ARGV = {{}}, {{}} {write}"),
    ] {
        let eval = syncguard::Eval {
            locks: [(key("k"), id[0].clone())].into(),
            script: text.clone(),
            keys: vec!["written".to_owned()],
            arguments: vec![],
            sending: Sending::default(),
        };
        match t.backend.ask(syncguard::Operation::Eval(eval)).await {
            Ok(syncguard::EvalOutcome::Absent { lock, .. }) => assert_eq!(lock, 0),
            Ok(syncguard::EvalOutcome::Done(reply)) => panic!("{text} has run: {reply:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}: {error}"),
        }
        assert_eq!(raw.call(&["EXISTS", "written"]).int(), 0, "{text}");
    }
}

async fn all_of_several_locks_must_be_held() {
    let t = Stage::new();
    let (backend, mut raw) = (backend_at(&t.server), t.server.connect());
    for gone in ["a", "b", "c"] {
        let claims = ["a", "b", "c"].map(plain);
        let guard = held(&backend, claims.into_iter().collect::<Vec<Claim>>()).await;
        raw.call(&["DEL", "n"]);
        assert_eq!(guard.eval(INCR, ["n"], ["x"]).await.unwrap(), Reply::Int(1));
        raw.call(&["DEL", &format!("syncguard:{gone}")]);
        let locks = guard.keys().iter().cloned().zip(guard.lock_ids());
        let eval = syncguard::Eval {
            locks: locks.collect(),
            script: INCR.to_owned(),
            keys: vec!["n".to_owned()],
            arguments: vec![],
            sending: Sending::default(),
        };
        let outcome = t
            .backend
            .ask(syncguard::Operation::Eval(eval))
            .await
            .unwrap();
        let syncguard::EvalOutcome::Absent { lock, .. } = outcome else {
            panic!("has run");
        };
        assert_eq!(guard.keys()[lock], key(gone));
        assert_lost(guard.eval(INCR, ["n"], ["x"]).await);
        assert_eq!(raw.call(&["GET", "n"]).text(), "1");
        assert!(!guard.release().await.unwrap());
    }
    let none = syncguard::Eval {
        locks: syncguard::Batch::new(),
        script: INCR.to_owned(),
        keys: vec!["n".to_owned()],
        arguments: vec![],
        sending: Sending::default(),
    };
    let refused = t
        .backend
        .ask::<syncguard::EvalOutcome>(syncguard::Operation::Eval(none));
    assert_eq!(
        refused.await.unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

async fn the_lock_of_a_slot_must_be_held() {
    let t = Stage::new();
    let (backend, mut raw) = (backend_at(&t.server), t.server.connect());
    let guard = held(&backend, slot("p", 3)).await;
    assert_eq!(guard.eval(INCR, ["n"], NONE).await.unwrap(), Reply::Int(1));
    let number = guard.grants()[0].slot.unwrap();
    raw.call(&["DEL", &format!("syncguard:p\u{37e}{number}")]);
    assert_lost(guard.eval(INCR, ["n"], NONE).await);
    assert_eq!(raw.call(&["GET", "n"]).text(), "1");
}
