//! Finished operations on their way back to JavaScript, in batches.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use napi::bindgen_prelude::{Float64ArraySlice, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Status, sys};
use napi_derive::napi;
use syncguard::{Absence, Error, Grant, LockRecord};
use tokio::sync::Notify;

use crate::bridge::{Questions, Rejection, parse};
use crate::cancel::Cancels;
use crate::error::causes;
use crate::io_thread;

/// What an operation came to.
pub(crate) enum Outcome {
    Acquired(Grant),
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

/// How outcomes are numbered in a batch. `native.ts` has the same list.
mod tag {
    pub(super) const ACQUIRED: f64 = 0.0;
    pub(super) const LOCKED: f64 = 1.0;
    pub(super) const DONE: f64 = 2.0;
    pub(super) const EXTENDED: f64 = 3.0;
    pub(super) const EXPIRED: f64 = 4.0;
    pub(super) const NOT_FOUND: f64 = 5.0;
    pub(super) const YES: f64 = 6.0;
    pub(super) const NO: f64 = 7.0;
    pub(super) const FOUND: f64 = 8.0;
    pub(super) const NOTHING: f64 = 9.0;
    pub(super) const FAILED: f64 = 10.0;
    pub(super) const ASK: f64 = 11.0;
}

/// Numbers of one finished operation: its own, the tag of its outcome, and three values.
const WIDTH: usize = 5;

type Wake = ThreadsafeFunction<(), (), (), Status, false, true>;

/// The finished operations of one environment, as the I/O thread sees them.
pub(crate) struct Mailbox {
    finished: Mutex<Vec<(u32, Outcome)>>,
    /// Tells the task that wakes JavaScript that something has finished.
    arrived: Notify,
    wake: Wake,
    /// Set when JavaScript has lost its side.
    abandoned: AtomicBool,
    pub(crate) cancels: Cancels,
    pub(crate) questions: Questions,
}

impl Mailbox {
    /// Puts a finished operation where JavaScript will find it.
    pub(crate) fn deliver(&self, operation: u32, outcome: Outcome) {
        self.lock().push((operation, outcome));
        self.arrived.notify_one();
    }

    /// Whether the environment has ended, so that nobody will fetch anything any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed) || self.wake.aborted()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u32, Outcome)>> {
        // No code that can panic runs while the lock is held.
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The operations of one environment, as JavaScript sees them.
#[napi]
pub struct Completions {
    pub(crate) mailbox: Arc<Mailbox>,
    in_flight: Cell<usize>,
}

#[napi]
impl Completions {
    /// `on_ready` is called when finished operations wait to be drained.
    #[napi(constructor)]
    pub fn new(on_ready: Function<'_, (), ()>) -> napi::Result<Self> {
        // Weak: waiting for nothing must not keep the process alive. `begin` and `drain` hold it
        // while operations are in flight.
        let wake = on_ready
            .build_threadsafe_function::<()>()
            .weak::<true>()
            .build()?;
        let mailbox = Arc::new(Mailbox {
            finished: Mutex::default(),
            arrived: Notify::new(),
            wake,
            abandoned: AtomicBool::new(false),
            cancels: Cancels::default(),
            questions: Questions::default(),
        });
        let woken = Arc::clone(&mailbox);
        // A task of its own: it runs after the tasks that are ready now, so that what they finish
        // wakes JavaScript once.
        io_thread::spawn(async move {
            loop {
                woken.arrived.notified().await;
                if woken.is_closed() {
                    break;
                }
                // What was to be fetched may have been fetched with an earlier call.
                if woken.lock().is_empty() {
                    continue;
                }
                woken.wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
            }
        })
        .map_err(|error| napi::Error::from_reason(error.to_string()))?;
        Ok(Self {
            mailbox,
            in_flight: Cell::new(0),
        })
    }

