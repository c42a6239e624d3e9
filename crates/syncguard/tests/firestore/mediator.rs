//! A TCP proxy that can fall silent without closing anything, as networks do.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What goes no further, on the connections that are older than this many.
#[derive(Debug, Clone, Copy, Default)]
struct Silence {
    requests_before: usize,
    replies_before: usize,
}

pub(crate) struct Mediator {
    address: SocketAddr,
    silence: watch::Sender<Silence>,
    connections: watch::Receiver<usize>,
    _task: JoinSet<()>,
}

impl Mediator {
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (silence, heard) = watch::channel(Silence::default());
        let (counter, connections) = watch::channel(0);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut pumps = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let number = *counter.borrow();
                counter.send_replace(number + 1);
                let server = TcpStream::connect(server).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let requests_pass = move |it: &Silence| number >= it.requests_before;
                let replies_pass = move |it: &Silence| number >= it.replies_before;
                pumps.spawn(pump(from_client, to_server, heard.clone(), requests_pass));
                pumps.spawn(pump(from_server, to_client, heard.clone(), replies_pass));
            }
        });
        Self {
            address,
            silence,
            connections,
            _task: task,
        }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        *self.connections.borrow()
    }

    /// Keeps everything on the connections that there are.
    pub(crate) fn fall_silent(&self) {
        let now = self.connections();
        self.silence.send_replace(Silence {
            requests_before: now,
            replies_before: now,
        });
    }

    /// Keeps the replies on the connections that there are.
    pub(crate) fn keep_replies(&self) {
        let replies_before = self.connections();
        self.silence
            .send_modify(|silence| silence.replies_before = replies_before);
    }

    /// Lets everything pass, also what was kept.
    pub(crate) fn pass(&self) {
        self.silence.send_replace(Silence::default());
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut silence: watch::Receiver<Silence>,
    passes: impl Fn(&Silence) -> bool,
) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if silence.wait_for(&passes).await.is_err() || to.write_all(&bytes[..count]).await.is_err()
        {
            return;
        }
    }
    // The end is kept like everything else.
    let _ = silence.wait_for(&passes).await;
}
