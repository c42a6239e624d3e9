//! Streams of bytes to servers.

use std::path::Path;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::{Cause, to_error};
use super::tls::Trust;
use crate::error::Error;

/// A stream of any kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects to a host.
pub(super) async fn tcp(
    host: &str,
    port: u16,
    tls: Option<&Trust>,
) -> Result<Box<dyn Stream>, Error> {
    let stream = TcpStream::connect((host, port))
        .await
        .map_err(|_| unreachable())?;
    // The driver writes what is ready at once; there is nothing to wait for.
    stream.set_nodelay(true).map_err(|_| unreachable())?;
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    let name = tls.name_of(host).ok_or_else(unreachable)?;
    let stream = TlsConnector::from(tls.config())
        .connect(name, stream)
        .await
        .map_err(|_| unreachable())?;
    Ok(Box::new(stream))
}

/// Connects to a socket in the file system.
#[cfg(unix)]
pub(super) async fn unix(path: &Path) -> Result<Box<dyn Stream>, Error> {
    let stream = tokio::net::UnixStream::connect(path)
        .await
        .map_err(|_| unreachable())?;
    Ok(Box::new(stream))
}

/// Fails: there are none here.
#[cfg(not(unix))]
pub(super) async fn unix(_: &Path) -> Result<Box<dyn Stream>, Error> {
    Err(Error::invalid(
        "path: this operating system has no unix sockets",
    ))
}

fn unreachable() -> Error {
    to_error(Cause::Unreachable, false)
}
