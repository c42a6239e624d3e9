//! On sockets, and a clock that is set forward while nothing happens.

use std::future::pending;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::asking::outcome::Outcome;
use crate::asking::request::Operation;
use crate::background::backend::Backend;
use crate::operation::{self, CallOptions};
use crate::redis::RedisBackend;
use crate::values::key::Key;

/// A server on which nothing is locked.
#[derive(Default)]
struct Server {
    /// How many scripts have come on each connection.
    scripts: Mutex<Vec<usize>>,
    /// Whether the connections that there are have been forgotten by a network, which tells nobody.
    is_forgotten: AtomicBool,
}

impl Server {
    async fn start() -> (Arc<Self>, Arc<dyn Backend>) {
        let server = Arc::<Self>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let accepting = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&accepting).serve(stream));
            }
        });
        let config = RedisConfig::from_url(&url).unwrap();
        (server, Arc::new(RedisBackend::new(config).unwrap()))
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let number = {
            let mut scripts = self.scripts.lock().unwrap();
            scripts.push(0);
            scripts.len() - 1
        };
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = stream.read(&mut bytes).await {
            let text = String::from_utf8_lossy(&bytes[..count]);
            let scripts = text.matches("EVALSHA").count();
            let replies =
                "+PONG\r\n".repeat(text.matches("PING").count()) + &":0\r\n".repeat(scripts);
            self.scripts.lock().unwrap()[number] += scripts;
            if number > 0 || !self.is_forgotten.load(SeqCst) {
                stream.write_all(replies.as_bytes()).await.unwrap();
            }
        }
    }

    fn scripts(&self) -> Vec<usize> {
        self.scripts.lock().unwrap().clone()
    }
}

async fn is_idle_for_long() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
}

async fn is_locked(backend: &Arc<dyn Backend>) -> bool {
    let key = Key::new("k").unwrap();
    let answer = operation::run::<bool>(
        backend,
        Operation::IsLocked(key.clone()),
        CallOptions::default(),
        pending(),
    )
    .await;
    answer.unwrap()
}

/// Asks by the way that carries out any operation: as the binding does.
async fn runs(backend: &Arc<dyn Backend>) -> Outcome {
    let operation = Operation::IsLocked(Key::new("k").unwrap());
    let answer = operation::run(backend, operation, CallOptions::default(), pending()).await;
    answer.unwrap()
}

#[tokio::test]
async fn a_connection_that_was_forgotten_while_idle_costs_the_next_calls_little() {
    let (server, backend) = Server::start().await;
    assert!(!is_locked(&backend).await);
    server.is_forgotten.store(true, SeqCst);
    is_idle_for_long().await;
    let start = Instant::now();
    let asked = join_all((0..5).map(|_| is_locked(&backend)));
    let run = join_all((0..5).map(|_| runs(&backend)));
    let (asked, run) = tokio::join!(asked, run);
    assert_eq!(asked, [false; 5]);
    assert!(
        run.iter()
            .all(|outcome| *outcome == Outcome::IsLocked(false))
    );
    assert!(
        start.elapsed() < Duration::from_millis(600),
        "{:?}",
        start.elapsed()
    );
    // None went to the connection that was forgotten, so that none was sent twice.
    assert_eq!(server.scripts(), [1, 10]);
}

#[tokio::test]
async fn a_connection_that_is_only_idle_is_kept() {
    let (server, backend) = Server::start().await;
    for _ in 0..3 {
        assert!(!is_locked(&backend).await);
        is_idle_for_long().await;
        assert_eq!(runs(&backend).await, Outcome::IsLocked(false));
        is_idle_for_long().await;
    }
    assert_eq!(server.scripts(), [6]);
}
