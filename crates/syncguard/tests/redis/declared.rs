//! Which keys calls declare: all that a script touches, on a server that lets it touch no others, and what is known elsewhere.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use syncguard::redis::{
    Cause, ClientPrefix, Plan, RedisBackend, RedisConfig, RedisLocks, Reply, Transport,
};
use syncguard::{
    AcquireOutcome, AutoExtend, Backend, DoneMark, Due, Error, ErrorKind, Eval, EvalOutcome,
    ExtendOutcome, Fact, Finish, LockOptions, Lookup, MarkChange, Operation, PageRequest,
    ReleaseOutcome, ReleaseRequest, Sending, lock,
};

use crate::support::attempts::Attempts as _;
use crate::support::claims::{extend, ids, plain, release, shared, slot, take};
use crate::support::locks::{acquire, key, request, ttl};
use crate::support::redis_server::RedisServer;
use crate::support::resp::{Answer, Resp};
use crate::support::suite::tests;

tests![
    a_holder_works_on_a_strict_server_in_one_round_trip,
    what_is_known_by_its_lock_id_alone_is_looked_for_first,
    slots_and_several_locks_work_on_a_strict_server,
    shared_locks_work_on_a_strict_server,
    what_is_done_and_guarded_works_on_a_strict_server,
    force_and_clean_up_work_on_a_strict_server,
    what_cannot_be_done_on_a_strict_server_is_refused_by_name,
    fixed_calls_change_only_once_a_server_is_strict,
    a_holder_declares_every_key_on_every_server,
];

/// A server that runs scripts as Dragonfly does: they may touch what their calls declare.
#[derive(Clone)]
struct Strict {
    raw: Arc<Mutex<Resp>>,
    calls: Arc<AtomicUsize>,
    /// How many keys each call has declared.
    declared: Arc<Mutex<Vec<usize>>>,
    has_fixed_calls: bool,
}

impl std::fmt::Debug for Strict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Strict")
    }
}

pub(crate) fn reply(answer: Answer) -> Reply {
    match answer {
        Answer::Nil => Reply::Nil,
        Answer::Int(number) => Reply::Int(number),
        Answer::Text(text) => Reply::Bulk(text.into_bytes()),
        Answer::Error(text) => Reply::Error(text),
        Answer::List(items) => Reply::Array(items.into_iter().map(reply).collect()),
    }
}

#[async_trait]
impl Transport for Strict {
    async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        self.calls.fetch_add(1, SeqCst);
        self.declared.lock().unwrap().push(plan.keys().len());
        let script = format!("{} {}", include_str!("strict.lua"), plan.script().source());
        let count = plan.keys().len().to_string();
        let mut words = vec!["EVAL", &script, &count];
        words.extend(plan.keys().chain(plan.args()));
        match self.raw.lock().unwrap().call(&words) {
            Answer::Error(text) => Err(plan.error(Cause::Reply(&text))),
            answer => Ok(reply(answer)),
        }
    }

    fn has_fixed_calls(&self) -> bool {
        self.has_fixed_calls
    }
}

struct Scene {
    server: RedisServer,
    strict: Strict,
    prefix: ClientPrefix,
}

impl Scene {
    fn new(prefix: ClientPrefix) -> Self {
        let server = RedisServer::start();
        let strict = Strict {
            raw: Arc::new(Mutex::new(server.connect())),
            calls: Arc::default(),
            declared: Arc::default(),
            has_fixed_calls: false,
        };
        Self {
            server,
            strict,
            prefix,
        }
    }

    /// One that has not found out yet what the server is like.
    fn backend(&self) -> RedisBackend {
        self.backend_with(&RedisLocks::default())
    }

    fn backend_with(&self, locks: &RedisLocks) -> RedisBackend {
        let transport = Arc::new(self.strict.clone());
        RedisBackend::over(transport, self.prefix.clone(), locks).unwrap()
    }

    /// How many calls there were since the last time.
    fn calls(&self) -> usize {
        self.strict.calls.swap(0, SeqCst)
    }
}

fn prefixes() -> [ClientPrefix; 2] {
    [ClientPrefix::None, ClientPrefix::Ours("app:".to_owned())]
}

fn is_extended(outcome: &ExtendOutcome) -> bool {
    matches!(outcome, ExtendOutcome::Extended { .. })
}

