//! Finds out which protocol a server speaks that does not answer as Redis does, to say so in the error. It
//! opens a connection of its own for that, and sends nothing secret.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long to wait for an answer. It has one round trip to come, or two with that for the connection.
const PATIENCE: Duration = Duration::from_millis(500);

/// The shortest ClientHello of TLS 1.2. A server that speaks TLS answers it, if only with an alert.
const CLIENT_HELLO: [u8; 52] = {
    let mut hello = [0; 52];
    let head = [
        22, 3, 1, 0, 47, // a record of 47 bytes
        1, 0, 0, 43, // ClientHello, 43 bytes
        3, 3, // TLS 1.2; then 32 bytes that should be random
    ];
    // No session; two cipher suites; no compression.
    let tail = [0, 0, 4, 0xc0, 0x2f, 0x00, 0x9c, 1, 0];
    let mut index = 0;
    while index < head.len() {
        hello[index] = head[index];
        index += 1;
    }
    index = 0;
    while index < tail.len() {
        hello[43 + index] = tail[index];
        index += 1;
    }
    hello
};

/// Whether the server speaks TLS.
pub(super) async fn speaks_tls(host: &str, port: u16) -> bool {
    // The types of the TLS records with which a server may answer: 21 is an alert, 22 a handshake.
    matches!(first_byte(host, port, &CLIENT_HELLO).await, Some(21 | 22))
}

/// Whether the server speaks the Redis protocol without TLS.
pub(super) async fn speaks_plainly(host: &str, port: u16) -> bool {
    matches!(first_byte(host, port, b"PING\r\n").await, Some(b'+' | b'-'))
}

/// Whether the server speaks HTTP.
pub(super) async fn speaks_http(host: &str, port: u16) -> bool {
    let question = b"GET / HTTP/1.0\r\n\r\n";
    first_bytes::<5>(host, port, question).await == Some(*b"HTTP/")
}

/// The first byte of the answer to `question`.
async fn first_byte(host: &str, port: u16, question: &[u8]) -> Option<u8> {
    first_bytes::<1>(host, port, question)
        .await
        .map(|[first]| first)
}

/// The first bytes of the answer to `question`. A server that does not understand it may wait for more and never answer:
/// Redis without TLS takes a ClientHello for the beginning of a line. It is a new connection that users wait for meanwhile,
/// and not the reason, so no answer within [`PATIENCE`] counts as none.
async fn first_bytes<const N: usize>(host: &str, port: u16, question: &[u8]) -> Option<[u8; N]> {
    let answer = async {
        let mut stream = TcpStream::connect((host, port)).await.ok()?;
        stream.write_all(question).await.ok()?;
        let mut first = [0; N];
        stream.read_exact(&mut first).await.ok()?;
        Some(first)
    };
    timeout(PATIENCE, answer).await.ok()?
}
