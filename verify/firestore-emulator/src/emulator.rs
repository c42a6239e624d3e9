//! The running server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::faults::Faults;
use crate::generated::firestore_server::FirestoreServer;
use crate::listen::Streams;
use crate::service::Service;
use crate::store::Store;
use crate::transactions::IDLE_LIMIT;

/// How to start an [`Emulator`].
#[derive(Debug, Clone)]
pub struct Options {
    /// The port on 127.0.0.1; 0 for any free one.
    pub port: u16,
    /// How long a transaction may be idle before it is forgotten. Firestore's limit is a minute.
    pub transaction_idle_limit: Duration,
    /// From what the rates of faults are drawn.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 0,
            transaction_idle_limit: IDLE_LIMIT,
            seed: 1,
        }
    }
}

/// A server on a thread of its own. Dropping it ends it, breaks all connections and frees its port.
pub struct Emulator {
    address: SocketAddr,
    store: Arc<Store>,
    faults: Arc<Faults>,
    streams: Arc<Streams>,
    runtime: Option<Runtime>,
    /// What accepts connections.
    accepting: JoinHandle<()>,
}

impl Emulator {
    /// Starts one. It answers when this returns.
    ///
    /// # Errors
    /// When the port is taken or the system has no thread to give.
    pub fn start(options: Options) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("firestore-emulator")
            .enable_all()
            .build()?;
        let store = Arc::new(Store::new(options.transaction_idle_limit));
        let faults = Arc::new(Faults::new(options.seed));
        let streams = Arc::new(Streams::new(Arc::clone(&faults)));
        let service = Service {
            store: Arc::clone(&store),
            faults: Arc::clone(&faults),
            streams: Arc::clone(&streams),
        };
        let incoming = {
            let _context = runtime.enter();
            TcpIncoming::from(tokio::net::TcpListener::from_std(listener)?).with_nodelay(Some(true))
        };
        let server = Server::builder()
            // As Google does on each connection.
            .max_concurrent_streams(100)
            .add_service(FirestoreServer::new(service));
        let accepting = runtime.spawn(async move {
            // It fails only where nothing can be accepted any more.
            let _ = server.serve_with_incoming(incoming).await;
        });
        Ok(Self {
            address,
            store,
            faults,
            streams,
            runtime: Some(runtime),
            accepting,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The faults in force, and the count of calls.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Deletes all documents of all databases.
    pub fn clear(&self) {
        self.store.clear();
    }

    /// Sets how many milliseconds its clock is ahead of this machine's; negative: behind.
    pub fn set_clock_ahead(&self, ms: i64) {
        self.store.set_ahead(ms.saturating_mul(1000));
    }

    /// How many Listen streams are open.
    pub fn listeners(&self) -> usize {
        self.streams.count()
    }

    /// How many targets all Listen streams have together.
    pub fn targets(&self) -> usize {
        self.streams.targets()
    }

    /// Ends all Listen streams, without a failure, as Firestore does from time to time.
    pub fn end_listeners(&self) {
        self.streams.end();
    }

    /// How many transactions were begun and not yet committed, rolled back or forgotten.
    pub fn open_transactions(&self) -> usize {
        self.store.open_transactions()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
            // Another one may start at the same port right after this.
            while !self.accepting.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
