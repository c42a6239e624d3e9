//! When an attempt ends, and what it waits for until then.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

use crate::text::error::{Error, ErrorKind};

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

    /// The error of an attempt that had no answer by then, with what it waited for, if that is known.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match self.waits_for.get() {
            Some(what) if error.kind() == ErrorKind::NetworkTimeout => error.followed_by(what),
            _ => error,
        }
    }
}
