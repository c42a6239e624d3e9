//! Redis through a client or a pool of fred.

use std::time::Duration;

use fred::clients::WithOptions;
use fred::error::{Error as FredError, ErrorKind as FredKind};
use fred::interfaces::ClientLike;
use fred::types::config::Options;
use fred::types::{ClusterHash, CustomCommand, Value};

use syncguard::redis::{Plan, RedisBackend, RedisLocks, Reply, reply_code};
use syncguard::{Error, ErrorKind};

use crate::scripts::{self, CLOSED, Client, ClientError, FAILED, LOGIN, UNANSWERED};

/// A backend over a client of `fred` 10: a `Client` or a `Pool`.
///
/// The client stays the application's: it connects, reconnects and logs in as it is set up to do, and closing
/// the backend does not close it. It must have been initialised, and must not share its connection with a
/// transaction. Waiters poll, because a client of fred hears of releases only if it is subscribed.
///
/// # What its retries mean
///
/// With a reconnect policy, fred sends a command again when its connection ends before the answer
/// (`ConnectionConfig::max_command_attempts`, 3 unless set). The server may then carry it out twice. That is safe:
///
/// - **An acquisition** answers as it did the first time: with the same fence and the same end. No second fence
///   is spent, and the caller's own lock does not count as another's.
/// - **A release** whose first answer was lost says `Absent(NotFound)`, and
///   [`LockGuard::release`](syncguard::LockGuard::release) `false`: the lock is free, but it cannot be told whether
///   this call has freed it. The same goes for `force_release`, which says `false`.
/// - **An extension** counts from the last time.
///
/// One case is left: if the first acquisition stays on its way, in a stalled server, until the second one was
/// answered and the key is free, it takes the lock for nobody. Such a lock ends with its TTL. Who does not want
/// that sets `max_command_attempts` to 1: then nothing is sent twice, and a lost answer is an error with
/// [`is_outcome_unknown`](Error::is_outcome_unknown), after which the lock is released in the background. Where
/// fred may repeat commands, every error says so, also one that the server replied: an earlier sending may have
/// been carried out.
///
/// # Time
///
/// [`RedisLocks::operation_timeout`] bounds an operation with all repetitions. fred is told of it, so that
/// commands that are still queued then, because the server is away, are never sent. A shorter
/// `default_command_timeout` applies as well.
///
/// # Errors
/// `InvalidArgument` that names the setting of `locks`.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use fred::prelude::{Builder, ClientLike, Config, ReconnectPolicy};
/// use syncguard::redis::RedisLocks;
/// use syncguard::{Backend, Key, LockOptions, lock};
///
/// let client = Builder::from_config(Config::from_url("redis://cache.internal")?)
///     .set_policy(ReconnectPolicy::new_exponential(0, 100, 10_000, 2))
///     .build()?;
/// client.init().await?;
///
/// let backend = syncguard_clients::fred::backend(&client, &RedisLocks::default())?;
/// let backend: Arc<dyn Backend> = Arc::new(backend);
/// let guard = lock(&backend, &Key::new("invoice:42")?, &LockOptions::default()).await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub fn backend<C>(client: &C, locks: &RedisLocks) -> Result<RedisBackend, Error>
where
    C: ClientLike + 'static,
{
    scripts::backend(Fred::new(client, locks.operation_timeout), locks)
}

struct Fred<C: ClientLike> {
    client: WithOptions<C>,
    /// For scripts of the caller's, which nobody may send twice.
    once: WithOptions<C>,
    /// Whether it sends a command again whose answer was lost.
    repeats: bool,
}

impl<C: ClientLike> Fred<C> {
    fn new(client: &C, limit: Duration) -> Self {
        let own = client.perf_config().default_command_timeout;
        let options = Options {
            timeout: Some(if own.is_zero() { limit } else { limit.min(own) }),
            ..Options::default()
        };
        Self {
            repeats: client.client_reconnect_policy().is_some()
                && client.connection_config().max_command_attempts != 1,
            client: client.with_options(&options),
            once: client.with_options(&Options {
                max_attempts: Some(1),
                ..options
            }),
        }
    }
}

