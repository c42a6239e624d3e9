//! What has finished and waits for one environment of JavaScript.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use napi::Status;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use syncguard::Backend;

use crate::busy::BusyBackends;
use crate::completion::Completion;
use crate::io_thread;
use crate::mutex::lock;

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

/// Where finished operations wait until JavaScript fetches all that there are.
pub(crate) struct Mailbox {
    finished: Mutex<Finished>,
    pub(crate) wake: Wake,
    pub(crate) busy: BusyBackends,
}

impl Mailbox {
    /// `wake` calls what drains the finished operations.
    pub(crate) fn new(wake: Wake) -> Self {
        Self {
            finished: Mutex::default(),
            wake,
            busy: BusyBackends::default(),
        }
    }

    /// Whether there are finished operations.
    pub(crate) fn has_finished(&self) -> bool {
        !lock(&self.finished).operations.is_empty()
    }

    /// Moves the finished operations into `batch`, which is empty: at most `room` of them.
    pub(crate) fn take(&self, room: usize, batch: &mut Vec<(u32, Completion)>) {
        let mut finished = lock(&self.finished);
        finished.looked = Some(Instant::now());
        if finished.operations.len() > room {
            batch.extend(finished.operations.drain(..room));
        } else {
            finished.is_announced = false;
            mem::swap(&mut finished.operations, batch);
        }
    }

    /// Puts a finished operation where JavaScript will find it, and wakes JavaScript, unless it has been woken.
    pub(crate) fn put(&self, operation: u32, completion: Completion) {
        self.keep(operation, completion);
        self.announce();
    }

    /// Puts a finished operation where JavaScript will find it. Where there is no JavaScript any more, a
    /// lock that was granted is given back.
    pub(crate) fn keep(&self, operation: u32, completion: Completion) {
        let mut finished = lock(&self.finished);
        if finished.abandoned {
            // Giving a lock back starts a task, which must not happen under this lock.
            drop(finished);
            drop(completion);
            return;
        }
        finished.operations.push((operation, completion));
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
        // It runs: whatever is in the background is there.
        let Ok(runtime) = io_thread::runtime() else {
            return;
        };
        runtime.spawn(async move {
            backend.work().background_done().await;
            mailbox.busy.remove(&backend);
            // JavaScript sees in `drain` whether there is anything left to live for.
            mailbox
                .wake
                .call((), ThreadsafeFunctionCallMode::NonBlocking);
        });
    }

    /// Whether the environment has ended, so that nobody will fetch anything any more.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.finished).abandoned || self.wake.aborted()
    }

    /// Gives back what nobody will fetch.
    pub(crate) fn abandon(&self) {
        let left = {
            let mut finished = lock(&self.finished);
            finished.abandoned = true;
            mem::take(&mut finished.operations)
        };
        drop(left);
    }
}
