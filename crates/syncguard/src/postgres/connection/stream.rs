//! The byte stream of a session. It limits the size of replies, notes when bytes arrive, and begins no statement behind something that
//! was not read yet.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use super::arrivals::{Arrivals, SessionEnd};
use crate::network::dial::{self, Refusal};
use crate::network::keepalive::Keepalive;
use crate::postgres::config::{Host, TcpSettings};

/// The largest reply to one statement. Ours need a few kilobytes; without a limit, a hostile or broken server
/// could fill the memory.
const MOST_REPLY_BYTES: usize = 1024 * 1024;

enum SessionSocket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// The stream of one connection.
pub(in crate::postgres) struct SessionStream {
    socket: SessionSocket,
    arrivals: Arc<Arrivals>,
}

impl SessionStream {
    /// Connects to any of the host's addresses.
    pub(super) async fn open(
        host: &Host,
        settings: &TcpSettings,
        unsent: Duration,
        arrivals: Arc<Arrivals>,
    ) -> Result<Self, Refusal> {
        let socket = match host.is_unix_socket() {
            #[cfg(unix)]
            true => {
                let path = format!("{}/.s.PGSQL.{}", host.name, host.port);
                SessionSocket::Unix(UnixStream::connect(path).await.map_err(Refusal::Failed)?)
            }
            _ => {
                let stream = dial::connect(&host.name, host.port).await?;
                set_up(&stream, settings, unsent).map_err(Refusal::Failed)?;
                SessionSocket::Tcp(stream)
            }
        };
        Ok(Self { socket, arrivals })
    }
}

impl SessionSocket {
    /// Whether something has come, or the end: the runtime may know of it only later.
    fn has_something(&self) -> bool {
        let socket = match self {
            Self::Tcp(stream) => SockRef::from(stream),
            #[cfg(unix)]
            Self::Unix(stream) => SockRef::from(stream),
        };
        let peeked = socket.peek(&mut [MaybeUninit::uninit()]);
        !peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

fn set_up(stream: &TcpStream, settings: &TcpSettings, unsent: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if settings.keepalive {
        let keepalive = Keepalive {
            idle: settings.keepalive_idle,
            interval: settings.keepalive_interval,
            count: settings.keepalive_count,
        };
        keepalive.set_on(stream)?;
    }
    // A statement should not arrive after everybody has stopped waiting for it.
    #[cfg(target_os = "linux")]
    SockRef::from(stream).set_tcp_user_timeout(Some(settings.user_timeout.unwrap_or(unsent)))?;
    #[cfg(not(target_os = "linux"))]
    let _ = unsent;
    Ok(())
}

impl Drop for SessionStream {
    fn drop(&mut self) {
        if self.arrivals.end() == Some(SessionEnd::Silent)
            && let SessionSocket::Tcp(stream) = &self.socket
        {
            // Resets the connection on close, so that unacknowledged data is not sent again.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsyncRead for SessionStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = match &mut self.socket {
            SessionSocket::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            #[cfg(unix)]
            SessionSocket::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        let count = buffer.filled().len() - before;
        if count > 0 && self.arrivals.receive(count) > MOST_REPLY_BYTES {
            self.arrivals.finish(SessionEnd::Oversized);
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the reply does not end",
            )));
        }
        polled
    }
}

impl AsyncWrite for SessionStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.arrivals.is_to_begin() && self.socket.has_something() {
            // Whatever reads this comes here again, unless it was the end.
            return Poll::Pending;
        }
        self.arrivals.expect_reply();
        let polled = match &mut self.socket {
            SessionSocket::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            #[cfg(unix)]
            SessionSocket::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        if let Poll::Ready(Ok(1..)) = polled {
            self.arrivals.write();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            SessionSocket::Tcp(stream) => Pin::new(stream).poll_flush(context),
            #[cfg(unix)]
            SessionSocket::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            SessionSocket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            #[cfg(unix)]
            SessionSocket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
