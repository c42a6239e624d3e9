//! A pipeline whose server is the test.

use std::future::ready;
use std::io;

use futures::FutureExt as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;

use super::super::*;
use super::{ID, LIMIT, PATIENCE};
use crate::asking::outcome::ReleaseOutcome;
use crate::redis::connection::socket::Socket;
use crate::redis::connection::stream::{ServerEndpoint, Stream};
use crate::redis::names::{ClientPrefix, Names};
use crate::redis::operations::release;
use crate::redis::plan::{Plan, ScriptForm};
use crate::values::lock_id::LockId;
use futures_core::future::BoxFuture;

/// What will be the answer to a call.
pub(super) type PendingAnswer = BoxFuture<'static, Result<Answer, Error>>;

/// A pipeline, and the server at its other end.
pub(super) struct Stage {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) server: DuplexStream,
    /// What reads it, if anything does.
    reader: Option<JoinHandle<Error>>,
}

impl Stage {
    /// The stream takes `capacity` bytes before the server reads.
    pub(super) fn new(capacity: usize) -> Self {
        let (server, client) = duplex(capacity);
        Self::on(server, Box::new(client))
    }

    pub(super) fn on(server: DuplexStream, client: Box<dyn Stream>) -> Self {
        let mut stage = Self::unread(server, client);
        let pipeline = Arc::clone(&stage.pipeline);
        stage.reader = Some(tokio::spawn(async move {
            let reason = pipeline.read().await;
            pipeline.end(&reason);
            reason
        }));
        stage
    }

    /// Nothing reads the stream.
    pub(super) fn unread(server: DuplexStream, client: Box<dyn Stream>) -> Self {
        Self {
            pipeline: pipeline_on(client),
            server,
            reader: None,
        }
    }

    /// Calls a release, before anything else runs.
    pub(super) fn call(&self) -> PendingAnswer {
        call(&self.pipeline)
    }

    /// Calls releases until the server has enough to do, so that the next calls are kept for the reader.
    pub(super) fn a_few_calls(&self) -> [PendingAnswer; FEW] {
        [(); FEW].map(|()| self.call())
    }

    /// What has come to the server since it looked last, while nothing else runs.
    pub(super) fn words(&mut self) -> String {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        while let Some(Ok(count @ 1..)) = self.server.read(&mut buffer).now_or_never() {
            bytes.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8(bytes).unwrap()
    }

    /// How many calls have come to the server since it looked last.
    pub(super) fn arrived(&mut self) -> usize {
        self.words().matches("EVALSHA").count()
    }

    pub(super) async fn reply(&mut self, text: &str) {
        self.server.write_all(text.as_bytes()).await.unwrap();
    }

    /// Ends the stream.
    pub(super) fn hang_up(&mut self) {
        self.server = duplex(1).0;
    }

    /// Why the reader has ended.
    pub(super) async fn reason(&mut self) -> Error {
        self.reader.take().unwrap().await.unwrap()
    }
}

pub(super) fn pipeline_on(client: Box<dyn Stream>) -> Arc<Pipeline> {
    let stream = Limited::new(client, ServerEndpoint::Unix("here".to_owned()));
    let login = vec!["password".to_owned()];
    Arc::new(Pipeline::new(stream, login, PATIENCE))
}

pub(super) fn call(pipeline: &Arc<Pipeline>) -> PendingAnswer {
    let pipeline = Arc::clone(pipeline);
    let mut call = Box::pin(async move {
        let plan = plan();
        let write = |out: &mut Vec<u8>| plan.write(ScriptForm::Hash, out);
        pipeline.call(write, plan.fits()).await
    });
    // It is sent when it is polled first.
    match call.as_mut().now_or_never() {
        Some(answer) => Box::pin(ready(answer)),
        None => call,
    }
}

/// Lets all run that can.
pub(super) async fn turns() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn plan() -> Plan {
    let names = Names::new("s", ClientPrefix::None).unwrap();
    release::plan(&names, &LockId::parse(ID).unwrap(), None).unwrap()
}

/// The outcome of a release, as a transport makes it of the answer.
pub(super) async fn outcome(call: PendingAnswer) -> Result<ReleaseOutcome, Error> {
    let answer = call.await?;
    let plan = plan();
    let refused = |text: &str| plan.error(Cause::Reply(text));
    release::outcome(&answer.reply(refused)?)
}

pub(super) async fn is_not_sent(call: PendingAnswer) -> bool {
    // Whoever would wait for ever fails when the clock is set forward.
    let answer = tokio::time::timeout(LIMIT, call).await;
    matches!(answer, Ok(Ok(Answer::NotSent)))
}

/// A client that takes all it is given, and passes it on only when it is flushed: as TLS does.
pub(super) struct Buffering {
    pub(super) inner: DuplexStream,
    pub(super) taken: Vec<u8>,
}

impl AsyncRead for Buffering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Buffering {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.taken.extend_from_slice(buf);
        let _ = self.poll_flush(cx);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while !this.taken.is_empty() {
            let count = std::task::ready!(Pin::new(&mut this.inner).poll_write(cx, &this.taken))?;
            this.taken.drain(..count);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl Stream for Buffering {
    fn socket(&mut self) -> Option<&mut Socket> {
        None
    }
}
