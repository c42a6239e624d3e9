//! What reads a connection, and finds out whether it is alive.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use redis::cmd;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::pipeline::Pipeline;
use super::socket::LoopSocket;
use super::target::Target;
use crate::event_loop::{EventLoop, Interest, RawSocket, Source};
use crate::mutex::lock;
use crate::redis::answer::{Answer, lost};
use crate::redis::reply::is_pong;

/// What reads a pipeline. The pipeline ends with it, also where it is dropped with its runtime.
pub(super) struct Reading {
    pipeline: Arc<Pipeline>,
    target: Arc<Target>,
}

impl Reading {
    /// Reads on the event loop if there is one, else on tokio.
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
        self.pipeline.end(&reason);
        self.target.trouble();
    }

    /// Takes the socket from tokio to the event loop.
    fn on(self, event_loop: &Arc<dyn EventLoop>) {
        let socket = self.pipeline.with_stream(|stream| {
            let socket = stream.socket()?;
            socket.move_to_loop().ok()
        });
        // If that fails, there is nothing to read any more.
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

    fn turn(&self, is_readable: bool) -> Interest {
        self.socket.is_ready(is_readable);
        let mut reading = lock(&self.reading);
        let Some(Reading { pipeline, target }) = &*reading else {
            return Interest::Nothing;
        };
        match pipeline.poll_turn(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(reason) => {
                pipeline.end(&reason);
                target.trouble();
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

/// Whether a connection that has been silent for a while gives an answer. It is gone when one that is made
/// beside it gets answers and it gets none: a server that is busy, or stopped, answers on neither. It is
/// also gone when there is no answer for as long as an operation may take.
pub(super) async fn is_alive(
    pipeline: &Arc<Pipeline>,
    suspicion: Duration,
    limit: Duration,
    target: &Target,
) -> bool {
    let ping = |out: &mut Vec<u8>| cmd("PING").write_packed_command(out);
    let mut answer = pin!(async {
        let answer = pipeline.call(ping, is_pong).await;
        !matches!(answer, Err(_) | Ok(Answer::NotSent))
    });
    if let Ok(is_alive) = timeout(suspicion, &mut answer).await {
        return is_alive;
    }
    pipeline.look();
    if let Ok(is_alive) = timeout(Duration::ZERO, &mut answer).await {
        return is_alive;
    }
    target.trouble();
    let beside = async {
        match target.open().await {
            // A server that was stopped goes on with both.
            Ok(_) => sleep(suspicion).await,
            Err(_) => pending().await,
        }
    };
    tokio::select! {
        is_alive = &mut answer => return is_alive,
        () = beside => {}
        () = sleep(limit.saturating_sub(suspicion * 2)) => {}
    }
    pipeline.look();
    timeout(Duration::ZERO, answer).await.unwrap_or(false)
}
