//! The one thread that does all I/O, for all environments of the process.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use syncguard::{Error, ErrorKind};
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::spin::{Recent, Spin};

/// With more operations in flight there is hardly ever nothing to do.
const FEW: usize = 1;

/// The operations in flight, of all environments.
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);
/// Tells that one has come to the thread, or has ended.
static CHANGED: Notify = Notify::const_new();

/// An operation in flight, until it is dropped.
pub(crate) struct InFlight(());

impl InFlight {
    /// One that starts. The thread need not hear of it: if it is sent by JavaScript, its answer will tell.
    pub(crate) fn start() -> Self {
        IN_FLIGHT.fetch_add(1, Relaxed);
        Self(())
    }

    /// Tells that it has come to the thread.
    pub(crate) fn arrived(&self) {
        CHANGED.notify_one();
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        IN_FLIGHT.fetch_sub(1, Relaxed);
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

/// Looks for what is about to come, while few operations are in flight and that pays: see [`Spin`].
async fn stay_awake() {
    // Whoever has one core needs it for others while this waits.
    let may_spin = thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    let mut spin = Spin::default();
    let mut most = Recent::default();
    loop {
        CHANGED.notified().await;
        let mut in_flight = IN_FLIGHT.load(Relaxed);
        loop {
            spin.came(Instant::now());
            most.saw(in_flight);
            let before = in_flight;
            while in_flight == before
                && may_spin
                && most.get() <= FEW
                && spin.goes_on(Instant::now())
            {
                // Lets all that is ready run, and looks at the sockets.
                yield_now().await;
                in_flight = IN_FLIGHT.load(Relaxed);
            }
            if in_flight == before {
                break;
            }
        }
    }
}
