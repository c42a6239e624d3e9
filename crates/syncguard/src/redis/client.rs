//! Connections by the crate `redis`.
//!
//! Each is made on a stream of our own and never made again by the driver: when it is lost,
//! everything in flight fails at once, and nothing is ever sent twice.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, Value, cmd};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::config::RedisConfig;
use super::error::{Cause, driver_error, error_text, to_error};
use super::limited::Limited;
use super::link::{Connection, Dial};
use super::native::{Answer, Evaluate, Form};
use super::plan::Plan;
use super::pulse::Pulse;
use super::reply::Reply;
use super::session;
use super::tls::Trust;
use crate::error::Error;

/// How many calls wait in the driver's queue before callers wait for a place in it.
const QUEUE: usize = 1024;
/// How many bytes the driver gathers before it must write.
const WRITE_BYTES: usize = 64 * 1024;

/// The shortest and the longest silence that makes a connection suspect.
const SUSPICION: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// Makes connections.
pub(super) struct Dialer(Arc<Target>);

/// What to connect to.
struct Target {
    config: RedisConfig,
    trust: Option<Trust>,
}

impl Dialer {
    /// Does no I/O.
    pub(super) fn new(config: &RedisConfig) -> Result<Self, Error> {
        Ok(Self(Arc::new(Target {
            config: config.clone(),
            trust: config.tls.as_ref().map(|tls| tls.read()).transpose()?,
        })))
    }
}

#[async_trait]
impl Dial for Dialer {
    type Connection = RedisConnection;

    async fn dial(&self) -> Result<RedisConnection, Error> {
        let stream = self.0.open().await?;
        RedisConnection::start(stream, Arc::clone(&self.0)).await
    }
}

impl Target {
    /// A stream that is ready for scripts. When none is to be had for a while, another attempt runs
    /// beside the first: packets may be lost for one connection and not for the next.
    async fn open(&self) -> Result<Limited, Error> {
        let open = || session::open(&self.config, self.trust.as_ref());
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

/// One connection. It ends when this is dropped.
pub(super) struct RedisConnection {
    driver: MultiplexedConnection,
    task: AbortHandle,
    lost: AtomicBool,
    pulse: Arc<Pulse>,
    watch: AbortHandle,
}

impl RedisConnection {
    /// On a stream where all is said that is to be said at the start.
    async fn start(stream: Limited, target: Arc<Target>) -> Result<Self, Error> {
        let pulse = stream.pulse();
        let nothing_to_say = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new()
            // Operations have a time limit of their own.
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(QUEUE)
            .set_write_backpressure_boundary(WRITE_BYTES);
        let (driver, running) =
            MultiplexedConnection::new_with_config(&nothing_to_say, stream, config)
                .await
                .map_err(|error| driver_error(&error, false))?;
        let mut running = tokio::spawn(running);
        let task = running.abort_handle();
        let (own, watched) = (driver.clone(), Arc::clone(&pulse));
        let limit = target.config.locks.operation_timeout;
        let suspicion = (limit / 8).clamp(SUSPICION[0], SUSPICION[1]);
        let watch = tokio::spawn(async move {
            let is_alive = || is_alive(own.clone(), suspicion, limit, &target);
            tokio::select! {
                _ = &mut running => {}
                () = watched.stops(suspicion, is_alive) => running.abort(),
            }
        });
        Ok(Self {
            driver,
            task,
            lost: AtomicBool::new(false),
            pulse,
            watch: watch.abort_handle(),
        })
    }
}

#[async_trait]
impl Evaluate for RedisConnection {
    async fn evaluate(&self, form: Form, plan: &Plan) -> Result<Answer, Error> {
        if !self.is_open() {
            return Err(to_error(Cause::Closed, false));
        }
        self.pulse.sent();
        // Fails at once when the driver ends.
        let value = self
            .driver
            .clone()
            .send_packed_command(&command(form, plan))
            .await;
        self.pulse.answered();
        match value {
            Ok(value) => answer(value),
            Err(error) => {
                // The driver's task may still be on its way out.
                self.close();
                Err(driver_error(&error, true))
            }
        }
    }
}

impl Connection for RedisConnection {
    fn is_open(&self) -> bool {
        !self.lost.load(SeqCst) && !self.task.is_finished()
    }

    fn close(&self) {
        self.lost.store(true, SeqCst);
        self.task.abort();
    }
}

impl Drop for RedisConnection {
    fn drop(&mut self) {
        self.task.abort();
        self.watch.abort();
    }
}

/// Whether a connection that has been silent for a while gives an answer. It is gone when one that is made
/// beside it gets answers and it gets none: a server that is busy, or stopped, answers on neither. It is
/// also gone when there is no answer for as long as an operation may take.
async fn is_alive(
    mut driver: MultiplexedConnection,
    suspicion: Duration,
    limit: Duration,
    target: &Target,
) -> bool {
    let ping = cmd("PING");
    let mut answer = pin!(driver.send_packed_command(&ping));
    if let Ok(answer) = timeout(suspicion, &mut answer).await {
        return answer.is_ok();
    }
    let beside = async {
        match target.open().await {
            // A server that was stopped goes on with both.
            Ok(_) => sleep(suspicion).await,
            Err(_) => pending().await,
        }
    };
    tokio::select! {
        answer = answer => answer.is_ok(),
        () = beside => false,
        () = sleep(limit.saturating_sub(suspicion * 2)) => false,
    }
}

/// The call, in the two buffers that the driver has for a call, which do not grow.
fn command(form: Form, plan: &Plan) -> Cmd {
    let (name, script) = match form {
        Form::Hash => ("EVALSHA", plan.script.sha()),
        Form::Source => ("EVAL", plan.script.source()),
    };
    let texts = || plan.keys.iter().chain(&plan.args);
    // The number of keys takes few digits.
    let bytes = name.len() + script.len() + 4 + texts().map(|text| text.len()).sum::<usize>();
    let mut command = Cmd::with_capacity(3 + plan.keys.len() + plan.args.len(), bytes);
    command.arg(name).arg(script).arg(plan.keys.len());
    for text in texts() {
        command.arg(text.as_ref());
    }
    command
}

fn answer(value: Value) -> Result<Answer, Error> {
    Ok(match value {
        Value::ServerError(error) => Answer::Refused(error_text(&error)),
        value => Answer::Reply(reply(value)?),
    })
}

fn reply(value: Value) -> Result<Reply, Error> {
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::BulkString(bytes) => Reply::Bulk(bytes),
        Value::SimpleString(text) => Reply::Bulk(text.into_bytes()),
        Value::Okay => Reply::Bulk(b"OK".to_vec()),
        Value::Array(items) => {
            Reply::Array(items.into_iter().map(reply).collect::<Result<_, _>>()?)
        }
        _ => return Err(to_error(Cause::Unreadable, true)),
    })
}
