//! Finding the primary by asking Sentinels.

use redis::{Value, cmd};
use tokio::time::timeout;

use super::connect;
use super::limited::Limited;
use super::session::{Handshake, ask, auth, late, login, name};
use super::tls::TlsContext;
use crate::error::Error;
use crate::race::Race;
use crate::redis::config::{RedisConfig, RedisSentinel};
use crate::redis::error::{Cause, to_error};

/// The result of one attempt.
enum SentinelAnswer {
    /// Where a Sentinel says that the primary is.
    Address((String, u16)),
    Primary(Limited),
}

/// A stream to the primary that is ready for scripts. Asks all Sentinels at once and tries each address that
/// they give. So neither a silent Sentinel nor one that was cut off and names a former primary delays the
/// others.
pub(super) async fn open(
    config: &RedisConfig,
    set: &RedisSentinel,
    tls: Option<&TlsContext>,
) -> Result<Limited, Error> {
    let limit = config.connect_timeout;
    let mut race = Race::new();
    for (host, port) in &set.nodes {
        race.start(async move {
            let answer = timeout(limit, ask_for_primary(host, *port, set, tls)).await;
            answer.map_err(|_| late())?.map(SentinelAnswer::Address)
        });
    }
    let mut tried = Vec::new();
    let (mut refusal, mut last) = (None, None);
    while let Some(result) = race.next().await {
        match result {
            Ok(SentinelAnswer::Primary(stream)) => return Ok(stream),
            Ok(SentinelAnswer::Address(address)) if !tried.contains(&address) => {
                tried.push(address.clone());
                race.start(async move {
                    let (host, port) = address;
                    let stream = timeout(limit, open_primary(&host, port, config, tls)).await;
                    stream.map_err(|_| late())?.map(SentinelAnswer::Primary)
                });
            }
            Ok(SentinelAnswer::Address(_)) => {}
            // Such as a wrong password: more useful to report than that no primary was found.
            Err(error) if !error.kind().is_transient() => refusal = Some(error),
            Err(error) => last = Some(error),
        }
    }
    Err(refusal.unwrap_or_else(|| last.map_or_else(no_primary, no_primary_because)))
}

async fn ask_for_primary(
    host: &str,
    port: u16,
    set: &RedisSentinel,
    tls: Option<&TlsContext>,
) -> Result<(String, u16), Error> {
    let mut stream = connect::tcp(host, port, tls).await?;
    let mut question = cmd("SENTINEL");
    question.arg("get-master-addr-by-name").arg(&set.name);
    let mut steps = Vec::with_capacity(2);
    steps.extend(auth(set.username.as_deref(), set.password.as_deref()));
    steps.push(Handshake::required(question));
    let answers = ask(&mut stream, &steps).await?;
    answers.last().and_then(address).ok_or_else(no_primary)
}

/// The host and the port, if the Sentinel knows them.
fn address(answer: &Value) -> Option<(String, u16)> {
    let Value::Array(items) = answer else {
        return None;
    };
    let [Value::BulkString(host), Value::BulkString(port)] = items.as_slice() else {
        return None;
    };
    let host = std::str::from_utf8(host).ok()?.to_owned();
    let port = std::str::from_utf8(port).ok()?.parse().ok()?;
    Some((host, port))
}

async fn open_primary(
    host: &str,
    port: u16,
    config: &RedisConfig,
    tls: Option<&TlsContext>,
) -> Result<Limited, Error> {
    let mut stream = connect::tcp(host, port, tls).await?;
    let mut steps = login(config);
    // A Sentinel that was cut off may name a server that is no longer the primary.
    steps.push(Handshake::required(cmd("ROLE")));
    steps.extend(name(config));
    let answers = ask(&mut stream, &steps).await?;
    if answers.iter().any(is_primary) {
        Ok(stream)
    } else {
        Err(no_primary())
    }
}

fn is_primary(role: &Value) -> bool {
    matches!(role, Value::Array(items)
        if matches!(items.first(), Some(Value::BulkString(name)) if name == b"master"))
}

/// The error that says that no primary was found, with the last failure as its cause.
fn no_primary_because(error: Error) -> Error {
    let none = no_primary();
    let message = format!("{}: {}", none.message(), error.message());
    Error::new(none.kind(), message).with_source(error)
}

fn no_primary() -> Error {
    to_error(Cause::NoPrimary, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(items: &[&str]) -> Value {
        let bulk = |text: &&str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(items.iter().map(bulk).collect())
    }

    #[test]
    fn addresses_are_read_and_nothing_else() {
        assert_eq!(address(&texts(&["::1", "7"])), Some(("::1".to_owned(), 7)));
        for bad in [
            Value::Nil,
            Value::Array(vec![]),
            texts(&["h"]),
            texts(&["h", "x"]),
            texts(&["h", "65536"]),
            texts(&["h", "1", "2"]),
        ] {
            assert_eq!(address(&bad), None, "{bad:?}");
        }
    }

    #[test]
    fn only_a_primary_is_one() {
        assert!(is_primary(&texts(&["master", "0"])));
        assert!(!is_primary(&texts(&["slave", "master"])));
        assert!(!is_primary(&Value::Okay));
        assert!(!is_primary(&Value::Array(vec![])));
    }
}
