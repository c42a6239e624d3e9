//! Operations on their way from JavaScript and back, in batches.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use napi::bindgen_prelude::{Float64Array, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Status, sys};
use napi_derive::napi;
use syncguard::{Absence, Backend, BoxFuture, Error, Fence, LockId, LockRecord};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::bridge::{Questions, Rejection, parse};
use crate::busy::BusyBackends;
use crate::cancel::Cancels;
use crate::error::causes;
use crate::granted::Granted;
use crate::io_thread;

/// What an operation came to.
pub(crate) enum Completion {
    Acquired(Granted),
    Locked,
    Done,
    Extended {
        expires_at_ms: i64,
    },
    Absent(Absence),
    Answer(bool),
    Found(Box<LockRecord>),
    NotFound,
    Failed(Error),
    /// Not an outcome: a question to a client in JavaScript. Its number is its own.
    Ask {
        client: u32,
        text: String,
    },
}

/// How outcomes are numbered in a batch.
#[napi]
pub enum Tag {
    Acquired,
    Locked,
    Done,
    Extended,
    Expired,
    NotFound,
    Yes,
    No,
    Found,
    Nothing,
    Failed,
    /// Not an outcome: a question to a client.
    Ask,
}

/// Numbers of one finished operation: its own, the tag of its outcome, and its values.
pub(crate) const WIDTH: usize = 2 + VALUES;
const VALUES: usize = 5;

type Wake = ThreadsafeFunction<(), (), (), Status, false, true>;

#[derive(Default)]
struct Finished {
    operations: Vec<(u32, Completion)>,
    /// Whether JavaScript has been woken and has not looked yet.
    is_announced: bool,
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
    wake: Wake,
    busy: BusyBackends,
    pub(crate) cancels: Cancels,
    pub(crate) questions: Questions,
}

impl Mailbox {
    /// Lets the I/O thread run `task`: now if this is that thread, else with the next
    /// [`flush`](Completions::flush).
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

