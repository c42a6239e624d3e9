//! The connections to one server that run scripts.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::cmd;
use tokio::task::AbortHandle;

use super::confirming::Confirming;
use super::limited::CALLERS_LIMIT;
use super::link::{Connection, Dial, Link};
use super::pipeline::Pipeline;
use super::reading::{Reading, SilenceTest};
use super::target::{Opened, Target};
use super::term::{Term, over};
use crate::network::event_loop::{EventLoop, Lane};
use crate::redis::answer::{Answer, former, lost};
use crate::redis::error::{Cause, reply_code, to_error};
use crate::redis::plan::{Plan, ScriptForm};
use crate::redis::replication::Replication;
use crate::redis::reply::{is_count, is_ok};
use crate::text::error::Error;

/// The longest time for which calls wait while the server refuses connections: it may be restarting.
pub(in crate::redis) const PATIENCE: Duration = Duration::from_secs(1);

/// The shortest and the longest silence that makes a connection suspect, unless a call is needed sooner.
const SUSPICION: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// How long a server may take to give a sign of life after a long silence, or once it has answered on another connection. It
/// gets more where connections take long to open, and never more than a quarter of an operation's time.
const SIGN_OF_LIFE: Duration = Duration::from_millis(100);

/// The connections to one server. Each is made when it is needed.
pub(in crate::redis) struct Connections {
    /// Lives on the caller's event loop, for calls from its thread.
    here: Option<(Arc<dyn EventLoop>, Link<Dialer>)>,
    /// Lives on tokio, for all other calls: heartbeats and releases must not wait for a thread that is busy with something else.
    link: Link<Dialer>,
    /// Sends acquisitions that wait for replicas. While a connection waits, the server runs nothing else of it.
    waiting: Link<Dialer>,
    /// Sends extensions that wait for replicas, so that they do not wait behind acquisitions.
    extending: Link<Dialer>,
}

impl Connections {
    /// Connects to nothing yet. Calls wait for `patience` while the server refuses connections.
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
            extending: link(None),
        }
    }

    /// The connection for a plan that is called from this thread.
    pub(in crate::redis) fn for_plan(&self, plan: &Plan) -> &Link<Dialer> {
        match (plan.replication(), &self.here) {
            (Some(replication), _) if replication.is_extension() => &self.extending,
            (Some(_), _) => &self.waiting,
            (None, Some((event_loop, here))) if event_loop.is_current() => here,
            (None, _) => &self.link,
        }
    }

    /// The lane of plans that are called from this thread and wait for no replicas.
    pub(in crate::redis) fn lane(&self) -> Lane {
        lane_of(self.here.as_ref().map(|(event_loop, _)| event_loop))
    }

    /// Why the server cannot be reached at this moment, if that is known.
    pub(in crate::redis) fn trouble(&self) -> Option<Error> {
        self.all().find_map(Link::trouble)
    }

    /// Ends the present connections. Later calls make new ones.
    pub(super) fn give_up(&self) {
        for connection in self.all().filter_map(Link::current) {
            connection.give_up();
        }
    }

    /// Ends all connections for good.
    pub(super) fn close(&self) {
        self.all().for_each(Link::close);
    }

    fn all(&self) -> impl Iterator<Item = &Link<Dialer>> {
        let here = self.here.as_ref().map(|(_, here)| here);
        here.into_iter()
            .chain([&self.link, &self.waiting, &self.extending])
    }
}

/// The lane of calls from this thread, where `event_loop` is the one that has connections of its own.
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

/// Makes connections that live on tokio, or on the event loop. When one is lost, all that is under way on it fails, and
/// [`Link`](super::link::Link) asks for another.
pub(in crate::redis) struct Dialer {
    pub(super) target: Arc<Target>,
    pub(super) event_loop: Option<Arc<dyn EventLoop>>,
}

#[async_trait]
impl Dial for Dialer {
    type Connection = ScriptConnection;

    async fn dial(&self) -> Result<ScriptConnection, Error> {
        let opened = self.target.next().await?;
        let target = Arc::clone(&self.target);
        let event_loop = self.event_loop.as_ref();
        Ok(ScriptConnection::start(opened, target, event_loop))
    }

    fn switch_count(&self) -> u64 {
        self.target.switch_count()
    }

    async fn moved(&self) {
        self.target.moved().await
    }

    fn made(&self) {
        self.target.losses().made();
    }
}

/// A connection that runs scripts. It ends when this is dropped.
pub(in crate::redis) struct ScriptConnection {
    pipeline: Arc<Pipeline>,
    /// Ends when another server becomes the primary, where somebody tells.
    term: Option<Term>,
    target: Arc<Target>,
    confirming: Confirming,
    watch: AbortHandle,
}

