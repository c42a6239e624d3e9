//! What an operation does next.

use super::decision::Decision;
use super::transport::ReadSet;

/// What an operation has come to with what it has read.
pub(super) enum Progress<T> {
    /// It needs this, too, in the same transaction.
    Read(Vec<ReadSet>),
    /// It needs no more.
    Decided(Decision<T>),
}

impl<T> From<Decision<T>> for Progress<T> {
    fn from(decision: Decision<T>) -> Self {
        Self::Decided(decision)
    }
}
