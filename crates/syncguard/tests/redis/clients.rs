//! Clients that the application brings: what their repetitions and reconnects do to locks, and what is told of errors.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use fred::interfaces::ClientLike as _;
use syncguard::operation::{self, CallOptions};
use syncguard::redis::{RedisBackend, RedisConfig, RedisLocks};
use syncguard::{
    Absence, AcquireOutcome, AcquireRequest, AutoExtend, Backend, ErrorKind, ExtendOutcome,
    LockGuard, LockOptions, Operation, ReleaseOutcome, lock,
};

use crate::fake;
use crate::load::until_it_works;
use crate::support::attempts::Attempts as _;
use crate::support::claims::{ids, plain, release, slot, take};
use crate::support::clients::{fred, fred_builder, fred_pool, manager};
use crate::support::locks::{AHEAD, acquire, eventually, key, request, ttl};
use crate::support::redis_server::RedisServer;
use crate::support::resp::Resp;
use crate::support::suite::tests;

tests![
    an_acquisition_that_fred_repeats_is_the_same_lock,
    several_locks_that_fred_repeats_are_the_same,
    a_release_that_fred_repeats_finds_nothing,
    an_extension_that_fred_repeats_is_an_extension,
    a_fred_that_repeats_nothing_says_that_the_outcome_is_unknown,
    fred_never_sends_what_waited_for_too_long,
    a_manager_repeats_nothing_and_says_that_the_outcome_is_unknown,
    an_operation_that_is_not_answered_ends_in_its_time,
    a_server_that_comes_back_empty_is_asked_after_all_that_is_held_over_a_client,
    scripts_that_the_server_has_lost_are_sent_again,
    errors_are_those_of_connections_of_our_own,
];

const CALL: CallOptions = CallOptions::DEFAULT;

/// A server, a way to it on which replies get lost, and a backend beside.
struct Scene {
    server: RedisServer,
    port: u16,
    losses: Arc<AtomicUsize>,
    beside: RedisBackend,
    raw: Resp,
}

impl Scene {
    async fn new() -> Self {
        let server = RedisServer::start();
        let config = RedisConfig::from_url(&server.url()).unwrap();
        let beside = RedisBackend::new(config).unwrap();
        let (port, losses) = fake::lossy(server.port()).await;
        // From now on, the server knows the scripts: their first replies would only say that it does not.
        let grant = acquire(&beside, "warm").await;
        beside.extend(&grant.lock_id, ttl(30_000)).await.unwrap();
        beside.release(&grant.lock_id).await.unwrap();
        beside.force_release(&key("warm")).await.unwrap();
        Self {
            raw: server.connect(),
            server,
            port,
            losses,
            beside,
        }
    }

    /// A client and a pool of fred.
    async fn freds(&self) -> Vec<(&'static str, Arc<dyn Backend>)> {
        let client = fred(self.port).await;
        let pool = fred_pool(self.port).await;
        let locks = RedisLocks::default();
        vec![
            (
                "client",
                Arc::new(syncguard_clients::fred::backend(&client, &locks).unwrap()),
            ),
            (
                "pool",
                Arc::new(syncguard_clients::fred::backend(&pool, &locks).unwrap()),
            ),
        ]
    }

    /// The next reply to a script is lost.
    fn lose_one(&self) {
        self.losses.store(1, SeqCst);
    }

    fn all_are_lost(&self) -> bool {
        self.losses.load(SeqCst) == 0
    }

    /// Lets the fences of a key be counted one by one.
    fn count(&mut self, name: &str) {
        let fence = format!("syncguard:fence:syncguard:{name}");
        self.raw.call(&["SET", &fence, &AHEAD.to_string()]);
    }

    /// How many fences were given for a key since then.
    fn fences(&mut self, name: &str) -> u64 {
        let fence = format!("syncguard:fence:syncguard:{name}");
        let counter = self.raw.call(&["GET", &fence]);
        counter.text().parse::<u64>().unwrap() - AHEAD
    }
}

