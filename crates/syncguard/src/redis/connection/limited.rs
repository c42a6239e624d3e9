//! A stream that limits the size of a reply, and reports its own end as an error.
//!
//! The driver's parser buffers a reply until it is complete. Replies here are small: one that exceeds the limit comes from a
//! broken or hostile server, or is a value that is no lock. And when a connection ends in the middle of a reply, the parser
//! would call the reply malformed if the stream did not report its end as an error.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::socket::Socket;
use super::stream::{ServerEndpoint, Stream};
use super::term::Term;

/// The largest reply, in bytes.
const LIMIT: usize = 1024 * 1024;

/// The largest reply to a user's own script, in bytes.
pub(in crate::redis) const CALLERS_LIMIT: usize = 64 * LIMIT;

/// The error of a read past the limit.
#[derive(Debug, thiserror::Error)]
#[error("a reply is longer than {0} bytes")]
pub(in crate::redis) struct TooLong(usize);

/// A stream of replies.
pub(in crate::redis) struct Limited {
    stream: Box<dyn Stream>,
    endpoint: ServerEndpoint,
    /// Ends when another server becomes the primary, where somebody tells.
    term: Option<Term>,
    /// Bytes read since the last complete reply.
    read: usize,
    limit: usize,
}

impl Limited {
    pub(super) fn new(stream: Box<dyn Stream>, endpoint: ServerEndpoint) -> Self {
        Self {
            stream,
            endpoint,
            term: None,
            read: 0,
            limit: LIMIT,
        }
    }

    /// The socket below it, if there is one.
    pub(super) fn socket(&mut self) -> Option<&mut Socket> {
        self.stream.socket()
    }

    /// Gives the stream its term.
    pub(super) fn with_term(mut self, term: Term) -> Self {
        self.term = Some(term);
        self
    }

    pub(in crate::redis) fn term(&self) -> Option<Term> {
        self.term.clone()
    }

    /// Whether a write that is refused has sent nothing of its bytes.
    pub(super) fn keeps_what_it_refuses(&self) -> bool {
        self.stream.keeps_what_it_refuses()
    }

    /// The server to which the stream is connected.
    pub(super) fn endpoint(&self) -> &ServerEndpoint {
        &self.endpoint
    }

    /// Sets the size that a reply may have, in bytes.
    pub(super) fn allow(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Starts to count anew. Must be called after each reply.
    pub(in crate::redis) fn reply_is_complete(&mut self) {
        self.read = 0;
    }
}

impl AsyncRead for Limited {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, has_room) = (buf.filled().len(), buf.remaining() > 0);
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let bytes = buf.filled().len() - before;
        if bytes == 0 && has_room {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.read += bytes;
        if self.read > self.limit {
            return Poll::Ready(Err(io::Error::other(TooLong(self.limit))));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Limited {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    fn endpoint() -> ServerEndpoint {
        ServerEndpoint::Unix("here".to_owned())
    }

    #[tokio::test]
    async fn a_complete_reply_makes_room() {
        let (mut server, client) = duplex(4096);
        let mut limited = Limited::new(Box::new(client), endpoint());
        tokio::spawn(async move { while server.write_all(&[0; 4096]).await.is_ok() {} });
        let mut buffer = vec![0; LIMIT];
        limited.read_exact(&mut buffer).await.unwrap();
        limited.reply_is_complete();
        limited.read_exact(&mut buffer).await.unwrap();
        let error = limited.read_u8().await.unwrap_err();
        assert!(error.get_ref().unwrap().is::<TooLong>());
    }

    #[tokio::test]
    async fn the_end_is_an_error() {
        let (server, client) = duplex(16);
        drop(server);
        let mut limited = Limited::new(Box::new(client), endpoint());
        let error = limited.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
