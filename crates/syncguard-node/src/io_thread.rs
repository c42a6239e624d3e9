//! The one thread that does all I/O, for all environments of the process.

use std::future::pending;
use std::sync::Mutex;
use std::thread;

use syncguard::{Error, ErrorKind};
use tokio::runtime::{Builder, Handle};

use crate::mutex::lock;

/// The thread's runtime. It starts with the first use and lives as long as the process. It does not keep the
/// process alive: that is for the environments to decide.
pub(crate) fn runtime() -> Result<Handle, Error> {
    static RUNTIME: Mutex<Option<Handle>> = Mutex::new(None);
    let mut runtime = lock(&RUNTIME);
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
        .spawn(move || runtime.block_on(pending::<()>()))
        .map_err(unavailable)?;
    Ok(handle)
}
