//! Event loops that are not tokio's: with one, a connection lives on the thread that uses it.
//!
//! A thread with an event loop of its own, such as JavaScript's, otherwise has to wake another thread for each call, and
//! to be woken by it for each answer. On a busy machine each of these costs milliseconds at the 99th percentile; see
//! docs/decisions/io-thread.md.

use std::fmt;
use std::sync::Arc;

/// A socket of the operating system.
#[cfg(unix)]
pub type RawSocket = std::os::fd::RawFd;
/// A socket of the operating system.
#[cfg(windows)]
pub type RawSocket = std::os::windows::io::RawSocket;

/// The event loop of a thread.
///
/// The futures of operations that it polls use connections that live on it, and all others use those on tokio. While it
/// calls a [`Source`] or polls such a future, it must have entered a tokio runtime
/// ([`Handle::enter`](tokio::runtime::Handle::enter)), which makes connections and runs what goes on in the background.
pub trait EventLoop: fmt::Debug + Send + Sync + 'static {
    /// Whether it is what runs on the calling thread at this moment.
    fn is_current(&self) -> bool;

    /// Calls [`Source::turn`] from now on: soon, each time that the socket can be read or written as the source has asked,
    /// and after each [`wake`](Self::wake). May be called from any thread. Drops the source once its turn says that
    /// there is nothing to wait for. When the loop ends, each source that it still has leaves it ([`Source::leave`]).
    ///
    /// # Errors
    /// Gives the source back if the loop has ended.
    fn watch(&self, source: Arc<dyn Source>) -> Result<(), Arc<dyn Source>>;

    /// Gives each source a turn soon, and polls futures that are ready. May be called from any thread.
    fn wake(&self);
}

/// What lives on an [`EventLoop`].
pub trait Source: Send + Sync {
    /// The socket to watch. It stays open while the source lives.
    fn socket(&self) -> RawSocket;

    /// Reads what has come, as far as `readiness` says that there is anything, and writes what is left to be written. Gives
    /// what to wait for.
    fn turn(&self, readiness: Readiness) -> Interest;

    /// Goes on without the loop, which has ended, on tokio.
    fn leave(&self);
}

/// What an [`EventLoop`] knows of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// Nothing has changed, as far as it knows.
    Unknown,
    /// There may be something to read. If some of it is left, the loop says so again.
    Readable,
    /// Something is wrong with it, and the loop says so once only: it must be read until it tells what is wrong, or that
    /// there is nothing more.
    Broken,
}

/// What a [`Source`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// The socket has something to read.
    Read,
    /// The same, or it takes more.
    ReadAndWrite,
    /// Nothing: it has ended.
    Nothing,
}

/// Where a call is made. Calls from the same place share a connection, and so are carried out in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// On the event loop of the thread that calls.
    EventLoop,
    /// Anywhere else.
    Runtime,
}
