//! A TCP proxy that counts flights: runs of bytes in one direction.

use std::sync::{Arc, Mutex};

use syncguard::postgres::{Host, PostgresConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

/// Flights in both directions since the last reset.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Flights {
    pub(crate) requests: usize,
    pub(crate) replies: usize,
}

#[derive(Default)]
struct Record {
    flights: Flights,
    last: Option<Direction>,
    connections: usize,
}

pub(crate) struct Proxy {
    port: u16,
    record: Arc<Mutex<Record>>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// A proxy before the server on `port`. For one connection at a time.
    pub(crate) async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let record = Arc::new(Mutex::new(Record::default()));
        let mut tasks = JoinSet::new();
        let seen = Arc::clone(&record);
        tasks.spawn(async move {
            let mut pumps = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                seen.lock().unwrap().connections += 1;
                let server = TcpStream::connect(("127.0.0.1", server_port))
                    .await
                    .unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                pumps.spawn(pump(
                    from_client,
                    to_server,
                    Direction::Request,
                    Arc::clone(&seen),
                ));
                pumps.spawn(pump(
                    from_server,
                    to_client,
                    Direction::Reply,
                    Arc::clone(&seen),
                ));
            }
        });
        Self {
            port,
            record,
            _tasks: tasks,
        }
    }

    /// `config`, through the proxy, with one connection.
    pub(crate) fn config(&self, config: PostgresConfig) -> PostgresConfig {
        PostgresConfig {
            hosts: vec![Host {
                name: "127.0.0.1".to_owned(),
                port: self.port,
            }],
            pool_size: 1,
            ..config
        }
    }

    /// The flights since the last time.
    pub(crate) fn take(&self) -> Flights {
        let mut record = self.record.lock().unwrap();
        record.last = None;
        std::mem::take(&mut record.flights)
    }

    pub(crate) fn connections(&self) -> usize {
        self.record.lock().unwrap().connections
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    record: Arc<Mutex<Record>>,
) {
    let mut buffer = vec![0; 65_536];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        {
            let mut record = record.lock().unwrap();
            if record.last != Some(direction) {
                record.last = Some(direction);
                match direction {
                    Direction::Request => record.flights.requests += 1,
                    Direction::Reply => record.flights.replies += 1,
                }
            }
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
