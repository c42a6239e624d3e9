//! Connections to one server, which run scripts.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::cmd;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::limited::{CALLERS_LIMIT, Limited};
use super::link::{Connection, Dial, Link};
use super::pipeline::Pipeline;
use super::reading::{Reading, is_alive};
use super::target::Target;
use crate::error::Error;
use crate::event_loop::{EventLoop, Lane};
use crate::redis::answer::{Answer, lost};
use crate::redis::plan::{Plan, ScriptForm};
use crate::redis::replication::Replication;
use crate::redis::reply::{is_count, is_ok};

/// How long calls wait, at most, while the server refuses connections, because it may be restarting.
pub(in crate::redis) const PATIENCE: Duration = Duration::from_secs(1);

/// The shortest and the longest silence that makes a connection suspect.
const SUSPICION: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// How long a server may take to give a sign of life after a long silence: more if connections take long to open,
/// and never more than a quarter of an operation's time.
const SIGN_OF_LIFE: Duration = Duration::from_millis(100);

/// Each is made when it is needed.
pub(in crate::redis) struct Connections {
    /// On the caller's event loop, for what is called there.
    here: Option<(Arc<dyn EventLoop>, Link<Dialer>)>,
    /// On tokio, for all others: heartbeats and releases must not wait for a thread that is busy with something else.
    link: Link<Dialer>,
    /// For plans that wait for replicas: the server runs nothing else of a connection that waits.
    waiting: Link<Dialer>,
}

impl Connections {
    /// Calls wait for `patience` while the server refuses connections.
    pub(in crate::redis) fn new(
        target: &Arc<Target>,
        event_loop: Option<&Arc<dyn EventLoop>>,
        patience: Duration,
    ) -> Self {
        let link = |event_loop: Option<&Arc<dyn EventLoop>>| {
            let dialer = Dialer {
                target: Arc::clone(target),
                event_loop: event_loop.cloned(),
            };
            Link::new(dialer, patience)
        };
        Self {
            here: event_loop.map(|here| (Arc::clone(here), link(Some(here)))),
            link: link(None),
            waiting: link(None),
        }
    }

    /// The one for a plan that is called from where this is asked.
    pub(in crate::redis) fn for_plan(&self, plan: &Plan) -> &Link<Dialer> {
        match &self.here {
            _ if plan.replication().is_some() => &self.waiting,
            Some((event_loop, here)) if event_loop.is_current() => here,
            _ => &self.link,
        }
    }

    /// The lane of plans that are called from where this is asked, and wait for no replicas.
    pub(in crate::redis) fn lane(&self) -> Lane {
        lane_of(self.here.as_ref().map(|(event_loop, _)| event_loop))
    }

    /// Why the server cannot be reached at this moment, if that is known.
    pub(in crate::redis) fn trouble(&self) -> Option<Error> {
        self.all().find_map(Link::trouble)
    }

    /// Ends them for good.
    pub(super) fn close(&self) {
        self.all().for_each(Link::close);
    }

    fn all(&self) -> impl Iterator<Item = &Link<Dialer>> {
        let here = self.here.as_ref().map(|(_, here)| here);
        here.into_iter().chain([&self.link, &self.waiting])
    }
}

/// The lane of what is called from where this is asked, where that event loop has connections.
pub(super) fn lane_of(event_loop: Option<&Arc<dyn EventLoop>>) -> Lane {
    match event_loop.is_some_and(|event_loop| event_loop.is_current()) {
        true => Lane::EventLoop,
        false => Lane::Runtime,
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.close();
    }
}

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
        Reading::start(&pipeline, &target, event_loop);
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
    pub(in crate::redis) async fn run(
        &self,
        form: ScriptForm,
        plan: &Plan,
    ) -> Result<Answer, Error> {
        if plan.is_callers() {
            self.pipeline
                .with_stream(|stream| stream.allow(CALLERS_LIMIT));
        }
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
        form: ScriptForm,
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
        form: ScriptForm,
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

#[cfg(test)]
mod tests;
