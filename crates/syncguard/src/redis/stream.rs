//! Streams of bytes to servers.

use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::{Cause, to_error};
use super::limited::Limited;
use super::tls::Trust;
use crate::error::Error;

/// A stream of any kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Whom to trust, ready for use.
pub(super) struct Tls<'a> {
    trust: &'a Trust,
    config: Arc<ClientConfig>,
}

impl<'a> Tls<'a> {
    /// Reads the operating system's certificates if they are needed: file I/O.
    pub(super) fn new(trust: &'a Trust) -> Result<Self, Error> {
        Ok(Self {
            trust,
            config: Arc::new(trust.client_config()?),
        })
    }
}

/// Connects to a host.
pub(super) async fn tcp(host: &str, port: u16, tls: Option<&Tls<'_>>) -> Result<Limited, Error> {
    let stream = TcpStream::connect((host, port))
        .await
        .map_err(|_| unreachable())?;
    // The driver writes what is ready at once; there is nothing to wait for.
    stream.set_nodelay(true).map_err(|_| unreachable())?;
    let Some(tls) = tls else {
        return Ok(Limited::new(Box::new(stream)));
    };
    let name = tls.trust.name_of(host).ok_or_else(unreachable)?;
    let stream = TlsConnector::from(Arc::clone(&tls.config))
        .connect(name, stream)
        .await
        .map_err(|_| unreachable())?;
    Ok(Limited::new(Box::new(stream)))
}

/// Connects to a socket in the file system.
#[cfg(unix)]
pub(super) async fn unix(path: &Path) -> Result<Limited, Error> {
    let stream = tokio::net::UnixStream::connect(path)
        .await
        .map_err(|_| unreachable())?;
    Ok(Limited::new(Box::new(stream)))
}

/// Fails: there are none here.
#[cfg(not(unix))]
pub(super) async fn unix(_: &Path) -> Result<Limited, Error> {
    Err(Error::invalid(
        "path: this operating system has no unix sockets",
    ))
}

fn unreachable() -> Error {
    to_error(Cause::Unreachable, false)
}
