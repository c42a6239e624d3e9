//! The one thread that does all I/O, for all environments of the process.

use std::future::Future;
use std::mem;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use syncguard::{Error, ErrorKind};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::spin::{Crowd, LIMIT, LIMIT_ALONE, Spin};

/// Starts something on the I/O thread.
type Job = Box<dyn FnOnce() + Send>;

/// What the thread is to do.
struct Inbox {
    jobs: Mutex<Vec<Job>>,
    /// Set when the thread will not look by itself.
    asleep: AtomicBool,
    wake: Notify,
}

static INBOX: Inbox = Inbox {
    jobs: Mutex::new(Vec::new()),
    asleep: AtomicBool::new(false),
    wake: Notify::const_new(),
};

impl Inbox {
    /// How many wait now.
    fn add(&self, job: Job) -> usize {
        let mut jobs = self.lock();
        jobs.push(job);
        jobs.len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Job>> {
        // No code that can panic runs while the lock is held.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Operations that have not ended.
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);
/// Those of them that the thread has started.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// Tells the thread's main loop that an operation has ended: one of few, or while jobs wait.
static ENDED: Notify = Notify::const_new();

/// The most operations that have been in flight of late.
static CROWD: AtomicUsize = AtomicUsize::new(0);

/// With more operations in flight than these, the thread hardly ever sleeps, and what counts is CPU time.
const FEW: usize = 4;

/// Whether many operations are in flight.
pub(crate) fn is_crowded() -> bool {
    CROWD.load(Relaxed) > FEW
}

/// How long a job may wait unseen that nobody woke the thread for. Its time limit counts from when it is
/// seen.
const GLANCE: Duration = Duration::from_millis(10);

/// How many operations go from one thread to the other at a time, each way, when there are many.
///
/// One at a time, each costs a change of threads; all at once, JavaScript, this thread and the server
/// take turns, and each waits for the others.
pub(crate) fn portion() -> usize {
    (CROWD.load(Relaxed) / 2).clamp(8, 64)
}

/// Lets the I/O thread run `task`, at once.
///
/// The thread starts with the first task and lives as long as the process. It does not keep the
/// process alive: that is for the environments to decide.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
    ensure_started()?;
    INBOX.add(Box::new(|| drop(tokio::spawn(task))));
    hand_over();
    Ok(())
}

/// As [`spawn`], for an operation that somebody waits for: what `start` gives, which is made on the I/O
/// thread.
///
/// With many in flight, it may be kept until more have come, if `more_will_come`: then this gives
/// `true`, and [`hand_over`] must be called soon. If it `must_wait` for others, the thread is not woken
/// for it: the end of any operation shows it what has come, or [`GLANCE`] when none ends.
pub(crate) fn spawn_operation<F>(
    start: impl FnOnce() -> F + Send + 'static,
    more_will_come: bool,
    must_wait: impl FnOnce() -> bool,
) -> Result<bool, Error>
where
    F: Future<Output = ()> + Send + 'static,
{
    ensure_started()?;
    IN_FLIGHT.fetch_add(1, Relaxed);
    let waiting = INBOX.add(Box::new(|| {
        RUNNING.fetch_add(1, SeqCst);
        tokio::spawn(async move {
            start().await;
            let in_flight = IN_FLIGHT.fetch_sub(1, Relaxed);
            // In this order: who still sees it run has put its job where this looks.
            RUNNING.fetch_sub(1, SeqCst);
            if in_flight <= FEW || !INBOX.lock().is_empty() {
                ENDED.notify_one();
            }
        });
    }));
    if is_crowded() {
        if must_wait() && RUNNING.load(SeqCst) > 0 {
            return Ok(false);
        }
        if more_will_come && waiting < portion() {
            return Ok(true);
        }
    }
    hand_over();
    Ok(false)
}

/// Sees to it that the thread takes what was spawned.
pub(crate) fn hand_over() {
    if INBOX.asleep.swap(false, SeqCst) {
        INBOX.wake.notify_one();
    }
}

/// Starts jobs as they come, and stays awake for a moment where that pays: see [`Spin`].
async fn run() {
    // Whoever has one core needs it for others while this waits.
    let may_spin = thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    let mut for_jobs = Spin::default();
    let mut for_answers = Spin::default();
    let mut crowd = Crowd::default();
    let mut in_flight = 0;
    let mut jobs = Vec::new();
    loop {
        mem::swap(&mut jobs, &mut *INBOX.lock());
        let came = !jobs.is_empty();
        let before = mem::replace(&mut in_flight, IN_FLIGHT.load(Relaxed));
        if came {
            crowd.saw(in_flight);
            CROWD.store(crowd.most(), Relaxed);
        }
        if came || in_flight != before {
            let now = Instant::now();
            for_jobs.came(now);
            for_answers.came(now);
        }
        let portion = portion();
        for (index, job) in jobs.drain(..).enumerate() {
            if index > 0 && index % portion == 0 {
                // These may be on their way while the next are prepared.
                yield_now().await;
            }
            job();
        }
        if may_spin && !is_crowded() {
            let spin = match in_flight {
                0 => &mut for_jobs,
                _ => &mut for_answers,
            };
            let limit = match crowd.most() {
                0 | 1 => LIMIT_ALONE,
                _ => LIMIT,
            };
            if spin.goes_on(Instant::now(), limit) {
                // Lets all that is ready run, and looks at the sockets.
                yield_now().await;
                continue;
            }
        }
        INBOX.asleep.store(true, SeqCst);
        // What came before that has not woken anybody.
        if INBOX.lock().is_empty() {
            let jobs_may_wait = is_crowded() && RUNNING.load(SeqCst) > 0;
            tokio::select! {
                () = INBOX.wake.notified() => {}
                () = ENDED.notified() => {}
                () = sleep(GLANCE), if jobs_may_wait => {}
            }
        }
        INBOX.asleep.store(false, SeqCst);
    }
}

fn ensure_started() -> Result<(), Error> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*started {
        start()?;
        *started = true;
    }
    Ok(())
}

fn start() -> Result<(), Error> {
    let unavailable = |source: std::io::Error| {
        Error::new(
            ErrorKind::ServiceUnavailable,
            "the I/O thread could not be started: raise the limits on threads and open files",
        )
        .with_source(source)
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(unavailable)?;
    thread::Builder::new()
        .name("syncguard-io".to_owned())
        .spawn(move || runtime.block_on(run()))
        .map_err(unavailable)?;
    Ok(())
}
