//! Sockets that live on tokio, or on another event loop.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::network::event_loop::{RawSocket, Readiness};

/// A connected socket.
pub(super) struct Socket {
    place: SocketPlace,
    /// Whether to read the socket although tokio has not said that there is anything.
    is_tried: bool,
}

enum SocketPlace {
    Tcp(tokio::net::TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
    /// The socket lives on an event loop other than tokio's.
    OnLoop(Arc<LoopSocket>),
    /// The socket was lost on the way from one loop to the other.
    Lost,
}

/// A socket that does not block, and whose event loop says when it is worth a try.
pub(super) struct LoopSocket {
    plain: Plain,
    /// Cleared when everything was read.
    is_readable: AtomicBool,
    /// Whether to read until the socket itself says that there is nothing more. Otherwise a read that leaves room in the buffer
    /// counts as the last.
    is_doubted: AtomicBool,
    /// Set when the socket did not take all that it was given.
    is_full: AtomicBool,
}

enum Plain {
    Tcp(std::net::TcpStream),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixStream),
}

impl Socket {
    pub(super) fn tcp(stream: tokio::net::TcpStream) -> Self {
        Self::at(SocketPlace::Tcp(stream))
    }

    #[cfg(unix)]
    pub(super) fn unix(stream: tokio::net::UnixStream) -> Self {
        Self::at(SocketPlace::Unix(stream))
    }

    fn at(place: SocketPlace) -> Self {
        Self {
            place,
            is_tried: false,
        }
    }

    /// Takes the socket from tokio, and gives it to another event loop.
    pub(super) fn move_to_loop(&mut self) -> io::Result<Arc<LoopSocket>> {
        let plain = match std::mem::replace(&mut self.place, SocketPlace::Lost) {
            SocketPlace::Tcp(stream) => Plain::Tcp(stream.into_std()?),
            #[cfg(unix)]
            SocketPlace::Unix(stream) => Plain::Unix(stream.into_std()?),
            SocketPlace::OnLoop(_) | SocketPlace::Lost => return Err(lost()),
        };
        let on_loop = Arc::new(LoopSocket {
            plain,
            is_readable: AtomicBool::new(false),
            is_doubted: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
        });
        self.place = SocketPlace::OnLoop(Arc::clone(&on_loop));
        Ok(on_loop)
    }

    /// Gives the socket back to tokio, whose runtime must be entered.
    pub(super) fn move_back(&mut self) -> io::Result<()> {
        let SocketPlace::OnLoop(on_loop) = &self.place else {
            return Ok(());
        };
        // A clone, because the other loop may hold its own a little longer.
        self.place = match &on_loop.plain {
            Plain::Tcp(stream) => {
                SocketPlace::Tcp(tokio::net::TcpStream::from_std(stream.try_clone()?)?)
            }
            #[cfg(unix)]
            Plain::Unix(stream) => {
                SocketPlace::Unix(tokio::net::UnixStream::from_std(stream.try_clone()?)?)
            }
        };
        Ok(())
    }

    /// Lets the next reads try the socket, until it says that there is nothing more, even if its event loop has announced nothing.
    pub(super) fn try_to_read(&mut self) {
        match &self.place {
            SocketPlace::OnLoop(on_loop) => on_loop.is_ready_for_all(),
            _ => self.is_tried = true,
        }
    }

    /// Reads the socket past tokio, which does not hear of it. So tokio may later announce what was read here already, and whoever
    /// it wakes finds nothing.
    fn read_now(&self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        let socket = match &self.place {
            SocketPlace::Tcp(stream) => SockRef::from(stream),
            #[cfg(unix)]
            SocketPlace::Unix(stream) => SockRef::from(stream),
            SocketPlace::OnLoop(_) | SocketPlace::Lost => return Err(lost()),
        };
        let count = (&*socket).read(buf.initialize_unfilled())?;
        buf.advance(count);
        Ok(())
    }

    /// Shuts the connection down, so that an event loop that still watches it notices.
    pub(super) fn end(&self) {
        if let SocketPlace::OnLoop(on_loop) = &self.place {
            // This fails if the connection has ended before.
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

    /// Notes what the event loop says: the socket has room to write, and `readiness` tells what is known of reading.
    pub(super) fn is_ready(&self, readiness: Readiness) {
        self.is_full.store(false, SeqCst);
        match readiness {
            Readiness::Unknown => {}
            Readiness::Readable => self.is_readable.store(true, SeqCst),
            Readiness::Broken => self.is_ready_for_all(),
        }
    }

    fn is_ready_for_all(&self) {
        self.is_doubted.store(true, SeqCst);
        self.is_readable.store(true, SeqCst);
    }

    /// Whether the socket did not take all that it was given.
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
                    if 0 < count && count < room && !self.is_doubted.load(SeqCst) {
                        // The read left room, so it was the last. If more comes, the event loop says so.
                        self.is_readable.store(false, SeqCst);
                    }
                    buf.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_readable.store(false, SeqCst);
                    self.is_doubted.store(false, SeqCst);
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
                    // This makes the event loop ask for what to wait, and hear that it is for room.
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
        let this = self.get_mut();
        while this.is_tried {
            match this.read_now(buf) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => this.is_tried = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
        match &mut this.place {
            SocketPlace::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(unix)]
            SocketPlace::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            SocketPlace::OnLoop(on_loop) => on_loop.poll_read(buf),
            SocketPlace::Lost => Poll::Ready(Err(lost())),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().place {
            SocketPlace::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(unix)]
            SocketPlace::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            SocketPlace::OnLoop(on_loop) => on_loop.poll_write(cx, bytes),
            SocketPlace::Lost => Poll::Ready(Err(lost())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().place {
            SocketPlace::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(unix)]
            SocketPlace::Unix(stream) => Pin::new(stream).poll_flush(cx),
            SocketPlace::OnLoop(_) => Poll::Ready(Ok(())),
            SocketPlace::Lost => Poll::Ready(Err(lost())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.place {
            SocketPlace::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(unix)]
            SocketPlace::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            SocketPlace::OnLoop(_) | SocketPlace::Lost => {
                this.end();
                Poll::Ready(Ok(()))
            }
        }
    }
}
