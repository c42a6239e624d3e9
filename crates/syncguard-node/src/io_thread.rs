//! The one thread that does all I/O, for all environments of the process.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use syncguard::{Error, ErrorKind};
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::spin::Spin;

/// With more operations than these under way there is hardly ever nothing to do.
const FEW: usize = 2;

/// The operations that run on the thread.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// Tells that one has started or ended.
static CHANGED: Notify = Notify::const_new();

/// An operation that runs on the thread, until it is dropped.
pub(crate) struct Running(());

impl Running {
    pub(crate) fn start() -> Self {
        RUNNING.fetch_add(1, Relaxed);
        CHANGED.notify_one();
        Self(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Relaxed);
        CHANGED.notify_one();
    }
}

/// The thread's runtime. It starts with the first use and lives as long as the process. It does not keep the
/// process alive: that is for the environments to decide.
pub(crate) fn runtime() -> Result<Handle, Error> {
    static RUNTIME: Mutex<Option<Handle>> = Mutex::new(None);
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = &*runtime {
        return Ok(runtime.clone());
    }
    Ok(runtime.insert(start()?).clone())
}

fn start() -> Result<Handle, Error> {
    let unavailable = |source: std::io::Error| {
        Error::new(
            ErrorKind::ServiceUnavailable,
            "the I/O thread could not be started: raise the limits on threads and open files",
        )
        .with_source(source)
    };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(unavailable)?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("syncguard-io".to_owned())
        .spawn(move || runtime.block_on(stay_awake()))
        .map_err(unavailable)?;
    Ok(handle)
}

/// Looks for what is about to come, while few operations are under way and that pays: see [`Spin`].
async fn stay_awake() {
    // Whoever has one core needs it for others while this waits.
    let may_spin = thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    let mut spin = Spin::default();
    loop {
        CHANGED.notified().await;
        spin.came(Instant::now());
        let mut running = RUNNING.load(Relaxed);
        while may_spin && running <= FEW && spin.goes_on(Instant::now()) {
            // Lets all that is ready run, and looks at the sockets.
            yield_now().await;
            let before = std::mem::replace(&mut running, RUNNING.load(Relaxed));
            if running != before {
                spin.came(Instant::now());
            }
        }
    }
}
