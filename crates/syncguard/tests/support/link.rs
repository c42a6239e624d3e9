//! A link to a server on which everything takes its time, and that can swallow what goes over a connection, without a word
//! to either side.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    /// Whether each connection swallows, in the order in which they came.
    swallows: Arc<Mutex<Vec<watch::Sender<bool>>>>,
    _tasks: JoinSet<()>,
}

impl Link {
    pub(crate) async fn start(server: SocketAddr) -> Self {
        Self::slow(server, Duration::ZERO).await
    }

    /// To a server that is `one_way` away.
    pub(crate) async fn slow(server: SocketAddr, one_way: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let swallows: Arc<Mutex<Vec<watch::Sender<bool>>>> = Arc::default();
        let all = Arc::clone(&swallows);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut ways = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(server).await else {
                    continue;
                };
                let (swallow, swallows) = watch::channel(false);
                all.lock().unwrap().push(swallow);
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                ways.spawn(carry(from_client, to_server, one_way, swallows.clone()));
                ways.spawn(carry(from_server, to_client, one_way, swallows));
            }
        });
        Self {
            address,
            swallows,
            _tasks: tasks,
        }
    }

    /// From now on, nothing arrives any more on the connection that was made last.
    pub(crate) fn swallow_newest(&self) {
        let swallows = self.swallows.lock().unwrap();
        swallows.last().unwrap().send_replace(true);
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        self.swallows.lock().unwrap().len()
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    one_way: Duration,
    swallows: watch::Receiver<bool>,
) {
    let (sent, mut arriving) = unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let mut buffer = vec![0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let bytes = buffer[..count].to_vec();
            if sent.send((Instant::now() + one_way, bytes)).is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((at, bytes)) = arriving.recv().await {
            sleep_until(at).await;
            if !*swallows.borrow() && to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        // Not even the end of a connection arrives.
        if *swallows.borrow() {
            std::future::pending::<()>().await;
        }
    };
    tokio::join!(read, write);
}
