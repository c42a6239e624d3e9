//! A server whose memory is full, with `noeviction`: it takes no new locks, and those that are there are extended and freed.

use std::sync::Arc;
use std::time::Duration;

use syncguard::operation::release_in_background;
use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{
    AutoExtend, Backend, DoneMark, Due, ErrorKind, Eval, EvalOutcome, ExtendOutcome, Finish,
    LockOptions, MarkChange, Operation, ReleaseOutcome, ReleaseRequest, Reply, Sending, lock,
};

use crate::support::attempts::Attempts as _;
use crate::support::claims::{extend, ids, plain, release, shared, slot, take, try_take};
use crate::support::locks::{acquire, eventually, key, request, try_acquire, ttl};
use crate::support::redis_server::{LOCKS_ONLY, RedisServer, Version};
use crate::support::resp::Resp;
use crate::support::suite::tests;
use crate::support::waiters::{patient, soon, watch};

tests![
    what_extends_works_while_memory_is_full,
    what_frees_works_while_memory_is_full,
    a_lock_that_extends_itself_outlives_a_full_memory,
    a_refusal_for_another_reason_leaves_the_lock_as_it_was,
];

/// A server, and a user of it with the rights that the documentation names.
struct Scene {
    server: RedisServer,
    raw: Resp,
    backend: Arc<dyn Backend>,
}

