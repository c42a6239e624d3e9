//! On sockets, and an event loop that has a turn when the test says so.

use std::cell::Cell;
use std::future::pending;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

use futures::FutureExt as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};

use super::*;
use crate::asking::outcome::Outcome;
use crate::asking::request::Operation;
use crate::background::backend::Backend;
use crate::mutex::lock;
use crate::network::event_loop::{Interest, Readiness, Source};
use crate::operation::{self, CallOptions};
use crate::redis::connection::limited::Limited;
use crate::redis::connection::stream::ServerEndpoint;
use crate::redis::connection::term::Named;
use crate::redis::names::{ClientPrefix, Names};
use crate::redis::operations::release;
use crate::redis::{RedisBackend, RedisConfig, RedisConnection};
use crate::values::key::Key;
use crate::values::lock_id::LockId;

const LIMIT: Duration = Duration::from_millis(500);

thread_local! {
    static IS_IN_TURN: Cell<bool> = const { Cell::new(false) };
}

/// An event loop on the thread of the test.
#[derive(Debug, Default)]
struct Loop {
    sources: Mutex<Option<Vec<Arc<dyn Source>>>>,
    ended: AtomicUsize,
}

impl EventLoop for Loop {
    fn is_current(&self) -> bool {
        IS_IN_TURN.get()
    }

    fn watch(&self, source: Arc<dyn Source>) -> Result<(), Arc<dyn Source>> {
        match lock(&self.sources).as_mut() {
            Some(sources) => {
                sources.push(source);
                Ok(())
            }
            None => Err(source),
        }
    }

    fn wake(&self) {}
}

impl std::fmt::Debug for dyn Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

impl Loop {
    fn new() -> Arc<Self> {
        let new = Self::default();
        *lock(&new.sources) = Some(Vec::new());
        Arc::new(new)
    }

    /// Gives each source a turn, and then `future`.
    fn turn<F: Future + Unpin>(&self, runtime: &Runtime, future: &mut F) -> Option<F::Output> {
        let _runtime = runtime.enter();
        IS_IN_TURN.set(true);
        let sources = lock(&self.sources).clone().unwrap_or_default();
        for source in sources {
            if source.turn(Readiness::Readable) == Interest::Nothing {
                self.ended.fetch_add(1, SeqCst);
                if let Some(sources) = lock(&self.sources).as_mut() {
                    sources.retain(|other| !Arc::ptr_eq(other, &source));
                }
            }
        }
        let polled = Pin::new(future).poll(&mut Context::from_waker(Waker::noop()));
        IS_IN_TURN.set(false);
        match polled {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Has turns until `future` is done.
    fn run<F: Future>(&self, runtime: &Runtime, future: F) -> F::Output {
        let mut future = Box::pin(future);
        loop {
            if let Some(output) = self.turn(runtime, &mut future) {
                return output;
            }
            thread::yield_now();
        }
    }

    fn end(&self) {
        let sources = lock(&self.sources).take();
        for source in sources.unwrap_or_default() {
            source.leave();
        }
    }
}

/// A server on which nothing is locked, and which answers scripts while it `answers`.
struct Server {
    connections: AtomicUsize,
    scripts: watch::Sender<usize>,
    /// What has come.
    words: Mutex<String>,
    answers: watch::Sender<bool>,
    hangs_up: watch::Sender<bool>,
}

impl Server {
    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let mut bytes = vec![0; 64 * 1024];
        let mut hangs_up = self.hangs_up.subscribe();
        loop {
            let count = tokio::select! {
                count = stream.read(&mut bytes) => count.unwrap_or(0),
                _ = hangs_up.wait_for(|hangs_up| *hangs_up) => 0,
            };
            if count == 0 {
                return;
            }
            let text = String::from_utf8_lossy(&bytes[..count]);
            let scripts = text.matches("EVALSHA").count();
            lock(&self.words).push_str(&text);
            let pings = "+PONG\r\n".repeat(text.matches("PING").count());
            if scripts > 0 {
                self.scripts.send_modify(|seen| *seen += scripts);
                let mut answers = self.answers.subscribe();
                answers.wait_for(|answers| *answers).await.unwrap();
            }
            let replies = pings + &":0\r\n".repeat(scripts);
            if stream.write_all(replies.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    async fn has_seen(&self, count: usize) {
        let mut scripts = self.scripts.subscribe();
        scripts.wait_for(|seen| *seen >= count).await.unwrap();
    }
}

/// A server, a backend whose connection lives on the loop, and the runtime of both.
struct Stage {
    runtime: Runtime,
    event_loop: Arc<Loop>,
    server: Arc<Server>,
    backend: Arc<dyn Backend>,
}

impl Stage {
    fn new() -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let server = Arc::new(Server {
            connections: AtomicUsize::new(0),
            scripts: watch::channel(0).0,
            words: Mutex::default(),
            answers: watch::channel(true).0,
            hangs_up: watch::channel(false).0,
        });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let accepting = Arc::clone(&server);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepting.connections.fetch_add(1, SeqCst);
                tokio::spawn(Arc::clone(&accepting).serve(stream));
            }
        });
        let event_loop = Loop::new();
        let here: Arc<dyn EventLoop> = event_loop.clone();
        let mut config = RedisConfig::from_url(&url).unwrap();
        config.locks.operation_timeout = LIMIT;
        let locks = config.locks.clone();
        let connection = RedisConnection::new(config).unwrap().on_event_loop(here);
        let backend = RedisBackend::on(&connection, &locks).unwrap();
        Self {
            runtime,
            event_loop,
            server,
            backend: Arc::new(backend),
        }
    }

