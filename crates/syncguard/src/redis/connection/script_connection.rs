//! One connection that runs scripts.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_trait::async_trait;
use redis::cmd;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::limited::Limited;
use super::link::{Connection, Dial};
use super::pipeline::Pipeline;
use super::socket::LoopSocket;
use super::target::Target;
use crate::error::Error;
use crate::event_loop::{EventLoop, Interest, RawSocket, Source};
use crate::mutex::lock;
use crate::redis::answer::{Answer, lost};
use crate::redis::plan::{Form, Plan};
use crate::redis::replication::Replication;
use crate::redis::reply::{is_count, is_ok, is_pong};

/// The shortest and the longest silence that makes a connection suspect.
const SUSPICION: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// How long a server may take to give a sign of life after a long silence: more if connections take long to open,
/// and never more than a quarter of an operation's time.
const SIGN_OF_LIFE: Duration = Duration::from_millis(100);

/// Makes connections that live on tokio, or on the event loop.
///
/// None is ever made again: when one is lost, all that is under way on it fails, and [`Link`](super::link::Link)
/// asks for another.
pub(in crate::redis) struct Dialer {
    pub(super) target: Arc<Target>,
    pub(super) event_loop: Option<Arc<dyn EventLoop>>,
}

#[async_trait]
impl Dial for Dialer {
    type Connection = ScriptConnection;

    async fn dial(&self) -> Result<ScriptConnection, Error> {
        let target = Arc::clone(&self.target);
        let config = target.config().current().await?;
        let start = Instant::now();
        let stream = target.open_with(&config).await?;
        let login = [&config.username, &config.password];
        let login = login.into_iter().flatten().cloned().collect();
        let (took, event_loop) = (start.elapsed(), self.event_loop.as_ref());
        Ok(ScriptConnection::start(
            stream, login, took, target, event_loop,
        ))
    }
}

/// A connection that runs scripts. It ends when this is dropped.
pub(in crate::redis) struct ScriptConnection {
    pipeline: Arc<Pipeline>,
    watch: AbortHandle,
}

impl ScriptConnection {
    /// On a stream where all is said that is to be said at the start, which took that long. What was said of `login` is in
    /// no message. It lives on the event loop if there is one, else on tokio.
    pub(super) fn start(
        stream: Limited,
        login: Vec<String>,
        took: Duration,
        target: Arc<Target>,
        event_loop: Option<&Arc<dyn EventLoop>>,
    ) -> Self {
        let limit = target.config().locks.operation_timeout;
        // Opening takes two round trips at least.
        let patience = (took * 2).max(SIGN_OF_LIFE).min(limit / 4);
        let pipeline = Arc::new(Pipeline::new(stream, login, patience));
        let reading = Reading {
            pipeline: Arc::clone(&pipeline),
            target: Arc::clone(&target),
        };
        match event_loop {
            Some(event_loop) => reading.on(event_loop),
            None => drop(tokio::spawn(reading.on_tokio())),
        }
        let watched = Arc::clone(&pipeline);
        let suspicion = (limit / 8).clamp(SUSPICION[0], SUSPICION[1]);
        let watch = tokio::spawn(async move {
            let is_alive = || is_alive(&watched, suspicion, limit, &target);
            let look = || watched.look();
            watched.liveness().stops(suspicion, look, is_alive).await;
            watched.end(&lost());
        });
        Self {
            pipeline,
            watch: watch.abort_handle(),
        }
    }

    /// Runs a script. What it grants counts once the replicas have it that the plan asks for.
    pub(in crate::redis) async fn run(&self, form: Form, plan: &Plan) -> Result<Answer, Error> {
        match plan.replication() {
            None => {
                let write = |out: &mut Vec<u8>| plan.write(form, out);
                self.pipeline.call(write, plan.fits()).await
            }
            Some(replication) => Box::pin(self.run_replicated(form, plan, replication)).await,
        }
    }

    async fn run_replicated(
        &self,
        form: Form,
        plan: &Plan,
        replication: Replication,
    ) -> Result<Answer, Error> {
        let mut script = Vec::new();
        plan.write(form, &mut script);
        let wait = |out: &mut Vec<u8>| replication.command().write_packed_command(out);
        let pair = self.pipeline.pair(&script, plan.fits(), wait, is_count);
        let Some((answer, waited)) = pair else {
            return Ok(Answer::NotSent);
        };
        let answer = answer.wait().await?;
        if !Replication::is_about(&answer) {
            return Ok(answer);
        }
        let waited = waited.wait().await;
        replication.confirmed(answer, waited.map_err(Error::with_unknown_outcome)?)
    }

    /// Runs a script in a slot that is about to move to this node: right after `ASKING`, whose answer is the first.
    pub(in crate::redis) async fn run_asking(
        &self,
        form: Form,
        plan: &Plan,
    ) -> Result<(Answer, Answer), Error> {
        let asking = cmd("ASKING").get_packed_command();
        let write = |out: &mut Vec<u8>| plan.write(form, out);
        let pair = self.pipeline.pair(&asking, is_ok, write, plan.fits());
        let Some((first, answer)) = pair else {
            return Ok((Answer::NotSent, Answer::NotSent));
        };
        let (first, answer) = (first.wait().await?, answer.wait().await?);
        let replication = plan.replication();
        let Some(replication) = replication.filter(|_| Replication::is_about(&answer)) else {
            return Ok((first, answer));
        };
        // On the same connection, and so about what the script has written.
        let wait = |out: &mut Vec<u8>| replication.command().write_packed_command(out);
        let waited = self.pipeline.call(wait, is_count).await;
        let waited = waited.map_err(Error::with_unknown_outcome)?;
        Ok((first, replication.confirmed(answer, waited)?))
    }
}

impl Connection for ScriptConnection {
    fn is_open(&self) -> bool {
        self.pipeline.is_open()
    }

    fn reason(&self) -> Option<&Error> {
        self.pipeline.reason()
    }

    fn close(&self) {
        self.pipeline.end(&lost());
    }
}

impl Drop for ScriptConnection {
    fn drop(&mut self) {
        self.watch.abort();
        self.close();
    }
}

/// What reads a pipeline. The pipeline ends with it, also where it is dropped with its runtime.
struct Reading {
    pipeline: Arc<Pipeline>,
    target: Arc<Target>,
}

impl Reading {
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
        let source = Arc::new(OnLoop {
            reading: Mutex::new(Some(self)),
            socket,
            waker: Waker::from(Arc::new(WakesLoop(Arc::clone(event_loop)))),
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
struct OnLoop {
    reading: Mutex<Option<Reading>>,
    socket: Arc<LoopSocket>,
    waker: Waker,
    runtime: Handle,
}

struct WakesLoop(Arc<dyn EventLoop>);

impl Wake for WakesLoop {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake();
    }
}

impl Source for OnLoop {
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
async fn is_alive(
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

#[cfg(test)]
mod tests;
