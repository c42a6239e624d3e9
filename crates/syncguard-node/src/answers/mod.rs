//! Brings back to JavaScript what has finished, in batches.
//!
//! This room knows how an answer is written and how JavaScript is woken. It must not know what was asked, and by whom.

pub(crate) mod busy;
pub(crate) mod completion;
pub(crate) mod mailbox;
