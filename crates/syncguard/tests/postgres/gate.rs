//! A TCP proxy that looks at how sessions start, as poolers do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use syncguard::postgres::{Host, PostgresConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What the proxy does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rule {
    /// It refuses sessions that start with settings, with this SQLSTATE.
    RefusesSettings(&'static str),
    /// The server's version is another one: the number that it is, and the number that clients are told.
    Version(i32, i32),
    /// What the server says of itself begins otherwise: with the second text, in place of the first.
    Product(&'static str, &'static str),
}

pub(crate) struct Gate {
    port: u16,
    refused: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Gate {
    /// Before a server on `port`.
    pub(crate) async fn start(server_port: u16, rule: Rule) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let refused = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&refused);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut sessions = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                sessions.spawn(serve(client, server_port, rule, Arc::clone(&count)));
            }
        });
        Self {
            port,
            refused,
            _tasks: tasks,
        }
    }

    /// `config`, through the proxy.
    pub(crate) fn config(&self, config: PostgresConfig) -> PostgresConfig {
        PostgresConfig {
            hosts: vec![Host {
                name: "127.0.0.1".to_owned(),
                port: self.port,
            }],
            ..config
        }
    }

    /// How many sessions were refused.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

async fn serve(mut client: TcpStream, server_port: u16, rule: Rule, refused: Arc<AtomicUsize>) {
    let Some(start) = start_up_message(&mut client).await else {
        return;
    };
    let has_settings = start.windows(9).any(|part| part == b"\0options\0");
    if let Rule::RefusesSettings(state) = rule
        && has_settings
    {
        refused.fetch_add(1, Ordering::Relaxed);
        let fields = format!("SFATAL\0C{state}\0Mno settings, please\0\0");
        let mut message = vec![b'E'];
        message.extend_from_slice(&(4 + fields.len() as u32).to_be_bytes());
        message.extend_from_slice(fields.as_bytes());
        let _ = client.write_all(&message).await;
        return;
    }
    let mut server = TcpStream::connect(("127.0.0.1", server_port))
        .await
        .unwrap();
    server.write_all(&start).await.unwrap();
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let replies = async {
        let mut buffer = vec![0; 65_536];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            if let Rule::Version(is, told) = rule {
                replace(&mut buffer[..count], &is.to_be_bytes(), &told.to_be_bytes());
            }
            if let Rule::Product(is, told) = rule {
                replace(&mut buffer[..count], is.as_bytes(), told.as_bytes());
            }
            if to_client.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = replies => {}
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
    }
}

/// The first message, with its length.
async fn start_up_message(client: &mut TcpStream) -> Option<Vec<u8>> {
    let length = client.read_u32().await.ok()?;
    let mut message = length.to_be_bytes().to_vec();
    message.resize(length as usize, 0);
    client.read_exact(&mut message[4..]).await.ok()?;
    Some(message)
}

/// Writes `to` where `from` stands, and over what follows it if that is shorter.
fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let mut parts = bytes.windows(from.len());
    if let Some(at) = parts.position(|part| part == from) {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
}