async fn an_acquisition_that_fred_repeats_is_the_same_lock() {
    let mut scene = Scene::new().await;
    for (name, backend) in scene.freds().await {
        scene.count(name);
        scene.lose_one();
        let answer = operation::run::<AcquireOutcome>(
            &backend,
            Operation::Acquire(request(name)),
            CALL,
            pending(),
        )
        .await;
        assert!(scene.all_are_lost());
        let AcquireOutcome::Acquired(mut grants) = answer.unwrap() else {
            panic!("locked for its own caller");
        };
        let grant = grants.remove(0);
        assert_eq!(grant.fence.get(), AHEAD + 1);
        assert_eq!(scene.fences(name), 1, "no second fence is spent");
        // Nobody else has it, and its holder can do with it what holders do.
        let other = scene.beside.acquire(&request(name)).await.unwrap();
        assert!(other.is_locked());
        let extended = backend.extend(&grant.lock_id, ttl(60_000)).await.unwrap();
        assert!(matches!(extended, ExtendOutcome::Extended { .. }));
        let released = backend.release(&grant.lock_id).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
        assert!(!scene.beside.is_locked(&key(name)).await.unwrap());
    }
}

async fn several_locks_that_fred_repeats_are_the_same() {
    let mut scene = Scene::new().await;
    // The server gets to know the script.
    take(&scene.beside, [plain("x"), plain("y")]).await;
    for (name, backend) in scene.freds().await {
        scene.count(name);
        scene.lose_one();
        let grants = take(backend.as_ref(), [plain(name), slot("slots", 9)]).await;
        assert!(scene.all_are_lost());
        assert_eq!(grants[0].fence.get(), AHEAD + 1);
        assert_eq!(scene.fences(name), 1, "no second fence is spent");
        let slots = scene.raw.call(&["KEYS", "syncguard:slots\u{37e}*"]);
        assert_eq!(slots.list().len(), 1, "no second slot is taken");
        let released = release(backend.as_ref(), ids(&grants)).await;
        assert_eq!(released[..], [ReleaseOutcome::Released; 2]);
    }
}

async fn a_release_that_fred_repeats_finds_nothing() {
    let scene = Scene::new().await;
    for (name, backend) in scene.freds().await {
        let grant = acquire(&*backend, name).await;
        scene.lose_one();
        let released = backend.release(&grant.lock_id).await.unwrap();
        assert!(scene.all_are_lost());
        assert_eq!(released, ReleaseOutcome::Absent(Absence::NotFound));
        assert!(!scene.beside.is_locked(&key(name)).await.unwrap());
        acquire(&scene.beside, name).await;
        scene.lose_one();
        assert!(!backend.force_release(&key(name)).await.unwrap());
        assert!(!scene.beside.is_locked(&key(name)).await.unwrap());
    }
}

async fn an_extension_that_fred_repeats_is_an_extension() {
    let scene = Scene::new().await;
    for (name, backend) in scene.freds().await {
        let grant = acquire(&*backend, name).await;
        scene.lose_one();
        let extended = backend.extend(&grant.lock_id, ttl(90_000)).await.unwrap();
        assert!(scene.all_are_lost());
        let ExtendOutcome::Extended { expires_at_ms } = extended else {
            panic!("gone");
        };
        assert!(expires_at_ms > grant.expires_at_ms);
    }
}

