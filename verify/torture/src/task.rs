//! What a worker is told.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::record::now;

/// The pause after an operation that has failed: a store that is down answers quickly.
pub(crate) const AFTER_ERROR: Duration = Duration::from_millis(100);

/// What a worker is told, as JSON in an argument.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    /// The store.
    pub url: String,
    /// Where to record.
    pub history: PathBuf,
    /// The socket of the register.
    pub register: PathBuf,
    /// Decides all that is random.
    pub seed: u64,
    /// How long to work.
    pub run: Duration,
    /// How many operations may run at a time.
    pub loops: usize,
    /// How many keys there are.
    pub keys: usize,
    /// Whether some wait for locks. Not where the store fails: how many attempts of a wait had an effect is unknown then.
    pub waits: bool,
    /// Whether some ask their guards again and again whether they hold their locks.
    pub guards: bool,
    /// How long one who works pauses after each operation; at least a tenth of a second after one that has failed.
    pub pause: Duration,
    /// What the holders do.
    pub work: Work,
}

/// What is done with locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Everything that can be done, at random, and recorded.
    Anything,
    /// Each of the loops waits for one lock, takes its turn, and is done.
    Turns,
}

/// When to end, by the machine's own clock: that of the worker may be told to stand still.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    order_us: u64,
}

impl Deadline {
    pub(crate) fn after(time: Duration) -> Self {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let order_us = now().order_us.saturating_add(us);
        Self { order_us }
    }

    pub(crate) fn left(self) -> Duration {
        Duration::from_micros(self.order_us.saturating_sub(now().order_us))
    }

    pub(crate) fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

/// Why a worker has ended early.
pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;
