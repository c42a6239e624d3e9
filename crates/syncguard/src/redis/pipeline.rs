//! Calls and their answers on one stream, both in the same order, with any number under way.
//!
//! Whoever calls writes the call to the socket: on the thread where it is, and as far as the socket takes
//! it at once. No other thread has to be woken for that. A task on the runtime reads the answers, and
//! writes what is left to be written. Nothing is sent twice: when the stream is lost, all that is under
//! way fails.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use redis::{Value, parse_redis_value_async};
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use super::call::Call;
use super::error::{Cause, driver_error, error_text, reply_code, to_error};
use super::limited::Limited;
use super::liveness::Liveness;
use super::reply::Reply;
use crate::error::Error;
use crate::mutex::lock;
use crate::redact;

/// Fewer calls than these are not worth a write of their own while others are on their way.
const FEW: usize = 8;

/// What a server says to a call.
pub(super) enum Answer {
    Reply(Reply),
    /// It has run nothing, because it does not know the script of that hash.
    NoScript,
    /// An error, in its words.
    Refused(String),
}

impl Answer {
    /// The reply to a script that was sent in full, else the error. `refused` makes that of the server's words.
    pub(super) fn reply(self, refused: impl FnOnce(&str) -> Error) -> Result<Reply, Error> {
        match self {
            Self::Reply(reply) => Ok(reply),
            Self::NoScript => Err(to_error(Cause::Reply("NOSCRIPT"), true)),
            Self::Refused(text) => Err(refused(&text)),
        }
    }
}

/// Whoever waits for an answer.
pub(super) enum Waiting {
    /// A task, which has a time limit of its own.
    Task(oneshot::Sender<Result<Answer, Error>>),
    Call(Call),
}

impl Waiting {
    fn end(self, answer: Result<Answer, Error>) {
        match self {
            // It may have given up.
            Self::Task(task) => drop(task.send(answer)),
            Self::Call(call) => call.answered(answer),
        }
    }
}

/// What is under way on one stream.
pub(super) struct Pipeline {
    /// `None` after the end.
    state: Mutex<Option<State>>,
    liveness: Liveness,
    /// The user's name and password, which servers may quote.
    login: Vec<String>,
}

struct State {
    stream: Limited,
    /// Calls, or the rest of one, that the socket has not been given or has not taken.
    unwritten: Vec<u8>,
    /// How many calls no attempt was made to write.
    kept: usize,
    /// Whether the reader is to write: for a task that has kept a call, or because the socket was full.
    is_readers: bool,
    waiting: VecDeque<Waiting>,
    /// The time of no call is over before this.
    deadline: Option<Instant>,
    /// Wakes the task that reads.
    reader: Waker,
    /// Whether the server is not what it was when the stream was opened: nothing new is sent to it.
    is_retired: bool,
}

impl Pipeline {
    pub(super) fn new(stream: Limited, login: Vec<String>) -> Self {
        let state = State {
            stream,
            unwritten: Vec::new(),
            kept: 0,
            is_readers: false,
            waiting: VecDeque::new(),
            deadline: None,
            reader: Waker::noop().clone(),
            is_retired: false,
        };
        Self {
            state: Mutex::new(Some(state)),
            liveness: Liveness::default(),
            login,
        }
    }

    pub(super) fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    pub(super) fn is_open(&self) -> bool {
        self.lock().as_ref().is_some_and(|state| !state.is_retired)
    }

    /// Sends the call that `write` appends, or keeps it for [`flush`](Self::flush), and says which: see
    /// [`State::write_or_keep`]. Gives `waiting` back when the stream is no longer to be used.
    pub(super) fn call(
        &self,
        write: impl FnOnce(&mut Vec<u8>),
        waiting: Waiting,
    ) -> Result<bool, Box<Waiting>> {
        self.calls(None, write, waiting)
    }

    /// [`call`](Self::call) with another one right before it, whose bytes and whose waiter are `first`.
    pub(super) fn calls(
        &self,
        first: Option<(&[u8], Waiting)>,
        write: impl FnOnce(&mut Vec<u8>),
        waiting: Waiting,
    ) -> Result<bool, Box<Waiting>> {
        let mut state = self.lock();
        let Some(state) = state.as_mut().filter(|state| !state.is_retired) else {
            return Err(Box::new(waiting));
        };
        if let Some((bytes, waiting)) = first {
            state.unwritten.extend_from_slice(bytes);
            state.wait(waiting);
            self.liveness.sent();
        }
        write(&mut state.unwritten);
        let is_task = match &waiting {
            Waiting::Task(_) => true,
            Waiting::Call(call) => {
                state.end_by(call.deadline());
                false
            }
        };
        state.wait(waiting);
        self.liveness.sent();
        let is_kept = state.write_or_keep();
        if is_kept && is_task {
            // The reader runs after the tasks that are ready now, which may call as well.
            state.is_readers = true;
            state.reader.wake_by_ref();
        }
        Ok(is_kept)
    }

    /// Writes what was kept.
    pub(super) fn flush(&self) {
        if let Some(state) = self.lock().as_mut() {
            state.write();
        }
    }

    /// Reads answers until the stream ends, and gives the reason.
    pub(super) async fn read(&self) -> Error {
        let mut decoder = Default::default();
        // The parser asks for a few bytes at a time.
        let mut answers = BufReader::new(Answers(self));
        let mut timer = pin!(sleep_until(Instant::now()));
        loop {
            let mut next = pin!(parse_redis_value_async(&mut decoder, &mut answers));
            let value = poll_fn(|cx| {
                let value = next.as_mut().poll(cx);
                if value.is_pending() {
                    self.poll_deadline(cx, timer.as_mut());
                }
                value
            });
            match value.await {
                Ok(value) => {
                    if !self.answer(value) {
                        return to_error(Cause::Unreadable, true);
                    }
                }
                Err(error) => return driver_error(&error, true),
            }
        }
    }

