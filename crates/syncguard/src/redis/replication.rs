//! Grants and extensions that count once replicas have them: the option `replicas`.
//!
//! Replication of Redis is asynchronous, so a primary that fails may take grants with it. `WAIT`, sent behind the
//! script on the same connection, answers once so many replicas have what that connection has written, or when its
//! time is over. A grant that too few have is an error of unknown outcome: whoever made the attempt undoes it. An extension
//! that too few have is one, too: the lock counts as held until its old end.
//!
//! The server runs nothing else of a connection that waits, so acquisitions have one of their own then, and extensions
//! another one: they must not stand behind acquisitions.

use std::time::Duration;

use redis::{Cmd, cmd};

use super::answer::Answer;
use super::config::RedisLocks;
use super::error::{Cause, to_error};
use super::reply::Reply;
use crate::text::error::{Error, ErrorKind};

/// The longest wait. A connection that is silent for longer is suspected to be dead, and replaced.
const LONGEST: Duration = Duration::from_millis(800);

/// How many replicas must have a grant or an extension, and how long that may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replication {
    replicas: u32,
    limit: Duration,
    is_extension: bool,
}

impl Replication {
    /// `None` where the primary's word is enough.
    pub(super) fn of(locks: &RedisLocks) -> Option<Self> {
        (locks.replicas > 0).then(|| Self {
            replicas: locks.replicas,
            limit: (locks.operation_timeout / 10).clamp(Duration::from_millis(1), LONGEST),
            is_extension: false,
        })
    }

    /// The same for an extension.
    pub(super) fn of_extension(self) -> Self {
        Self {
            is_extension: true,
            ..self
        }
    }

    pub(super) fn is_extension(self) -> bool {
        self.is_extension
    }

    pub(super) fn replicas(self) -> u32 {
        self.replicas
    }

    /// How long the server may wait for them.
    pub(super) fn limit(self) -> Duration {
        self.limit
    }

    /// What is sent behind the script.
    pub(super) fn command(self) -> Cmd {
        let mut wait = cmd("WAIT");
        // A limit of 0 would be none.
        wait.arg(self.replicas).arg(self.limit.as_millis().max(1));
        wait
    }

    /// Whether the answer to the script says that there is something to wait for.
    pub(super) fn is_about(answer: &Answer) -> bool {
        match answer {
            Answer::Reply(Reply::Array(items)) => items.first().and_then(Reply::integer) == Some(1),
            _ => false,
        }
    }

    /// How many replicas have what was written, as the server has answered to the command.
    pub(super) fn count(self, waited: Answer) -> Result<i64, Error> {
        let error = match waited {
            Answer::Reply(reply) => match reply.integer() {
                Some(count) => return Ok(count),
                None => super::reply::malformed("WAIT"),
            },
            Answer::NoScript => super::reply::malformed("WAIT"),
            Answer::NotSent => to_error(Cause::Closed, true),
            Answer::Refused(text) => to_error(Cause::Reply(&text), true),
        };
        // The server has done what the script says.
        Err(error.with_unknown_outcome())
    }

    /// Whether so many replicas are enough.
    pub(super) fn enough(self, count: i64) -> Result<(), Error> {
        if count >= i64::from(self.replicas) {
            return Ok(());
        }
        let what = match self.is_extension {
            true => "extension",
            false => "lock",
        };
        let message = format!(
            "of {} replicas that were asked for, {count} had the {what} within {} ms",
            self.replicas,
            self.limit.as_millis()
        );
        // A lock that was granted is there, and somebody has to free it.
        Err(Error::new(ErrorKind::ServiceUnavailable, message).with_unknown_outcome())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replication(replicas: u32, operation_timeout: Duration) -> Option<Replication> {
        Replication::of(&RedisLocks {
            replicas,
            operation_timeout,
            ..RedisLocks::default()
        })
    }

    #[test]
    fn the_wait_ends_before_the_connection_is_suspected() {
        assert_eq!(replication(0, Duration::from_secs(5)), None);
        for (timeout_ms, wait_ms) in [(5, "1"), (1000, "100"), (5000, "500"), (60_000, "800")] {
            let wanted = replication(2, Duration::from_millis(timeout_ms)).unwrap();
            let sent = format!(
                "*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n${}\r\n{wait_ms}\r\n",
                wait_ms.len()
            );
            assert_eq!(wanted.command().get_packed_command(), sent.into_bytes());
        }
    }

    #[test]
    fn only_enough_replicas_confirm_a_grant() {
        let wanted = replication(2, Duration::from_secs(5)).unwrap();
        let grant = || {
            Answer::Reply(Reply::Array(vec![
                Reply::Int(1),
                Reply::Int(7),
                Reply::Int(9),
            ]))
        };
        assert!(Replication::is_about(&grant()));
        for other in [
            Reply::Int(-3),
            Reply::Array(vec![Reply::Int(0), Reply::Int(7)]),
        ] {
            assert!(!Replication::is_about(&Answer::Reply(other)));
        }
        let confirmed = |waited| wanted.enough(wanted.count(waited)?);
        for count in [2, 3] {
            let waited = Answer::Reply(Reply::Int(count));
            assert!(confirmed(waited).is_ok());
        }
        for (waited, kind) in [
            (Answer::Reply(Reply::Int(0)), ErrorKind::ServiceUnavailable),
            (Answer::Reply(Reply::Int(1)), ErrorKind::ServiceUnavailable),
            (Answer::Reply(Reply::Nil), ErrorKind::Internal),
            (Answer::NoScript, ErrorKind::Internal),
            (
                Answer::Refused("NOPERM this user has no permissions".to_owned()),
                ErrorKind::AuthFailed,
            ),
        ] {
            let error = confirmed(waited).unwrap_err();
            assert_eq!(error.kind(), kind);
            assert!(error.is_outcome_unknown());
        }
    }
}
