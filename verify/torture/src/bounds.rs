//! How exact a history is.

use crate::history::Outcome;

/// How exact clocks are, and how late something happens.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How far the store's reading of the clock may be off from what a process reads at the same time.
    pub skew_ms: i64,
    /// How long after its end an operation whose outcome is unknown may still take effect.
    pub late_ms: i64,
    /// How long after the end of its process.
    pub cut_ms: i64,
    /// Whether the store's clock never goes back.
    pub is_steady: bool,
    /// Whether several locks are acquired one after the other, on different servers: then a process may have freed the first ones
    /// before it was killed.
    pub is_spread: bool,
    /// For how much longer than its readers a group may last at most. Some stores do not make it end earlier when a reader leaves.
    pub group_ms: i64,
    /// Whether a group that nobody belongs to any more may stay until the release of its last reader has ended.
    pub is_left_in_steps: bool,
}

impl Bounds {
    pub(crate) fn late_ms(&self, outcome: Outcome) -> i64 {
        match outcome {
            Outcome::Unknown => self.late_ms,
            Outcome::Interrupted => self.cut_ms,
            _ => 0,
        }
    }
}