impl<C: ClientLike + 'static> Client for Fred<C> {
    const NAME: &'static str = "Fred";

    async fn call(
        &self,
        command: &'static str,
        script: &str,
        plan: &Plan,
    ) -> Result<Reply, ClientError> {
        // As a command of our own, because fred's own for scripts take no time limit. Behind the script and the number
        // of keys comes the first key, which would choose the node of a cluster.
        let command = CustomCommand::new_static(command, ClusterHash::Offset(2), false);
        let keys = plan.keys().len().to_string();
        let mut args = vec![script, keys.as_str()];
        args.extend(plan.keys().chain(plan.args()));
        let (client, repeats) = match plan.is_callers() {
            true => (&self.once, false),
            false => (&self.client, self.repeats),
        };
        let value: Result<Value, _> = client.custom(command, args).await;
        value
            .map_err(|error| trouble(&error))
            .and_then(reply)
            .map_err(|trouble| trouble.repeated(repeats))
    }
}

fn trouble(error: &FredError) -> ClientError {
    use ErrorKind::{AuthFailed, Internal, NetworkTimeout, RateLimited, ServiceUnavailable};
    let words = error.details();
    // fred's own words never begin with a word in capitals, as codes of Redis are.
    if reply_code(words).is_some() {
        return ClientError::reply(words);
    }
    // In doubt, the command may have been carried out: fred tells an error of the connection to all commands.
    let (kind, what, may_be_done) = match error.kind() {
        FredKind::Timeout => (NetworkTimeout, UNANSWERED, true),
        FredKind::IO | FredKind::Canceled | FredKind::Routing | FredKind::Sentinel => {
            (ServiceUnavailable, CLOSED, true)
        }
        // The second is an error reply in words that are none of Redis'.
        FredKind::Cluster | FredKind::Unknown => (ServiceUnavailable, FAILED, true),
        FredKind::Backpressure => (RateLimited, FAILED, false),
        FredKind::Auth => (AuthFailed, LOGIN, true),
        _ => (Internal, FAILED, true),
    };
    ClientError::failure(kind, what, may_be_done, words)
}

fn reply(value: Value) -> Result<Reply, ClientError> {
    Ok(match value {
        Value::Null => Reply::Nil,
        Value::Boolean(yes) => Reply::Int(yes.into()),
        Value::Integer(number) => Reply::Int(number),
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Bytes(bytes) => Reply::Bulk(bytes.to_vec()),
        Value::Array(items) => {
            Reply::Array(items.into_iter().map(reply).collect::<Result<_, _>>()?)
        }
        Value::Double(_) | Value::Queued | Value::Map(_) => return Err(ClientError::unreadable()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table: one row per error")]
    fn errors_have_the_kinds_of_connections_of_our_own() {
        for (kind, words, expected, unknown) in [
            (
                FredKind::Unknown,
                "NOSCRIPT No matching script.",
                ErrorKind::Internal,
                false,
            ),
            (
                FredKind::Unknown,
                "READONLY You can't write",
                ErrorKind::ServiceUnavailable,
                false,
            ),
            (
                FredKind::Auth,
                "WRONGPASS invalid",
                ErrorKind::AuthFailed,
                false,
            ),
            (
                FredKind::InvalidArgument,
                "WRONGTYPE x",
                ErrorKind::InvalidArgument,
                false,
            ),
            (
                FredKind::Unknown,
                "ERR locks:secret",
                ErrorKind::ServiceUnavailable,
                true,
            ),
            (
                FredKind::Unknown,
                "upstream failure",
                ErrorKind::ServiceUnavailable,
                true,
            ),
            (
                FredKind::IO,
                "Connection Closed",
                ErrorKind::ServiceUnavailable,
                true,
            ),
            (
                FredKind::Canceled,
                "Canceled.",
                ErrorKind::ServiceUnavailable,
                true,
            ),
            (
                FredKind::Timeout,
                "Request timed out.",
                ErrorKind::NetworkTimeout,
                true,
            ),
            (
                FredKind::Backpressure,
                "Max queue",
                ErrorKind::RateLimited,
                false,
            ),
            (
                FredKind::Protocol,
                "locks:secret",
                ErrorKind::Internal,
                true,
            ),
        ] {
            let trouble =
                |repeated| trouble(&FredError::new(kind.clone(), words)).repeated(repeated);
            let error = trouble(false).into_error(&scripts::secret_plan());
            let found = (error.kind(), error.is_outcome_unknown());
            assert_eq!(found, (expected, unknown), "{words}");
            assert!(
                !format!("{error} {error:?}").contains("secret"),
                "{error:?}"
            );
            assert!(
                trouble(true)
                    .into_error(&scripts::secret_plan())
                    .is_outcome_unknown()
            );
        }
    }
}
