//! Streams of bytes to servers, and the servers at their other end.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;

use super::socket::Socket;

/// A stream of any kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// The socket below it, if there is one.
    fn socket(&mut self) -> Option<&mut Socket>;

    /// Whether a write that is refused has sent nothing of its bytes. TLS may have sent some of them.
    fn keeps_what_it_refuses(&self) -> bool {
        false
    }
}

impl Stream for Socket {
    fn keeps_what_it_refuses(&self) -> bool {
        true
    }

    fn socket(&mut self) -> Option<&mut Socket> {
        Some(self)
    }
}

impl Stream for TlsStream<Socket> {
    fn socket(&mut self) -> Option<&mut Socket> {
        Some(self.get_mut().0)
    }
}

#[cfg(test)]
impl Stream for tokio::io::DuplexStream {
    fn socket(&mut self) -> Option<&mut Socket> {
        None
    }
}

/// The server at the other end of a stream, as error messages name it.
#[derive(Debug, Clone)]
pub(in crate::redis) enum ServerEndpoint {
    Tcp {
        host: String,
        port: u16,
        has_tls: bool,
    },
    #[cfg_attr(not(unix), allow(dead_code, reason = "there are none"))]
    Unix(String),
}

impl std::fmt::Display for ServerEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Self::Unix(path) => f.write_str(path),
        }
    }
}
