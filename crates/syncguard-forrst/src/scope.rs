//! Which functions share a key.

use serde::Serialize;

/// Which functions share a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Each function has its own: the lock is `lock:{function}:{key}`.
    Function,
    /// All functions share it: the lock is `lock:{key}`.
    Global,
}

impl Scope {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Global => "global",
        }
    }
}
