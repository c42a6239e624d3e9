//! Makes connections.
//!
//! None is ever made again: when one is lost, all that is under way on it fails, and [`Link`](super::link::Link)
//! asks for another.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::cmd;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::call::{Call, lost};
use super::config::{RedisConfig, RedisServer};
use super::limited::Limited;
use super::link::{Connection, Dial};
use super::pipeline::{Answer, Fits, Pipeline, Waiting};
use super::plan::{Form, Plan};
use super::replication::Replication;
use super::reply::{is_count, is_ok, is_pong};
use super::session;
use super::tls::TlsContext;
use crate::error::Error;

/// The shortest and the longest silence that makes a connection suspect.
const SUSPICION: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// How long a server may take to give a sign of life after a long silence: more if connections take long to open,
/// and never more than a quarter of an operation's time.
const SIGN_OF_LIFE: Duration = Duration::from_millis(100);

/// Makes connections.
pub(super) struct Dialer(pub(super) Arc<Target>);

/// What to connect to.
#[derive(Clone)]
pub(super) struct Target {
    config: RedisConfig,
    tls: Option<TlsContext>,
    /// Is called when a connection is lost, or silent for so long that it may be.
    on_trouble: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Dialer {
    /// Does no I/O.
    pub(super) fn new(config: &RedisConfig) -> Result<Self, Error> {
        Ok(Self(Arc::new(Target::new(config)?)))
    }
}

#[async_trait]
impl Dial for Dialer {
    type Connection = ScriptConnection;

    async fn dial(&self) -> Result<ScriptConnection, Error> {
        let config = self.0.config.current().await?;
        let start = Instant::now();
        let stream = self.0.open_with(&config).await?;
        let login = [&config.username, &config.password];
        let login = login.into_iter().flatten().cloned().collect();
        let target = Arc::clone(&self.0);
        Ok(ScriptConnection::start(
            stream,
            login,
            start.elapsed(),
            target,
        ))
    }
}

impl Target {
    /// Does no I/O.
    pub(super) fn new(config: &RedisConfig) -> Result<Self, Error> {
        Ok(Self {
            config: config.clone(),
            tls: config.tls.as_ref().map(|tls| tls.read()).transpose()?,
            on_trouble: None,
        })
    }

    /// Another server, which is reached in the same way.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        let mut other = self.clone();
        other.config.server = RedisServer::Tcp {
            host: host.to_owned(),
            port,
        };
        other
    }

    /// Calls `on_trouble` when a connection is lost, or silent for so long that it may be.
    pub(super) fn with_trouble(mut self, on_trouble: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_trouble = Some(Arc::new(on_trouble));
        self
    }

    pub(super) fn config(&self) -> &RedisConfig {
        &self.config
    }

    pub(super) fn tls(&self) -> Option<&TlsContext> {
        self.tls.as_ref()
    }

    fn trouble(&self) {
        if let Some(on_trouble) = &self.on_trouble {
            on_trouble();
        }
    }

    /// A stream that is ready for scripts. When none is to be had for a while, another attempt runs
    /// beside the first: packets may be lost for one connection and not for the next.
    pub(super) async fn open(&self) -> Result<Limited, Error> {
        self.open_with(&*self.config.current().await?).await
    }

    async fn open_with(&self, config: &RedisConfig) -> Result<Limited, Error> {
        let open = || session::open(config, self.tls.as_ref());
        let mut first = pin!(open());
        if let Ok(answer) = timeout(self.config.connect_timeout / 4, &mut first).await {
            return answer;
        }
        let mut second = pin!(open());
        tokio::select! {
            answer = &mut first => match answer {
                Err(error) if error.kind().is_transient() => second.await,
                answer => answer,
            },
            answer = &mut second => match answer {
                Err(error) if error.kind().is_transient() => first.await,
                answer => answer,
            },
        }
    }
}

/// A connection that runs scripts. It ends when this is dropped.
pub(super) struct ScriptConnection {
    pipeline: Arc<Pipeline>,
    watch: AbortHandle,
}

impl ScriptConnection {
    /// On a stream where all is said that is to be said at the start, which took that long. What was said of `login` is in
    /// no message.
    fn start(stream: Limited, login: Vec<String>, took: Duration, target: Arc<Target>) -> Self {
        let config = &target.config;
        let limit = config.locks.operation_timeout;
        // Opening takes two round trips at least.
        let patience = (took * 2).max(SIGN_OF_LIFE).min(limit / 4);
        let pipeline = Arc::new(Pipeline::new(stream, login, patience));
        let reader = End(Arc::clone(&pipeline));
        let at = Arc::clone(&target);
        tokio::spawn(async move {
            let reason = reader.0.read().await;
            reader.0.end(&reason);
            at.trouble();
        });
        let watched = Arc::clone(&pipeline);
        let suspicion = (limit / 8).clamp(SUSPICION[0], SUSPICION[1]);
        let watch = tokio::spawn(async move {
            let is_alive = || is_alive(&watched, suspicion, limit, &target);
            watched.liveness().stops(suspicion, is_alive).await;
            watched.end(&lost());
        });
        Self {
            pipeline,
            watch: watch.abort_handle(),
        }
    }

