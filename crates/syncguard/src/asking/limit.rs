//! Knows when the time of an attempt is over, and what the attempt waits for until then.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

use crate::text::error::{Error, ErrorKind};

/// The end of an attempt's time.
#[derive(Debug)]
pub struct Limit {
    /// The time at which it is over.
    pub at: Instant,
    /// What the attempt waits for, in words that follow those of the error. They must contain no key and no credentials.
    pub waits_for: OnceLock<String>,
}

impl Limit {
    /// Starts a time now.
    pub fn after(time: Duration) -> Self {
        let now = Instant::now();
        Self {
            at: now.checked_add(time).unwrap_or(now),
            waits_for: OnceLock::new(),
        }
    }

    /// Adds to the error of an attempt without an answer what it waited for, if that is known.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match self.waits_for.get() {
            Some(what) if error.kind() == ErrorKind::NetworkTimeout => error.followed_by(what),
            _ => error,
        }
    }
}
