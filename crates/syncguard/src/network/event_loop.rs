//! Lets connections live on an event loop other than tokio's, and so on the thread that uses them.
//!
//! Without that, a thread with an event loop of its own, such as JavaScript's, has to wake another thread for each call, and is woken
//! by it for each answer. On a busy machine each wake-up costs milliseconds at the 99th percentile (docs/decisions/io-thread.md).

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
/// Operations whose futures the loop polls use connections that live on it. All others use connections on tokio. While the loop calls a
/// [`Source`] or polls such a future, it must have entered a tokio runtime ([`Handle::enter`](tokio::runtime::Handle::enter)), which
/// makes connections and runs the background.
pub trait EventLoop: fmt::Debug + Send + Sync + 'static {
    /// Whether the loop is running on the calling thread at this moment.
    fn is_current(&self) -> bool;

    /// Gives a source turns ([`Source::turn`]) from now on: the first one soon, one each time that its socket is ready for what the
    /// source waits for, and one after each [`wake`](Self::wake). May be called from any thread. The loop drops the source once its turn
    /// says that it waits for nothing. When the loop ends, each source that it still has leaves it ([`Source::leave`]).
    ///
    /// # Errors
    /// Gives the source back if the loop has ended.
    fn watch(&self, source: Arc<dyn Source>) -> Result<(), Arc<dyn Source>>;

    /// Gives each source a turn soon, and polls futures that are ready. May be called from any thread.
    fn wake(&self);
}

/// Something that lives on an [`EventLoop`], such as a connection.
pub trait Source: Send + Sync {
    /// The socket to watch. It stays open while the source lives.
    fn socket(&self) -> RawSocket;

    /// Reads what has been received, if `readiness` says that there is anything, and writes what is left to be written. Gives what to
    /// wait for.
    fn turn(&self, readiness: Readiness) -> Interest;

    /// Moves the source to tokio, because the loop has ended.
    fn leave(&self);
}

/// What an [`EventLoop`] knows of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The loop knows of no change.
    Unknown,
    /// There may be something to read. If some of it is left, the loop says so again.
    Readable,
    /// Something is wrong with the socket, and the loop says so only once. So the source must read until the socket tells what is
    /// wrong, or that there is nothing more.
    Broken,
}

/// What a [`Source`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// The socket has something to read.
    Read,
    /// The socket has something to read, or room for more to write.
    ReadAndWrite,
    /// The source has ended, and waits for nothing.
    Nothing,
}

/// The place from which a call is made. Calls from the same place share a connection, so the store carries them out in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// On the event loop of the thread that calls.
    EventLoop,
    /// Anywhere else.
    Runtime,
}