    /// Writes finished operations into `numbers`, the count first, and returns their texts.
    /// What does not fit stays for the next call.
    #[napi]
    pub fn drain(&self, env: Env, mut numbers: Float64ArraySlice<'_>) -> Vec<String> {
        // SAFETY: JavaScript waits for this call to return, and nothing else has the array's memory
        // while it does: the array is `native.ts`'s own and no other thread sees it.
        let numbers = unsafe { numbers.as_mut() };
        let room = numbers.len().saturating_sub(1) / WIDTH;
        let batch: Vec<(u32, Outcome)> = {
            let mut finished = self.mailbox.lock();
            let count = finished.len().min(room);
            finished.drain(..count).collect()
        };
        if let Some(count) = numbers.first_mut() {
            *count = batch.len() as f64;
        }
        let questions = |(_, outcome): &&(u32, Outcome)| matches!(outcome, Outcome::Ask { .. });
        self.end(&env, batch.len() - batch.iter().filter(questions).count());
        let mut texts = Vec::new();
        let records = numbers
            .get_mut(1..)
            .unwrap_or_default()
            .chunks_exact_mut(WIDTH);
        for ((operation, outcome), record) in batch.into_iter().zip(records) {
            let (tag, values) = encode(outcome, &mut texts);
            for (slot, number) in record
                .iter_mut()
                .zip([f64::from(operation), tag].into_iter().chain(values))
            {
                *slot = number;
            }
        }
        texts
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

    /// Counts an operation that starts; the process stays alive until it is drained.
    pub(crate) fn begin(&self, env: &Env) {
        if self.in_flight.replace(self.in_flight.get() + 1) == 0 {
            // SAFETY: this runs on the thread of `env`, inside a call from JavaScript, so the
            // environment and the threadsafe function it owns are alive.
            unsafe { sys::napi_ref_threadsafe_function(env.raw(), self.mailbox.wake.raw()) };
        }
    }

    fn end(&self, env: &Env, count: usize) {
        let left = self.in_flight.get().saturating_sub(count);
        if self.in_flight.replace(left) > 0 && left == 0 {
            // SAFETY: as in `begin`.
            unsafe { sys::napi_unref_threadsafe_function(env.raw(), self.mailbox.wake.raw()) };
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.mailbox.abandoned.store(true, Ordering::Relaxed);
        self.mailbox.arrived.notify_one();
    }
}

fn encode(outcome: Outcome, texts: &mut Vec<String>) -> (f64, [f64; 3]) {
    let mut numbers = [0.0; 3];
    let tag = match outcome {
        Outcome::Acquired(grant) => {
            texts.push(grant.lock_id.as_str().to_owned());
            texts.push(grant.fence.to_string());
            numbers[0] = grant.expires_at_ms as f64;
            numbers[1] = f64::from(u8::from(grant.fence.is_near_limit()));
            tag::ACQUIRED
        }
        Outcome::Locked => tag::LOCKED,
        Outcome::Done => tag::DONE,
        Outcome::Extended { expires_at_ms } => {
            numbers[0] = expires_at_ms as f64;
            tag::EXTENDED
        }
        Outcome::Absent(Absence::Expired) => tag::EXPIRED,
        Outcome::Absent(Absence::NotFound) => tag::NOT_FOUND,
        Outcome::Answer(true) => tag::YES,
        Outcome::Answer(false) => tag::NO,
        Outcome::Found(record) => {
            texts.push(record.key.as_str().to_owned());
            texts.push(record.lock_id.as_str().to_owned());
            texts.push(record.fence.to_string());
            // An owner is never empty, so that an empty text stands for none.
            texts.push(
                record
                    .owner
                    .map_or_else(String::new, |owner| owner.as_str().to_owned()),
            );
            numbers = [
                record.expires_at_ms,
                record.acquired_at_ms,
                record.read_at_ms,
            ]
            .map(|ms| ms as f64);
            tag::FOUND
        }
        Outcome::NotFound => tag::NOTHING,
        Outcome::Failed(error) => {
            let causes = causes(&error);
            numbers[0] = causes.len() as f64;
            texts.push(error.kind().as_str().to_owned());
            texts.push(error.message().to_owned());
            texts.extend(causes);
            tag::FAILED
        }
        Outcome::Ask { client, text } => {
            numbers[0] = f64::from(client);
            texts.push(text);
            tag::ASK
        }
    };
    (tag, numbers)
}
