//! Connects to hosts and to sockets in the file system, with TLS or without.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;

use super::diagnosis;
use super::limited::Limited;
use super::socket::Socket;
use super::stream::ServerEndpoint;
use super::tls::TlsContext;
use crate::network::dial::{self, Refusal};
use crate::network::keepalive::Keepalive;
use crate::network::tls::is_refusal;
use crate::redis::error::{cannot_connect, distrusted};
use crate::text::error::Error;

/// How long the TLS handshake may take before we check whether the server speaks TLS at all.
const TLS_DOUBT: Duration = Duration::from_millis(500);

/// Connects to a host.
pub(super) async fn tcp(host: &str, port: u16, tls: Option<&TlsContext>) -> Result<Limited, Error> {
    let endpoint = ServerEndpoint::Tcp {
        host: host.to_owned(),
        port,
        has_tls: tls.is_some(),
    };
    let stream = any_address(host, port, &endpoint).await?;
    // Nagle's algorithm would hold back small packets, and each write here has all that is ready.
    stream
        .set_nodelay(true)
        .and_then(|()| Keepalive::DEFAULT.set_on(&stream))
        .map_err(|error| cannot_connect(&endpoint, &error.to_string()).with_source(error))?;
    let stream = Socket::tcp(stream);
    let Some(tls) = tls else {
        return Ok(Limited::new(Box::new(stream), endpoint));
    };
    let name = tls.name_of(host).ok_or_else(|| {
        cannot_connect(
            &endpoint,
            "TLS needs a host name or an address, and host is neither",
        )
    })?;
    let connector = TlsConnector::from(tls.config());
    let mut handshake = pin!(connector.connect(name, stream));
    let doubt = async {
        sleep(TLS_DOUBT).await;
        if !diagnosis::accepts_plaintext(host, port).await {
            // The server may speak TLS and only be slow, so let the handshake go on.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        stream = &mut handshake => match stream {
            Ok(stream) => Ok(Limited::new(Box::new(stream), endpoint)),
            Err(error) => Err(no_tls(&endpoint, error)),
        },
        () = doubt => Err(cannot_connect(&endpoint, SPEAKS_NO_TLS)),
    }
}

const SPEAKS_NO_TLS: &str = "the server does not speak TLS: use redis:// instead of rediss://";

async fn any_address(host: &str, port: u16, endpoint: &ServerEndpoint) -> Result<TcpStream, Error> {
    dial::connect(host, port)
        .await
        .map_err(|refusal| match refusal {
            Refusal::Unknown(error) => {
                let why = format!("the host name cannot be resolved: {error}");
                cannot_connect(endpoint, &why).with_source(error)
            }
            Refusal::Failed(error) => {
                cannot_connect(endpoint, &error.to_string()).with_source(error)
            }
        })
}

/// The error for a TLS handshake that failed.
fn no_tls(endpoint: &ServerEndpoint, error: io::Error) -> Error {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    let why = match tls {
        Some(rustls::Error::InvalidMessage(_)) => SPEAKS_NO_TLS.to_owned(),
        // The TLS library's own reason, such as a certificate that is not trusted.
        Some(error) => format!("TLS failed: {error}"),
        None => format!("the server ended the TLS handshake: {error}"),
    };
    let refused = match tls.is_some_and(is_refusal) {
        true => distrusted(endpoint, &why),
        false => cannot_connect(endpoint, &why),
    };
    refused.with_source(error)
}

/// Connects to a socket in the file system.
#[cfg(unix)]
pub(super) async fn unix(path: &Path) -> Result<Limited, Error> {
    let endpoint = ServerEndpoint::Unix(path.display().to_string());
    let stream = tokio::net::UnixStream::connect(path)
        .await
        .map_err(|error| cannot_connect(&endpoint, &error.to_string()).with_source(error))?;
    Ok(Limited::new(Box::new(Socket::unix(stream)), endpoint))
}

/// Fails: this platform has no such sockets.
#[cfg(not(unix))]
pub(super) async fn unix(_: &Path) -> Result<Limited, Error> {
    Err(Error::invalid(
        "path: this operating system has no unix sockets",
    ))
}
