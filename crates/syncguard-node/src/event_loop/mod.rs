//! JavaScript's event loop, on which connections live and operations run, without another thread.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};

use async_task::Runnable;
use napi::{Env, sys};
use syncguard::event_loop::{EventLoop, Interest, Readiness, Source};
use tokio::runtime::{EnterGuard, Handle};

use crate::answers::mailbox::{Listener, Mailbox};
use crate::event_loop::uv::{Poll, Sender, Uv, Wake};
use crate::mutex::lock;

mod uv;

thread_local! {
    /// The loop that has its turn on this thread.
    static CURRENT: Cell<*const Shared> = const { Cell::new(ptr::null()) };
}

/// The room for so many tasks is kept.
const ROOM: usize = 256;

/// The loop of one environment, for its own thread.
pub(crate) struct JavaScriptLoop {
    shared: Arc<Shared>,
    this: Weak<Self>,
    uv: Uv,
    wake: RefCell<Option<Wake>>,
    sources: RefCell<Vec<Rc<Watched>>>,
    numbers: Cell<u64>,
    /// The room of those that were ready before, for the next.
    room: RefCell<Vec<Runnable>>,
    mailbox: Arc<Mailbox>,
    listener: Rc<Listener>,
    env: sys::napi_env,
}

/// A source, and the socket that is watched for it.
struct Watched {
    number: u64,
    /// Dropped before the source, which may close the socket: libuv must not watch one that is closed.
    poll: Poll,
    source: Arc<dyn Source>,
    interest: Cell<Interest>,
}

/// The loop for all threads.
struct Shared {
    sender: OnceLock<Sender>,
    /// What the next turn begins with. `None` after the end.
    queues: Mutex<Option<Queues>>,
    /// Whether JavaScript's thread is in a turn, which looks for more to do before it ends.
    is_in_turn: AtomicBool,
    has_more: AtomicBool,
    /// Runs what goes on in the background, and what is left when the loop ends.
    runtime: Handle,
}

#[derive(Default)]
struct Queues {
    new: Vec<Arc<dyn Source>>,
    /// What a turn has woken, which runs in the same.
    ready: Vec<Runnable>,
    /// What was woken from elsewhere. It may be that its time is over, so that all is read before it runs.
    woken: Vec<Runnable>,
}

impl JavaScriptLoop {
    /// `None` where JavaScript does not run on libuv. What finishes is found in `mailbox` by `listener`.
    pub(crate) fn of(
        env: &Env,
        runtime: Handle,
        mailbox: &Arc<Mailbox>,
        listener: &Rc<Listener>,
    ) -> Option<Rc<Self>> {
        let uv = Uv::of(env)?;
        let shared = Arc::new(Shared {
            sender: OnceLock::new(),
            queues: Mutex::new(Some(Queues::default())),
            is_in_turn: AtomicBool::new(false),
            has_more: AtomicBool::new(false),
            runtime,
        });
        let this = Rc::new_cyclic(|this: &Weak<Self>| Self {
            shared,
            this: Weak::clone(this),
            uv,
            wake: RefCell::default(),
            sources: RefCell::default(),
            numbers: Cell::new(0),
            room: RefCell::default(),
            mailbox: Arc::clone(mailbox),
            listener: Rc::clone(listener),
            env: env.raw(),
        });
        let weak = Rc::downgrade(&this);
        let (wake, sender) = this.uv.wake(move || {
            if let Some(this) = weak.upgrade() {
                this.turn(None);
            }
        })?;
        let _ = this.shared.sender.set(sender);
        this.wake.replace(Some(wake));
        let weak = Rc::downgrade(&this);
        this.uv.on_end(move || {
            if let Some(this) = weak.upgrade() {
                this.end();
            }
        });
        Some(this)
    }

    /// As the core knows it.
    pub(crate) fn shared(&self) -> Arc<dyn EventLoop> {
        Arc::clone(&self.shared) as Arc<dyn EventLoop>
    }

