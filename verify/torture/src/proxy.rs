//! A network that fails to order: a proxy on 127.0.0.1 before a store.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::sleep;

/// What happens to what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It arrives.
    Normal,
    /// It arrives that much later, in each direction.
    Slow(Duration),
    /// What clients send waits in the network, and arrives when this is over.
    NoBandwidthTo,
    /// What the store sends waits in the network, and arrives when this is over.
    NoBandwidthFrom,
    /// It disappears, and nobody is told. New connections are made, and are silent as well.
    Silent,
    /// Requests arrive. Where an answer comes back, the connection is reset in its place.
    NoReplies,
    /// Requests arrive. Where an answer comes back, the proxy gives this error of its own in its place, and hangs up.
    OwnErrors(&'static [u8]),
    /// New connections are reset at once.
    Refused,
}

#[derive(Debug, Clone, Copy)]
struct ProxySettings {
    delivery: Delivery,
    /// Where new connections lead.
    port: u16,
    /// Connections with smaller numbers are reset.
    reset_before: u64,
    /// Connections with smaller numbers are silent for ever: one side is gone, and nobody is told.
    silent_before: u64,
}

/// The proxy. It ends, and all connections with it, when it is dropped.
pub struct Proxy {
    port: u16,
    settings: watch::Sender<ProxySettings>,
    connections: Arc<AtomicU64>,
    cut: Arc<AtomicU64>,
    runtime: Option<Runtime>,
}

impl Proxy {
    /// Starts one before the server at `port` of 127.0.0.1.
    ///
    /// # Errors
    /// No port, or no thread.
    pub fn start(port: u16) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("proxy")
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let own_port = listener.local_addr()?.port();
        let settings = watch::Sender::new(ProxySettings {
            delivery: Delivery::Normal,
            port,
            reset_before: 0,
            silent_before: 0,
        });
        let connections = Arc::new(AtomicU64::new(0));
        let cut = Arc::new(AtomicU64::new(0));
        let shared = (settings.clone(), Arc::clone(&connections), Arc::clone(&cut));
        runtime.spawn(async move {
            let (settings, connections, cut) = shared;
            while let Ok((client, _)) = listener.accept().await {
                let one = Connection {
                    number: connections.fetch_add(1, Relaxed),
                    settings: settings.subscribe(),
                    cut: Arc::clone(&cut),
                };
                tokio::spawn(one.serve(client));
            }
        });
        Ok(Self {
            port: own_port,
            settings,
            connections,
            cut,
            runtime: Some(runtime),
        })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on.
    pub fn set(&self, delivery: Delivery) {
        self.settings
            .send_modify(|settings| settings.delivery = delivery);
    }

    /// Another server is behind its address from now on: the connections that there are are reset.
    pub fn move_to(&self, port: u16) {
        self.settings.send_modify(|settings| settings.port = port);
        self.reset();
    }

    /// Resets all connections that there are.
    pub fn reset(&self) {
        let all = self.connections.load(Relaxed);
        self.settings
            .send_modify(|settings| settings.reset_before = all);
    }

    /// Lets all connections that there are fall silent for ever. New ones work.
    pub fn half_open(&self) {
        let all = self.connections.load(Relaxed);
        self.settings
            .send_modify(|settings| settings.silent_before = all);
    }

    /// How many connections were made until now.
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    /// How many answers were dropped until now.
    pub fn dropped_replies(&self) -> u64 {
        self.cut.load(Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    To,
    From,
}

#[derive(Clone)]
struct Connection {
    number: u64,
    settings: watch::Receiver<ProxySettings>,
    cut: Arc<AtomicU64>,
}

impl Connection {
    async fn serve(self, client: TcpStream) -> io::Result<()> {
        let mut settings = self.settings.clone();
        let port = settings.borrow().port;
        let store = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let is_refused = self.delivery() == Delivery::Refused;
        let store = match TcpStream::connect(store).await {
            Ok(store) if !is_refused => store,
            _ => return reset(&client),
        };
        client.set_nodelay(true)?;
        store.set_nodelay(true)?;
        let (mut client, mut store) = (client, store);
        {
            let (from_client, to_client) = client.split();
            let (from_store, to_store) = store.split();
            let number = self.number;
            tokio::select! {
                _ = settings.wait_for(|settings| number < settings.reset_before) => {}
                _ = self.clone().carry(from_client, to_store, Direction::To) => {}
                _ = self.clone().carry(from_store, to_client, Direction::From) => {}
            }
        }
        reset(&client)
    }

    /// Carries what comes until one side ends, or until the connection is to be reset.
    async fn carry(
        mut self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        direction: Direction,
    ) -> io::Result<()> {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let count = from.read(&mut bytes).await?;
            if count == 0 {
                return Ok(());
            }
            self.until_there_is_bandwidth(direction).await;
            if self.is_silent() {
                // What was lost does not come again, so neither does anything after it.
                return pending().await;
            }
            match self.delivery() {
                Delivery::Slow(delay) => sleep(delay).await,
                Delivery::NoReplies if direction == Direction::From => {
                    self.cut.fetch_add(1, Relaxed);
                    return Ok(());
                }
                Delivery::OwnErrors(error) if direction == Direction::From => {
                    self.cut.fetch_add(1, Relaxed);
                    to.write_all(error).await?;
                    to.shutdown().await?;
                    // Once the client has read it, it hangs up as well.
                    return pending().await;
                }
                _ => {}
            }
            to.write_all(bytes.get(..count).unwrap_or_default()).await?;
        }
    }

    async fn until_there_is_bandwidth(&mut self, direction: Direction) {
        let none = match direction {
            Direction::To => Delivery::NoBandwidthTo,
            Direction::From => Delivery::NoBandwidthFrom,
        };
        let waited = self
            .settings
            .wait_for(|settings| settings.delivery != none)
            .await;
        drop(waited);
    }

    fn is_silent(&self) -> bool {
        let settings = *self.settings.borrow();
        settings.delivery == Delivery::Silent || self.number < settings.silent_before
    }

    fn delivery(&self) -> Delivery {
        self.settings.borrow().delivery
    }
}

/// So that dropping it resets the connection.
fn reset(client: &TcpStream) -> io::Result<()> {
    client.set_zero_linger()
}