async fn a_holder_works_on_a_strict_server_in_one_round_trip() {
    for prefix in prefixes() {
        let t = Scene::new(prefix);
        let backend = t.backend();
        let grant = acquire(&backend, "k").await;
        let extended = backend.extend(&grant.lock_id, ttl(40_000)).await.unwrap();
        assert!(is_extended(&extended));
        let beat = backend.extend_with_others(&grant.lock_id, ttl(40_000));
        assert!(is_extended(&beat.await.unwrap()));
        let lookup = Lookup::LockId(grant.lock_id.clone());
        assert!(backend.lookup(&lookup).await.unwrap().is_some());
        let released = backend.release(&grant.lock_id).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
        assert_eq!(t.calls(), 5);
    }
}

async fn what_is_known_by_its_lock_id_alone_is_looked_for_first() {
    for prefix in prefixes() {
        let t = Scene::new(prefix);
        let holder = t.backend();
        let grant = acquire(&holder, "k").await;
        t.calls();
        let other = t.backend();
        let lookup = Lookup::LockId(grant.lock_id.clone());
        assert!(other.lookup(&lookup).await.unwrap().is_some());
        assert_eq!(t.calls(), 3, "one is refused, one looks, one does it");
        for by in [&other, &t.backend()] {
            let extended = by.extend(&grant.lock_id, ttl(40_000)).await.unwrap();
            assert!(is_extended(&extended));
        }
        let released = t.backend().release(&grant.lock_id).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
        t.calls();
        for by in [&other, &holder, &t.backend()] {
            let again = by.release(&grant.lock_id).await.unwrap();
            assert!(matches!(again, ReleaseOutcome::Absent(_)));
            let extended = by.extend(&grant.lock_id, ttl(1000)).await.unwrap();
            assert!(matches!(extended, ExtendOutcome::Absent { .. }));
            assert!(by.lookup(&lookup).await.unwrap().is_none());
        }
    }
}

async fn slots_and_several_locks_work_on_a_strict_server() {
    for prefix in prefixes() {
        let t = Scene::new(prefix);
        let backend = t.backend();
        let wanted = || [slot("p", 4), plain("a"), slot("p", 4), slot("q", 2)];
        let grants = take(&backend, wanted()).await;
        assert_eq!(t.calls(), 2, "the first is refused");
        let outcome = extend(&backend, ids(&grants), ttl(40_000)).await;
        assert!(is_extended(&outcome));
        let request = crate::support::claims::asking(&backend, wanted());
        assert!(backend.acquire(&request).await.unwrap().is_locked());
        assert_eq!(t.calls(), 2);
        // By those who know nothing, of these and of one that is not there.
        let other = t.backend();
        assert!(is_extended(
            &extend(&other, ids(&grants), ttl(40_000)).await
        ));
        let released = release(&t.backend(), ids(&grants)).await;
        assert!(released.iter().all(|it| *it == ReleaseOutcome::Released));
        let grants = take(&backend, wanted()).await;
        assert_eq!(grants.len(), 4);
        t.calls();
        release(&backend, ids(&grants)).await;
        assert_eq!(t.calls(), 1);
    }
}

async fn shared_locks_work_on_a_strict_server() {
    for prefix in prefixes() {
        let t = Scene::new(prefix);
        let backend = t.backend();
        let set = take(&backend, [shared("k"), plain("l"), shared("m")]).await;
        let alone = take(&backend, [shared("k")]).await.remove(0);
        let outcome = extend(&backend, ids(&set), ttl(40_000)).await;
        assert!(is_extended(&outcome));
        let extended = backend.extend(&alone.lock_id, ttl(50_000)).await;
        assert!(is_extended(&extended.unwrap()));
        let reader = key("k").reader(&alone.lock_id);
        for lookup in [
            Lookup::LockId(alone.lock_id.clone()),
            Lookup::Key(reader.clone()),
        ] {
            assert!(backend.lookup(&lookup).await.unwrap().is_some());
        }
        assert!(backend.is_locked(&reader).await.unwrap());
        let eval = Operation::Eval(Eval {
            locks: [(reader.clone(), alone.lock_id.clone())].into(),
            script: "return redis.call('INCR', KEYS[1])".to_owned(),
            keys: vec!["n".to_owned()],
            arguments: Vec::new(),
            sending: Sending::default(),
        });
        let outcome: EvalOutcome = backend.ask(eval).await.unwrap();
        assert_eq!(outcome, EvalOutcome::Done(Reply::Int(1)));
        let released = release(&backend, ids(&set)).await;
        assert!(released.iter().all(|it| *it == ReleaseOutcome::Released));
        assert_eq!(t.calls(), 9);
        let released = backend.release(&alone.lock_id).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
        assert!(!backend.is_locked(&key("k")).await.unwrap());
        // By those who know nothing.
        let set = take(&backend, [shared("k"), plain("l"), shared("m")]).await;
        let alone = take(&backend, [shared("k")]).await.remove(0);
        let outcome = extend(&t.backend(), ids(&set), ttl(40_000)).await;
        assert!(is_extended(&outcome));
        let reader = key("k").reader(&alone.lock_id);
        assert!(t.backend().force_release(&reader).await.unwrap());
        let released = release(&t.backend(), ids(&set)).await;
        assert!(released.iter().all(|it| *it == ReleaseOutcome::Released));
        assert!(!backend.is_locked(&key("k")).await.unwrap());
    }
}

