//! What a history is said to break.

use std::fmt;

use crate::history::Operation;
use crate::lease::State;

/// A history that no order explains, or for which too many orders would have to be tried.
#[derive(Debug)]
pub struct Violation {
    /// The lock.
    pub key: String,
    /// Whether the search was given up.
    pub is_undecided: bool,
    /// The operation that cannot have ended as it did.
    pub operation: Operation,
    /// What may have been true before it.
    pub states: Vec<State>,
    /// What was going on, the latest last.
    pub recent: Vec<Operation>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = match self.is_undecided {
            false => "no order explains",
            true => "too many orders may explain",
        };
        writeln!(f, "{}: {found} {:?}", self.key, self.operation)?;
        for state in &self.states {
            writeln!(f, "  may have been true before: {state:?}")?;
        }
        for operation in &self.recent {
            writeln!(f, "  {operation:?}")?;
        }
        Ok(())
    }
}