impl Scene {
    fn new(version: Version) -> Self {
        let server = RedisServer::start_version(version, LOCKS_ONLY);
        let mut raw = server.connect();
        raw.call(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        let url = format!("redis://locks:secret@127.0.0.1:{}", server.port());
        let config = RedisConfig::from_url(&url).unwrap();
        Self {
            raw,
            backend: Arc::new(RedisBackend::new(config).unwrap()),
            server,
        }
    }

    async fn fill(&mut self) {
        self.raw.call(&["CONFIG", "SET", "maxmemory", "1"]);
        let error = try_acquire(self.backend.as_ref(), "one more")
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
        assert!(error.message().contains("memory is full"), "{error}");
    }

    /// When a name of the server ends.
    fn ends(&mut self, name: &str) -> i64 {
        self.raw.call(&["PTTL", name]).int()
    }
}

const VERSIONS: [Version; 2] = [Version::Installed, Version::Oldest];

fn assert_extended(outcome: &ExtendOutcome) {
    assert!(
        matches!(outcome, ExtendOutcome::Extended { .. }),
        "{outcome:?}"
    );
}

async fn what_extends_works_while_memory_is_full() {
    for version in VERSIONS {
        let mut t = Scene::new(version);
        let backend = Arc::clone(&t.backend);
        let one = acquire(backend.as_ref(), "one").await;
        let reader = take(backend.as_ref(), [shared("s")]).await.remove(0);
        let claims = [plain("a"), plain("b"), slot("p", 3), shared("s")];
        let several = ids(&take(backend.as_ref(), claims).await);
        t.fill().await;
        for name in ["s", "one more"] {
            let error = try_take(backend.as_ref(), [shared(name)]).await;
            let error = error.unwrap_err();
            assert!(error.message().contains("memory is full"), "{error}");
        }
        for ttl_ms in [60_000, 100_000, 20_000] {
            assert_extended(&backend.extend(&one.lock_id, ttl(ttl_ms)).await.unwrap());
            let index = format!("syncguard:id:{}", one.lock_id.as_str());
            for name in ["syncguard:one", &index] {
                let left = t.ends(name) - 1000;
                assert!((ttl_ms - 5000..=ttl_ms).contains(&left), "{name}: {left}");
            }
            let outcome = extend(backend.as_ref(), several.clone(), ttl(ttl_ms)).await;
            assert_extended(&outcome);
            let left = t.ends("syncguard:b") - 1000;
            assert!((ttl_ms - 5000..=ttl_ms).contains(&left), "{left}");
            let outcome = backend.extend(&reader.lock_id, ttl(ttl_ms)).await;
            assert_extended(&outcome.unwrap());
        }
        // It ends with the last of its readers, and not as late as it did.
        let left = t.ends("syncguard:s") - 1000;
        assert!((15_000..=20_000).contains(&left), "{left}");
        // The index leads to the lock as before.
        let released = release(backend.as_ref(), several).await;
        assert!(released.iter().all(|it| *it == ReleaseOutcome::Released));
        let left = t.ends("syncguard:s") - 1000;
        assert!((15_000..=20_000).contains(&left), "{left}");
        for lock_id in [one.lock_id, reader.lock_id] {
            let released = backend.release(&lock_id).await.unwrap();
            assert_eq!(released, ReleaseOutcome::Released);
        }
        assert!(!backend.is_locked(&key("s")).await.unwrap());
    }
}

async fn what_frees_works_while_memory_is_full() {
    for version in VERSIONS {
        let mut t = Scene::new(version);
        let backend = Arc::clone(&t.backend);
        let due = Due::new("v7").unwrap();
        let mut once = request("once");
        once.due = Some(due.clone());
        let lock_id = once.claims[0].lock_id.clone();
        backend.acquire(&once).await.unwrap();
        let waited_for = acquire(backend.as_ref(), "waited for").await;
        let heard = watch(&backend, "waited for").await;
        let forced = acquire(backend.as_ref(), "forced").await;
        let undone = acquire(backend.as_ref(), "undone").await;
        let guarded = acquire(backend.as_ref(), "guarded").await;
        let pool = ids(&take(backend.as_ref(), [slot("p", 3), slot("p", 3)]).await);
        t.fill().await;

        let mut finish = ReleaseRequest::from([lock_id]);
        finish.done = Some(Finish {
            key: key("once"),
            due: due.clone(),
        });
        let done: ReleaseOutcome = backend.ask(Operation::Release(finish)).await.unwrap();
        assert_eq!(done, ReleaseOutcome::Released);
        let change = |change| Operation::Mark {
            key: key("once"),
            change,
        };
        let mark: Option<DoneMark> = backend.ask(change(MarkChange::Keep)).await.unwrap();
        assert_eq!(mark.unwrap().due, due);
        let _: Option<DoneMark> = backend.ask(change(MarkChange::Clear)).await.unwrap();

        let eval = |script: &str| Eval {
            locks: [(key("guarded"), guarded.lock_id.clone())].into(),
            script: script.to_owned(),
            keys: vec!["syncguard:guarded".to_owned()],
            arguments: Vec::new(),
            sending: Sending::default(),
        };
        let read = Operation::Eval(eval("return redis.call('GET', KEYS[1]) and 1"));
        let read: EvalOutcome = backend.ask(read).await.unwrap();
        assert_eq!(read, EvalOutcome::Done(Reply::Int(1)));
        let freed = Operation::Eval(eval("return redis.call('DEL', KEYS[1])"));
        let freed: EvalOutcome = backend.ask(freed).await.unwrap();
        assert_eq!(freed, EvalOutcome::Done(Reply::Int(1)));

        assert!(backend.force_release(&key("forced")).await.unwrap());
        let gone = backend.release(&forced.lock_id).await.unwrap();
        assert_ne!(gone, ReleaseOutcome::Released);
        release_in_background(&backend, &[undone.lock_id], ttl(30_000));
        eventually("undone", async || {
            !backend.is_locked(&key("undone")).await.unwrap()
        })
        .await;
        let released = release(backend.as_ref(), pool).await;
        assert!(released.iter().all(|it| *it == ReleaseOutcome::Released));
        let released = backend.release(&waited_for.lock_id).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
        soon(heard.freed()).await;
        assert!(t.server.is_running());
    }
}

async fn a_lock_that_extends_itself_outlives_a_full_memory() {
    for version in VERSIONS {
        let mut t = Scene::new(version);
        let options = LockOptions {
            ttl: ttl(1500),
            auto_extend: Some(AutoExtend::default()),
            ..patient()
        };
        let guard = lock(&t.backend, &key("k"), &options).await.unwrap();
        t.fill().await;
        // Longer than the lock lasts by itself, with the tolerance.
        let lost = tokio::time::timeout(Duration::from_secs(4), guard.lost()).await;
        assert!(lost.is_err(), "{version:?}: the lock was lost");
        assert!(guard.release().await.unwrap());
    }
}

async fn a_refusal_for_another_reason_leaves_the_lock_as_it_was() {
    for version in VERSIONS {
        let mut t = Scene::new(version);
        let lock = acquire(t.backend.as_ref(), "k").await;
        let index = format!("syncguard:id:{}", lock.lock_id.as_str());
        let before = [t.ends(&index), t.ends("syncguard:k")];
        t.raw.call(&["ACL", "SETUSER", "locks", "-set"]);
        let error = t.backend.extend(&lock.lock_id, ttl(90_000)).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error:?}");
        let after = [t.ends(&index), t.ends("syncguard:k")];
        assert!(after[0] > 0 && after[0] <= before[0] && after[1] <= before[1]);
    }
}
