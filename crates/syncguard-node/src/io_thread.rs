//! The one thread that does all I/O, for all environments of the process.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::thread;

use syncguard::{Error, ErrorKind};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

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
    let (sender, mut receiver) = unbounded_channel::<Job>();
    thread::Builder::new()
        .name("syncguard-io".to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                while let Some(job) = receiver.recv().await {
                    tokio::spawn(job);
                }
            });
        })
        .map_err(unavailable)?;
    Ok(sender)
}
