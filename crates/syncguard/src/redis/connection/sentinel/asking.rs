//! Asks one Sentinel which server is the primary, and reads what it says.

use redis::{Value, cmd};

use super::super::connect;
use super::super::limited::Limited;
use super::super::session::{Handshake, ask, auth};
use super::super::term::{Address, Named};
use super::super::tls::TlsContext;
use crate::redis::config::RedisSentinel;
use crate::redis::error::{Cause, to_error};
use crate::text::error::Error;

/// The events by which a Sentinel tells of another primary. It sends the first when it has chosen that one itself, which may be
/// seconds before the second. It sends the second even when another Sentinel has chosen.
pub(super) const EVENTS: [&str; 2] = ["+promoted-slave", "+switch-master"];

/// Connects to a Sentinel and logs in.
pub(super) async fn connect(
    (host, port): &Address,
    set: &RedisSentinel,
    tls: Option<&TlsContext>,
) -> Result<Limited, Error> {
    let mut stream = connect::tcp(host, *port, tls).await?;
    let login: Vec<_> = auth(set.username.as_deref(), set.password.as_deref())
        .into_iter()
        .collect();
    if !login.is_empty() {
        ask(&mut stream, &login).await?;
    }
    Ok(stream)
}

/// Asks a Sentinel which server it takes for the primary.
pub(super) async fn named(stream: &mut Limited, set: &RedisSentinel) -> Result<Named, Error> {
    let answers = ask(stream, &questions(set)).await?;
    read(&answers)
}

/// Asks that, and asks the Sentinel to tell of changes from then on. Gives whether it will.
pub(super) async fn named_and_followed(
    stream: &mut Limited,
    set: &RedisSentinel,
) -> Result<(Named, bool), Error> {
    let mut steps: Vec<_> = questions(set).into();
    // One command for each channel, because the server confirms each channel in an answer of its own.
    for event in EVENTS {
        let mut follow = cmd("SUBSCRIBE");
        follow.arg(event);
        steps.push(Handshake::optional(follow));
    }
    let answers = ask(stream, &steps).await?;
    let is_followed = answers
        .iter()
        .rev()
        .take(EVENTS.len())
        .all(|answer| !matches!(answer, Value::ServerError(_)));
    Ok((read(&answers)?, is_followed))
}

/// The two questions to a Sentinel. During a failover, only the answer to the first has the new address, and only the answer to
/// the second has the epoch. Both go in one packet, so that they belong together.
fn questions(set: &RedisSentinel) -> [Handshake; 2] {
    let question = |what: &str| {
        let mut question = cmd("SENTINEL");
        question.arg(what).arg(&set.name);
        question
    };
    [
        Handshake::required(question("get-master-addr-by-name")),
        // Without the right to this command, the epoch counts as 0.
        Handshake::optional(question("master")),
    ]
}

fn read(answers: &[Value]) -> Result<Named, Error> {
    let mut answers = answers.iter();
    let address = answers.next().and_then(address).ok_or_else(no_primary)?;
    let epoch = answers.next().and_then(epoch).unwrap_or_default();
    Ok(Named { address, epoch })
}

/// The host and the port, if the Sentinel knows them.
fn address(answer: &Value) -> Option<Address> {
    let Value::Array(items) = answer else {
        return None;
    };
    let [host, port] = items.as_slice() else {
        return None;
    };
    Some((text(host)?.to_owned(), text(port)?.parse().ok()?))
}

/// The epoch in the answer, which lists names and values in turn.
fn epoch(answer: &Value) -> Option<u64> {
    let Value::Array(items) = answer else {
        return None;
    };
    let (pairs, _) = items.as_chunks::<2>();
    let [_, epoch] = pairs
        .iter()
        .find(|[name, _]| text(name) == Some("config-epoch"))?;
    text(epoch)?.parse().ok()
}

/// The error that says that no primary was found.
pub(super) fn no_primary() -> Error {
    to_error(Cause::NoPrimary, false)
}

/// Whether a message tells of another primary under that name: `name oldhost oldport newhost newport`, or
/// `slave host:port host port @ name host port`.
pub(super) fn is_news(message: &Value, name: &str) -> bool {
    let Value::Array(items) = message else {
        return false;
    };
    let [kind, channel, payload] = items.as_slice() else {
        return false;
    };
    let channel = text(channel).filter(|_| text(kind) == Some("message"));
    let mut words = text(payload).unwrap_or_default().split(' ');
    match channel {
        Some("+switch-master") => words.next() == Some(name),
        Some("+promoted-slave") => words.nth(5) == Some(name),
        _ => false,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(items: &[&str]) -> Value {
        let bulk = |text: &&str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(items.iter().map(bulk).collect())
    }

    #[test]
    fn addresses_and_epochs_are_read_and_nothing_else() {
        let named = |answers: &[Value]| read(answers).map(|named| (named.address, named.epoch));
        let details = texts(&["name", "main", "ip", "::1", "config-epoch", "12"]);
        assert_eq!(
            named(&[texts(&["::1", "7"]), details]).unwrap(),
            (("::1".to_owned(), 7), 12)
        );
        for unknown in [
            Value::Nil,
            texts(&["config-epoch"]),
            texts(&["config-epoch", "x"]),
        ] {
            assert_eq!(named(&[texts(&["h", "7"]), unknown]).unwrap().1, 0);
        }
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
    fn only_what_concerns_the_name_is_news() {
        for (message, is) in [
            (["message", "+switch-master", "main h 1 h 2"], true),
            (["message", "+switch-master", "other h 1 h 2"], false),
            (
                ["message", "+promoted-slave", "slave h:2 h 2 @ main h 1"],
                true,
            ),
            (
                ["message", "+promoted-slave", "slave h:2 h 2 @ other h 1"],
                false,
            ),
            (["message", "+sdown", "main h 1 h 2"], false),
            (["subscribe", "+switch-master", "main"], false),
        ] {
            assert_eq!(is_news(&texts(&message), "main"), is, "{message:?}");
        }
        assert!(!is_news(&texts(&["pong", ""]), "main"));
        assert!(!is_news(&Value::Okay, "main"));
    }
}
