//! How bytes come and go: the connection to Firestore's API with its tokens, and the stream on which Firestore tells of
//! changes to the locks that somebody waits for.

pub(super) mod access;
pub(super) mod client;
mod connector;
mod listen;
pub(super) mod shared;
mod token;
mod wire;
