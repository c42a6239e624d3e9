//! One environment of JavaScript: a process's main thread, or a worker.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use napi::{Env, sys};
use syncguard::event_loop::EventLoop;

use crate::bridge::{Bridge, Questions};
use crate::cancel::Cancels;
use crate::completion::Completion;
use crate::event_loop::JavaScriptLoop;
use crate::holder::Forgotten;
use crate::io_thread;
use crate::listener::Listener;
use crate::mailbox::Mailbox;
use crate::watch::Watched;

/// What only the environment's own thread touches.
pub(crate) struct Environment {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) cancels: Arc<Cancels>,
    pub(crate) questions: Arc<Questions>,
    pub(crate) forgotten: Arc<Forgotten>,
    /// The locks that JavaScript waits for, by the numbers that it has given them.
    pub(crate) watches: RefCell<HashMap<u32, Watched>>,
    listener: Rc<Listener>,
    event_loop: OnceCell<Option<Rc<JavaScriptLoop>>>,
    in_flight: Cell<usize>,
    /// Whether it is kept alive.
    is_held: Cell<bool>,
}

impl Environment {
    /// `listener` is what the mailbox wakes.
    pub(crate) fn new(mailbox: Mailbox, listener: Rc<Listener>) -> Self {
        Self {
            mailbox: Arc::new(mailbox),
            cancels: Arc::default(),
            questions: Arc::default(),
            forgotten: Arc::default(),
            watches: RefCell::default(),
            listener,
            event_loop: OnceCell::new(),
            in_flight: Cell::new(0),
            is_held: Cell::new(false),
        }
    }

    /// A client object of JavaScript.
    pub(crate) fn bridge(&self, client: u32) -> Bridge {
        Bridge::new(&self.mailbox, &self.questions, client)
    }

    /// JavaScript's event loop; `None` where nothing of ours can live on it.
    pub(crate) fn event_loop(&self, env: &Env) -> Option<Arc<dyn EventLoop>> {
        let event_loop = self.event_loop.get_or_init(|| {
            let runtime = io_thread::runtime().ok()?;
            JavaScriptLoop::of(env, runtime, &self.mailbox, &self.listener)
        });
        event_loop.as_ref().map(|event_loop| event_loop.shared())
    }

    /// Runs an operation on JavaScript's event loop.
    pub(crate) fn run_here(
        &self,
        number: u32,
        operation: impl Future<Output = Completion> + Send + 'static,
    ) {
        let Some(Some(event_loop)) = self.event_loop.get() else {
            return self.run_on_io_thread(number, operation);
        };
        let (mailbox, here) = (Arc::clone(&self.mailbox), event_loop.shared());
        event_loop.run(async move {
            let completion = operation.await;
            if here.is_current() {
                // It looks for what has finished.
                mailbox.keep(number, completion);
            } else {
                mailbox.put(number, completion);
            }
        });
    }

    /// Runs an operation on the I/O thread.
    pub(crate) fn run_on_io_thread(
        &self,
        number: u32,
        operation: impl Future<Output = Completion> + Send + 'static,
    ) {
        let mailbox = Arc::clone(&self.mailbox);
        match io_thread::runtime() {
            Ok(runtime) => drop(runtime.spawn(async move {
                mailbox.put(number, operation.await);
            })),
            Err(error) => mailbox.put(number, Completion::Failed(error)),
        }
    }

    /// Gives back what nobody will fetch any more. What runs here goes on on the I/O thread.
    pub(crate) fn end(&self) {
        self.watches.take();
        self.mailbox.abandon();
        if let Some(Some(event_loop)) = self.event_loop.get() {
            event_loop.end();
        }
    }

    /// Counts an operation that starts; the process stays alive until it is drained, and what it leaves
    /// to be done in the background is done.
    pub(crate) fn begin(&self, env: &Env) {
        self.in_flight.set(self.in_flight.get() + 1);
        if !self.is_held.replace(true) {
            self.listener.hold(true);
            // SAFETY: this runs on the thread of `env`, inside a call from JavaScript, so the
            // environment and the threadsafe function it owns are alive.
            unsafe { sys::napi_ref_threadsafe_function(env.raw(), self.mailbox.wake.raw()) };
        }
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
