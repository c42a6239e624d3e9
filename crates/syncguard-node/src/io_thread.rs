//! The one thread that does all I/O, for all environments of the process.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use syncguard::{Error, ErrorKind};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::yield_now;

use crate::spin::Spin;

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Lets the I/O thread run `job`.
///
/// The thread starts with the first job and lives as long as the process. It does not keep the
/// process alive: that is for the environments to decide.
pub(crate) fn spawn(job: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
    static JOBS: OnceLock<UnboundedSender<Job>> = OnceLock::new();
    let jobs = match JOBS.get() {
        Some(jobs) => jobs,
        // Two environments may both start a thread; the one that comes second ends with its channel.
        None => {
            let started = start()?;
            JOBS.get_or_init(|| started)
        }
    };
    jobs.send(Box::pin(job))
        .map_err(|_| Error::new(ErrorKind::Internal, "the I/O thread has ended"))
}

/// With more operations in flight than these, the thread hardly ever sleeps, and what counts is CPU time.
const FEW: usize = 4;

/// Operations that have not ended.
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);
/// Tells the thread's main loop that one of few operations has ended.
static ENDED: Notify = Notify::const_new();

/// As [`spawn`], for an operation that somebody waits for.
pub(crate) fn spawn_operation(
    operation: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    IN_FLIGHT.fetch_add(1, Relaxed);
    let spawned = spawn(async move {
        operation.await;
        if IN_FLIGHT.fetch_sub(1, Relaxed) <= FEW {
            ENDED.notify_one();
        }
    });
    if spawned.is_err() {
        IN_FLIGHT.fetch_sub(1, Relaxed);
    }
    spawned
}

/// Starts jobs as they come, and stays awake for a moment where that pays: see [`Spin`].
async fn run(mut jobs: UnboundedReceiver<Job>) {
    // Whoever has one core needs it for others while this waits.
    let may_spin = thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    let mut for_jobs = Spin::new();
    let mut for_answers = Spin::new();
    let mut in_flight = 0;
    loop {
        let mut came = false;
        while let Ok(job) = jobs.try_recv() {
            tokio::spawn(job);
            came = true;
        }
        let before = std::mem::replace(&mut in_flight, IN_FLIGHT.load(Relaxed));
        if came || in_flight != before {
            for_jobs.came();
            for_answers.came();
        }
        if may_spin && in_flight <= FEW {
            let spin = match in_flight {
                0 => &mut for_jobs,
                _ => &mut for_answers,
            };
            if spin.goes_on(Instant::now()) {
                // Lets all that is ready run, and looks at the sockets.
                yield_now().await;
                continue;
            }
        }
        tokio::select! {
            job = jobs.recv() => match job {
                Some(job) => {
                    tokio::spawn(job);
                }
                None => return,
            },
            () = ENDED.notified() => {}
        }
    }
}

fn start() -> Result<UnboundedSender<Job>, Error> {
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
    let (sender, receiver) = unbounded_channel::<Job>();
    thread::Builder::new()
        .name("syncguard-io".to_owned())
        .spawn(move || runtime.block_on(run(receiver)))
        .map_err(unavailable)?;
    Ok(sender)
}
