//! What goes between the I/O thread and one environment of JavaScript.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use napi::Status;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use syncguard::{Backend, BoxFuture, Error};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::bridge::Questions;
use crate::busy::BusyBackends;
use crate::cancel::Cancels;
use crate::completion::Completion;
use crate::holder::Forgotten;
use crate::io_thread;

pub(crate) type Wake = ThreadsafeFunction<(), (), (), Status, false, true>;

#[derive(Default)]
struct Finished {
    operations: Vec<(u32, Completion)>,
    /// Whether JavaScript has been woken and has not looked yet.
    is_announced: bool,
    /// When JavaScript has looked last.
    looked: Option<Instant>,
    /// Set when JavaScript has lost its side: nobody will fetch anything any more.
    abandoned: bool,
}

/// What is under way between one environment and the I/O thread.
pub(crate) struct Mailbox {
    finished: Mutex<Finished>,
    /// What the I/O thread is to run, and does not know of yet.
    kept: Mutex<Vec<BoxFuture<()>>>,
    /// Tells the task that wakes JavaScript that something has finished.
    arrived: Notify,
    pub(crate) wake: Wake,
    pub(crate) busy: BusyBackends,
    pub(crate) cancels: Cancels,
    pub(crate) forgotten: Forgotten,
    pub(crate) questions: Questions,
}

impl Mailbox {
    /// `wake` calls what drains the finished operations.
    pub(crate) fn new(wake: Wake) -> Self {
        Self {
            finished: Mutex::default(),
            kept: Mutex::default(),
            arrived: Notify::new(),
            wake,
            busy: BusyBackends::default(),
            cancels: Cancels::default(),
            forgotten: Forgotten::default(),
            questions: Questions::default(),
        }
    }

    /// Starts the task that wakes JavaScript.
    pub(crate) fn start_announcing(self: &Arc<Self>) -> Result<(), Error> {
        // A task of its own: it runs after the tasks that are ready now, so that what they finish
        // wakes JavaScript once.
        io_thread::runtime()?.spawn(announce_all(Arc::clone(self)));
        Ok(())
    }

    /// The finished operations, at most `room` of them.
    pub(crate) fn take(&self, room: usize) -> Vec<(u32, Completion)> {
        let mut finished = lock(&self.finished);
        finished.looked = Some(Instant::now());
        if finished.operations.len() > room {
            return finished.operations.drain(..room).collect();
        }
        finished.is_announced = false;
        mem::take(&mut finished.operations)
    }

    /// Whether [`start`](Self::start) has kept anything.
    pub(crate) fn has_kept(&self) -> bool {
        !lock(&self.kept).is_empty()
    }

    /// Hands over what [`start`](Self::start) has kept.
    pub(crate) fn hand_over(&self) {
        let tasks = mem::take(&mut *lock(&self.kept));
        // It runs: nothing is kept before `start_announcing`.
        if !tasks.is_empty()
            && let Ok(runtime) = io_thread::runtime()
        {
            runtime.spawn(async {
                for task in tasks {
                    tokio::spawn(task);
                }
            });
        }
    }

    /// Lets the I/O thread run `task`: now if this is that thread, else with the next
    /// [`hand_over`](Self::hand_over).
    pub(crate) fn start(&self, task: BoxFuture<()>) {
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(task)),
            Err(_) => lock(&self.kept).push(task),
        }
    }

    /// Puts a finished operation where JavaScript will find it. Where there is no JavaScript any more, a
    /// lock that was granted is given back.
    pub(crate) fn put(&self, operation: u32, completion: Completion) {
        {
            let mut finished = lock(&self.finished);
            if finished.abandoned {
                // Giving a lock back starts a task, which must not happen under this lock.
                drop(finished);
                drop(completion);
                return;
            }
            finished.operations.push((operation, completion));
        }
        self.arrived.notify_one();
    }

    /// Puts an operation that could not be started where JavaScript will find it, and wakes JavaScript from
    /// where it is: there may be nobody else to do it.
    pub(crate) fn fail(&self, operation: u32, error: Error) {
        self.put(operation, Completion::Failed(error));
        self.announce();
    }

    /// When JavaScript has looked last. It looks when its event loop turns after [`announce`](Self::announce).
    pub(crate) fn looked(&self) -> Option<Instant> {
        lock(&self.finished).looked
    }

    /// Wakes JavaScript, unless it has been woken.
    pub(crate) fn announce(&self) {
        let was_announced = mem::replace(&mut lock(&self.finished).is_announced, true);
        if !was_announced {
            self.wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    /// Keeps the environment alive, as an operation in flight does, until what `backend` does in the
    /// background is done. To be called before the outcome that it is left over from is delivered.
    pub(crate) fn live_for_background_of(self: &Arc<Self>, backend: &Arc<dyn Backend>) {
        if !backend.work().is_in_background() || !self.busy.add(backend) {
            return;
        }
        let (mailbox, backend) = (Arc::clone(self), Arc::clone(backend));
        self.start(Box::pin(async move {
            backend.work().background_done().await;
            mailbox.busy.remove(&backend);
            // JavaScript sees in `drain` whether there is anything left to live for.
            mailbox
                .wake
                .call((), ThreadsafeFunctionCallMode::NonBlocking);
        }));
    }

    /// Whether the environment has ended, so that nobody will fetch anything any more.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.finished).abandoned || self.wake.aborted()
    }

    /// Gives back what nobody will fetch, and drops what was not handed over.
    pub(crate) fn abandon(&self) {
        let unstarted = mem::take(&mut *lock(&self.kept));
        drop(unstarted);
        let left = {
            let mut finished = lock(&self.finished);
            finished.abandoned = true;
            mem::take(&mut finished.operations)
        };
        drop(left);
        self.arrived.notify_one();
    }
}

/// Wakes JavaScript for what finishes, until there is none.
async fn announce_all(mailbox: Arc<Mailbox>) {
    loop {
        mailbox.arrived.notified().await;
        if mailbox.is_closed() {
            break;
        }
        mailbox.announce();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs while one is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
