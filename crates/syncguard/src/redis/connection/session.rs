//! Logs in at the start of a connection, and checks that the server is usable.

use redis::{Cmd, RedisError, Value, cmd, parse_redis_value_async};
use tokio::io::AsyncWriteExt;

use super::diagnosis;
use super::limited::Limited;
use super::stream::ServerEndpoint;
use crate::redis::config::RedisConfig;
use crate::redis::error::{
    Cause, cannot_connect, describe, distrusted, driver_error, error_text, refused_by_tls,
    reply_code, to_error, to_error_hiding,
};
use crate::text::error::Error;

/// A command at the start of a connection.
pub(super) struct Handshake {
    command: Cmd,
    /// Whether the connection is usable even if the server answers with an error of this code.
    tolerates: fn(Option<&str>) -> bool,
}

impl Handshake {
    /// A command that must succeed.
    pub(super) fn required(command: Cmd) -> Self {
        Self {
            command,
            tolerates: |_| false,
        }
    }

    /// A command that may be refused, because the connection is as usable without it.
    pub(super) fn optional(command: Cmd) -> Self {
        Self {
            command,
            tolerates: |_| true,
        }
    }
}

/// Logs in on a stream, and checks that scripts can be sent over it.
pub(super) async fn ready(mut stream: Limited, config: &RedisConfig) -> Result<Limited, Error> {
    let mut steps = login(config);
    steps.push(Handshake {
        command: cmd("PING"),
        // A user without the right to PING may still run scripts, and that is what matters.
        tolerates: |code| code == Some("NOPERM"),
    });
    steps.extend(name(config));
    ask(&mut stream, &steps).await?;
    Ok(stream)
}

/// The commands that log in and select the database.
pub(super) fn login(config: &RedisConfig) -> Vec<Handshake> {
    let mut steps = Vec::with_capacity(4);
    steps.extend(auth(config.username.as_deref(), config.password.as_deref()));
    if config.database > 0 {
        let mut select = cmd("SELECT");
        select.arg(config.database);
        steps.push(Handshake::required(select));
    }
    steps
}

/// The command that logs in, if there is a password.
pub(super) fn auth(username: Option<&str>, password: Option<&str>) -> Option<Handshake> {
    let mut auth = cmd("AUTH");
    auth.arg(username).arg(password?);
    Some(Handshake::required(auth))
}

/// The command that names the connection, if it has a name. It must not come first: a server that refuses all clients says so in
/// its first answer, and errors of this command are ignored.
pub(super) fn name(config: &RedisConfig) -> Option<Handshake> {
    let mut command = cmd("CLIENT");
    command.arg("SETNAME").arg(config.connection_name.as_ref()?);
    // The name is only for people, so it may be refused.
    Some(Handshake::optional(command))
}

/// Completes when the server runs scripts: it answers that it does not know this one. While it has paused writes, it does not
/// answer scripts, ours included, although it answers `PING`.
pub(super) async fn runs_scripts(stream: &mut Limited) -> Result<(), Error> {
    let mut command = cmd("EVALSHA");
    command.arg("0".repeat(40)).arg(0);
    let step = Handshake {
        command,
        // Any answer will do, an error too.
        tolerates: |_| true,
    };
    ask(stream, &[step]).await.map(drop)
}

/// Sends all commands at once and gives their answers, or the first error that matters.
pub(super) async fn ask(stream: &mut Limited, steps: &[Handshake]) -> Result<Vec<Value>, Error> {
    let mut request = Vec::new();
    for step in steps {
        step.command.write_packed_command(&mut request);
    }
    // Errors of the write are ignored: a server that closed the connection may have said why, so read its answer.
    let _ = stream.write_all(&request).await;
    let _ = stream.flush().await;
    let mut decoder = Default::default();
    let mut answers = Vec::with_capacity(steps.len());
    for step in steps {
        let value = parse_redis_value_async(&mut decoder, stream).await;
        let value = match value {
            Ok(value) => value,
            Err(error) if answers.is_empty() => {
                return Err(no_answer(stream.endpoint(), error).await);
            }
            Err(error) => return Err(driver_error(&error, false)),
        };
        if let Value::ServerError(error) = &value {
            let text = error_text(error);
            if !(step.tolerates)(reply_code(&text)) {
                let words = step.command.args_iter().filter_map(|arg| match arg {
                    redis::Arg::Simple(word) => std::str::from_utf8(word).ok(),
                    _ => None,
                });
                // The first word is the command's name and no secret.
                return Err(to_error_hiding(Cause::Reply(&text), false, words.skip(1)));
            }
        }
        answers.push(value);
    }
    Ok(answers)
}

/// The error for a server that closed the connection instead of answering, or whose answer is not of the Redis
/// protocol.
async fn no_answer(endpoint: &ServerEndpoint, error: RedisError) -> Error {
    if let Some(why) = refused_by_tls(&error) {
        return distrusted(endpoint, &why).with_source(error);
    }
    let is_readable = describe(&error) != Cause::Unreadable;
    let why = match endpoint {
        // Asked before TLS, because a web server may speak TLS, too.
        ServerEndpoint::Tcp { host, port, .. }
            if !is_readable && diagnosis::speaks_http(host, *port).await =>
        {
            "an HTTP server answers there, and no Redis server"
        }
        ServerEndpoint::Tcp {
            host,
            port,
            has_tls: false,
        } if diagnosis::speaks_tls(host, *port).await => {
            "the server expects TLS: use rediss:// instead of redis://"
        }
        _ if describe(&error) != Cause::Closed => return driver_error(&error, false),
        _ => "the server ended the connection without an answer; is it a Redis server?",
    };
    cannot_connect(endpoint, why).with_source(error)
}

pub(super) fn late() -> Error {
    to_error(Cause::ConnectTimeout, false)
}
