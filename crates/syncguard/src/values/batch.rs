//! What is taken, extended or freed in one step.

use smallvec::SmallVec;

/// Values that belong together in one operation, in order. One of them needs no allocation, because most operations
/// concern one lock.
pub type Batch<T> = SmallVec<[T; 1]>;
