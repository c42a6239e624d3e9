//! Each operation has a file here, beside its SQL. Only its pure half is public: the plan makes the statement to send, and
//! the outcome reads the row that came back.

pub(super) mod acquire;
pub(super) mod acquire_all;
pub(super) mod extend;
pub(super) mod facts;
pub(super) mod force_release;
pub(super) mod guard;
pub(super) mod is_locked;
pub(super) mod join;
pub(super) mod labels;
pub(super) mod list;
pub(super) mod lookup;
pub(super) mod mark;
pub(super) mod release;
pub(super) mod tidy;

pub use super::names::PrimaryKeys;
pub use acquire::{Acquire, Attempted, outcome as acquire_outcome};
pub use acquire_all::{AcquireAll, Claimed, outcome as acquire_all_outcome};
pub use extend::{Extend, LockSets, outcome as extend_outcome};
pub use force_release::{ForceRelease, outcome as force_release_outcome};
pub use guard::{STOP_TRANSACTION, check_failure};
pub use is_locked::{IsLocked, outcome as is_locked_outcome};
pub use lookup::{Lookup, outcome as lookup_outcome};
pub use release::{Release, outcome as release_outcome, outcomes as release_outcomes};
