//! The operations of one environment of JavaScript: of a process's main thread, or of a worker.

use std::cell::{Cell, OnceCell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use napi::bindgen_prelude::{Float64ArraySlice, FnArgs, Function};
use napi::{Env, sys};
use napi_derive::napi;
use syncguard::event_loop::EventLoop;
use syncguard::{Backend, BoxFuture, Error, ErrorKind};

use crate::answers::completion::{Completion, WIDTH, write};
use crate::answers::mailbox::{Listener, Mailbox};
use crate::calls::cancel::Cancels;
use crate::calls::holder::Holders;
use crate::clients::bridge::{Bridge, Questions, Rejection, parse};
use crate::event_loop::JavaScriptLoop;
use crate::io_thread;

/// The operations of one environment, as JavaScript sees them.
#[napi]
pub struct Completions {
    pub(crate) environment: Rc<Environment>,
}

#[napi]
impl Completions {
    /// `on_ready` is called when finished operations wait to be drained.
    #[napi(constructor)]
    pub fn new(env: &Env, on_ready: Function<'_, (), ()>) -> napi::Result<Self> {
        let listener = Rc::new(Listener::new(&on_ready)?);
        let called = Rc::clone(&listener);
        let ready = env.create_function_from_closure::<(), (), _>("ready", move |call| {
            called.call(call.env);
            Ok(())
        })?;
        // Weak: waiting for nothing must not keep the process alive. `begin` and `drain` hold it
        // while operations are in flight.
        let wake = ready
            .build_threadsafe_function::<()>()
            .weak::<true>()
            .build()?;
        Ok(Self {
            environment: Rc::new(Environment::new(Mailbox::new(wake), listener)),
        })
    }

    /// A function that writes finished operations into an array, the count first, and returns their texts, one
    /// after the other. What does not fit stays for the next call.
    #[napi]
    pub fn drain<'env>(
        &self,
        env: &'env Env,
    ) -> napi::Result<Function<'env, FnArgs<(Float64ArraySlice<'env>,)>, String>> {
        let environment = Rc::clone(&self.environment);
        env.create_function_from_closure("drain", move |call| {
            // Given each time: the array is of a realm that nothing here must keep alive.
            let mut numbers: Float64ArraySlice<'_> = call.get(0)?;
            // SAFETY: JavaScript waits for this call to return, and nothing else has the array's memory
            // while it does: the array is `native/operations.ts`'s own and no other thread sees it.
            let numbers = unsafe { numbers.as_mut() };
            let room = numbers.len().saturating_sub(1) / WIDTH;
            Ok(environment.take(call.env, room, |batch| write(batch, numbers)))
        })
    }

    /// Cancels an operation if it has not finished.
    #[napi]
    pub fn cancel(&self, operation: u32) {
        self.environment.cancels.cancel(operation);
    }

    /// Brings a client's answer, in JSON, to the operation that asked for it.
    #[napi]
    pub fn answer(&self, question: u32, json: String) {
        self.environment.questions.answer(question, parse(&json));
    }

    /// Brings what a client's promise was rejected with to the operation that asked.
    #[napi]
    pub fn reject(&self, question: u32, name: String, code: Option<String>, message: String) {
        let rejection = Rejection {
            name,
            code,
            message,
        };
        self.environment.questions.answer(question, Err(rejection));
    }

    /// A function that tells why the lock of that number is lost, if it is at this moment, whether or not JavaScript has been told: JSON
    /// with which of several it is, or null, then the code, the message, and those of the causes. Nothing is asked of the store.
    #[napi]
    pub fn look<'env>(
        &self,
        env: &'env Env,
    ) -> napi::Result<Function<'env, FnArgs<(u32,)>, Option<String>>> {
        let holders = Arc::clone(&self.environment.holders);
        env.create_function_from_closure("look", move |call| Ok(holders.look(call.get(0)?)))
    }

    /// JavaScript has been told that the lock of that number is lost.
    #[napi]
    pub fn remove_holder(&self, number: u32) {
        self.environment.holders.remove(number);
    }

    /// Sends no more heartbeats for a lock: it ends by itself, and nobody is told of it.
    #[napi]
    pub fn forget_holder(&self, number: u32) {
        self.environment.holders.forget(number);
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.environment.end();
    }
}

/// What only the environment's own thread touches.
pub(crate) struct Environment {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) cancels: Arc<Cancels>,
    pub(crate) questions: Arc<Questions>,
    pub(crate) holders: Arc<Holders>,
    listener: Rc<Listener>,
    event_loop: OnceCell<Option<Rc<JavaScriptLoop>>>,
    in_flight: Cell<usize>,
    /// Whether it is kept alive.
    is_held: Cell<bool>,
    /// The room of the batch before, for the next.
    batch: RefCell<Vec<(u32, Completion)>>,
}

