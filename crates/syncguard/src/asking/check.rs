//! The statement that checks locks in a transaction of the user's own.

/// An SQL statement that fails, and its transaction with it, unless locks are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockCheck {
    /// The text of the statement, with `$1`, `$2` … for the values.
    pub text: String,
    /// The values, all of them texts.
    pub values: Vec<String>,
}
