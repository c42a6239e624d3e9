//! An event loop that is not tokio's, as far as the core can tell.

use std::cell::Cell;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::thread::{self, ThreadId};

use syncguard::event_loop::{EventLoop, Interest, Readiness, Source};
use tokio::io::Interest as Events;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::sync::watch;

thread_local! {
    static IS_IN_TURN: Cell<bool> = const { Cell::new(false) };
}

/// The loop of the thread that makes it. Its sources have their turns on tasks of tokio.
#[derive(Debug)]
pub(crate) struct OwnLoop {
    thread: ThreadId,
    runtime: Handle,
    wakes: watch::Sender<()>,
}

impl OwnLoop {
    /// On the runtime that has been entered.
    pub(crate) fn of_this_thread() -> Arc<Self> {
        Arc::new(Self {
            thread: thread::current().id(),
            runtime: Handle::current(),
            wakes: watch::Sender::default(),
        })
    }
}

impl EventLoop for OwnLoop {
    fn is_current(&self) -> bool {
        thread::current().id() == self.thread
    }

    fn watch(&self, source: Arc<dyn Source>) -> Result<(), Arc<dyn Source>> {
        self.runtime.spawn(turns(source, self.wakes.subscribe()));
        Ok(())
    }

    fn wake(&self) {
        // Whoever has its turn says what it waits for.
        if !IS_IN_TURN.get() {
            self.wakes.send_replace(());
        }
    }
}

struct Socket(RawFd);

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

fn turn(source: &dyn Source, readiness: Readiness) -> Interest {
    IS_IN_TURN.set(true);
    let interest = source.turn(readiness);
    IS_IN_TURN.set(false);
    interest
}

/// Gives a source its turns until it has ended. Those who wait for its answers are woken as on any thread.
async fn turns(source: Arc<dyn Source>, mut wakes: watch::Receiver<()>) {
    let events = Events::READABLE | Events::WRITABLE;
    #[expect(
        deprecated,
        reason = "its replacement is unsafe, and the source keeps its socket open for as long as this runs"
    )]
    let socket = AsyncFd::with_interest(Socket(source.socket()), events).unwrap();
    let mut interest = turn(&*source, Readiness::Readable);
    while interest != Interest::Nothing {
        let readiness = tokio::select! {
            ready = socket.readable() => {
                ready.unwrap().clear_ready();
                Readiness::Readable
            }
            ready = socket.writable(), if interest == Interest::ReadAndWrite => {
                ready.unwrap().clear_ready();
                Readiness::Unknown
            }
            // The source has what leads to the loop, so that it does not go before.
            _ = wakes.changed() => Readiness::Unknown,
        };
        interest = turn(&*source, readiness);
    }
}
