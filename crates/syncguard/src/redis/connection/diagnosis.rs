//! Finds out which protocol a server speaks if it does not answer as Redis does, so that the error can say so. It opens a
//! connection of its own for that, and sends nothing secret.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long to wait for an answer. To connect and to ask take one round trip each.
const PATIENCE: Duration = Duration::from_millis(500);

/// The shortest ClientHello of TLS 1.2: a record of 47 bytes with 43 bytes of it. Zeros in place of what should be random,
/// no session, two cipher suites, no compression. A server that speaks TLS answers it, if only with an alert.
const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\0\x2f\x01\0\0\x2b\x03\x03\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \0\0\x04\xc0\x2f\0\x9c\x01\0";

/// Whether the server speaks TLS.
pub(super) async fn speaks_tls(host: &str, port: u16) -> bool {
    // The types of the TLS records with which a server may answer: 21 is an alert, 22 a handshake.
    matches!(
        answer_to(CLIENT_HELLO, host, port).await,
        Some([21 | 22, ..])
    )
}

/// Whether the server speaks the Redis protocol without TLS.
pub(super) async fn accepts_plaintext(host: &str, port: u16) -> bool {
    matches!(
        answer_to(b"PING\r\n", host, port).await,
        Some([b'+' | b'-', ..])
    )
}

/// Whether the server speaks HTTP.
pub(super) async fn speaks_http(host: &str, port: u16) -> bool {
    answer_to(b"GET / HTTP/1.0\r\n\r\n", host, port).await == Some(*b"HTTP/")
}

/// The first bytes of the answer to `question`, if they come within [`PATIENCE`]. A server that does not understand the question may
/// wait for more and never answer: Redis without TLS takes a ClientHello for the beginning of a line. Users wait for a connection
/// meanwhile, so nobody waits longer to learn the reason.
async fn answer_to(question: &[u8], host: &str, port: u16) -> Option<[u8; 5]> {
    let answer = async {
        let mut stream = TcpStream::connect((host, port)).await.ok()?;
        stream.write_all(question).await.ok()?;
        // The shortest answers, "+PONG" and an alert of TLS, have five bytes or more.
        let mut first = [0; 5];
        stream.read_exact(&mut first).await.ok()?;
        Some(first)
    };
    timeout(PATIENCE, answer).await.ok()?
}
