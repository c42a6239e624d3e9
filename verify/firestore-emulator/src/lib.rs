//! Firestore's gRPC API in memory, for tests.
//!
//! ```
//! use firestore_emulator::{Effect, Emulator, Fault, Options, Refusal};
//!
//! let emulator = Emulator::start(Options::default())?;
//! println!("FIRESTORE_EMULATOR_HOST={}", emulator.address());
//! emulator.faults().set([Fault::new(Effect::Status(Refusal::Aborted)).on("Commit").times(3)]);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! It is not Google's emulator; README.md says what it does and does not do.

mod control;
mod emulator;
mod faults;
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::too_many_lines)]
mod generated;
mod listen;
mod path;
mod proto;
mod query;
mod service;
mod store;
mod time;
mod transactions;
mod transforms;
mod values;
mod writes;
mod writing;

/// The message without content, by a name that can stand in generated code.
type Empty = ();

pub use emulator::{Emulator, Options};
pub use faults::{Effect, Fault, Faults, Lost, Part, Refusal};