impl ScriptConnection {
    /// Starts on a stream that is logged in. The connection lives on the event loop if there is one, else on tokio.
    pub(super) fn start(
        opened: Opened,
        target: Arc<Target>,
        event_loop: Option<&Arc<dyn EventLoop>>,
    ) -> Self {
        let limit = target.config().locks.operation_timeout;
        // To open it took two round trips at least, so twice that time is plenty for one.
        let patience = (opened.took * 2).max(SIGN_OF_LIFE).min(limit / 4);
        let term = opened.stream.term();
        let pipeline = Arc::new(Pipeline::new(opened.stream, opened.login, patience));
        Reading::start(&pipeline, &target, event_loop);
        let its_term = term.clone();
        let suspicion = (limit / 8).clamp(SUSPICION[0], SUSPICION[1]);
        let test = SilenceTest {
            pipeline: Arc::clone(&pipeline),
            target: Arc::clone(&target),
            patience,
            limit,
        };
        let watch = tokio::spawn(async move {
            let pipeline = &test.pipeline;
            let suspect_at = || pipeline.suspect_at(suspicion);
            let stops = pipeline
                .liveness()
                .stops(suspect_at, || pipeline.look(), || test.run());
            let reason = tokio::select! {
                reason = stops => reason,
                () = over(its_term) => former(),
            };
            pipeline.end(&reason);
        });
        Self {
            pipeline,
            term,
            target,
            confirming: Confirming::default(),
            watch: watch.abort_handle(),
        }
    }

    /// Fails the calls under way, because the server is not the primary any more.
    fn give_up(&self) {
        self.pipeline.end(&former());
    }

    /// Whether no other server is known to be the primary.
    fn is_to_primary(&self) -> bool {
        self.term.as_ref().is_none_or(Term::is_current)
    }

    /// Runs a script. If the plan asks for replicas, the answer comes only once so many of them have what was written.
    pub(in crate::redis) async fn run(
        &self,
        form: ScriptForm,
        plan: &Plan,
    ) -> Result<Answer, Error> {
        if !self.is_to_primary() {
            return Ok(Answer::NotSent);
        }
        if plan.is_callers() {
            self.pipeline
                .with_stream(|stream| stream.allow(CALLERS_LIMIT));
        }
        let answer = match plan.replication() {
            None => self.call(form, plan).await,
            Some(replication) => Box::pin(self.run_replicated(form, plan, replication)).await,
        };
        if let Ok(Answer::Refused(text)) = &answer
            && matches!(reply_code(text), Some("READONLY" | "NOREPLICAS"))
        {
            self.target.doubt();
        }
        answer
    }

    async fn call(&self, form: ScriptForm, plan: &Plan) -> Result<Answer, Error> {
        let write = |out: &mut Vec<u8>| plan.write(form, out);
        let call = self.pipeline.call_by(plan.needed_by(), write, plan.fits());
        self.believed(plan, call.await?)
    }

    async fn run_replicated(
        &self,
        form: ScriptForm,
        plan: &Plan,
        replication: Replication,
    ) -> Result<Answer, Error> {
        if replication.is_extension() {
            let answer = self.call(form, plan).await?;
            return self.confirmed(replication, answer).await;
        }
        let mut script = Vec::new();
        plan.write(form, &mut script);
        self.pipeline.is_held_up(replication.limit());
        let wait = |out: &mut Vec<u8>| replication.command().write_packed_command(out);
        let pair = self.pipeline.pair(&script, plan.fits(), wait, is_count);
        let Some((answer, waited)) = pair else {
            return Ok(Answer::NotSent);
        };
        let answer = self.believed(plan, answer.wait().await?)?;
        if !Replication::is_about(&answer) {
            return Ok(answer);
        }
        let waited = waited.wait().await.map_err(Error::with_unknown_outcome)?;
        let confirmed = replication.enough(replication.count(waited)?);
        confirmed.map_err(|error| self.unconfirmed(error))?;
        Ok(answer)
    }

    /// Gives on the answer to a script that this connection has run, once enough replicas have what it wrote.
    async fn confirmed(&self, replication: Replication, answer: Answer) -> Result<Answer, Error> {
        if !Replication::is_about(&answer) {
            return Ok(answer);
        }
        let confirmed = self.confirming.confirm(&self.pipeline, replication).await;
        confirmed.map_err(|error| self.unconfirmed(error))?;
        Ok(answer)
    }

    /// Notes that too few replicas have a write. A primary that has lost its replicas may be a former one, so it is doubted.
    fn unconfirmed(&self, error: Error) -> Error {
        self.target.doubt();
        error.with_unknown_outcome()
    }

    /// Gives on the answer, unless it belongs to another call. Then nobody knows whose the answers behind it are, so the
    /// connection ends.
    fn believed(&self, plan: &Plan, answer: Answer) -> Result<Answer, Error> {
        match (&answer, plan.tag()) {
            (Answer::Reply(reply), Some(tag)) if !tag.may_be_of(reply) => {
                let reason = to_error(Cause::Misfit, true);
                self.pipeline.end(&reason);
                Err(reason)
            }
            _ => Ok(answer),
        }
    }

    /// Runs a script in a hash slot that is about to move to this node. `ASKING` goes right before it, and its answer comes first.
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
        let answer = self.believed(plan, answer)?;
        // The wait goes over the same connection, so it covers what the script has written.
        match plan.replication() {
            Some(replication) => Ok((first, self.confirmed(replication, answer).await?)),
            None => Ok((first, answer)),
        }
    }
}

impl Connection for ScriptConnection {
    fn is_open(&self) -> bool {
        // After its term the connection ends soon, and must be sent nothing until then.
        self.pipeline.is_open() && self.is_to_primary()
    }

    fn reason(&self) -> Option<&Error> {
        self.pipeline.reason()
    }

    fn lost(&self) {
        self.pipeline.note_loss(self.target.losses());
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
