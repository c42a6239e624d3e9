//! Sends calls on one stream and gives each its answer. Any number may be under way, and answers come in the order of calls.
//!
//! A caller writes its call to the socket on its own thread, as far as the socket takes it. The reader, which is a task on tokio
//! or the event loop of another thread, reads the answers and writes what callers could not. Nothing is sent twice: when the
//! stream is lost, all that is under way fails, and only what the socket was never given can be sent on another stream.
//!
//! A stream on which nothing was heard for a while may be gone without a word: a NAT forgets connections, and a frozen
//! process comes back to dead ones. So the next calls are held back until the server has answered a `PING`.

mod last_heard;
mod outbox;
mod queue;
mod replies;
mod silence;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use redis::{RedisError, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::limited::Limited;
use super::liveness::Liveness;
use crate::mutex::lock;
use crate::network::losses::Losses;
use crate::redis::answer::{Answer, lost};
use crate::redis::error::{Cause, driver_error, error_text, reply_code, to_error};
use crate::text::error::Error;
use crate::text::redact;
use last_heard::{LastHeard, Probe};
use outbox::Outbox;
use queue::{AnswerQueue, Recipient, Waiting};
pub(super) use queue::{Answered, Fits};
use replies::{Replies, reply};

/// While fewer calls than this are on their way, each is written at once. With more, the server has enough to do meanwhile, so
/// calls are collected, and one write carries many.
const FEW: usize = 8;

/// So many collected calls are written without waiting for more, so that the server can work while the next ones are made.
const PORTION: usize = 16;

/// The room for so many deliveries is kept from one turn to the next.
const ROOM: usize = 256;

/// How many bytes are read at a time.
const READ: usize = 16 * 1024;

/// One stream, and the calls under way on it.
pub(super) struct Pipeline {
    /// `None` after the end.
    state: Mutex<Option<PipelineState>>,
    /// Why nothing new is sent, once that is so.
    reason: OnceLock<Error>,
    /// Whether its loss was noted.
    is_noted: AtomicBool,
    liveness: Liveness,
    /// How long a sign of life may take.
    patience: Duration,
    /// The user's name and password, which servers may quote.
    login: Vec<String>,
}

struct PipelineState {
    stream: Limited,
    /// The bytes that the socket has not been given, or has not taken.
    unwritten: Outbox,
    /// How many calls in `unwritten` the socket has not been given at all. Those that a probe holds back are not among them.
    kept: usize,
    waiting: AnswerQueue,
    buffer: Box<[u8]>,
    replies: Replies,
    /// An empty list, whose memory the next turn uses again.
    room: Deliveries,
    /// Gives the reader a turn.
    reader: Waker,
    heard: LastHeard,
    /// For how long the server may keep an answer back, because a call waits for replicas.
    held_up: Duration,
    /// Set while calls are held back until the server gives a sign of life.
    probe: Option<Probe>,
    /// Whether the server is not what it was when the stream was opened: nothing new is sent to it.
    is_retired: bool,
}

/// The answers to hand over, once the state is unlocked.
type Deliveries = Vec<(Recipient, Result<Answer, Error>)>;

impl Pipeline {
    /// Makes a pipeline on a stream. A server that is alive gives a sign of life within `patience`.
    pub(super) fn new(stream: Limited, login: Vec<String>, patience: Duration) -> Self {
        let state = PipelineState {
            stream,
            unwritten: Outbox::default(),
            kept: 0,
            waiting: AnswerQueue::default(),
            buffer: vec![0; READ].into(),
            replies: Replies::default(),
            room: Deliveries::new(),
            reader: Waker::noop().clone(),
            heard: LastHeard::now(),
            held_up: Duration::ZERO,
            probe: None,
            is_retired: false,
        };
        Self {
            state: Mutex::new(Some(state)),
            reason: OnceLock::new(),
            is_noted: AtomicBool::new(false),
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

    /// Notes that the connection is lost, unless that was noted before.
    pub(super) fn note_loss(&self, losses: &Arc<Losses>) {
        if !self.is_noted.swap(true, SeqCst) {
            losses.lost(Instant::now());
        }
    }

    /// Why nothing new is sent any more, if that is known.
    pub(super) fn reason(&self) -> Option<&Error> {
        self.reason.get()
    }

    /// Sends the call that `write` appends.
    pub(super) async fn call(
        self: &Arc<Self>,
        write: impl FnOnce(&mut Vec<u8>),
        fits: Fits,
    ) -> Result<Answer, Error> {
        self.call_by(None, write, fits).await
    }

    /// Sends the call that `write` appends, whose answer comes too late after `needed_by`.
    pub(super) async fn call_by(
        self: &Arc<Self>,
        needed_by: Option<Instant>,
        write: impl FnOnce(&mut Vec<u8>),
        fits: Fits,
    ) -> Result<Answer, Error> {
        match self.send(None, write, fits, needed_by) {
            Some((_, answer)) => answer.wait().await,
            None => Ok(Answer::NotSent),
        }
    }

    /// Sends two calls, the second right behind the first. `None` if this pipeline sends nothing new any more.
    pub(super) fn pair(
        self: &Arc<Self>,
        first: &[u8],
        first_fits: Fits,
        second: impl FnOnce(&mut Vec<u8>),
        fits: Fits,
    ) -> Option<(Answered, Answered)> {
        let (first, answer) = self.send(Some((first, first_fits)), second, fits, None)?;
        Some((first?, answer))
    }

    fn send(
        self: &Arc<Self>,
        first: Option<(&[u8], Fits)>,
        write: impl FnOnce(&mut Vec<u8>),
        fits: Fits,
        needed_by: Option<Instant>,
    ) -> Option<(Option<Answered>, Answered)> {
        let now = Instant::now();
        let mut state = self.lock_to_write(now);
        let state = state.as_mut().filter(|state| !state.is_retired)?;
        if state.probe.is_none() && state.heard.is_long_ago(now) {
            self.ask_for_a_sign(state);
        }
        let first = first.map(|(bytes, fits)| {
            state.outbox().extend_from_slice(bytes);
            self.waits(state, fits, now, None)
        });
        write(state.outbox());
        let answer = self.waits(state, fits, now, needed_by);
        // With a probe, the calls are sent when that is answered.
        if state.probe.is_none() {
            state.write_or_keep();
        }
        Some((first, answer))
    }

    fn waits(
        &self,
        state: &mut PipelineState,
        fits: Fits,
        since: Instant,
        needed_by: Option<Instant>,
    ) -> Answered {
        let (recipient, answer) = Recipient::call();
        state.wait(Waiting {
            fits,
            recipient,
            since,
            needed_by,
        });
        self.liveness.sent(needed_by.is_some());
        answer
    }

    /// Reads answers until the stream ends, and gives the reason.
    pub(super) async fn read(&self) -> Error {
        poll_fn(|cx| self.poll_turn(cx)).await
    }

    /// Reads what has been received on the caller's thread, because the reader's may be busy with something else.
    pub(super) fn look(&self) {
        let reader = {
            let mut state = self.lock();
            let Some(state) = state.as_mut() else { return };
            if let Some(socket) = state.stream.socket() {
                socket.try_to_read();
            }
            state.reader.clone()
        };
        if let Poll::Ready(reason) = self.poll_turn(&mut Context::from_waker(&reader)) {
            self.end(&reason);
        }
    }

    /// Reads what has been received, hands over the answers, and writes what is left to be written. Completes when the stream has
    /// ended, with the reason. Otherwise the waker of `cx` is called when there is more to do.
    pub(super) fn poll_turn(&self, cx: &mut Context<'_>) -> Poll<Error> {
        let mut deliveries = Deliveries::new();
        loop {
            let read = {
                let mut state = self.lock();
                let Some(state) = state.as_mut() else {
                    return Poll::Ready(lost());
                };
                if !state.reader.will_wake(cx.waker()) {
                    state.reader = cx.waker().clone();
                }
                if deliveries.capacity() == 0 {
                    deliveries = std::mem::take(&mut state.room);
                }
                let read = self.poll_read(state, cx, &mut deliveries);
                if read.is_pending() {
                    deliveries.shrink_to(ROOM);
                    state.room = std::mem::take(&mut deliveries);
                }
                read
            };
            for (waiting, answer) in deliveries.drain(..) {
                waiting.end(answer);
            }
            if let Err(reason) = ready!(read) {
                return Poll::Ready(reason);
            }
        }
    }

    fn poll_read(
        &self,
        state: &mut PipelineState,
        cx: &mut Context<'_>,
        deliveries: &mut Deliveries,
    ) -> Poll<Result<(), Error>> {
        let mut buffer = ReadBuf::new(&mut state.buffer);
        let read = Pin::new(&mut state.stream).poll_read(cx, &mut buffer);
        let count = buffer.filled().len();
        match read {
            Poll::Ready(Ok(())) => {
                state.heard = LastHeard::now();
                self.liveness.heard();
            }
            Poll::Ready(Err(error)) => {
                return Poll::Ready(Err(driver_error(&RedisError::from(error), true)));
            }
            Poll::Pending => {
                state.write();
                return Poll::Pending;
            }
        }
        let bytes = std::mem::take(&mut state.buffer);
        let answered = self.take_answers(state, &bytes[..count], deliveries);
        state.buffer = bytes;
        Poll::Ready(answered)
    }

    fn take_answers(
        &self,
        state: &mut PipelineState,
        mut bytes: &[u8],
        deliveries: &mut Deliveries,
    ) -> Result<(), Error> {
        while let Some(value) = state.replies.next(&mut bytes)? {
            self.answer(state, value, deliveries)?;
        }
        Ok(())
    }

    /// Finds out to whom an answer belongs. Fails when answers cannot be told to belong to their calls any more.
    fn answer(
        &self,
        state: &mut PipelineState,
        value: Value,
        deliveries: &mut Deliveries,
    ) -> Result<(), Error> {
        let answer = self.understand(value);
        if state.on_their_way() == 0 {
            return Err(to_error(Cause::Unreadable, true));
        }
        let Some(waiting) = state.waiting.pop() else {
            return Err(to_error(Cause::Unreadable, true));
        };
        state.stream.reply_is_complete();
        let is_misfit = match &answer {
            Ok(Answer::Reply(reply)) => !(waiting.fits)(reply),
            Ok(_) => false,
            Err(_) => true,
        };
        let end = match &answer {
            _ if is_misfit => Some(to_error(Cause::Misfit, true)),
            Ok(Answer::Refused(text)) => {
                let code = reply_code(text).filter(|code| ["READONLY", "NOAUTH"].contains(code));
                code.map(|code| to_error(Cause::Reply(code), false))
            }
            _ => None,
        };
        if let Some(reason) = end {
            state.is_retired = true;
            let _ = self.reason.set(reason);
        }
        let is_probe = matches!(waiting.recipient, Recipient::Probe);
        deliveries.push((waiting.recipient, answer));
        if state.is_retired {
            let kept = state.take_kept();
            deliveries.extend(kept.map(|waiting| (waiting, Ok(Answer::NotSent))));
        } else if is_probe {
            state.send_what_was_held();
        }
        match is_misfit {
            // Nobody knows to which calls this answer and those behind it belong.
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

    /// Fails the calls under way, and all that come later.
    pub(super) fn end(&self, reason: &Error) {
        let Some(mut state) = self.lock().take() else {
            return;
        };
        // If the pipeline was retired before, that reason stays.
        let _ = self.reason.set(reason.clone());
        if let Some(socket) = state.stream.socket() {
            socket.end();
        }
        state.reader.wake_by_ref();
        self.liveness.heard();
        for waiting in state.take_kept() {
            waiting.end(Ok(Answer::NotSent));
        }
        for waiting in state.waiting.take_behind(0) {
            waiting.end(Err(reason.clone()));
        }
    }

    /// Calls `act` with the stream, unless it has ended.
    pub(super) fn with_stream<T>(&self, act: impl FnOnce(&mut Limited) -> T) -> Option<T> {
        self.lock().as_mut().map(|state| act(&mut state.stream))
    }

    fn lock(&self) -> MutexGuard<'_, Option<PipelineState>> {
        // A panic leaves nothing half done here, so a poisoned lock does no harm.
        lock(&self.state)
    }
}

impl PipelineState {
    fn wait(&mut self, waiting: Waiting) {
        self.waiting.push(waiting);
        match &mut self.probe {
            Some(probe) => probe.calls += 1,
            None => self.kept += 1,
        }
    }

    /// The buffer to which new calls are appended.
    fn outbox(&mut self) -> &mut Vec<u8> {
        match &mut self.probe {
            Some(probe) => &mut probe.held,
            None => self.unwritten.end(),
        }
    }

    fn send_what_was_held(&mut self) {
        if let Some(probe) = self.probe.take() {
            self.unwritten.end().extend_from_slice(&probe.held);
            self.kept += probe.calls;
            self.write();
        }
    }

    /// Writes a call at once while few are on their way, or when enough calls have been collected. Otherwise the reader writes
    /// it in its next turn, or when the socket takes more, together with the calls that are made until then.
    fn write_or_keep(&mut self) {
        if !self.unwritten.begun().is_empty() {
            // The socket is full, and the reader waits for it.
        } else if self.on_their_way() < FEW || self.kept >= PORTION {
            self.write();
        } else {
            self.reader.wake_by_ref();
        }
    }

    /// Takes out the calls that the socket was not given.
    fn take_kept(&mut self) -> impl Iterator<Item = Recipient> {
        let on_their_way = self.on_their_way();
        self.unwritten.take_back();
        self.kept = 0;
        if let Some(probe) = &mut self.probe {
            probe.held.clear();
            probe.calls = 0;
        }
        self.waiting.take_behind(on_their_way)
    }

    /// How many calls the socket was given that still wait for an answer.
    fn on_their_way(&self) -> usize {
        let held = self.probe.as_ref().map_or(0, |probe| probe.calls);
        self.waiting.len().saturating_sub(self.kept + held)
    }

    /// Writes as much as the socket takes. The reader is woken when the socket takes more.
    fn write(&mut self) {
        let mut stream = Pin::new(&mut self.stream);
        let mut cx = Context::from_waker(&self.reader);
        while !self.unwritten.left().is_empty() {
            let kept = self.kept;
            let is_new = self.unwritten.begin();
            if is_new {
                self.kept = 0;
            }
            match stream.as_mut().poll_write(&mut cx, self.unwritten.begun()) {
                Poll::Ready(Ok(bytes)) if bytes > 0 => self.unwritten.took(bytes),
                Poll::Pending => return,
                Poll::Ready(_) => {
                    if is_new && stream.keeps_what_it_refuses() {
                        self.kept = kept;
                    }
                    return self.cannot_write();
                }
            }
        }
        // TLS takes more than its socket does, and sends the rest only when it is flushed.
        if let Poll::Ready(Err(_)) = stream.poll_flush(&mut cx) {
            self.cannot_write();
        }
    }

    /// Lets the reader find the reason, which comes after the answers that were received before.
    fn cannot_write(&mut self) {
        self.is_retired = true;
        self.unwritten.clear();
        if let Some(socket) = self.stream.socket() {
            socket.try_to_read();
        }
        self.reader.wake_by_ref();
    }
}

#[cfg(test)]
mod tests;
