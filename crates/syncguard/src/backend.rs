//! The [`Backend`] trait, which every store implements, with its requests and outcomes.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::error::Error;
use crate::event_loop::Lane;
use crate::fence::Fence;
use crate::holding::Hold;
use crate::inspection::{Facts, LockPage, PageRequest};
use crate::key::Key;
use crate::lock_id::LockId;
use crate::time::{TIME_TOLERANCE_MS, is_live};
use crate::waiting::wakeups::Watch;
use crate::work::Work;

/// How long a lock lasts unless it is extended: whole milliseconds, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(i64);

impl Ttl {
    /// The longest TTL: about 10 000 years. Up to that, every expiry is exact as a number in JavaScript too.
    pub const MAX_MS: i64 = 315_576_000_000_000;

    /// 30 seconds.
    pub const DEFAULT: Self = Self(30_000);

    /// A TTL of that many milliseconds.
    ///
    /// # Errors
    /// `InvalidArgument` unless `ms` is from 1 to [`Ttl::MAX_MS`].
    pub fn from_millis(ms: i64) -> Result<Self, Error> {
        if ms < 1 {
            return Err(not_a_ttl());
        }
        if ms > Self::MAX_MS {
            return Err(Error::invalid(format!(
                "ttlMs must not exceed {}",
                Self::MAX_MS
            )));
        }
        Ok(Self(ms))
    }

    /// The same for callers whose numbers are all `f64`, as in JavaScript.
    ///
    /// # Errors
    /// As [`from_millis`](Self::from_millis), and for fractions, NaN and infinity.
    pub fn from_f64(ms: f64) -> Result<Self, Error> {
        if !(ms.is_finite() && ms.fract() == 0.0) {
            return Err(not_a_ttl());
        }
        // The cast saturates, and the saturated values are out of range.
        Self::from_millis(ms as i64)
    }

    /// Milliseconds.
    pub fn as_millis(self) -> i64 {
        self.0
    }

    pub(crate) fn as_duration(self) -> Duration {
        Duration::from_millis(self.0.unsigned_abs())
    }
}

fn not_a_ttl() -> Error {
    Error::invalid("ttlMs must be a positive integer")
}

/// A label stored with a lock for people and other systems to read: up to 255 bytes of UTF-8.
/// It proves nothing; only the lock id does.
#[derive(Clone, PartialEq, Eq)]
pub struct Owner(Box<str>);

impl Owner {
    /// The longest label, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Takes `text` as a label.
    ///
    /// # Errors
    /// `InvalidArgument` when it is empty or too long.
    pub fn new(text: impl Into<String>) -> Result<Self, Error> {
        let text = text.into();
        if text.is_empty() {
            return Err(Error::invalid("owner must not be empty"));
        }
        if text.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "owner exceeds maximum length of {} bytes",
                Self::MAX_BYTES
            )));
        }
        Ok(Self(text.into()))
    }

    /// The label.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({} bytes)", self.0.len())
    }
}

/// One attempt to take a lock.
#[derive(Debug, Clone)]
pub struct AcquireRequest {
    /// What to lock.
    pub key: Key,
    /// How long it lasts, from the moment the store grants it.
    pub ttl: Ttl,
    /// The id that will own the lock. The caller generates it, so that it can undo an attempt whose answer is
    /// lost. [`Backend::prepare`] may change it, before anything is sent.
    pub lock_id: LockId,
    /// A label to store with it.
    pub owner: Option<Owner>,
    /// Extends it once it is granted. That is the part of the functions in [`operation`](crate::operation), and
    /// not of backends.
    pub hold: Option<Box<Hold>>,
    /// When the attempt ends. A backend that finds out before what it waits for says so there.
    pub limit: Option<Arc<Limit>>,
}

/// The end of an attempt's time.
#[derive(Debug)]
pub struct Limit {
    /// When that is.
    pub at: Instant,
    /// What the attempt waits for, in words that may follow those of the error: no key and no credentials.
    pub waits_for: OnceLock<String>,
}

impl Limit {
    /// The end of a time that begins now.
    pub fn after(time: Duration) -> Self {
        let now = Instant::now();
        Self {
            at: now.checked_add(time).unwrap_or(now),
            waits_for: OnceLock::new(),
        }
    }
}

impl AcquireRequest {
    /// A request under a new lock id.
    ///
    /// # Errors
    /// As [`LockId::generate`].
    pub fn new(key: Key, ttl: Ttl) -> Result<Self, Error> {
        Ok(Self {
            key,
            ttl,
            lock_id: LockId::generate()?,
            owner: None,
            hold: None,
            limit: None,
        })
    }
}

/// A lock that was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Proof of ownership: give it to release and extend.
    pub lock_id: LockId,
    /// Larger than that of every earlier holder of the key.
    pub fence: Fence,
    /// When it ends, on the store's clock, in milliseconds since the Unix epoch.
    pub expires_at_ms: i64,
}

