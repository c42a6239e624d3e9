//! The Node.js binding: it converts, calls the core, and converts back.
//!
//! JavaScript numbers an operation, hands it over with one synchronous call and forgets about it.
//! The operation runs on the one I/O thread; its result waits in the environment's
//! [`Completions`](calls::environment::Completions) until JavaScript fetches all that have finished at once.

// The macros of napi expand to unsafe code; what is written by hand has SAFETY comments.
#![allow(unsafe_code)]
#![warn(clippy::undocumented_unsafe_blocks)]
// What is exported to JavaScript must be `pub`; users see it described in index.d.ts.
#![allow(missing_docs, unreachable_pub)]
// Without the exports, which tests do not have, nothing calls most of this.
#![cfg_attr(test, allow(dead_code))]
// In tests, each assertion counts as a branch.
#![cfg_attr(not(test), warn(clippy::cognitive_complexity))]

mod answers;
mod calls;
mod clients;
mod convert;
mod event_loop;
mod firestore;
mod io_thread;
mod mutex;
mod postgres;
mod redis;
mod rules;
mod sqlite;
