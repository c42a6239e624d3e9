//! Reads a connection, on tokio or on an event loop, and finds out whether a silent one is still alive.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::pipeline::Pipeline;
use super::session::runs_scripts;
use super::socket::LoopSocket;
use super::target::{Opened, Target};
use crate::mutex::lock;
use crate::network::event_loop::{EventLoop, Interest, RawSocket, Readiness, Source};
use crate::redis::answer::lost;
use crate::redis::error::{Cause, to_error};
use crate::text::error::Error;

/// Reads a pipeline. When this is dropped, with its runtime for example, the pipeline ends: nobody would read its answers.
pub(super) struct Reading {
    pipeline: Arc<Pipeline>,
    target: Arc<Target>,
}

impl Reading {
    /// Starts to read, on the event loop if there is one, else on tokio.
    pub(super) fn start(
        pipeline: &Arc<Pipeline>,
        target: &Arc<Target>,
        event_loop: Option<&Arc<dyn EventLoop>>,
    ) {
        let reading = Self {
            pipeline: Arc::clone(pipeline),
            target: Arc::clone(target),
        };
        match event_loop {
            Some(event_loop) => reading.on(event_loop),
            None => drop(tokio::spawn(reading.on_tokio())),
        }
    }

    async fn on_tokio(self) {
        let reason = self.pipeline.read().await;
        self.ends(&reason);
    }

    fn ends(&self, reason: &Error) {
        self.pipeline.end(reason);
        self.pipeline.note_loss(self.target.losses());
        self.target.trouble();
    }

    /// Takes the socket from tokio to the event loop.
    fn on(self, event_loop: &Arc<dyn EventLoop>) {
        let socket = self.pipeline.with_stream(|stream| {
            let socket = stream.socket()?;
            socket.move_to_loop().ok()
        });
        // If that fails, the socket is lost, and dropping `self` ends the pipeline.
        let Some(socket) = socket.flatten() else {
            return;
        };
        let source = Arc::new(LoopPipeline {
            reading: Mutex::new(Some(self)),
            socket,
            waker: Waker::from(Arc::new(LoopWaker(Arc::clone(event_loop)))),
            runtime: Handle::current(),
        });
        if let Err(source) = event_loop.watch(source) {
            source.leave();
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.pipeline.end(&lost());
    }
}

/// A pipeline that is read by an event loop.
struct LoopPipeline {
    reading: Mutex<Option<Reading>>,
    socket: Arc<LoopSocket>,
    waker: Waker,
    runtime: Handle,
}

struct LoopWaker(Arc<dyn EventLoop>);

impl Wake for LoopWaker {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake();
    }
}

impl Source for LoopPipeline {
    fn socket(&self) -> RawSocket {
        self.socket.raw()
    }

    fn turn(&self, readiness: Readiness) -> Interest {
        self.socket.is_ready(readiness);
        let mut reading = lock(&self.reading);
        let Some(reads) = &*reading else {
            return Interest::Nothing;
        };
        match reads
            .pipeline
            .poll_turn(&mut Context::from_waker(&self.waker))
        {
            Poll::Ready(reason) => {
                reads.ends(&reason);
                *reading = None;
                Interest::Nothing
            }
            Poll::Pending if self.socket.is_full() => Interest::ReadAndWrite,
            Poll::Pending => Interest::Read,
        }
    }

    fn leave(&self) {
        let Some(reading) = lock(&self.reading).take() else {
            return;
        };
        let _on_it = self.runtime.enter();
        let is_back = reading.pipeline.with_stream(|stream| {
            let socket = stream.socket();
            socket.is_some_and(|socket| socket.move_back().is_ok())
        });
        if is_back == Some(true) {
            self.runtime.spawn(reading.on_tokio());
        }
    }
}

/// Tests whether a silent connection is gone.
pub(super) struct SilenceTest {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) target: Arc<Target>,
    /// How long a server that is not busy may take to answer.
    pub(super) patience: Duration,
    /// How long an operation may take.
    pub(super) limit: Duration,
}

impl SilenceTest {
    /// Tests a connection on which calls wait in silence. Gives the reason if it is gone, and `None` if it may be alive.
    ///
    /// The test opens a second connection. If the server answers there and stays silent here, this connection is gone, and the
    /// second one is kept for whoever needs the next. A server that is busy, stopped, or has paused writes answers on neither.
    /// If both stay silent for as long as an operation may take, the connection is gone, too.
    pub(super) async fn run(&self) -> Option<Error> {
        let start = Instant::now();
        self.target.trouble();
        let has_heard = || self.pipeline.has_heard_since(start);
        let beside = tokio::select! {
            () = self.pipeline.liveness().hears(has_heard) => return None,
            beside = self.beside() => Some(beside),
            () = sleep(self.limit) => None,
        };
        self.pipeline.look();
        if has_heard() {
            return None;
        }
        let Some(beside) = beside else {
            return Some(to_error(Cause::Silent, true));
        };
        self.target.keep(beside);
        Some(to_error(Cause::GoneSilent, true))
    }

    /// Opens the second connection. Completes once the server has answered there, and has had time to answer here.
    async fn beside(&self) -> Opened {
        let answered = || async {
            let mut opened = self.target.open_now().await?;
            runs_scripts(&mut opened.stream).await?;
            Ok::<_, Error>(opened)
        };
        let opened = loop {
            match answered().await {
                Ok(opened) => break opened,
                Err(error) if error.kind().is_transient() => sleep(self.patience).await,
                // More attempts may do harm, for example with a wrong password.
                Err(_) => return pending().await,
            }
        };
        // A server that was stopped and goes on now needs a moment to answer here, too.
        let left = self.pipeline.needed_by();
        let left = left.map(|by| by.saturating_duration_since(Instant::now()));
        sleep(left.map_or(self.patience, |left| self.patience.min(left / 4))).await;
        opened
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::super::limited::Limited;
    use super::super::stream::ServerEndpoint;
    use super::*;
    use crate::redis::config::{RedisConfig, RedisServer};

    #[tokio::test]
    async fn a_connection_beside_that_fails_is_made_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = RedisServer::Tcp {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
        };
        let config = RedisConfig {
            server,
            ..RedisConfig::default()
        };
        tokio::spawn(async move {
            // Without an answer.
            drop(listener.accept().await);
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut bytes = [0; 1024];
                    while let Ok(1..) = stream.read(&mut bytes).await {
                        stream.write_all(b"+PONG\r\n").await.unwrap();
                    }
                });
            }
        });
        let (_silent, client) = duplex(64);
        let endpoint = ServerEndpoint::Unix("here".to_owned());
        let stream = Limited::new(Box::new(client), endpoint);
        let patience = Duration::from_millis(10);
        let test = SilenceTest {
            pipeline: Arc::new(Pipeline::new(stream, Vec::new(), patience)),
            target: Arc::new(Target::new(&config).unwrap()),
            patience,
            limit: Duration::from_secs(3600),
        };
        let reason = timeout(Duration::from_secs(20), test.run()).await.unwrap();
        let words = "answers on another one";
        assert!(reason.unwrap().message().contains(words));
    }
}