    /// Fails what is under way, and all that comes.
    pub(super) fn end(&self, reason: &Error) {
        let Some(state) = self.lock().take() else {
            return;
        };
        state.reader.wake();
        for waiting in state.waiting {
            waiting.end(Err(reason.clone()));
        }
    }

    /// Tells whoever has waited longest; `false` if the server was not asked.
    fn answer(&self, value: Value) -> bool {
        let answer = self.understand(value);
        let waiting = {
            let mut state = self.lock();
            let Some(state) = state.as_mut() else {
                return false;
            };
            if state.on_their_way() == 0 {
                return false;
            }
            state.stream.reply_is_complete();
            if let Ok(Answer::Refused(text)) = &answer {
                state.is_retired |= matches!(reply_code(text), Some("READONLY" | "NOAUTH"));
            }
            state.waiting.pop_front()
        };
        self.liveness.answered();
        waiting.map(|waiting| waiting.end(answer)).is_some()
    }

    fn understand(&self, value: Value) -> Result<Answer, Error> {
        let Value::ServerError(error) = value else {
            return Ok(Answer::Reply(reply(value)?));
        };
        let text = error_text(&error);
        if reply_code(&text) == Some("NOSCRIPT") {
            return Ok(Answer::NoScript);
        }
        let login = self.login.iter().map(String::as_str);
        Ok(Answer::Refused(redact::hide(&text, login)))
    }

    /// Ends the calls whose time is over, now and when `timer` wakes the task.
    fn poll_deadline(&self, cx: &mut Context<'_>, mut timer: Pin<&mut Sleep>) {
        loop {
            let deadline = self.lock().as_ref().and_then(|state| state.deadline);
            let Some(deadline) = deadline else {
                return;
            };
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return;
            }
            let late = self.lock().as_mut().map(State::take_late);
            for (call, answer) in late.unwrap_or_default() {
                call.late(answer);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        // A panic leaves nothing half done here.
        lock(&self.state)
    }
}

impl State {
    fn wait(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
        self.kept += 1;
    }

    /// Writes a call at once that is alone, or when as much is kept as is on its way: then the server has
    /// something to do while the next come. Else what comes together goes out together.
    fn write_or_keep(&mut self) -> bool {
        let on_their_way = self.on_their_way();
        if on_their_way > 0 && self.kept < on_their_way.max(FEW) {
            return true;
        }
        self.write();
        false
    }

    /// How many calls were given to the socket and wait for an answer.
    fn on_their_way(&self) -> usize {
        self.waiting.len().saturating_sub(self.kept)
    }

    /// Gives the socket what it takes. The reader is woken when it takes more.
    fn write(&mut self) {
        self.kept = 0;
        self.is_readers = false;
        let mut stream = Pin::new(&mut self.stream);
        let mut cx = Context::from_waker(&self.reader);
        while !self.unwritten.is_empty() {
            match stream.as_mut().poll_write(&mut cx, &self.unwritten) {
                Poll::Ready(Ok(bytes)) if bytes > 0 => drop(self.unwritten.drain(..bytes)),
                Poll::Pending => {
                    self.is_readers = true;
                    return;
                }
                // The reader will find the reason.
                Poll::Ready(_) => self.unwritten.clear(),
            }
        }
        let _ = stream.poll_flush(&mut cx);
    }

    /// Lets the reader know of a call that ends by that time.
    fn end_by(&mut self, deadline: Instant) {
        if self.deadline.is_none_or(|known| deadline < known) {
            self.deadline = Some(deadline);
            self.reader.wake_by_ref();
        }
    }

    /// The calls whose time is over, each with what will be its answer: it keeps its place.
    fn take_late(&mut self) -> Vec<(Call, oneshot::Receiver<Result<Answer, Error>>)> {
        let now = Instant::now();
        let mut late = Vec::new();
        self.deadline = None;
        for waiting in &mut self.waiting {
            let Waiting::Call(call) = waiting else {
                continue;
            };
            let deadline = call.deadline();
            if deadline > now {
                self.deadline = Some(self.deadline.map_or(deadline, |other| other.min(deadline)));
                continue;
            }
            let (sender, answer) = oneshot::channel();
            if let Waiting::Call(call) = mem::replace(waiting, Waiting::Task(sender)) {
                late.push((call, answer));
            }
        }
        late
    }
}

/// What the server sends. What is the reader's to write is written when there is nothing to read.
struct Answers<'a>(&'a Pipeline);

impl AsyncRead for Answers<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        let Some(state) = state.as_mut() else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        };
        if !state.reader.will_wake(cx.waker()) {
            state.reader = cx.waker().clone();
        }
        let read = Pin::new(&mut state.stream).poll_read(cx, buf);
        if read.is_pending() && state.is_readers {
            state.write();
        }
        read
    }
}

fn reply(value: Value) -> Result<Reply, Error> {
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::BulkString(bytes) => Reply::Bulk(bytes),
        Value::SimpleString(text) => Reply::Bulk(text.into_bytes()),
        Value::Okay => Reply::Bulk(b"OK".to_vec()),
        Value::Array(items) => {
            Reply::Array(items.into_iter().map(reply).collect::<Result<_, _>>()?)
        }
        _ => return Err(to_error(Cause::Unreadable, true)),
    })
}

#[cfg(test)]
mod tests;
