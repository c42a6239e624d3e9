//! Opens TCP connections to hosts.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::sleep;

use crate::race::Race;

/// How long to try one address of a host before the next one is tried beside it.
const HEAD_START: Duration = Duration::from_millis(250);

/// Why there is no connection.
pub(crate) enum Refusal {
    /// The host's name cannot be resolved.
    Unknown(io::Error),
    /// No address of the host accepts a connection.
    Failed(io::Error),
}

/// Connects to any address of a host.
pub(crate) async fn connect(host: &str, port: u16) -> Result<TcpStream, Refusal> {
    let found = lookup_host((host, port)).await.map_err(Refusal::Unknown)?;
    any_of(in_turns(found.collect()))
        .await
        .map_err(Refusal::Failed)
}

/// Puts IPv6 and IPv4 addresses in turns, because often a whole family cannot be reached. The one that the resolver prefers comes first.
fn in_turns(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let prefers_v6 = found.first().is_some_and(SocketAddr::is_ipv6);
    let (preferred, others): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|address| address.is_ipv6() == prefers_v6);
    let (mut preferred, mut others) = (preferred.into_iter(), others.into_iter());
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(preferred.next());
        all.extend(others.next());
        if all.len() == before {
            return all;
        }
    }
}

/// Tries the next address before the one before has failed, because an address that packets do not reach fails only after a long
/// time.
async fn any_of(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut addresses = addresses.into_iter().peekable();
    let mut race = Race::new();
    let mut failure = None;
    loop {
        if let Some(address) = addresses.next() {
            race.start(TcpStream::connect(address));
        }
        tokio::select! {
            result = race.next() => match result {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(error)) => failure = Some(error),
                None => break,
            },
            () = sleep(HEAD_START), if addresses.peek().is_some() => {}
        }
    }
    Err(failure
        .unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host name has no address")))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// An address that takes no more connections and refuses none, for as long as the second part lives.
    async fn deaf() -> (SocketAddr, (TcpListener, Vec<TcpStream>)) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        let brief = Duration::from_millis(100);
        while let Ok(connected) = tokio::time::timeout(brief, TcpStream::connect(address)).await {
            waiting.push(connected.unwrap());
        }
        (address, (listener, waiting))
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_costs_a_head_start() {
        let (silent, _full) = deaf().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap();
        let start = Instant::now();
        let stream = any_of(vec![silent, silent, there]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), there);
        assert!(start.elapsed() >= HEAD_START * 2);
        assert!(start.elapsed() < Duration::from_secs(3));
    }

    #[tokio::test]
    async fn an_address_that_refuses_costs_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap();
        let refusing: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let start = Instant::now();
        any_of(vec![refusing, refusing, there]).await.unwrap();
        assert!(start.elapsed() < HEAD_START);
        let error = any_of(vec![refusing]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = any_of(Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn both_families_have_their_turns() {
        let parse = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let found = parse(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "1.1.1.2:1"]);
        let tried = parse(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "1.1.1.2:1", "[::3]:1"]);
        assert_eq!(in_turns(found), tried);
        let found = parse(&["1.1.1.1:1", "1.1.1.2:1", "[::1]:1"]);
        let tried = parse(&["1.1.1.1:1", "[::1]:1", "1.1.1.2:1"]);
        assert_eq!(in_turns(found), tried);
    }
}
