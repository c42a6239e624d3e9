//! Calls and their answers on one stream, both in the same order, with any number under way.
//!
//! Whoever calls writes the call to the socket: on the thread where it is, and as far as the socket takes
//! it at once. No other thread has to be woken for that. A task on the runtime reads the answers, and
//! writes what is left to be written. Nothing is sent twice: when the stream is lost, all that is under
//! way fails, and only what was never given to the socket can be sent on another stream.
//!
//! A stream on which nothing was heard for a while may be gone without a word: a NAT forgets connections, and a frozen
//! process comes back to dead ones. So the next calls are held back until the server has answered a `PING`.

mod outbox;
mod queue;
mod silence;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::{Value, parse_redis_value_async};
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::error::{Cause, driver_error, error_text, reply_code, to_error};
use super::limited::Limited;
use super::liveness::Liveness;
use super::reply::{Reply, is_pong};
use crate::error::Error;
use crate::mutex::lock;
use crate::redact;
use outbox::Outbox;
pub(super) use queue::{Fits, Waiting};
use queue::{Late, Queue};
use silence::{LastHeard, Probe};

/// Fewer calls than these are not worth a write of their own while others are on their way.
const FEW: usize = 8;

/// What a server says to a call.
pub(super) enum Answer {
    Reply(Reply),
    /// It has run nothing, because it does not know the script of that hash.
    NoScript,
    /// An error, in its words.
    Refused(String),
    /// Nothing: the stream had ended before the call was given to it. Another one may carry it.
    NotSent,
}

impl Answer {
    /// The reply to a script that was sent in full, else the error. `refused` makes that of the server's words.
    pub(super) fn reply(self, refused: impl FnOnce(&str) -> Error) -> Result<Reply, Error> {
        match self {
            Self::Reply(reply) => Ok(reply),
            Self::NoScript => Err(to_error(Cause::Reply("NOSCRIPT"), true)),
            Self::Refused(text) => Err(refused(&text)),
            Self::NotSent => Err(to_error(Cause::Closed, false)),
        }
    }
}

/// What is under way on one stream.
pub(super) struct Pipeline {
    /// `None` after the end.
    state: Mutex<Option<State>>,
    /// Why nothing new is sent.
    reason: OnceLock<Error>,
    liveness: Liveness,
    /// How long a sign of life may take.
    patience: Duration,
    /// The user's name and password, which servers may quote.
    login: Vec<String>,
}

struct State {
    stream: Limited,
    /// Calls, or the rest of one, that the socket has not been given or has not taken.
    unwritten: Outbox,
    /// How many calls no attempt was made to write.
    kept: usize,
    /// Whether the reader is to write: for a task that has kept a call, or because the socket was full.
    is_readers: bool,
    waiting: Queue,
    /// The time of no call is over before this.
    deadline: Option<Instant>,
    /// Wakes the task that reads.
    reader: Waker,
    heard: LastHeard,
    /// Set while calls are held back until the server gives a sign of life.
    probe: Option<Probe>,
    /// Whether the server is not what it was when the stream was opened: nothing new is sent to it.
    is_retired: bool,
}

impl Pipeline {
    /// On a stream on which a sign of life takes no longer than `patience`.
    pub(super) fn new(stream: Limited, login: Vec<String>, patience: Duration) -> Self {
        let state = State {
            stream,
            unwritten: Outbox::default(),
            kept: 0,
            is_readers: false,
            waiting: Queue::default(),
            deadline: None,
            reader: Waker::noop().clone(),
            heard: LastHeard::now(),
            probe: None,
            is_retired: false,
        };
        Self {
            state: Mutex::new(Some(state)),
            reason: OnceLock::new(),
            liveness: Liveness::default(),
            patience,
            login,
        }
    }

    pub(super) fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    pub(super) fn is_open(&self) -> bool {
        self.lock().as_ref().is_some_and(|state| !state.is_retired)
    }

