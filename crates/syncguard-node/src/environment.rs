//! One environment of JavaScript: a process's main thread, or a worker.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use napi::{Env, sys};
use syncguard::{Backend, Error};

use crate::completion::Completion;
use crate::listener::Listener;
use crate::mailbox::Mailbox;
use crate::watch::Watched;

/// What only the environment's own thread touches.
pub(crate) struct Environment {
    pub(crate) mailbox: Arc<Mailbox>,
    listener: Rc<Listener>,
    in_flight: Cell<usize>,
    /// Whether it is kept alive.
    is_held: Cell<bool>,
    /// Whether the task runs that wakes JavaScript.
    is_announcing: Cell<bool>,
    /// The backends that have kept something back.
    kept: RefCell<Vec<Arc<dyn Backend>>>,
    /// The locks that JavaScript waits for, by the numbers that it has given them.
    pub(crate) watches: RefCell<HashMap<u32, Watched>>,
}

impl Environment {
    /// `listener` is what the mailbox wakes.
    pub(crate) fn new(mailbox: Mailbox, listener: Rc<Listener>) -> Self {
        Self {
            mailbox: Arc::new(mailbox),
            listener,
            in_flight: Cell::new(0),
            is_held: Cell::new(false),
            is_announcing: Cell::new(false),
            kept: RefCell::default(),
            watches: RefCell::default(),
        }
    }

    /// Sends what was kept back.
    pub(crate) fn flush(&self) {
        for backend in self.kept.take() {
            backend.flush();
        }
        self.mailbox.hand_over();
    }

    /// Gives back what nobody will fetch any more. What was not handed over is dropped; what a backend has
    /// kept goes out, so that its answer comes and is given back as well.
    pub(crate) fn end(&self) {
        self.watches.take();
        self.mailbox.abandon();
        self.flush();
    }

    /// Counts an operation that starts; the process stays alive until it is drained, and what it leaves
    /// to be done in the background is done.
    pub(crate) fn begin(&self, env: &Env) -> Result<(), Error> {
        self.in_flight.set(self.in_flight.get() + 1);
        if !self.is_held.replace(true) {
            self.listener.hold(true);
            // SAFETY: this runs on the thread of `env`, inside a call from JavaScript, so the
            // environment and the threadsafe function it owns are alive.
            unsafe { sys::napi_ref_threadsafe_function(env.raw(), self.mailbox.wake.raw()) };
        }
        if !self.is_announcing.get() {
            // With the first operation: making a backend starts nothing.
            self.mailbox.start_announcing()?;
            self.is_announcing.set(true);
        }
        Ok(())
    }

    /// Whether one operation is in flight.
    pub(crate) fn is_lone(&self) -> bool {
        self.in_flight.get() == 1
    }

    /// Lets [`flush`](Self::flush) reach `backend`.
    pub(crate) fn flush_later(&self, backend: &Arc<dyn Backend>) {
        let mut kept = self.kept.borrow_mut();
        if !kept.iter().any(|known| Arc::ptr_eq(known, backend)) {
            kept.push(Arc::clone(backend));
        }
    }

    /// Whether there is anything for [`flush`](Self::flush) to do.
    pub(crate) fn has_kept(&self) -> bool {
        !self.kept.borrow().is_empty() || self.mailbox.has_kept()
    }

    /// The finished operations, at most `room` of them.
    pub(crate) fn take(&self, env: &Env, room: usize) -> Vec<(u32, Completion)> {
        let batch = self.mailbox.take(room);
        let outcomes = batch.iter().filter(|(_, one)| one.is_outcome()).count();
        let left = self.in_flight.get().saturating_sub(outcomes);
        self.in_flight.set(left);
        let is_idle = left == 0 && !self.mailbox.busy.any();
        if is_idle && self.is_held.replace(false) {
            self.listener.hold(false);
            // SAFETY: as in `begin`.
            unsafe { sys::napi_unref_threadsafe_function(env.raw(), self.mailbox.wake.raw()) };
        }
        batch
    }
}
