//! What must hold of the library for any input: no panic, no hang, and nothing private in the text of an error.
//!
//! Each body takes bytes and makes of them what its part of the library takes. cargo-fuzz calls the bodies from
//! `verify/fuzz/fuzz_targets`, the tests of this package with inputs from proptest and with the corpus of `verify/fuzz/corpus`.
//! How to run them: docs/reliability.md, "Fuzzing".

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is how a body says that something is wrong"
)]

mod documents;
mod forrst;
mod input;
mod plain;
mod replies;
mod rows;
mod urls;
mod wire;

pub use documents::firestore_documents;
pub use forrst::forrst;
pub use plain::keys;
pub use replies::{redis_errors, redis_replies, redis_stored};
pub use rows::postgres_rows;
pub use urls::{firestore_settings, postgres_urls, redis_settings, redis_urls};
pub use wire::{redis_bytes, redis_cluster_bytes};

/// A body.
pub type Body = fn(&[u8]);

/// All bodies, with the names of their targets.
pub const BODIES: [(&str, Body); 13] = [
    ("firestore_documents", firestore_documents),
    ("firestore_settings", firestore_settings),
    ("forrst", forrst),
    ("keys", keys),
    ("postgres_rows", postgres_rows),
    ("postgres_urls", postgres_urls),
    ("redis_bytes", redis_bytes),
    ("redis_cluster_bytes", redis_cluster_bytes),
    ("redis_errors", redis_errors),
    ("redis_replies", redis_replies),
    ("redis_settings", redis_settings),
    ("redis_stored", redis_stored),
    ("redis_urls", redis_urls),
];