    /// Why it is not open any more, if that is known.
    pub(super) fn reason(&self) -> Option<&Error> {
        self.reason.get()
    }

    /// Sends the call that `write` appends, or keeps it for [`flush`](Self::flush), and says which: see
    /// [`State::write_or_keep`]. Gives `waiting` back when the stream is no longer to be used.
    pub(super) fn call(
        &self,
        write: impl FnOnce(&mut Vec<u8>),
        fits: Fits,
        waiting: Waiting,
    ) -> Result<bool, Box<Waiting>> {
        self.calls(None, write, fits, waiting)
    }

    /// [`call`](Self::call) with another one right before it: its bytes, what fits it, and who waits for it.
    pub(super) fn calls(
        &self,
        first: Option<(&[u8], Fits, Waiting)>,
        write: impl FnOnce(&mut Vec<u8>),
        fits: Fits,
        waiting: Waiting,
    ) -> Result<bool, Box<Waiting>> {
        let mut state = self.lock();
        let Some(state) = state.as_mut().filter(|state| !state.is_retired) else {
            return Err(Box::new(waiting));
        };
        if state.probe.is_none() && state.heard.is_long_ago() {
            state.ask_for_a_sign(self.patience);
            self.liveness.sent();
        }
        if let Some((bytes, fits, waiting)) = first {
            state.outbox().extend_from_slice(bytes);
            state.wait(fits, waiting);
            self.liveness.sent();
        }
        write(state.outbox());
        let is_task = match &waiting {
            Waiting::Call(call) => {
                state.end_by(call.deadline());
                false
            }
            _ => true,
        };
        state.wait(fits, waiting);
        self.liveness.sent();
        if state.probe.is_some() {
            // The answer to the probe sends it.
            return Ok(false);
        }
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
            let value = poll_fn(|cx| match next.as_mut().poll(cx) {
                Poll::Ready(value) => {
                    Poll::Ready(value.map_err(|error| driver_error(&error, true)))
                }
                Poll::Pending => self.poll_deadline(cx, timer.as_mut()).map(Err),
            });
            if let Err(reason) = value.await.and_then(|value| self.answer(value)) {
                return reason;
            }
        }
    }

    /// Fails what is under way, and all that comes.
    pub(super) fn end(&self, reason: &Error) {
        let mut state = match self.lock().take() {
            Some(state) => state,
            None => return,
        };
        // It may have been retired for another reason.
        let _ = self.reason.set(reason.clone());
        state.reader.wake_by_ref();
        let kept = state.waiting.take_behind(state.on_their_way());
        for waiting in state.waiting.take_behind(0) {
            waiting.end(Err(reason.clone()));
        }
        kept.into_iter().for_each(Waiting::not_sent);
    }

    /// Tells whoever has waited longest. The error: answers do not belong to their calls any more.
    fn answer(&self, value: Value) -> Result<(), Error> {
        let answer = self.understand(value);
        let (waiting, misfit, kept) = {
            let mut state = self.lock();
            let asked = state.as_mut().filter(|state| state.on_their_way() > 0);
            let Some(state) = asked else {
                return Err(to_error(Cause::Unreadable, true));
            };
            let Some((fits, waiting)) = state.waiting.pop() else {
                return Err(to_error(Cause::Unreadable, true));
            };
            state.stream.reply_is_complete();
            let misfit = match &answer {
                Ok(Answer::Reply(reply)) => !fits(reply),
                Ok(_) => false,
                Err(_) => true,
            };
            let end = match &answer {
                _ if misfit => Some(to_error(Cause::Misfit, true)),
                Ok(Answer::Refused(text)) => {
                    let code =
                        reply_code(text).filter(|code| ["READONLY", "NOAUTH"].contains(code));
                    code.map(|code| to_error(Cause::Reply(code), false))
                }
                _ => None,
            };
            if let Some(reason) = end {
                state.is_retired = true;
                let _ = self.reason.set(reason);
            }
            let mut kept = Vec::new();
            if matches!(waiting, Waiting::Probe) {
                if state.is_retired {
                    kept = state.waiting.take_behind(state.on_their_way());
                    state.kept = 0;
                } else {
                    state.send_what_was_held();
                }
            }
            (waiting, misfit, kept)
        };
        self.liveness.answered();
        waiting.end(answer);
        kept.into_iter().for_each(Waiting::not_sent);
        match misfit {
            // Nobody knows where it belongs, nor the answers behind it.
            true => Err(to_error(Cause::Misfit, true)),
            false => Ok(()),
        }
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

    /// Ends the calls whose time is over, now and when `timer` wakes the task. Completes when no sign of life has come
    /// in time.
    fn poll_deadline(&self, cx: &mut Context<'_>, mut timer: Pin<&mut Sleep>) -> Poll<Error> {
        loop {
            let deadline = self.lock().as_ref().and_then(State::next_deadline);
            let Some(deadline) = deadline else {
                return Poll::Pending;
            };
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let late = self.lock().as_mut().map(State::take_late);
            let Some(late) = late.unwrap_or_default() else {
                return Poll::Ready(to_error(Cause::Silent, true));
            };
            for (call, answer) in late {
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
    fn wait(&mut self, fits: Fits, waiting: Waiting) {
        self.waiting.push(fits, waiting);
        self.kept += 1;
    }

    /// Where calls are appended.
    fn outbox(&mut self) -> &mut Vec<u8> {
        match &mut self.probe {
            Some(probe) => &mut probe.held,
            None => self.unwritten.end(),
        }
    }

    /// Asks the server for a sign of life. What is called from now on is held back until that has come, so that it can
    /// be sent on another stream if none comes.
    fn ask_for_a_sign(&mut self, patience: Duration) {
        let is_idle = self.waiting.len() == 0;
        self.unwritten
            .end()
            .extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
        self.wait(is_pong, Waiting::Probe);
        self.write();
        let until = is_idle.then(|| Instant::now() + patience);
        self.probe = Some(Probe {
            held: Vec::new(),
            until,
        });
        self.reader.wake_by_ref();
    }

    fn send_what_was_held(&mut self) {
        if let Some(probe) = self.probe.take() {
            self.unwritten.end().extend_from_slice(&probe.held);
            self.write();
        }
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
        if self.probe.is_none() {
            self.kept = 0;
        }
        self.is_readers = false;
        let mut stream = Pin::new(&mut self.stream);
        let mut cx = Context::from_waker(&self.reader);
        while !self.unwritten.left().is_empty() {
            match stream.as_mut().poll_write(&mut cx, self.unwritten.left()) {
                Poll::Ready(Ok(bytes)) if bytes > 0 => self.unwritten.took(bytes),
                Poll::Pending => {
                    self.is_readers = true;
                    return;
                }
                // The reader will find the reason.
                Poll::Ready(_) => self.unwritten.clear(),
            }
        }
        // TLS takes more than its socket does, and sends the rest only when it is asked to.
        self.is_readers = stream.poll_flush(&mut cx).is_pending();
    }

    /// Lets the reader know of a call that ends by that time.
    fn end_by(&mut self, deadline: Instant) {
        if self.deadline.is_none_or(|known| deadline < known) {
            self.deadline = Some(deadline);
            self.reader.wake_by_ref();
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let probe = self.probe.as_ref().and_then(|probe| probe.until);
        probe.into_iter().chain(self.deadline).min()
    }

    /// The calls whose time is over. `None`: that of a probe is.
    fn take_late(&mut self) -> Option<Vec<Late>> {
        let until = self.probe.as_ref().and_then(|probe| probe.until);
        if until.is_some_and(|until| until <= Instant::now()) {
            return None;
        }
        let late;
        (late, self.deadline) = self.waiting.take_late();
        Some(late)
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
        match &read {
            Poll::Ready(_) => state.heard = LastHeard::now(),
            Poll::Pending if state.is_readers => state.write(),
            Poll::Pending => {}
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