async fn a_fred_that_repeats_nothing_says_that_the_outcome_is_unknown() {
    let mut scene = Scene::new().await;
    let client = fred_builder(scene.port)
        .with_connection_config(|config| config.max_command_attempts = 1)
        .build()
        .unwrap();
    client.init().await.unwrap();
    let backend = syncguard_clients::fred::backend(&client, &RedisLocks::default()).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(backend);
    scene.count("k");
    scene.lose_one();
    let answer = operation::run::<AcquireOutcome>(
        &backend,
        Operation::Acquire(request("k")),
        CALL,
        pending(),
    )
    .await;
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    assert!(error.is_outcome_unknown());
    assert_eq!(scene.fences("k"), 1, "it was granted");
    eventually("it is released in the background", async || {
        !scene.beside.is_locked(&key("k")).await.unwrap()
    })
    .await;
    // What the server has refused was not done, and this client cannot have sent it before.
    scene.raw.call(&["SADD", "syncguard:set", "member"]);
    let error = backend.acquire(&request("set")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
    assert!(!error.is_outcome_unknown());
}

async fn fred_never_sends_what_waited_for_too_long() {
    let mut scene = Scene::new().await;
    let (port, shut) = fake::gate(scene.server.port()).await;
    // It does not give up by itself.
    let client = fred_builder(port)
        .with_connection_config(|config| config.max_command_attempts = 1_000_000)
        .build()
        .unwrap();
    client.init().await.unwrap();
    let locks = RedisLocks {
        operation_timeout: Duration::from_millis(400),
        ..RedisLocks::default()
    };
    let backend = syncguard_clients::fred::backend(&client, &locks).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(backend);
    until_it_works(&backend).await;
    shut.send_replace(true);
    eventually("the client has noticed", async || !client.is_connected()).await;
    let answer = operation::run::<AcquireOutcome>(
        &backend,
        Operation::Acquire(request("late")),
        CALL,
        pending(),
    )
    .await;
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    // Until fred's own time is over, too.
    tokio::time::sleep(locks.operation_timeout * 2).await;
    shut.send_replace(false);
    until_it_works(&backend).await;
    let counter = "syncguard:fence:syncguard:late";
    let granted = scene.raw.call(&["EXISTS", counter]).int();
    assert_eq!(granted, 0, "it was sent when nobody waited for it any more");
}

async fn a_manager_repeats_nothing_and_says_that_the_outcome_is_unknown() {
    let mut scene = Scene::new().await;
    let connection = manager(scene.port).await;
    let backend =
        syncguard_clients::redis_rs::backend(&connection, &RedisLocks::default()).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(backend);
    let request = request("k");
    scene.count("k");
    scene.count("l");
    scene.lose_one();
    let error = backend.acquire(&request).await.unwrap_err();
    assert!(scene.all_are_lost());
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    assert!(error.is_outcome_unknown());
    // The caller may repeat it: the lock is the same.
    let grant = eventually_acquired(&backend, &request).await;
    assert_eq!((grant, scene.fences("k")), (AHEAD + 1, 1));
    scene.lose_one();
    let error = backend
        .release(&request.claims[0].lock_id)
        .await
        .unwrap_err();
    assert!(error.is_outcome_unknown(), "{error:?}");
    eventually("a repeated release finds nothing", async || {
        backend.release(&request.claims[0].lock_id).await.ok()
            == Some(ReleaseOutcome::Absent(Absence::NotFound))
    })
    .await;
    assert!(!scene.beside.is_locked(&key("k")).await.unwrap());
    // An attempt as users make them leaves nothing behind.
    scene.lose_one();
    let lost = operation::run::<AcquireOutcome>(
        &backend,
        Operation::Acquire(crate::support::locks::request("l")),
        CALL,
        pending(),
    );
    assert!(lost.await.unwrap_err().is_outcome_unknown());
    eventually("what was granted is released", async || {
        !scene.beside.is_locked(&key("l")).await.unwrap()
    })
    .await;
    assert_eq!(scene.fences("l"), 1);
}

/// The fence, once the connection is there again.
async fn eventually_acquired(backend: &Arc<dyn Backend>, request: &AcquireRequest) -> u64 {
    let mut fence = 0;
    eventually("the connection is there again", async || {
        match backend.acquire(request).await {
            Ok(AcquireOutcome::Acquired(grant)) => {
                fence = grant[0].fence.get();
                true
            }
            Ok(_) => panic!("locked for its own caller"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
                false
            }
        }
    })
    .await;
    fence
}

async fn an_operation_that_is_not_answered_ends_in_its_time() {
    let server = RedisServer::start();
    let (port, silence) = fake::proxy(server.port()).await;
    let locks = RedisLocks {
        operation_timeout: Duration::from_millis(400),
        ..RedisLocks::default()
    };
    let client = fred(port).await;
    let backends: [Arc<dyn Backend>; 2] = [
        Arc::new(syncguard_clients::fred::backend(&client, &locks).unwrap()),
        Arc::new(syncguard_clients::redis_rs::backend(&manager(port).await, &locks).unwrap()),
    ];
    for backend in &backends {
        until_it_works(backend).await;
    }
    silence.send_replace(true);
    for backend in &backends {
        let answer = operation::run::<AcquireOutcome>(
            backend,
            Operation::Acquire(request("k")),
            CALL,
            pending(),
        );
        let limit = Duration::from_secs(10);
        let error = tokio::time::timeout(limit, answer)
            .await
            .unwrap()
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    }
}

async fn a_server_that_comes_back_empty_is_asked_after_all_that_is_held_over_a_client() {
    let mut server = RedisServer::start();
    let client = manager(server.port()).await;
    let backend = syncguard_clients::redis_rs::backend(&client, &RedisLocks::default()).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(backend);
    let guards = [
        hold(&backend, "a", Some(AutoExtend::default())).await,
        hold(&backend, "b", None).await,
    ];
    server.kill();
    server.restart();
    // The first call shows that the connection was lost, and a later one that there is another.
    until_it_works(&backend).await;
    for guard in guards {
        let lost = tokio::time::timeout(Duration::from_secs(60), guard.lost()).await;
        let lost = lost.expect("long before the next heartbeat");
        assert!(
            lost.message().contains("the store no longer has it"),
            "{lost}"
        );
    }
}

/// A lock whose next heartbeat, if there is one, comes in a hundred seconds.
async fn hold(
    backend: &Arc<dyn Backend>,
    name: &str,
    auto_extend: Option<AutoExtend>,
) -> LockGuard {
    let options = LockOptions {
        ttl: ttl(300_000),
        auto_extend,
        ..LockOptions::default()
    };
    lock(backend, &key(name), &options).await.unwrap()
}

async fn scripts_that_the_server_has_lost_are_sent_again() {
    let mut scene = Scene::new().await;
    let connection = manager(scene.port).await;
    let locks = RedisLocks::default();
    let mut backends = scene.freds().await;
    let redis_rs = syncguard_clients::redis_rs::backend(&connection, &locks).unwrap();
    backends.push(("redis-rs", Arc::new(redis_rs)));
    for (name, backend) in backends {
        scene.raw.call(&["SCRIPT", "FLUSH"]);
        scene.count(name);
        let grant = acquire(&*backend, name).await;
        assert_eq!(grant.fence.get(), AHEAD + 1);
        let released = backend.release(&grant.lock_id).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
    }
}

async fn errors_are_those_of_connections_of_our_own() {
    let mut scene = Scene::new().await;
    let locks = RedisLocks::default();
    let mut backends = scene.freds().await;
    let redis_rs =
        syncguard_clients::redis_rs::backend(&manager(scene.port).await, &locks).unwrap();
    backends.push(("redis-rs", Arc::new(redis_rs)));
    scene.raw.call(&["SADD", "syncguard:secret", "member"]);
    scene.raw.call(&["SET", "syncguard:not-a-lock", "secret"]);
    for (name, backend) in &backends {
        for (lock, kind) in [
            ("secret", ErrorKind::InvalidArgument),
            ("not-a-lock", ErrorKind::Internal),
        ] {
            let error = backend.acquire(&request(lock)).await.unwrap_err();
            let native = scene.beside.acquire(&request(lock)).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{name}: {error:?}");
            assert_eq!(error.kind(), native.kind());
            assert_eq!(error.message(), native.message(), "{name}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }
    scene.server.kill();
    let hurried = CallOptions {
        timeout: Some(Duration::from_millis(500)),
        ..CallOptions::default()
    };
    for (name, backend) in &backends {
        let answer = operation::run::<AcquireOutcome>(
            backend,
            Operation::Acquire(request("k")),
            hurried.clone(),
            pending(),
        )
        .await;
        let error = answer.unwrap_err();
        assert!(error.kind().is_transient(), "{name}: {error:?}");
    }
}
