//! A protected value: what a fence is for.
//!
//! Holders write through a socket. For each key, the register accepts a fence that is not smaller than any before it,
//! and refuses others: they come from holders whose time was over, and who did not know. What is refused would have
//! overwritten the work of a later holder.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

/// How writes went.
#[derive(Debug, Default)]
pub struct Register {
    newest: Mutex<HashMap<String, u64>>,
    /// Writes that were accepted.
    pub accepted: AtomicU64,
    /// Writes with a fence that was too old.
    pub refused: AtomicU64,
}

impl Register {
    /// Serves at the socket `path` until the process ends.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn serve(path: &Path) -> io::Result<Arc<Self>> {
        let register = Arc::new(Self::default());
        let listener = UnixListener::bind(path)?;
        let served = Arc::clone(&register);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let register = Arc::clone(&served);
                thread::spawn(move || register.talk(stream));
            }
        });
        Ok(register)
    }

    fn talk(&self, stream: UnixStream) -> io::Result<()> {
        let mut answers = stream.try_clone()?;
        for line in BufReader::new(stream).lines() {
            let line = line?;
            let (key, fence) = line.split_once(' ').unwrap_or_default();
            let is_accepted = fence.parse().is_ok_and(|fence| self.write(key, fence));
            answers.write_all(if is_accepted { b"1\n" } else { b"0\n" })?;
        }
        Ok(())
    }

    fn write(&self, key: &str, fence: u64) -> bool {
        let Ok(mut newest) = self.newest.lock() else {
            return false;
        };
        let last = newest.entry(key.to_owned()).or_insert(0);
        let is_accepted = fence >= *last;
        *last = fence.max(*last);
        let count = if is_accepted {
            &self.accepted
        } else {
            &self.refused
        };
        count.fetch_add(1, Relaxed);
        is_accepted
    }
}