    /// Wakes JavaScript, unless it has been woken.
    fn announce(&self) {
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
    fn is_closed(&self) -> bool {
        lock(&self.finished).abandoned || self.wake.aborted()
    }

    /// Gives back what nobody will fetch.
    fn abandon(&self) {
        let left = {
            let mut finished = lock(&self.finished);
            finished.abandoned = true;
            mem::take(&mut finished.operations)
        };
        drop(left);
        self.arrived.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs while one is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The operations of one environment, as JavaScript sees them.
#[napi]
pub struct Completions {
    pub(crate) mailbox: Arc<Mailbox>,
    in_flight: Cell<usize>,
    /// Whether the environment is kept alive.
    is_held: Cell<bool>,
    /// Whether the task runs that wakes JavaScript.
    is_announcing: Cell<bool>,
    /// The backends that have kept something back.
    kept: RefCell<Vec<Arc<dyn Backend>>>,
    numbers: RefCell<Float64Array>,
}

#[napi]
impl Completions {
    /// `on_ready` is called when finished operations wait to be drained into `numbers`.
    #[napi(constructor)]
    pub fn new(on_ready: Function<'_, (), ()>, numbers: Float64Array) -> napi::Result<Self> {
        // Weak: waiting for nothing must not keep the process alive. `begin` and `drain` hold it
        // while operations are in flight.
        let wake = on_ready
            .build_threadsafe_function::<()>()
            .weak::<true>()
            .build()?;
        let mailbox = Arc::new(Mailbox {
            finished: Mutex::default(),
            kept: Mutex::default(),
            arrived: Notify::new(),
            wake,
            busy: BusyBackends::default(),
            cancels: Cancels::default(),
            questions: Questions::default(),
        });
        Ok(Self {
            mailbox,
            in_flight: Cell::new(0),
            is_held: Cell::new(false),
            is_announcing: Cell::new(false),
            kept: RefCell::default(),
            numbers: RefCell::new(numbers),
        })
    }

    /// Writes finished operations into the array of the constructor, the count first, and returns their
    /// texts, one after the other. What does not fit stays for the next call.
    #[napi]
    pub fn drain(&self, env: Env) -> String {
        let mut numbers = self.numbers.borrow_mut();
        // SAFETY: JavaScript waits for this call to return, and nothing else has the array's memory
        // while it does: the array is `native/operations.ts`'s own and no other thread sees it.
        let numbers = unsafe { numbers.as_mut() };
        let room = numbers.len().saturating_sub(1) / WIDTH;
        let batch: Vec<(u32, Completion)> = {
            let mut finished = lock(&self.mailbox.finished);
            if finished.operations.len() <= room {
                finished.is_announced = false;
                mem::take(&mut finished.operations)
            } else {
                finished.operations.drain(..room).collect()
            }
        };
        if let Some(count) = numbers.first_mut() {
            *count = batch.len() as f64;
        }
        let questions =
            |(_, outcome): &&(u32, Completion)| matches!(outcome, Completion::Ask { .. });
        self.end(&env, batch.len() - batch.iter().filter(questions).count());
        let mut texts = String::new();
        let records = numbers
            .get_mut(1..)
            .unwrap_or_default()
            .chunks_exact_mut(WIDTH);
        for ((operation, outcome), record) in batch.into_iter().zip(records) {
            let (tag, values) = encode(outcome, &mut texts);
            for (slot, number) in record.iter_mut().zip(
                [f64::from(operation), f64::from(tag as u8)]
                    .into_iter()
                    .chain(values),
            ) {
                *slot = number;
            }
        }
        texts
    }

    /// Sends what was kept back: see `NativeBackend`.
    #[napi]
    pub fn flush(&self) {
        for backend in self.kept.take() {
            backend.flush();
        }
        let tasks = mem::take(&mut *lock(&self.mailbox.kept));
        // It runs: there would be no tasks without `start_announcing`.
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

    /// Cancels an operation if it has not finished.
    #[napi]
    pub fn cancel(&self, operation: u32) {
        self.mailbox.cancels.cancel(operation);
    }

    /// Brings a client's answer, in JSON, to the operation that asked for it.
    #[napi]
    pub fn answer(&self, question: u32, json: String) {
        self.mailbox.questions.answer(question, parse(&json));
    }

    /// Brings what a client's promise was rejected with to the operation that asked.
    #[napi]
    pub fn reject(&self, question: u32, name: String, code: Option<String>, message: String) {
        let rejection = Rejection {
            name,
            code,
            message,
        };
        self.mailbox.questions.answer(question, Err(rejection));
    }

    /// Counts an operation that starts; the process stays alive until it is drained, and what it leaves
    /// to be done in the background is done.
    pub(crate) fn begin(&self, env: &Env) {
        self.in_flight.set(self.in_flight.get() + 1);
        if !self.is_held.replace(true) {
            // SAFETY: this runs on the thread of `env`, inside a call from JavaScript, so the
            // environment and the threadsafe function it owns are alive.
            unsafe { sys::napi_ref_threadsafe_function(env.raw(), self.mailbox.wake.raw()) };
        }
    }

    /// Starts the task that wakes JavaScript, with the first operation: making a backend starts nothing.
    pub(crate) fn start_announcing(&self) -> Result<(), Error> {
        if self.is_announcing.get() {
            return Ok(());
        }
        // A task of its own: it runs after the tasks that are ready now, so that what they finish
        // wakes JavaScript once.
        io_thread::runtime()?.spawn(announce_all(Arc::clone(&self.mailbox)));
        self.is_announcing.set(true);
        Ok(())
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
        !self.kept.borrow().is_empty() || !lock(&self.mailbox.kept).is_empty()
    }

    fn end(&self, env: &Env, count: usize) {
        let left = self.in_flight.get().saturating_sub(count);
        self.in_flight.set(left);
        let is_idle = left == 0 && !self.mailbox.busy.any();
        if is_idle && self.is_held.replace(false) {
            // SAFETY: as in `begin`.
            unsafe { sys::napi_unref_threadsafe_function(env.raw(), self.mailbox.wake.raw()) };
        }
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

impl Drop for Completions {
    fn drop(&mut self) {
        self.mailbox.abandon();
    }
}

/// The tag and the values of an outcome. Its texts go to the end of `texts`, and the length of each
/// that has not always the same is one of the values.
fn encode(outcome: Completion, texts: &mut String) -> (Tag, [f64; VALUES]) {
    let mut values = [0.0; VALUES];
    let tag = match outcome {
        Completion::Acquired(mut granted) => {
            let grant = granted.deliver();
            push_grant(texts, &grant.lock_id, grant.fence);
            values[0] = grant.expires_at_ms as f64;
            values[1] = f64::from(u8::from(grant.fence.is_near_limit()));
            Tag::Acquired
        }
        Completion::Locked => Tag::Locked,
        Completion::Done => Tag::Done,
        Completion::Extended { expires_at_ms } => {
            values[0] = expires_at_ms as f64;
            Tag::Extended
        }
        Completion::Absent(Absence::Expired) => Tag::Expired,
        Completion::Absent(Absence::NotFound) => Tag::NotFound,
        Completion::Answer(true) => Tag::Yes,
        Completion::Answer(false) => Tag::No,
        Completion::Found(record) => {
            push_grant(texts, &record.lock_id, record.fence);
            // An owner is never empty, so that an empty text stands for none.
            let owner = record.owner.as_ref().map_or("", |owner| owner.as_str());
            values = [
                record.expires_at_ms as f64,
                record.acquired_at_ms as f64,
                record.read_at_ms as f64,
                push(texts, record.key.as_str()),
                push(texts, owner),
            ];
            Tag::Found
        }
        Completion::NotFound => Tag::Nothing,
        Completion::Failed(error) => {
            let mut parts = vec![error.kind().as_str().to_owned(), error.message().to_owned()];
            parts.extend(causes(&error));
            // Texts are always JSON.
            values[0] = push(texts, &serde_json::to_string(&parts).unwrap_or_default());
            Tag::Failed
        }
        Completion::Ask { client, text } => {
            values[0] = f64::from(client);
            values[1] = push(texts, &text);
            Tag::Ask
        }
    };
    (tag, values)
}

/// A lock id, which has 22 characters, and a fence, which has 15.
fn push_grant(texts: &mut String, lock_id: &LockId, fence: Fence) {
    texts.push_str(lock_id.as_str());
    // Writing to a string cannot fail.
    let _ = write!(texts, "{fence}");
}

/// Adds `text` and gives the length that JavaScript sees: in UTF-16 code units.
fn push(texts: &mut String, text: &str) -> f64 {
    texts.push_str(text);
    if text.is_ascii() {
        text.len() as f64
    } else {
        text.encode_utf16().count() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_javascripts() {
        let mut texts = String::new();
        assert_eq!(push(&mut texts, "abc"), 3.0);
        assert_eq!(push(&mut texts, "é"), 1.0);
        assert_eq!(push(&mut texts, "💳"), 2.0);
        assert_eq!(push(&mut texts, ""), 0.0);
        assert_eq!(texts, "abcé💳");
    }
}