/// The room for so many finished operations is kept.
const ROOM: usize = 256;

impl Environment {
    /// `listener` is what the mailbox wakes.
    pub(crate) fn new(mailbox: Mailbox, listener: Rc<Listener>) -> Self {
        Self {
            mailbox: Arc::new(mailbox),
            cancels: Arc::default(),
            questions: Arc::default(),
            holders: Arc::default(),
            listener,
            event_loop: OnceCell::new(),
            in_flight: Cell::new(0),
            is_held: Cell::new(false),
            batch: RefCell::default(),
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

    /// Runs an operation, on JavaScript's event loop if `is_here` and else on the I/O thread, and counts it: the process
    /// stays alive until its outcome is drained, and what it leaves to be done in the background is done.
    #[expect(
        clippy::too_many_arguments,
        reason = "the names of the operation, and what it is"
    )]
    pub(crate) fn run(
        &self,
        env: &Env,
        number: u32,
        is_here: bool,
        backend: Arc<dyn Backend>,
        operation: BoxFuture<'static, Result<Completion, Error>>,
    ) {
        self.begin(env);
        let event_loop = self.event_loop.get().and_then(Option::as_ref);
        let event_loop = event_loop.filter(|_| is_here);
        let running = Running {
            number,
            operation,
            backend,
            mailbox: Arc::clone(&self.mailbox),
            here: event_loop.map(|event_loop| event_loop.shared()),
        };
        if let Some(event_loop) = event_loop {
            event_loop.run(running);
            return;
        }
        match io_thread::runtime() {
            Ok(runtime) => drop(runtime.spawn(running)),
            Err(error) => self.mailbox.put(number, Completion::Failed(error)),
        }
    }

    /// Gives back what nobody will fetch any more. What runs here goes on on the I/O thread.
    pub(crate) fn end(&self) {
        self.mailbox.abandon();
        if let Some(Some(event_loop)) = self.event_loop.get() {
            event_loop.end();
        }
    }

    fn begin(&self, env: &Env) {
        self.in_flight.set(self.in_flight.get() + 1);
        if !self.is_held.replace(true) {
            self.listener.hold(true);
            // SAFETY: this runs on the thread of `env`, inside a call from JavaScript, so the
            // environment and the threadsafe function it owns are alive.
            unsafe { sys::napi_ref_threadsafe_function(env.raw(), self.mailbox.wake.raw()) };
        }
    }

    /// Gives the finished operations to `write`: at most `room` of them.
    pub(crate) fn take<T>(
        &self,
        env: &Env,
        room: usize,
        write: impl FnOnce(&mut Vec<(u32, Completion)>) -> T,
    ) -> T {
        let mut batch = self.batch.take();
        self.mailbox.take(room, &mut batch);
        let outcomes = batch
            .iter()
            .filter(|(_, completion)| completion.is_outcome())
            .count();
        let left = self.in_flight.get().saturating_sub(outcomes);
        self.in_flight.set(left);
        let is_idle = left == 0 && !self.mailbox.busy.any();
        if is_idle && self.is_held.replace(false) {
            self.listener.hold(false);
            // SAFETY: as in `begin`.
            unsafe { sys::napi_unref_threadsafe_function(env.raw(), self.mailbox.wake.raw()) };
        }
        let written = write(&mut batch);
        batch.clear();
        batch.shrink_to(ROOM);
        self.batch.replace(batch);
        written
    }
}

/// An operation that runs, and brings what it comes to into the mailbox.
struct Running {
    number: u32,
    operation: BoxFuture<'static, Result<Completion, Error>>,
    backend: Arc<dyn Backend>,
    mailbox: Arc<Mailbox>,
    /// The event loop on which it runs.
    here: Option<Arc<dyn EventLoop>>,
}

impl Future for Running {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // A defect must not end the user's process.
        let poll = AssertUnwindSafe(|| self.operation.as_mut().poll(cx));
        let ended = ready!(catch_unwind(poll).unwrap_or_else(|_| Poll::Ready(Err(panicked()))));
        self.mailbox.live_for_background_of(&self.backend);
        let completion = ended.unwrap_or_else(Completion::Failed);
        match &self.here {
            // It looks for what has finished.
            Some(here) if here.is_current() => self.mailbox.keep(self.number, completion),
            _ => self.mailbox.put(self.number, completion),
        }
        Poll::Ready(())
    }
}

/// The error of a defect of ours.
fn panicked() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the native core panicked; please report this",
    )
}
