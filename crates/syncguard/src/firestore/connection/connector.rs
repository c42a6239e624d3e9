//! Opens connections to Firestore as those of the other stores are opened.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

use crate::network::dial::{self, Refusal};
use crate::network::keepalive::Keepalive;
use futures_core::future::BoxFuture;

/// The protocol of gRPC, as TLS names it.
const HTTP2: &[u8] = b"h2";

pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Opens connections, with TLS if there are settings for it.
pub(super) struct ChannelConnector(Option<TlsConnector>);

impl ChannelConnector {
    pub(super) fn new(tls: Option<ClientConfig>) -> Self {
        Self(tls.map(|mut config| {
            config.alpn_protocols = vec![HTTP2.to_vec()];
            TlsConnector::from(Arc::new(config))
        }))
    }
}

impl Service<Uri> for ChannelConnector {
    type Response = TokioIo<Box<dyn ByteStream>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = self.0.clone();
        Box::pin(async move { Ok(TokioIo::new(open(&uri, tls).await?)) })
    }
}

async fn open(uri: &Uri, tls: Option<TlsConnector>) -> io::Result<Box<dyn ByteStream>> {
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = uri
        .port_u16()
        .unwrap_or(if tls.is_some() { 443 } else { 80 });
    let stream = dial::connect(host, port).await.map_err(|refusal| {
        let (Refusal::Unknown(error) | Refusal::Failed(error)) = refusal;
        error
    })?;
    stream.set_nodelay(true)?;
    Keepalive::DEFAULT.set_on(&stream)?;
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let stream = tls.connect(name, stream).await?;
    match stream.get_ref().1.alpn_protocol() {
        Some(HTTP2) => Ok(Box::new(stream)),
        _ => Err(io::Error::other("the server does not speak HTTP/2")),
    }
}
