//! Sockets that live on tokio, or on another event loop.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::event_loop::RawSocket;

/// A connected socket.
pub(super) enum Socket {
    Tcp(tokio::net::TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
    /// One that lives on an event loop which is not tokio's.
    OnLoop(Arc<LoopSocket>),
    /// One that was about to go from one to the other, and was lost.
    Lost,
}

/// A socket that does not block, and whose event loop says when it is worth a try.
pub(super) struct LoopSocket {
    plain: Plain,
    /// Cleared when all was read.
    is_readable: AtomicBool,
    /// Set when it did not take what it was given.
    is_full: AtomicBool,
}

enum Plain {
    Tcp(std::net::TcpStream),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixStream),
}

impl Socket {
    /// Takes it from tokio to another event loop, which gets it as well.
    pub(super) fn move_to_loop(&mut self) -> io::Result<Arc<LoopSocket>> {
        let plain = match std::mem::replace(self, Self::Lost) {
            Self::Tcp(stream) => Plain::Tcp(stream.into_std()?),
            #[cfg(unix)]
            Self::Unix(stream) => Plain::Unix(stream.into_std()?),
            Self::OnLoop(_) | Self::Lost => return Err(lost()),
        };
        let on_loop = Arc::new(LoopSocket {
            plain,
            is_readable: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
        });
        *self = Self::OnLoop(Arc::clone(&on_loop));
        Ok(on_loop)
    }

    /// Takes it back to tokio, whose runtime must be entered.
    pub(super) fn move_back(&mut self) -> io::Result<()> {
        let Self::OnLoop(on_loop) = self else {
            return Ok(());
        };
        // The other loop may hold its own a little longer.
        *self = match &on_loop.plain {
            Plain::Tcp(stream) => Self::Tcp(tokio::net::TcpStream::from_std(stream.try_clone()?)?),
            #[cfg(unix)]
            Plain::Unix(stream) => {
                Self::Unix(tokio::net::UnixStream::from_std(stream.try_clone()?)?)
            }
        };
        Ok(())
    }

    /// Lets it be read although its event loop has not said that there is anything.
    pub(super) fn try_to_read(&self) {
        if let Self::OnLoop(on_loop) = self {
            on_loop.is_readable.store(true, SeqCst);
        }
    }

    /// Ends the connection, also for an event loop that still watches it.
    pub(super) fn end(&self) {
        if let Self::OnLoop(on_loop) = self {
            // It may have ended before.
            let _ = match &on_loop.plain {
                Plain::Tcp(stream) => stream.shutdown(Shutdown::Both),
                #[cfg(unix)]
                Plain::Unix(stream) => stream.shutdown(Shutdown::Both),
            };
        }
    }
}

impl LoopSocket {
    pub(super) fn raw(&self) -> RawSocket {
        #[cfg(unix)]
        {
            use std::os::fd::AsRawFd as _;
            match &self.plain {
                Plain::Tcp(stream) => stream.as_raw_fd(),
                Plain::Unix(stream) => stream.as_raw_fd(),
            }
        }
        #[cfg(windows)]
        {
            use std::os::windows::io::AsRawSocket as _;
            let Plain::Tcp(stream) = &self.plain;
            stream.as_raw_socket()
        }
    }

    /// Its event loop says that it has room, and whether there is something to read.
    pub(super) fn is_ready(&self, is_readable: bool) {
        self.is_full.store(false, SeqCst);
        if is_readable {
            self.is_readable.store(true, SeqCst);
        }
    }

    /// Whether it has not taken all.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(SeqCst)
    }

    fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.plain {
            Plain::Tcp(stream) => (&*stream).read(bytes),
            #[cfg(unix)]
            Plain::Unix(stream) => (&*stream).read(bytes),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.plain {
            Plain::Tcp(stream) => (&*stream).write(bytes),
            #[cfg(unix)]
            Plain::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn poll_read(&self, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            if !self.is_readable.load(SeqCst) {
                return Poll::Pending;
            }
            let room = buf.remaining();
            match self.read(buf.initialize_unfilled()) {
                Ok(count) => {
                    if 0 < count && count < room {
                        // That was all. If more comes, the event loop says so.
                        self.is_readable.store(false, SeqCst);
                    }
                    buf.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_readable.store(false, SeqCst);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_full.store(true, SeqCst);
                    // The event loop asks what to wait for.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

fn lost() -> io::Error {
    ErrorKind::NotConnected.into()
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::OnLoop(on_loop) => on_loop.poll_read(buf),
            Self::Lost => Poll::Ready(Err(lost())),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::OnLoop(on_loop) => on_loop.poll_write(cx, bytes),
            Self::Lost => Poll::Ready(Err(lost())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::OnLoop(_) => Poll::Ready(Ok(())),
            Self::Lost => Poll::Ready(Err(lost())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            socket => {
                socket.end();
                Poll::Ready(Ok(()))
            }
        }
    }
}