/// The result of an attempt to take a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The lock was granted to the caller.
    Acquired(Grant),
    /// Somebody holds it.
    Locked {
        /// How long until it ends by itself and somebody else can have it, if the store has said so. Its
        /// holder may release it before, or extend it.
        free_in: Option<Duration>,
    },
}

impl AcquireOutcome {
    /// Whether somebody holds it.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Locked { .. })
    }
}

/// Why there was nothing to release or extend. Only telemetry shows it: callers get the same answer for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// The lock existed and had expired.
    Expired,
    /// There is no lock with this lock id.
    NotFound,
}

/// The result of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The lock was the caller's and is free now.
    Released,
    /// There was nothing to release.
    Absent(Absence),
}

/// The result of an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtendOutcome {
    /// The caller holds the lock for longer.
    Extended {
        /// When it ends now, on the store's clock, in milliseconds since the Unix epoch.
        expires_at_ms: i64,
    },
    /// There was nothing to extend.
    Absent(Absence),
}

/// How to find a lock.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// By its key.
    Key(Key),
    /// By its lock id.
    LockId(LockId),
}

/// An operation with its arguments.
#[derive(Debug, Clone)]
pub enum Operation {
    /// [`Backend::acquire`].
    Acquire(AcquireRequest),
    /// [`Backend::release`].
    Release(LockId),
    /// [`Backend::extend`].
    Extend(LockId, Ttl),
    /// [`Backend::is_locked`].
    IsLocked(Key),
    /// [`Backend::lookup`].
    Lookup(Lookup),
    /// [`Backend::force_release`].
    ForceRelease(Key),
}

/// The result of an [`Operation`] that the store has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Of [`Operation::Acquire`].
    Acquire(AcquireOutcome),
    /// Of [`Operation::Release`].
    Release(ReleaseOutcome),
    /// Of [`Operation::Extend`].
    Extend(ExtendOutcome),
    /// Of [`Operation::IsLocked`].
    IsLocked(bool),
    /// Of [`Operation::Lookup`].
    Lookup(Option<LockRecord>),
    /// Of [`Operation::ForceRelease`].
    ForceRelease(bool),
}

/// A boxed future that can be sent to another thread.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A live lock as the store shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRecord {
    /// Its key, as its holder gave it.
    pub key: Key,
    /// Its lock id.
    pub lock_id: LockId,
    /// When it ends, on the store's clock.
    pub expires_at_ms: i64,
    /// When it was granted, on the store's clock.
    pub acquired_at_ms: i64,
    /// Its fencing token.
    pub fence: Fence,
    /// The label stored with it.
    pub owner: Option<Owner>,
    /// The time on the store's clock when it was read.
    pub read_at_ms: i64,
}

impl LockRecord {
    /// Whether it was held when it was read, by the liveness predicate of all backends.
    pub fn is_live(&self) -> bool {
        is_live(self.expires_at_ms, self.read_at_ms, TIME_TOLERANCE_MS)
    }
}

/// Whose clock decides when a lock expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeAuthority {
    /// One clock for all: the store's.
    Server,
    /// Each client's own clock; the clocks must be synchronised.
    Client,
}

/// What a backend is and can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Its name: `"sqlite"`, `"redis"`, …
    pub backend: &'static str,
    /// Whether grants carry fencing tokens.
    pub supports_fencing: bool,
    /// Whose clock decides.
    pub time_authority: TimeAuthority,
}

/// How long one operation may take unless the backend is told otherwise.
pub const DEFAULT_OPERATION_TIMEOUT: Duration = Duration::from_millis(5000);

