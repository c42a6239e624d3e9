//! Says when the silence of a server is suspect, and asks it for a sign of life.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::last_heard::Probe;
use super::queue::{Recipient, Waiting};
use super::{Pipeline, PipelineState};
use crate::redis::error::{Cause, to_error};
use crate::redis::reply::is_pong;

impl Pipeline {
    /// Lets answers take that much longer from now on, because the server itself waits for replicas.
    pub(in crate::redis::connection) fn is_held_up(&self, limit: Duration) {
        if let Some(state) = self.lock().as_mut() {
            state.held_up = state.held_up.max(limit);
        }
    }

    /// When the connection becomes suspect if nothing is heard until then. That is when a call has waited for as long as
    /// `suspicion`, or for a quarter of the time in which its answer is of use, if that is less. `None` if no call waits.
    pub(in crate::redis::connection) fn suspect_at(&self, suspicion: Duration) -> Option<Instant> {
        let state = self.lock();
        let state = state.as_ref()?;
        let at = |waiting: &Waiting| {
            let patience = waiting.needed_by.map_or(suspicion, |by| {
                let quarter = (by - waiting.since) / 4;
                quarter.max(self.patience).min(suspicion)
            });
            waiting.since.max(state.heard.at()) + patience + state.held_up
        };
        state.waiting.iter().map(at).min()
    }

    /// The earliest time by which a waiting call needs its answer, if one says so.
    pub(in crate::redis::connection) fn needed_by(&self) -> Option<Instant> {
        let state = self.lock();
        let waiting = state.as_ref()?.waiting.iter();
        waiting.filter_map(|waiting| waiting.needed_by).min()
    }

    /// Whether something has been received after `then`, or the stream has ended.
    pub(in crate::redis::connection) fn has_heard_since(&self, then: Instant) -> bool {
        let state = self.lock();
        state.as_ref().is_none_or(|state| state.heard.at() > then)
    }

    /// Locks the state. If nothing was heard for a moment, looks first whether the stream has ended meanwhile.
    pub(super) fn lock_to_write(&self, now: Instant) -> MutexGuard<'_, Option<PipelineState>> {
        let mut state = self.lock();
        let looks = |state: &mut PipelineState| state.heard.looks_now(now);
        if state.as_mut().is_some_and(looks) {
            drop(state);
            self.look();
            state = self.lock();
        }
        state
    }

    /// Asks the server for a sign of life. Until it comes, new calls are held back, so that they can be sent on another stream
    /// if it never does.
    pub(super) fn ask_for_a_sign(self: &Arc<Self>, state: &mut PipelineState) {
        let is_idle = state.waiting.len() == 0;
        let ping = b"*1\r\n$4\r\nPING\r\n";
        state.unwritten.end().extend_from_slice(ping);
        state.wait(Waiting {
            fits: is_pong,
            recipient: Recipient::Probe,
            since: Instant::now(),
            needed_by: None,
        });
        self.liveness.sent(false);
        state.write();
        let until = is_idle.then(|| Instant::now() + self.patience);
        state.probe = Some(Probe {
            held: Vec::new(),
            calls: 0,
            until,
        });
        if is_idle && let Ok(runtime) = Handle::try_current() {
            let (this, patience) = (Arc::clone(self), self.patience);
            runtime.spawn(async move {
                sleep(patience).await;
                this.end_if_silent();
            });
        }
    }

    fn end_if_silent(&self) {
        self.look();
        let until = self.lock().as_ref().and_then(PipelineState::gives_up_at);
        if until.is_some_and(|until| until <= Instant::now()) {
            self.end(&to_error(Cause::Silent, true));
        }
    }
}

impl PipelineState {
    /// When to give up waiting for a sign of life, if the probe has such a time.
    fn gives_up_at(&self) -> Option<Instant> {
        self.probe.as_ref()?.until
    }
}