async fn what_is_done_and_guarded_works_on_a_strict_server() {
    for prefix in prefixes() {
        let t = Scene::new(prefix);
        let due = Due::new("v7").unwrap();
        for backend in [t.backend(), t.backend()] {
            let mut once = request("once");
            once.due = Some(due.clone());
            let lock_id = once.claims[0].lock_id.clone();
            let granted = backend.acquire(&once).await.unwrap();
            assert!(matches!(granted, AcquireOutcome::Acquired(_)));
            let mut finish = ReleaseRequest::from([lock_id]);
            finish.done = Some(Finish {
                key: key("once"),
                due: due.clone(),
            });
            t.calls();
            let done: Result<ReleaseOutcome, _> = backend.ask(Operation::Release(finish)).await;
            assert_eq!(done.unwrap(), ReleaseOutcome::Released);
            assert_eq!(t.calls(), 1);
            let change = MarkChange::Clear;
            let key = key("once");
            let before = backend.ask(Operation::Mark { key, change }).await;
            assert_eq!(
                before.map(|it: Option<DoneMark>| it.unwrap().due).unwrap(),
                due
            );
        }
        let backend = t.backend();
        let grant = acquire(&backend, "k").await;
        let eval = Operation::Eval(Eval {
            locks: [(key("k"), grant.lock_id)].into(),
            script: "return redis.call('INCR', KEYS[1])".to_owned(),
            keys: vec!["n".to_owned()],
            arguments: Vec::new(),
            sending: Sending::default(),
        });
        let outcome: EvalOutcome = backend.ask(eval).await.unwrap();
        assert_eq!(outcome, EvalOutcome::Done(Reply::Int(1)));
    }
}

async fn force_and_clean_up_work_on_a_strict_server() {
    for prefix in prefixes() {
        let t = Scene::new(prefix.clone());
        let start = match &prefix {
            ClientPrefix::Ours(start) => start.as_str(),
            _ => "",
        };
        let mut raw = t.server.connect();
        let mut left = || match raw.call(&["KEYS", "*"]) {
            Answer::List(names) => names
                .iter()
                .filter(|name| !name.text().contains("fence:"))
                .count(),
            _ => 0,
        };
        let holder = t.backend();
        acquire(&holder, "k").await;
        let other = t.backend();
        assert!(other.force_release(&key("k")).await.unwrap());
        assert!(!other.force_release(&key("k")).await.unwrap());
        assert_eq!(left(), 0);

        let locks = RedisLocks {
            cleanup_in_is_locked: true,
            ..RedisLocks::default()
        };
        for backend in [t.backend_with(&locks), t.backend_with(&locks)] {
            for _ in 0..2 {
                let id = syncguard::LockId::generate().unwrap();
                let id = id.as_str();
                let stored = format!(
                    "{{\"lockId\":\"{id}\",\"expiresAtMs\":1,\"acquiredAtMs\":1,\"fence\":\"000000000000007\",\"key\":\"old\"}}"
                );
                let mut raw = t.server.connect();
                raw.call(&["SET", &format!("{start}syncguard:old"), &stored]);
                raw.call(&[
                    "SET",
                    &format!("{start}syncguard:id:{id}"),
                    &format!("{start}syncguard:old"),
                ]);
                assert!(!backend.is_locked(&key("old")).await.unwrap());
                assert_eq!(left(), 0);
            }
        }
    }
}