/// A store of locks.
///
/// Each method is one attempt, atomic in the store. Retrying is [`lock`](crate::lock)'s part;
/// giving up after [`operation_timeout`](Backend::operation_timeout), cancelling, and undoing an
/// acquisition whose answer came too late is the part of the functions in
/// [`operation`](crate::operation), which is how a backend should be called.
///
/// The future of any method may be dropped at any point; an implementation must leave nothing broken then.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// What it is and can do.
    fn capabilities(&self) -> Capabilities;

    /// What is under way on it: one and the same [`Work`] each time. Whoever wraps a backend gives that
    /// of the backend inside.
    fn work(&self) -> &Work;

    /// Why the store cannot be reached at this moment, if that is known: what an operation that runs out
    /// of time waits for. Costs no I/O.
    fn trouble(&self) -> Option<Error> {
        None
    }

    /// How long one operation may take.
    fn operation_timeout(&self) -> Duration {
        DEFAULT_OPERATION_TIMEOUT
    }

    /// How many locks that extend themselves it extends at a time. Those that come together should go to the store
    /// together where they can. Whoever wraps a backend gives that of the backend inside.
    fn heartbeats_at_once(&self) -> usize {
        64
    }

    /// Gives `request` a lock id that this store can find again, where not every one will do. It changes nothing in
    /// a request that was prepared before. The functions in [`operation`](crate::operation) begin with it; whoever
    /// calls [`acquire`](Self::acquire) directly calls this first. Whoever wraps a backend passes it on.
    fn prepare(&self, request: &mut AcquireRequest) {
        let _ = request;
    }

    /// Takes the lock if nobody holds it. The fence is counted in the same step, and its limit is
    /// checked before anything is written.
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error>;

    /// Frees the lock that `lock_id` owns, if it owns one.
    async fn release(&self, lock_id: &LockId) -> Result<ReleaseOutcome, Error>;

    /// Makes the lock that `lock_id` owns end `ttl` from now. An expired lock stays expired.
    async fn extend(&self, lock_id: &LockId, ttl: Ttl) -> Result<ExtendOutcome, Error>;

    /// [`extend`](Self::extend) for a lock that extends itself. Many are due together, and this one may wait a moment
    /// to go to the store with others.
    async fn extend_with_others(&self, lock_id: &LockId, ttl: Ttl) -> Result<ExtendOutcome, Error> {
        self.extend(lock_id, ttl).await
    }

    /// Whether somebody holds the key.
    async fn is_locked(&self, key: &Key) -> Result<bool, Error>;

    /// The live lock that fits, for diagnosis: it may be gone when the answer arrives.
    async fn lookup(&self, lookup: &Lookup) -> Result<Option<LockRecord>, Error>;

    /// Frees the key whoever holds it; `true` if somebody held it. The fence counter stays, so that
    /// the next holder's fence is larger than that of the holder before.
    async fn force_release(&self, key: &Key) -> Result<bool, Error>;

    /// Lists live locks, a page at a time, for people to look at: by the time they do, it is out of date. A lock that comes
    /// or goes meanwhile may be missing, and on Redis one may be listed twice.
    ///
    /// # Errors
    /// `InvalidArgument` where the store cannot list its locks.
    async fn list(&self, page: &PageRequest) -> Result<LockPage, Error> {
        let _ = page;
        Err(Error::invalid("this backend cannot list its locks"))
    }

    /// How the store is set up, for diagnosis: of a cluster for each node that has locks, otherwise once. Changes nothing.
    async fn facts(&self) -> Result<Vec<Facts>, Error> {
        Ok(Vec::new())
    }

    /// The lane of releases and acquisitions that are made here and now. In the same lane, those that concern one lock are
    /// carried out in the order in which their futures are polled first, so that an acquisition need not wait until the
    /// release before it has ended. `None`: they may be carried out in any order.
    fn lane(&self) -> Option<Lane> {
        None
    }

    /// Hears when the lock on `key` may have been freed. `None`: this store cannot tell of it.
    fn watch(&self, key: &Key) -> Option<Watch> {
        let _ = key;
        None
    }

    /// Ends connections. Operations after it fail with `Aborted`, and so do those who wait for a
    /// lock, at once.
    ///
    /// Before it does, it waits for the operations that run, and for the locks that are being released
    /// in the background, after a guard was dropped or an acquisition was given up: at most for twice
    /// the time that an operation may take, and no longer than there is something to wait for. From the
    /// start of the wait on, the functions in [`operation`](crate::operation) start nothing new.
    async fn close(&self) {
        self.work()
            .finish(self.operation_timeout().saturating_mul(2))
            .await;
        self.shut_down().await;
    }

    /// The backend's own part of [`close`](Self::close), which alone calls it: ends connections and
    /// lets operations after it fail with `Aborted`. It may be called more than once.
    async fn shut_down(&self);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn ttl_is_a_positive_integer_within_bounds() {
        assert_eq!(Ttl::from_f64(1.0).unwrap().as_millis(), 1);
        assert_eq!(Ttl::from_f64(30_000.0).unwrap().as_millis(), 30_000);
        for bad in [0.0, -1.0, 0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = Ttl::from_f64(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert_eq!(error.message(), "ttlMs must be a positive integer");
        }
        for long in [1e16, 1e300] {
            assert_eq!(
                Ttl::from_f64(long).unwrap_err().message(),
                "ttlMs must not exceed 315576000000000"
            );
        }
    }

    #[test]
    fn owner_labels_have_bounds_and_stay_out_of_debug_output() {
        assert!(Owner::new("x".repeat(255)).is_ok());
        assert!(Owner::new("x".repeat(256)).is_err());
        assert!(Owner::new("é".repeat(128)).is_err());
        assert!(Owner::new("").is_err());
        assert!(!format!("{:?}", Owner::new("secret").unwrap()).contains("secret"));
    }
}
