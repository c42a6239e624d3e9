//! What holders and others see of a failover: planned, or because the primary is gone.
//!
//! A holder keeps a lock by heartbeats. Meanwhile processes that start again and again try to get it, and to get others.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use syncguard::operation::{self, CallOptions};
use syncguard::{
    AcquireOutcome, AcquireRequest, AutoExtend, Backend, Error, LockGuard, LockOptions, Operation,
    lock,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use super::locks::{key, ttl};

/// The TTL of locks in milliseconds.
const TTL: i64 = 3000;

/// Makes backends whose locks so many replicas must have.
pub(crate) type Make = Arc<dyn Fn(u32) -> Arc<dyn Backend> + Send + Sync>;

async fn attempt(backend: &Arc<dyn Backend>, name: &str) -> Result<AcquireOutcome, Error> {
    let request = AcquireRequest::new(key(name), ttl(TTL)).unwrap();
    let call = CallOptions::default();
    operation::run::<AcquireOutcome>(backend, Operation::Acquire(request), call, pending()).await
}

pub(crate) async fn held(backend: &Arc<dyn Backend>, name: &str) -> LockGuard {
    lock(backend, &key(name), &by_itself()).await.unwrap()
}

fn by_itself() -> LockOptions {
    LockOptions {
        ttl: ttl(TTL),
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    }
}

/// A failover under watch.
struct Watched {
    make: Make,
    replicas: u32,
    /// When it begins.
    start: Instant,
    is_over: AtomicBool,
}

/// What was seen, in times since the failover began.
#[derive(Debug)]
pub(crate) struct Seen {
    /// When the holder heard that its lock is lost.
    pub(crate) lost: Option<Duration>,
    /// When somebody else got it.
    taken: Option<Duration>,
    /// For how long nobody got any lock: who was there before, and who has just come.
    pub(crate) without: [Duration; 2],
    /// Of the locks that were granted in the middle of it: how many somebody else got, and for how long two held one.
    pub(crate) granted_twice: usize,
    pub(crate) overlap: Duration,
}

impl Watched {
    fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    fn new_backend(&self) -> Arc<dyn Backend> {
        (self.make)(self.replicas)
    }

    async fn watch(self: Arc<Self>) -> Seen {
        let own = self.new_backend();
        let name = format!("job:{}", self.replicas);
        let guard = held(&own, &name).await;
        let (lost, taken, before, new, overlaps) = tokio::join!(
            self.loss(&guard),
            self.taking(&name),
            self.without(|| Arc::clone(&own), "before"),
            self.without(|| self.new_backend(), "new"),
            self.fresh(&own),
        );
        Seen {
            lost,
            taken,
            without: [before, new],
            granted_twice: overlaps.len(),
            overlap: overlaps.into_iter().max().unwrap_or_default(),
        }
    }

    /// Takes locks while the failover goes on, which the former primary may grant and the new one does not know. For how long
    /// somebody else held each of them, too.
    async fn fresh(self: &Arc<Self>, own: &Arc<dyn Backend>) -> Vec<Duration> {
        let mut options = by_itself();
        options.retry.timeout_ms = 1000.0;
        let mut watching = JoinSet::new();
        sleep_until((self.start - Duration::from_millis(500)).into()).await;
        for number in 0..30 {
            let name = format!("fresh:{}:{number}", self.replicas);
            if let Ok(guard) = lock(own, &key(&name), &options).await {
                watching.spawn(Arc::clone(self).overlap(guard, name));
            }
            sleep(Duration::from_millis(100)).await;
        }
        watching.join_all().await.into_iter().flatten().collect()
    }

    async fn overlap(self: Arc<Self>, guard: LockGuard, name: String) -> Option<Duration> {
        let other = self.new_backend();
        let taking = async {
            while !self.is_over() {
                if let Ok(AcquireOutcome::Acquired(_)) = attempt(&other, &name).await {
                    return Some(self.start.elapsed());
                }
                sleep(Duration::from_millis(100)).await;
            }
            None
        };
        let (lost, taken) = tokio::join!(self.loss(&guard), taking);
        let lost = lost.unwrap_or_else(|| self.start.elapsed());
        Some(lost.saturating_sub(taken?))
    }

    async fn loss(&self, guard: &LockGuard) -> Option<Duration> {
        let over = async {
            while !self.is_over() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            _ = guard.lost() => Some(self.start.elapsed()),
            () = over => None,
        }
    }

    async fn taking(&self, name: &str) -> Option<Duration> {
        while !self.is_over() {
            if let Ok(AcquireOutcome::Acquired(_)) = attempt(&self.new_backend(), name).await {
                return Some(self.start.elapsed());
            }
            sleep(Duration::from_millis(20)).await;
        }
        None
    }

    async fn without(&self, backend: impl Fn() -> Arc<dyn Backend>, who: &str) -> Duration {
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        let mut names = (0..).map(|number| format!("{who}:{}:{number}", self.replicas));
        while !self.is_over() {
            if attempt(&backend(), &names.next().unwrap()).await.is_ok() {
                last = Instant::now();
            }
            longest = longest.max(last.elapsed());
            sleep(Duration::from_millis(20)).await;
        }
        longest
    }
}

/// Watches with each of these numbers of replicas. `fail` comes back once another primary is known.
pub(crate) async fn watched(make: Make, replicas: &[u32], fail: impl FnOnce()) -> Vec<Seen> {
    let start = Instant::now() + Duration::from_secs(1);
    let watch = |replicas: &u32| {
        Arc::new(Watched {
            make: Arc::clone(&make),
            replicas: *replicas,
            start,
            is_over: AtomicBool::new(false),
        })
    };
    let watched: Vec<_> = replicas.iter().map(watch).collect();
    let watching: Vec<_> = watched
        .iter()
        .map(|watched| tokio::spawn(Arc::clone(watched).watch()))
        .collect();
    sleep_until(start.into()).await;
    tokio::task::block_in_place(fail);
    let known = start.elapsed();
    // By then, the former primary has become a replica.
    sleep(Duration::from_secs(15)).await;
    for watched in &watched {
        watched.is_over.store(true, SeqCst);
    }
    let mut all = Vec::new();
    for watching in watching {
        all.push(watching.await.unwrap());
    }
    report(known, replicas, &all);
    all
}

/// Two may hold a lock that was granted in the middle of it for less than `overlap`, and no other.
pub(crate) fn no_lock_had_two(all: &[Seen], overlap: Duration) {
    for seen in all {
        if let Some(taken) = seen.taken {
            let is_one = seen.lost.is_some_and(|lost| lost <= taken);
            assert!(is_one, "two have held it: {seen:?}");
        }
        // The former primary would have extended them for ten seconds.
        assert!(seen.overlap < overlap, "told too late: {seen:?}");
    }
}

#[allow(clippy::print_stdout, reason = "figures for docs/redis.md")]
fn report(known: Duration, replicas: &[u32], all: &[Seen]) {
    println!("another primary is known after {known:?}");
    for (replicas, seen) in replicas.iter().zip(all) {
        println!("replicas: {replicas}: {seen:?}");
    }
}