    fn is_locked(&self) -> impl Future<Output = Result<Outcome, Error>> + Send + Unpin + 'static {
        let backend = Arc::clone(&self.backend);
        Box::pin(async move {
            let operation = Operation::IsLocked(Key::new("k")?);
            operation::run(&backend, operation, CallOptions::default(), pending()).await
        })
    }

    fn ask_here(&self) {
        let answer = self.event_loop.run(&self.runtime, self.is_locked());
        assert_eq!(answer.unwrap(), Outcome::IsLocked(false));
    }

    fn ask_on_tokio(&self) {
        let answer = self.runtime.block_on(self.is_locked());
        assert_eq!(answer.unwrap(), Outcome::IsLocked(false));
    }

    fn connections(&self) -> usize {
        self.server.connections.load(SeqCst)
    }
}

#[test]
fn the_loop_and_tokio_have_a_connection_each_when_they_need_it() {
    let stage = Stage::new();
    assert_eq!(stage.connections(), 0);
    stage.ask_here();
    assert_eq!(stage.connections(), 1);
    stage.ask_on_tokio();
    assert_eq!(stage.connections(), 2);
    stage.ask_here();
    stage.ask_on_tokio();
    assert_eq!(stage.connections(), 2);
}

#[test]
fn a_loop_that_is_busy_loses_no_answer_and_no_connection() {
    let stage = Stage::new();
    stage.ask_here();
    let mut future = stage.is_locked();
    assert!(stage.event_loop.turn(&stage.runtime, &mut future).is_none());
    // For longer than a silence may be, and than the operation's time: its answer is there.
    thread::sleep(LIMIT * 2);
    let answer = stage.event_loop.turn(&stage.runtime, &mut future).unwrap();
    assert_eq!(answer.unwrap(), Outcome::IsLocked(false));
    stage.ask_here();
    assert_eq!(stage.connections(), 1);
}

#[test]
fn what_is_under_way_when_the_loop_ends_is_answered_on_tokio() {
    let stage = Stage::new();
    stage.ask_here();
    stage.server.answers.send_replace(false);
    let mut future = stage.is_locked();
    assert!(stage.event_loop.turn(&stage.runtime, &mut future).is_none());
    stage.runtime.block_on(stage.server.has_seen(2));
    stage.event_loop.end();
    let (sender, answer) = oneshot::channel();
    stage
        .runtime
        .spawn(async move { sender.send(future.await) });
    stage.server.answers.send_replace(true);
    let answer = stage.runtime.block_on(answer).unwrap();
    assert_eq!(answer.unwrap(), Outcome::IsLocked(false));
    assert_eq!(stage.connections(), 1);
}

#[test]
fn a_connection_that_the_server_ends_leaves_the_loop_and_another_is_made() {
    let stage = Stage::new();
    stage.ask_here();
    stage.server.hangs_up.send_replace(true);
    let start = Instant::now();
    while stage.event_loop.ended.load(SeqCst) == 0 {
        assert!(start.elapsed() < Duration::from_secs(5));
        stage.event_loop.turn(&stage.runtime, &mut pending::<()>());
    }
    stage.server.hangs_up.send_replace(false);
    stage.ask_here();
    assert_eq!(stage.connections(), 2);
}

#[test]
fn closing_ends_the_connection_on_the_loop() {
    let stage = Stage::new();
    stage.ask_here();
    stage.runtime.block_on(stage.backend.close());
    stage.event_loop.turn(&stage.runtime, &mut pending::<()>());
    assert_eq!(stage.event_loop.ended.load(SeqCst), 1);
    let answer = stage.event_loop.run(&stage.runtime, stage.is_locked());
    assert!(answer.is_err());
}

#[tokio::test]
async fn a_former_primary_is_sent_nothing() {
    let at = |port| Named {
        address: ("h".to_owned(), port),
        epoch: 0,
    };
    let primary = watch::Sender::new(Some(at(1)));
    let (mut server, client) = duplex(1024);
    let endpoint = ServerEndpoint::Unix("here".to_owned());
    let term = Term::new(at(1).address, primary.subscribe());
    let opened = Opened {
        stream: Limited::new(Box::new(client), endpoint).with_term(term),
        login: Vec::new(),
        took: Duration::ZERO,
    };
    primary.send_replace(Some(at(2)));
    let target = Arc::new(Target::new(&RedisConfig::default()).unwrap());
    let connection = ScriptConnection::start(opened, target, None);
    let names = Names::new("s", ClientPrefix::None).unwrap();
    let plan = release::plan(&names, &LockId::generate().unwrap(), None).unwrap();
    // Before anything else runs, such as what ends the connection.
    let answer = connection.run(ScriptForm::Hash, &plan).now_or_never();
    assert!(matches!(answer, Some(Ok(Answer::NotSent))));
    assert!(server.read_u8().now_or_never().is_none());
}

#[test]
fn the_loop_and_tokio_are_lanes_of_their_own() {
    let stage = Stage::new();
    let lane = || std::future::ready(stage.backend.lane());
    assert_eq!(
        stage.event_loop.run(&stage.runtime, async { lane().await }),
        Some(Lane::EventLoop)
    );
    assert_eq!(
        stage.runtime.block_on(async { lane().await }),
        Some(Lane::Runtime)
    );
    // Acquisitions that wait for replicas have a connection of their own.
    let mut config = RedisConfig::from_url("redis://localhost").unwrap();
    config.locks.replicas = 1;
    assert_eq!(RedisBackend::new(config).unwrap().lane(), None);
}
