//! A TCP proxy that does to connections what networks, poolers and bad servers do.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use syncguard::postgres::{Host, PostgresConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// By which a client asks what the server works on.
const QUESTION: &[u8] = b"pg_stat_activity";

/// What happens to the bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forwarding {
    /// They arrive.
    Pass,
    /// A request arrives, and when the server has carried it out, the client hears what a pooler says
    /// that has lost its server: an error that ends the session, with the fields S, C and M only.
    Deny,
    /// The next request does not arrive: the client hears an error of these fields, and the connection ends.
    End(&'static str),
    /// Nothing arrives any more, and nobody is told.
    Silence,
    /// Answers arrive only when another connection asks what the server works on for the second time, and before that is answered.
    Late,
    /// Requests are answered with notices without end.
    Flood,
}

pub(crate) struct Mediator {
    port: u16,
    all: Arc<All>,
    _tasks: JoinSet<()>,
}

/// What all connections share.
#[derive(Default)]
struct All {
    /// Where new connections lead.
    server_port: AtomicU16,
    /// What happens to connections that are open, one for each.
    open: Mutex<Vec<watch::Sender<Forwarding>>>,
    accepted: AtomicUsize,
    flooded: AtomicUsize,
    /// How often it was asked what the server works on.
    questions: AtomicUsize,
    /// A late answer has arrived.
    arrived: Notify,
}

impl Mediator {
    /// Before a server or pooler on `port`.
    pub(crate) async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let all = Arc::new(All {
            server_port: AtomicU16::new(server_port),
            ..All::default()
        });
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&all);
        tasks.spawn(async move {
            let mut pumps = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                shared.accepted.fetch_add(1, Ordering::Relaxed);
                let server_port = shared.server_port.load(Ordering::Relaxed);
                let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else {
                    continue;
                };
                let (fate, seen) = watch::channel(Forwarding::Pass);
                shared.open.lock().unwrap().push(fate);
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let all = Arc::clone(&shared);
                pumps.spawn(requests(from_client, to_server, seen.clone(), all));
                pumps.spawn(replies(from_server, to_client, seen, Arc::clone(&shared)));
            }
        });
        Self {
            port,
            all,
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

    /// What happens from now on to the connections that are open, and to no later ones.
    pub(crate) fn meet(&self, fate: Forwarding) {
        for connection in self.all.open.lock().unwrap().iter() {
            connection.send_replace(fate);
        }
    }

    /// Another server is behind it for the connections that are made from now on.
    pub(crate) fn lead_to(&self, server_port: u16) {
        self.all.server_port.store(server_port, Ordering::Relaxed);
    }

    /// How many connections there have been.
    pub(crate) fn accepted(&self) -> usize {
        self.all.accepted.load(Ordering::Relaxed)
    }

    /// How many bytes of endless replies have been taken.
    pub(crate) fn flooded(&self) -> usize {
        self.all.flooded.load(Ordering::Relaxed)
    }
}

impl All {
    /// Whether there may be some.
    fn lets_late_answers_arrive(&self) -> bool {
        let mut are_late = false;
        for connection in self.open.lock().unwrap().iter() {
            are_late |= connection.send_if_modified(|fate| {
                std::mem::replace(fate, Forwarding::Pass) == Forwarding::Late
            });
        }
        are_late
    }
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    fate: watch::Receiver<Forwarding>,
    all: Arc<All>,
) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if buffer[..count]
            .windows(QUESTION.len())
            .any(|text| text == QUESTION)
            && all.questions.fetch_add(1, Ordering::Relaxed) == 1
            && all.lets_late_answers_arrive()
        {
            all.arrived.notified().await;
        }
        let fate = *fate.borrow();
        // Without the client, the server ends the session.
        if matches!(fate, Forwarding::End(_)) {
            return;
        }
        let passes = fate != Forwarding::Silence;
        if passes && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

async fn replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut fate: watch::Receiver<Forwarding>,
    all: Arc<All>,
) {
    let mut buffer = vec![0; 65_536];
    let mut withheld = Vec::new();
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let now = *fate.borrow();
        match now {
            Forwarding::Pass => {
                if to.write_all(&buffer[..count]).await.is_err() {
                    return;
                }
            }
            Forwarding::Silence | Forwarding::End(_) => {}
            Forwarding::Late => {
                let is_late = |fate: &Forwarding| *fate == Forwarding::Late;
                let passes = fate.wait_for(|fate| !is_late(fate)).await.is_ok();
                if !passes || to.write_all(&buffer[..count]).await.is_err() {
                    return;
                }
                all.arrived.notify_one();
            }
            Forwarding::Deny => {
                withheld.extend_from_slice(&buffer[..count]);
                if is_complete(&withheld) {
                    let _ = to.write_all(&denial()).await;
                    return;
                }
            }
            Forwarding::Flood => {
                let notice = message(
                    b'N',
                    &[b"SNOTICE\0VNOTICE\0C00000\0M", &[b'x'; 1000], b"\0\0"],
                );
                let notices = notice.repeat(64);
                while to.write_all(&notices).await.is_ok() {
                    all.flooded.fetch_add(notices.len(), Ordering::Relaxed);
                }
                return;
            }
        }
    }
    let last = *fate.borrow();
    if let Forwarding::End(fields) = last {
        let _ = to.write_all(&message(b'E', &[fields.as_bytes()])).await;
    }
}

/// Whether the server has carried out what it was asked: then it is ready for the next.
fn is_complete(mut replies: &[u8]) -> bool {
    while let [kind, a, b, c, d, ..] = *replies {
        let length = u32::from_be_bytes([a, b, c, d]) as usize + 1;
        if kind == b'Z' && replies.len() >= length {
            return true;
        }
        let Some(rest) = replies.get(length..) else {
            return false;
        };
        replies = rest;
    }
    false
}

fn denial() -> Vec<u8> {
    message(b'E', &[b"SFATAL\0C08P01\0Mserver conn crashed?\0\0"])
}

fn message(kind: u8, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], &body].concat()
}
