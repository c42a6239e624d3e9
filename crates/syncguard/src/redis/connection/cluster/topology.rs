//! Asks a node which nodes serve which hash slots, and reads its answer to CLUSTER SLOTS.

use redis::{Value, cmd};
use tokio::time::timeout;

use crate::redis::connection::connect;
use crate::redis::connection::session::{Handshake, ask, late, login};
use crate::redis::connection::target::Target;
use crate::redis::error::{Cause, to_error};
use crate::redis::hash_slots::HASH_SLOTS;
use crate::text::error::Error;

/// The longest answer, in bytes. Each range of hash slots takes a few hundred, and a large cluster has thousands of ranges.
const LONGEST: usize = 16 * 1024 * 1024;

/// A host and a port.
pub(super) type Address = (String, u16);

/// Hash slots that follow each other and are served by the same node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    /// The primary.
    pub(super) primary: Address,
    pub(super) replicas: Vec<Address>,
}

/// Asks the node at that address.
pub(super) async fn fetch(target: &Target, host: &str, port: u16) -> Result<Vec<Range>, Error> {
    let config = target.config().current().await?;
    let answer = async {
        let mut stream = connect::tcp(host, port, target.tls()).await?;
        stream.allow(LONGEST);
        let mut steps = login(&config);
        let mut slots = cmd("CLUSTER");
        slots.arg("SLOTS");
        steps.push(Handshake::required(slots));
        ask(&mut stream, &steps).await
    };
    let answers = timeout(config.connect_timeout, answer).await;
    let answers = answers.map_err(|_| late())??;
    let ranges = answers.last().and_then(|answer| read(answer, host));
    let ranges = ranges.ok_or_else(|| to_error(Cause::Unreadable, false))?;
    match ranges.is_empty() {
        // The node may not have joined its cluster yet.
        true => Err(to_error(Cause::NoNode, false)),
        false => Ok(ranges),
    }
}

/// Reads the ranges whose primary has a known address. `None` for an answer that makes no sense.
fn read(answer: &Value, asked: &str) -> Option<Vec<Range>> {
    let mut ranges = Vec::new();
    for item in array(answer)? {
        let (first, last, nodes) = match array(item)? {
            [first, last, nodes @ ..] => (slot(first)?, slot(last)?, nodes),
            _ => return None,
        };
        let mut addresses = Vec::with_capacity(nodes.len());
        for node in nodes {
            addresses.push(address(node, asked)?);
        }
        let mut addresses = addresses.into_iter();
        if let Some(Some(primary)) = addresses.next() {
            ranges.push(Range {
                first,
                last,
                primary,
                replicas: addresses.flatten().collect(),
            });
        }
    }
    Some(ranges)
}

/// Reads the address of a node. The inner `None` says that the cluster does not know it, the outer one that this makes no sense.
fn address(node: &Value, asked: &str) -> Option<Option<Address>> {
    let items = array(node)?;
    let [host, Value::Int(port), rest @ ..] = items else {
        return None;
    };
    let port = u16::try_from(*port).ok()?;
    let host = match host {
        // The node does not know by which name it was reached.
        Value::Nil => Some(asked),
        host => match text(host)? {
            "" => Some(asked),
            // The cluster is to name its nodes, and this one has no name. Its address may follow.
            "?" => rest.get(1).and_then(ip),
            host => Some(host),
        },
    };
    let host = host.filter(|_| port > 0);
    Some(host.map(|host| (host.to_owned(), port)))
}

/// The IP address among the further facts about a node, which are pairs of a name and a value.
fn ip(names: &Value) -> Option<&str> {
    let pairs = match names {
        Value::Map(pairs) => pairs
            .iter()
            .map(|(name, value)| (name, value))
            .collect::<Vec<_>>(),
        names => array(names)?
            .as_chunks::<2>()
            .0
            .iter()
            .map(|[name, value]| (name, value))
            .collect(),
    };
    let found = pairs.into_iter().find(|(name, _)| text(name) == Some("ip"));
    found
        .and_then(|(_, value)| text(value))
        .filter(|ip| !ip.is_empty())
}

fn array(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

fn slot(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number)
            .ok()
            .filter(|slot| *slot < HASH_SLOTS),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Value {
        redis::parse_redis_value(text.replace('\n', "\r\n").as_bytes()).unwrap()
    }

    /// One range with nodes as they stand on the wire.
    fn slots(nodes: &[&str]) -> Value {
        let head = format!("*1\n*{}\n:5\n:7\n", nodes.len() + 2);
        parsed(&(head + &nodes.concat()))
    }

    fn at(host: &str, port: u16) -> Address {
        (host.to_owned(), port)
    }

    #[test]
    fn the_first_node_is_the_primary() {
        let answer = slots(&["*3\n$1\na\n:1\n$2\nid\n", "*4\n$1\nb\n:2\n$2\nid\n*0\n"]);
        let expected = Range {
            first: 5,
            last: 7,
            primary: at("a", 1),
            replicas: vec![at("b", 2)],
        };
        assert_eq!(read(&answer, "asked").unwrap(), [expected]);
        assert_eq!(read(&parsed("*0\n"), "asked").unwrap(), []);
    }

    #[test]
    fn a_host_that_is_not_told_is_the_one_that_was_asked() {
        for node in ["*3\n$-1\n:1\n$2\nid\n", "*3\n$0\n\n:1\n$2\nid\n"] {
            let ranges = read(&slots(&[node]), "asked").unwrap();
            assert_eq!(ranges[0].primary, at("asked", 1));
        }
        let with_ip = "*4\n$1\n?\n:1\n$2\nid\n*2\n$2\nip\n$7\n1.2.3.4\n";
        assert_eq!(
            read(&slots(&[with_ip]), "asked").unwrap()[0].primary,
            at("1.2.3.4", 1)
        );
        // A replica in its place would refuse all calls.
        let unknown = "*4\n$1\n?\n:1\n$2\nid\n*0\n";
        let replica = "*3\n$1\nb\n:2\n$2\nid\n";
        assert_eq!(read(&slots(&[unknown, replica]), "asked").unwrap(), []);
    }

    #[test]
    fn anything_else_makes_no_sense() {
        for text in [
            "$-1\n",
            "+OK\n",
            "*1\n:1\n",
            "*1\n*1\n:1\n",
            "*1\n*2\n:1\n:16384\n",
            "*1\n*2\n:-1\n:1\n",
            "*1\n*3\n:1\n:2\n*1\n$1\na\n",
            "*1\n*3\n:1\n:2\n*2\n$1\na\n:65536\n",
        ] {
            assert!(read(&parsed(text), "asked").is_none(), "{text}");
        }
    }
}
