//! What comes over a connection that should be Redis' protocol: any bytes.

use std::time::Duration;

use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{Backend, Operation};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::input::{
    LIMIT, assert_discreet_error, checked, key, request, with_secrets, within_limit,
};

/// A server that answers the start of a connection as it should, and everything else with these bytes.
pub fn redis_bytes(data: &[u8]) {
    talk("redis", data);
}

/// The same of a server that is asked for the nodes of a cluster first.
pub fn redis_cluster_bytes(data: &[u8]) {
    talk("redis+cluster", data);
}

fn talk(scheme: &str, data: &[u8]) {
    let is_cluster = scheme.contains("cluster");
    // Errors that answer a script may quote it, so what it contains is taken out of their words. The first question to
    // a cluster has nothing private in it that an answer could quote.
    let data = match is_cluster {
        true => data.to_vec(),
        false => with_secrets(data),
    };
    within_limit(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let data = data.clone();
                tokio::spawn(async move {
                    let mut request = vec![0; 4096];
                    while let Ok(length @ 1..) = stream.read(&mut request).await {
                        let asked = request.get(..length).unwrap_or_default();
                        // What comes before the script is the start of the connection.
                        let before = match is_cluster {
                            true => Some(0),
                            false => position(asked, b"EVALSHA"),
                        };
                        let is_start = before.is_none();
                        let start = asked.get(..before.unwrap_or(length)).unwrap_or_default();
                        // The script's own first byte is among them.
                        let greetings = commands(start).saturating_sub(usize::from(!is_start));
                        let mut answer = b"+PONG\r\n".repeat(greetings);
                        if !is_start {
                            answer.extend_from_slice(&data);
                        }
                        if stream.write_all(&answer).await.is_err() || !is_start {
                            // The end of the bytes is the end of the connection.
                            return;
                        }
                    }
                });
            }
        });
        let mut config =
            RedisConfig::from_url(&format!("{scheme}://127.0.0.1:{port}")).expect("a URL");
        config.locks.operation_timeout = LIMIT;
        config.connect_timeout = Duration::from_millis(30);
        let backend = checked(RedisBackend::new(config)).expect("good settings");
        // As `operation` calls them: their time is over after the time limit.
        let mut asked = request();
        backend.prepare(&mut asked);
        if let Ok(Err(error)) = timeout(LIMIT, backend.run(&Operation::Acquire(asked))).await {
            assert_discreet_error(&error);
        }
        // This call sends no lock id, which the bytes may quote all the same. No server could, so its error is not looked at.
        let _ = timeout(LIMIT, backend.run(&Operation::IsLocked(key()))).await;
        backend.shut_down().await;
        server.abort();
    });
}

/// How many there are in what was sent.
fn commands(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'*').count()
}

fn position(bytes: &[u8], word: &[u8]) -> Option<usize> {
    bytes.windows(word.len()).position(|window| window == word)
}
