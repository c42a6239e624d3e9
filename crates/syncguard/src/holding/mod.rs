//! Holding a lock: locks that extend themselves, and say when they are lost.
//!
//! A lock that extends itself does so by *heartbeats*: extensions that one task per backend sends, those of many
//! locks together ([`Heartbeats`]). The task runs while such locks are held, and at no other time.
//!
//! # When a lock is lost
//!
//! A lock is held until its *end*: the moment before its acquisition or its last extension was sent, plus its TTL.
//! The store cannot end it earlier by itself, because its own count starts later. The end is on the monotonic clock
//! of this process, so that nobody who sets a clock moves it, and a process that was stopped finds it passed.
//!
//! - The store says that it has no such lock: it is lost at once.
//! - Extensions fail: they are tried again, more often as the end comes near. When it has come, the lock is lost.
//! - An extension that was sent before the end and is not answered yet may come until `GRACE` after it. If it says by
//!   then that the lock was extended, but so late that the new end has passed as well, one more is sent at once. The store
//!   gives the lock to nobody before the tolerance of a second has passed (docs/decisions/tolerance.md).
//!
//! In no other case is an extension sent after the end: a holder that was stopped past it must not go on, whatever the
//! store says.

mod heartbeat;
mod heartbeats;

mod hold;

pub(crate) use heartbeat::end_of;
pub(crate) use heartbeats::Heartbeats;
pub(crate) use hold::Extender;
pub use hold::{AutoExtend, Hold, Holder, Presence};