    /// Runs a script, for a task. What it grants counts once the replicas have it that the plan asks for.
    pub(super) async fn run(&self, form: Form, plan: &Plan) -> Result<Answer, Error> {
        let Some(replication) = plan.replication() else {
            return ask(&self.pipeline, |out| plan.write(form, out), plan.fits()).await;
        };
        let mut script = Vec::new();
        plan.write(form, &mut script);
        let wait = |out: &mut Vec<u8>| replication.command().write_packed_command(out);
        let Some((answer, waited)) = self.pair((&script, plan.fits()), wait, is_count) else {
            return Ok(Answer::NotSent);
        };
        let answer = answered(answer).await?;
        if !Replication::is_about(&answer) {
            return Ok(answer);
        }
        let waited = answered(waited).await;
        replication.confirmed(answer, waited.map_err(Error::with_unknown_outcome)?)
    }

    /// Runs a script in a slot that is about to move to this node: right after `ASKING`, whose answer is the first.
    pub(super) async fn run_asking(
        &self,
        form: Form,
        plan: &Plan,
    ) -> Result<(Answer, Answer), Error> {
        let asking = cmd("ASKING").get_packed_command();
        let write = |out: &mut Vec<u8>| plan.write(form, out);
        let Some((first, answer)) = self.pair((&asking, is_ok), write, plan.fits()) else {
            return Ok((Answer::NotSent, Answer::NotSent));
        };
        let (first, answer) = (answered(first).await?, answered(answer).await?);
        let replication = plan.replication();
        let Some(replication) = replication.filter(|_| Replication::is_about(&answer)) else {
            return Ok((first, answer));
        };
        // On the same connection, and so about what the script has written.
        let wait = |out: &mut Vec<u8>| replication.command().write_packed_command(out);
        let waited = ask(&self.pipeline, wait, is_count).await;
        let waited = waited.map_err(Error::with_unknown_outcome)?;
        Ok((first, replication.confirmed(answer, waited)?))
    }

    /// Sends two calls, one right behind the other: the bytes of the first and what fits it, and the second. `None`:
    /// nothing is to be sent here any more.
    fn pair(
        &self,
        (first, first_fits): (&[u8], Fits),
        second: impl FnOnce(&mut Vec<u8>),
        fits: Fits,
    ) -> Option<(Answered, Answered)> {
        let (first_sender, first_answer) = oneshot::channel();
        let (sender, answer) = oneshot::channel();
        let first = Some((first, first_fits, Waiting::Task(first_sender)));
        let second = self
            .pipeline
            .calls(first, second, fits, Waiting::Task(sender));
        second.is_ok().then_some((first_answer, answer))
    }

    /// Runs a script, for nobody who waits: see [`Transport::send`](super::Transport::send).
    pub(super) fn send(&self, plan: &Plan, call: Call) -> bool {
        let write = |out: &mut Vec<u8>| plan.write(Form::Hash, out);
        match self.pipeline.call(write, plan.fits(), Waiting::Call(call)) {
            Ok(is_kept) => is_kept,
            Err(waiting) => {
                if let Waiting::Call(call) = *waiting {
                    call.not_sent();
                }
                false
            }
        }
    }

    pub(super) fn flush(&self) {
        self.pipeline.flush();
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

/// Ends the pipeline also where the task that reads is dropped, with its runtime.
struct End(Arc<Pipeline>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end(&lost());
    }
}

async fn ask(
    pipeline: &Pipeline,
    write: impl FnOnce(&mut Vec<u8>),
    fits: Fits,
) -> Result<Answer, Error> {
    let (sender, answer) = oneshot::channel();
    if pipeline.call(write, fits, Waiting::Task(sender)).is_err() {
        return Ok(Answer::NotSent);
    }
    answered(answer).await
}

/// Where an answer arrives.
type Answered = oneshot::Receiver<Result<Answer, Error>>;

async fn answered(answer: Answered) -> Result<Answer, Error> {
    answer.await.unwrap_or_else(|_| Err(lost()))
}

/// Whether a connection that has been silent for a while gives an answer. It is gone when one that is made
/// beside it gets answers and it gets none: a server that is busy, or stopped, answers on neither. It is
/// also gone when there is no answer for as long as an operation may take.
async fn is_alive(
    pipeline: &Pipeline,
    suspicion: Duration,
    limit: Duration,
    target: &Target,
) -> bool {
    let ping = |out: &mut Vec<u8>| cmd("PING").write_packed_command(out);
    let mut answer = pin!(async {
        let answer = ask(pipeline, ping, is_pong).await;
        !matches!(answer, Err(_) | Ok(Answer::NotSent))
    });
    if let Ok(is_alive) = timeout(suspicion, &mut answer).await {
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
        is_alive = answer => is_alive,
        () = beside => false,
        () = sleep(limit.saturating_sub(suspicion * 2)) => false,
    }
}