    /// Runs `task` here, from now on. If the environment ends before it, it goes on on the I/O thread.
    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        let (runnable, task) = async_task::spawn(task, move |runnable| shared.schedule(runnable));
        task.detach();
        {
            let _entered = LoopEntered::enter(&self.shared);
            runnable.run();
        }
        if self.mailbox.has_finished() {
            // Whoever called must have returned before it is told.
            self.shared.wake();
        }
    }

    /// Reads what has come, runs the tasks that waited for it, tells JavaScript what has finished, and writes what
    /// JavaScript asks for then.
    fn turn(&self, ready: Option<(u64, Readiness)>) {
        {
            let _entered = LoopEntered::enter(&self.shared);
            self.shared.is_in_turn.store(true, SeqCst);
            let woken = self.adopt();
            let is_alone = woken.is_empty();
            if let Some((number, readiness)) = ready
                && (is_alone || readiness == Readiness::Broken)
            {
                self.attend(|watched| watched.number == number, readiness);
            }
            if ready.is_none() || !is_alone {
                // Also where nothing was said to have come: then it is no time yet to call anything late.
                self.attend(|_| true, Readiness::Readable);
            }
            for runnable in woken {
                runnable.run();
            }
            self.run_ready();
            self.shared.has_more.store(false, SeqCst);
            if self.mailbox.has_finished() {
                self.listener.call_from_loop(self.env);
            }
            if self.shared.has_more.load(SeqCst) {
                // First whoever goes on because of that: what it asks for is written with the rest.
                self.run_ready();
                self.shared.has_more.store(false, SeqCst);
                self.attend(|_| true, Readiness::Unknown);
                self.run_ready();
            }
            self.shared.is_in_turn.store(false, SeqCst);
        }
        if self.shared.has_more.swap(false, SeqCst) || self.mailbox.has_finished() {
            self.shared.wake();
        }
    }

    fn run_ready(&self) {
        let mut ready = self.room.take();
        loop {
            match &mut *lock(&self.shared.queues) {
                Some(queues) if !queues.ready.is_empty() => {
                    std::mem::swap(&mut queues.ready, &mut ready);
                }
                _ => break,
            }
            for runnable in ready.drain(..) {
                runnable.run();
            }
        }
        ready.shrink_to(ROOM);
        self.room.replace(ready);
    }

    /// Watches the new sources. Gives what was woken from elsewhere until now.
    fn adopt(&self) -> Vec<Runnable> {
        let (new, woken) = match &mut *lock(&self.shared.queues) {
            Some(Queues { new, woken, .. }) => (std::mem::take(new), std::mem::take(woken)),
            None => return Vec::new(),
        };
        for source in new {
            self.watch(source);
        }
        woken
    }

    fn watch(&self, source: Arc<dyn Source>) {
        let (this, number) = (Weak::clone(&self.this), self.numbers.get());
        self.numbers.set(number + 1);
        let on_ready = move |readiness| {
            if let Some(this) = this.upgrade() {
                this.turn(Some((number, readiness)));
            }
        };
        let Some(poll) = self.uv.poll(source.socket(), on_ready) else {
            source.leave();
            return;
        };
        poll.watch(Interest::Read);
        self.sources.borrow_mut().push(Rc::new(Watched {
            number,
            poll,
            source,
            interest: Cell::new(Interest::Read),
        }));
    }

    /// Gives sources their turn.
    fn attend(&self, is_meant: impl Fn(&Watched) -> bool, readiness: Readiness) {
        // What they call may add sources.
        let sources = self.sources.borrow().clone();
        for watched in sources.iter().filter(|watched| is_meant(watched)) {
            let interest = watched.source.turn(readiness);
            if interest == Interest::Nothing {
                let mut sources = self.sources.borrow_mut();
                sources.retain(|other| !Rc::ptr_eq(other, watched));
            } else if watched.interest.replace(interest) != interest
                || readiness == Readiness::Broken
            {
                watched.poll.watch(interest);
            }
        }
    }

    /// Lets everything go on on the I/O thread.
    pub(crate) fn end(&self) {
        let queues = lock(&self.shared.queues).take();
        let Queues {
            mut new,
            ready,
            woken,
        } = queues.unwrap_or_default();
        // Nothing is watched any more once these are dropped.
        let watched = self.sources.take();
        new.extend(watched.iter().map(|watched| Arc::clone(&watched.source)));
        drop(watched);
        self.wake.take();
        self.uv.close();
        new.iter().for_each(|source| source.leave());
        for runnable in ready.into_iter().chain(woken) {
            self.shared.schedule(runnable);
        }
    }
}

impl Shared {
    /// Whether the calling thread is in a turn.
    fn has_turn(&self) -> bool {
        self.is_current() && self.is_in_turn.load(SeqCst)
    }

    /// Lets the next turn run it, or the I/O thread if there is none.
    fn schedule(&self, runnable: Runnable) {
        if let Some(queues) = &mut *lock(&self.queues) {
            match self.has_turn() {
                true => queues.ready.push(runnable),
                false => queues.woken.push(runnable),
            }
        } else {
            self.runtime.spawn(async { runnable.run() });
            return;
        }
        self.wake();
    }
}

impl EventLoop for Shared {
    fn is_current(&self) -> bool {
        ptr::eq(CURRENT.get(), self)
    }

    fn watch(&self, source: Arc<dyn Source>) -> Result<(), Arc<dyn Source>> {
        match &mut *lock(&self.queues) {
            Some(queues) => queues.new.push(source),
            None => return Err(source),
        }
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        if self.has_turn() {
            self.has_more.store(true, SeqCst);
        } else if let Some(sender) = self.sender.get() {
            sender.send();
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JavaScriptLoop").finish_non_exhaustive()
    }
}

/// While there is one, a loop runs on this thread, and can start what goes on in the background.
struct LoopEntered<'a> {
    before: *const Shared,
    _runtime: Option<EnterGuard<'a>>,
}

impl<'a> LoopEntered<'a> {
    fn enter(shared: &'a Arc<Shared>) -> Self {
        let before = CURRENT.replace(Arc::as_ptr(shared));
        let is_new = before != Arc::as_ptr(shared);
        Self {
            before,
            _runtime: is_new.then(|| shared.runtime.enter()),
        }
    }
}

impl Drop for LoopEntered<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}