async fn what_cannot_be_done_on_a_strict_server_is_refused_by_name() {
    let t = Scene::new(ClientPrefix::None);
    let backend = t.backend();
    acquire(&backend, "k").await;
    for _ in 0..2 {
        let page = PageRequest {
            after: None,
            limit: 10,
        };
        let error = backend.list(&page).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
        assert!(error.message().starts_with("locks cannot be listed"));
        assert!(error.message().contains("allow-undeclared-keys"));
    }
    let facts = backend.facts().await.unwrap().remove(0).facts;
    assert!(facts.contains(&("undeclaredKeys", Fact::from("refused"))));
    let plain = RedisBackend::new(RedisConfig::from_url(&t.server.url()).unwrap()).unwrap();
    let facts = plain.facts().await.unwrap().remove(0).facts;
    assert!(facts.iter().all(|(name, _)| *name != "undeclaredKeys"));
}

async fn fixed_calls_change_only_once_a_server_is_strict() {
    let mut t = Scene::new(ClientPrefix::None);
    t.strict.has_fixed_calls = true;
    let backend = t.backend();
    let first = acquire(&backend, "first").await;
    let second = acquire(&backend, "second").await;
    backend.release(&first.lock_id).await.unwrap();
    // As it always was, then with the lock that is known, and so on.
    assert_eq!(*t.strict.declared.lock().unwrap(), [3, 3, 1, 2]);
    let extended = backend.extend(&second.lock_id, ttl(40_000)).await.unwrap();
    assert!(is_extended(&extended));
    backend.release(&second.lock_id).await.unwrap();
    assert_eq!(t.strict.declared.lock().unwrap()[4..], [2, 2]);
}

/// The words of a line of `MONITOR`.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_open, mut is_escaped) =
        (Vec::new(), String::new(), false, false);
    for character in line.chars() {
        match character {
            '"' if !is_escaped => {
                if is_open {
                    words.push(std::mem::take(&mut word));
                }
                is_open = !is_open;
            }
            '\\' if !is_escaped => is_escaped = true,
            _ if is_open => {
                word.push(character);
                is_escaped = false;
            }
            _ => {}
        }
    }
    words
}

async fn a_holder_declares_every_key_on_every_server() {
    let server = RedisServer::start();
    let config = RedisConfig::from_url(&server.url()).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(RedisBackend::new(config).unwrap());
    let mut monitor = server.connect();
    monitor.call(&["MONITOR"]);

    let options = LockOptions {
        ttl: ttl(1000),
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    };
    let mut guard = lock(&backend, &key("one"), &options).await.unwrap();
    tokio::time::timeout(Duration::from_millis(800), guard.lost())
        .await
        .unwrap_err();
    assert!(guard.extend(ttl(5000)).await.unwrap());
    assert!(guard.release().await.unwrap());
    let guard = lock(&backend, vec![plain("a"), shared("b")], &options).await;
    let mut guard = guard.unwrap();
    assert!(guard.extend(ttl(5000)).await.unwrap());
    let counted = guard.eval("return redis.call('INCR', KEYS[1])", ["n"], [""; 0]);
    counted.await.unwrap();
    assert!(guard.release().await.unwrap());

    server.connect().call(&["ECHO", "the end"]);
    let (mut declared, mut touched) = (HashSet::new(), 0);
    loop {
        let line = monitor.read().text().to_owned();
        let words = words(&line);
        let names = match words[0].as_str() {
            "ECHO" => break,
            "EVALSHA" | "EVAL" => {
                let count: usize = words[2].parse().unwrap();
                declared = words[3..3 + count].iter().cloned().collect();
                continue;
            }
            "GET" | "SET" | "INCR" | "ZADD" | "ZREM" | "ZREVRANGE" | "ZREMRANGEBYSCORE"
            | "PEXPIRE" => &words[1..2],
            "DEL" => &words[1..],
            _ => continue,
        };
        assert!(line.contains(" lua]"), "{line}");
        touched += names.len();
        assert!(names.iter().all(|name| declared.contains(name)), "{line}");
    }
    assert!(touched > 20, "{touched}");
}
