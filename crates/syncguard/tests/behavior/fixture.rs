//! What the suite needs of a backend, and what a test gets.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use syncguard::{
    Absence, AcquireOutcome, Backend, Grant, Key, LockId, LockRecord, Lookup, TIME_TOLERANCE_MS,
    Ttl,
};

use crate::support::attempts::Attempts as _;
pub(crate) use crate::support::locks::{eventually, prepared, ttl};

/// How a backend is to be made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Setup {
    pub cleanup_in_is_locked: bool,
}

/// How long an operation may take: on a busy machine any store can be slow.
pub(crate) const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);

/// A kind of store, or one way to reach it. Servers are started by the first `open` and shared.
#[async_trait]
pub(crate) trait Store: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// Whether its fixtures can look into the store beside the backend. Without it, the tests that
    /// say so do not apply.
    fn can_be_inspected(&self) -> bool {
        true
    }

    /// Whether its user may list locks: holding them takes fewer rights.
    fn can_list(&self) -> bool {
        true
    }

    /// A fixture for one test, on the runtime that calls. Panics when there is none to have.
    async fn open(&self, setup: Setup) -> Box<dyn Fixture>;

    /// Ends what `open` has started, after all tests.
    fn stop(&self) {}
}

/// One test's access to a store.
#[async_trait]
pub(crate) trait Fixture: Send + Sync + 'static {
    /// The backend under test.
    fn backend(&self) -> Arc<dyn Backend>;

    /// Another backend on the same locks, as another process would have it. The same one where there
    /// cannot be another.
    fn peer(&self) -> Arc<dyn Backend>;

    /// Lets time pass on the store's clock.
    async fn pass(&self, time: Duration);

    /// Writes the fence counter of `key` as the store keeps it.
    async fn set_fence_counter(&self, key: &Key, counter: i64);

    /// Whether the store holds a record of a lock on `key`, live or not.
    async fn has_record(&self, key: &Key) -> bool;

    /// Whether keys may be on different servers, so that several of them are not one step.
    fn is_spread(&self) -> bool {
        false
    }

    /// Whether one who waits hears of each reader that leaves, and not only of the last.
    fn tells_that_a_reader_left(&self) -> bool {
        true
    }

    /// What release and extend say of a lock whose time is over.
    fn absence_of_expired(&self) -> Absence {
        Absence::Expired
    }
}

pub(crate) type Test = fn(Stage) -> Pin<Box<dyn Future<Output = ()>>>;
pub(crate) type Topic = &'static [(&'static str, Needs, Test)];

/// What a test needs beside the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// `set_fence_counter` and `has_record`.
    Inspection,
    /// A user who may list locks.
    Listing,
    /// Shared locks, and a user who may list locks.
    Sharing,
}

impl Needs {
    /// Whether a store has it.
    pub(crate) fn are_met_by(self, store: &dyn Store) -> bool {
        match self {
            Self::Nothing => true,
            Self::Inspection => store.can_be_inspected(),
            Self::Listing => store.can_list(),
            Self::Sharing => store.can_list(),
        }
    }
}

/// Lists tests by name, with what they need.
macro_rules! tests {
    ($needs:ident: $($test:ident),+ $(,)?) => {
        pub(crate) const TESTS: crate::fixture::Topic = &[$((
            stringify!($test),
            crate::fixture::Needs::$needs,
            |stage| Box::pin($test(stage)),
        )),+];
    };
    ($($test:ident),+ $(,)?) => {
        crate::fixture::tests!(Nothing: $($test),+);
    };
}
pub(crate) use tests;

/// Where a test takes place: its store, and names that no other test uses.
pub(crate) struct Stage {
    store: Arc<dyn Store>,
    namespace: String,
}

impl Stage {
    pub(crate) fn new(store: Arc<dyn Store>, test: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Short: keys of the greatest length must fit behind it.
        let hash = syncguard::hash_key(test);
        Self {
            store,
            namespace: format!("{number}-{}-{}", std::process::id(), &hash[..8]),
        }
    }

    pub(crate) async fn open(self) -> Context {
        self.open_with(Setup::default()).await
    }

    pub(crate) async fn open_with(self, setup: Setup) -> Context {
        let fixture = self.store.open(setup).await;
        Context {
            backend: fixture.backend(),
            fixture,
            namespace: self.namespace,
        }
    }
}

/// What a test works with. The short forms fail the test when the backend fails.
pub(crate) struct Context {
    pub fixture: Box<dyn Fixture>,
    pub backend: Arc<dyn Backend>,
    pub namespace: String,
}

/// Long enough that no test sees the end of it.
pub(crate) const LONG: Ttl = Ttl::DEFAULT;

/// Whether the fence of a first grant is the time of the store's clock, which PostgreSQL reads once more for the end.
pub(crate) fn is_the_time(grant: &Grant) -> bool {
    let granted_ms = grant.expires_at_ms - LONG.as_millis();
    (granted_ms - 1000..=granted_ms).contains(&grant.fence.get().cast_signed())
}

impl Context {
    /// A key of this test.
    pub(crate) fn key(&self, name: &str) -> Key {
        Key::new(&format!("{}:{name}", self.namespace)).unwrap()
    }

    pub(crate) async fn acquire(&self, key: &Key, ttl: Ttl) -> Grant {
        match self.try_acquire(key, ttl).await {
            AcquireOutcome::Acquired(grant) => grant[0].clone(),
            _ => panic!("the key is locked"),
        }
    }

    pub(crate) async fn try_acquire(&self, key: &Key, ttl: Ttl) -> AcquireOutcome {
        let request = prepared(self.backend.as_ref(), key, ttl);
        self.backend.acquire(&request).await.unwrap()
    }

    pub(crate) async fn is_locked(&self, key: &Key) -> bool {
        self.backend.is_locked(key).await.unwrap()
    }

    pub(crate) async fn by_key(&self, key: &Key) -> Option<LockRecord> {
        let lookup = Lookup::Key(key.clone());
        self.backend.lookup(&lookup).await.unwrap()
    }

    pub(crate) async fn by_id(&self, lock_id: &LockId) -> Option<LockRecord> {
        let lookup = Lookup::LockId(lock_id.clone());
        self.backend.lookup(&lookup).await.unwrap()
    }

    /// Lets `ms` milliseconds pass on the store's clock.
    pub(crate) async fn pass_ms(&self, ms: u64) {
        self.fixture.pass(Duration::from_millis(ms)).await;
    }

    /// Takes `key` and lets the lock expire, the tolerance included.
    pub(crate) async fn acquire_and_expire(&self, key: &Key) -> Grant {
        let grant = self.acquire(key, ttl(50)).await;
        self.pass_ms(50 + TIME_TOLERANCE_MS.unsigned_abs() + 50)
            .await;
        grant
    }

    /// Waits until nobody holds `key`, for what happens in the background.
    pub(crate) async fn until_free(&self, key: &Key) {
        eventually("the key is free", async || !self.is_locked(key).await).await;
    }
}
