//! Redis through a connection of redis-rs.

use redis::aio::ConnectionLike;
use redis::{ErrorKind as RedisKind, RedisError, Value};

use syncguard::redis::{Plan, RedisBackend, RedisLocks, Reply};
use syncguard::{Error, ErrorKind};

use crate::scripts::{self, CLOSED, Client, ClientError, FAILED, LOGIN, UNANSWERED};

/// A backend over an asynchronous connection of redis-rs 1: a
/// [`ConnectionManager`](redis::aio::ConnectionManager) or a
/// [`MultiplexedConnection`](redis::aio::MultiplexedConnection). The second one ends with its connection and
/// does not make another.
///
/// The connection stays the application's; closing the backend does not close it. Waiters poll. It must not be one
/// that sends commands again by itself, such as the connection to a cluster.
///
/// # What its reconnects mean
///
/// redis-rs sends nothing twice: a `ConnectionManager` makes a new connection and fails the commands that were
/// on the old one. Their errors have [`is_outcome_unknown`](Error::is_outcome_unknown), and an acquisition that
/// ends so is released in the background. The caller may also repeat it with the same lock id: the answer is then the
/// lock as it was granted. A release that failed so may have freed the lock; repeated, it says `Absent(NotFound)`.
///
/// # Time
///
/// [`RedisLocks::operation_timeout`] bounds an operation. The connection's own response timeout, 500 ms unless set,
/// applies as well; it ends an operation with `NetworkTimeout`.
///
/// # Errors
/// `InvalidArgument` that names the setting of `locks`.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use syncguard::redis::RedisLocks;
/// use syncguard::{Backend, Key, LockOptions, lock};
///
/// let client = redis::Client::open("redis://cache.internal")?;
/// let connection = client.get_connection_manager().await?;
///
/// let backend = syncguard_clients::redis_rs::backend(&connection, &RedisLocks::default())?;
/// let backend: Arc<dyn Backend> = Arc::new(backend);
/// let guard = lock(&backend, &Key::new("invoice:42")?, &LockOptions::default()).await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub fn backend<C>(connection: &C, locks: &RedisLocks) -> Result<RedisBackend, Error>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    scripts::backend(RedisRs(connection.clone()), locks)
}

const UNREACHABLE: &str = "cannot connect to redis";

struct RedisRs<C>(C);

impl<C> Client for RedisRs<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    const NAME: &'static str = "RedisRs";

    async fn call(
        &self,
        command: &'static str,
        script: &str,
        plan: &Plan,
    ) -> Result<Reply, ClientError> {
        let mut command = redis::cmd(command);
        command.arg(script).arg(plan.keys().len());
        for text in plan.keys().chain(plan.args()) {
            command.arg(text);
        }
        // Clones share one connection.
        let value = self.0.clone().req_packed_command(&command).await;
        value.map_err(|error| trouble(&error)).and_then(reply)
    }
}

fn trouble(error: &RedisError) -> ClientError {
    use ErrorKind::{AuthFailed, Internal, NetworkTimeout, ServiceUnavailable};
    if let Some(code) = error.code() {
        let details = error.detail().unwrap_or_default();
        return ClientError::reply(format!("{code} {details}"));
    }
    let (kind, what, may_be_done) = match error.kind() {
        _ if error.is_connection_refusal() => (ServiceUnavailable, UNREACHABLE, false),
        _ if error.is_timeout() => (NetworkTimeout, UNANSWERED, true),
        RedisKind::Io => (ServiceUnavailable, CLOSED, true),
        RedisKind::AuthenticationFailed => (AuthFailed, LOGIN, true),
        RedisKind::ClusterConnectionNotFound
        | RedisKind::MasterNameNotFoundBySentinel
        | RedisKind::NoValidReplicasFoundBySentinel => (ServiceUnavailable, UNREACHABLE, true),
        _ => (Internal, FAILED, true),
    };
    match error.kind() {
        RedisKind::Io => ClientError::failure(kind, what, may_be_done, error.to_string())
            .with_source(error.clone()),
        // Their words may quote what was sent or received.
        _ => ClientError::failure(kind, what, may_be_done, error.category()),
    }
}

fn reply(value: Value) -> Result<Reply, ClientError> {
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::Boolean(yes) => Reply::Int(yes.into()),
        Value::BulkString(bytes) => Reply::Bulk(bytes),
        Value::SimpleString(text) => Reply::Bulk(text.into_bytes()),
        Value::Okay => Reply::Bulk(b"OK".to_vec()),
        Value::Array(items) => Reply::Array(items.into_iter().map(part).collect::<Result<_, _>>()?),
        Value::ServerError(error) => {
            return Err(trouble(&error.into()));
        }
        _ => return Err(ClientError::unreadable()),
    })
}

/// One of several replies.
fn part(value: Value) -> Result<Reply, ClientError> {
    match value {
        Value::ServerError(error) => Ok(Reply::Error(match error.details() {
            Some(details) => format!("{} {details}", error.code()),
            None => error.code().to_owned(),
        })),
        value => reply(value),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn errors_have_the_kinds_of_connections_of_our_own() {
        let io = |kind: io::ErrorKind| RedisError::from(io::Error::from(kind));
        for (error, expected, unknown) in [
            (
                io(io::ErrorKind::ConnectionRefused),
                ErrorKind::ServiceUnavailable,
                false,
            ),
            (
                io(io::ErrorKind::ConnectionReset),
                ErrorKind::ServiceUnavailable,
                true,
            ),
            (io(io::ErrorKind::TimedOut), ErrorKind::NetworkTimeout, true),
            (
                (RedisKind::AuthenticationFailed, "no", "secret".to_owned()).into(),
                ErrorKind::AuthFailed,
                true,
            ),
            (
                (RedisKind::Parse, "no", "secret".to_owned()).into(),
                ErrorKind::Internal,
                true,
            ),
        ] {
            let described = format!("{error:?}");
            let error = trouble(&error).into_error(&scripts::secret_plan());
            let found = (error.kind(), error.is_outcome_unknown());
            assert_eq!(found, (expected, unknown), "{described}");
            assert!(
                !format!("{error} {error:?}").contains("secret"),
                "{error:?}"
            );
        }
    }
}
