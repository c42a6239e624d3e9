//! Redis through a connection of redis-rs.

use std::sync::Arc;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind as RedisKind, RedisError, Value};

use super::super::RedisBackend;
use super::super::config::RedisLocks;
use super::super::error::error_text;
use super::super::names::ClientPrefix;
use super::super::plan::{Form, Plan};
use super::super::reply::Reply;
use super::{CLOSED, Client, FAILED, LOGIN, Over, Trouble, UNANSWERED};
use crate::error::{Error, ErrorKind};

impl RedisBackend {
    /// A backend over an asynchronous connection of redis-rs 1: a
    /// [`ConnectionManager`](::redis::aio::ConnectionManager) or a
    /// [`MultiplexedConnection`](::redis::aio::MultiplexedConnection). The second one ends with its connection and
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
    /// use syncguard::redis::{RedisBackend, RedisLocks};
    /// use syncguard::{Backend, Key, LockOptions, lock};
    ///
    /// let client = redis::Client::open("redis://cache.internal")?;
    /// let connection = client.get_connection_manager().await?;
    ///
    /// let backend = RedisBackend::over_redis_rs(&connection, &RedisLocks::default())?;
    /// let backend: Arc<dyn Backend> = Arc::new(backend);
    /// let guard = lock(&backend, &Key::new("invoice:42")?, &LockOptions::default()).await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn over_redis_rs<C>(connection: &C, locks: &RedisLocks) -> Result<Self, Error>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let transport = Over(RedisRs(connection.clone()));
        Self::over(Arc::new(transport), ClientPrefix::None, locks)
    }
}

const UNREACHABLE: &str = "cannot connect to redis";

struct RedisRs<C>(C);

impl<C> Client for RedisRs<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    const NAME: &'static str = "RedisRs";

    async fn call(&self, form: Form, plan: &Plan) -> Result<Reply, Trouble> {
        let mut command = Cmd::new();
        match form {
            Form::Hash => command.arg("EVALSHA").arg(plan.script().sha()),
            Form::Source => command.arg("EVAL").arg(plan.script().source()),
        };
        command.arg(plan.keys().len());
        for text in plan.keys().chain(plan.args()) {
            command.arg(text);
        }
        // Clones share one connection.
        let value = self.0.clone().req_packed_command(&command).await;
        value.map_err(trouble).and_then(reply)
    }
}

fn trouble(error: RedisError) -> Trouble {
    use ErrorKind::{AuthFailed, Internal, NetworkTimeout, ServiceUnavailable};
    if let Some(code) = error.code() {
        let details = error.detail().unwrap_or_default();
        return Trouble::reply(format!("{code} {details}"));
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
    let failure = Trouble::failure(kind, what, may_be_done);
    match error.kind() {
        // The words of other errors may quote what was sent or received.
        RedisKind::Io => Trouble {
            words: error.to_string(),
            source: Some(error.into()),
            ..failure
        },
        _ => Trouble {
            words: error.category().to_owned(),
            ..failure
        },
    }
}

fn reply(value: Value) -> Result<Reply, Trouble> {
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::Boolean(yes) => Reply::Int(yes.into()),
        Value::BulkString(bytes) => Reply::Bulk(bytes),
        Value::SimpleString(text) => Reply::Bulk(text.into_bytes()),
        Value::Okay => Reply::Bulk(b"OK".to_vec()),
        Value::Array(items) => {
            Reply::Array(items.into_iter().map(reply).collect::<Result<_, _>>()?)
        }
        Value::ServerError(error) => return Err(Trouble::reply(error_text(&error))),
        _ => return Err(Trouble::unreadable()),
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn errors_have_the_kinds_of_connections_of_our_own() {
        let plan = || Plan::new(&crate::redis::operations::acquire::SCRIPT).arg("secret");
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
            let error = trouble(error).into_error(&plan());
            let found = (error.kind(), error.is_outcome_unknown());
            assert_eq!(found, (expected, unknown), "{described}");
            assert!(
                !format!("{error} {error:?}").contains("secret"),
                "{error:?}"
            );
        }
    }
}
