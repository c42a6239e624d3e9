//! Operations that JavaScript waits for.

use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use syncguard::operation::{self, CallOptions, Ended};
use syncguard::{
    AcquireOutcome, Backend, BoxFuture, Error, ErrorKind, ExtendOutcome, Operation, Outcome,
    ReleaseOutcome, Ttl,
};

use crate::cancel::Cancels;
use crate::completion::Completion;
use crate::granted::Granted;
use crate::io_thread::InFlight;
use crate::mailbox::Mailbox;

/// An operation that JavaScript has given a number. It is completed once.
pub(crate) struct Pending {
    pub(crate) number: u32,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) in_flight: InFlight,
}

impl Pending {
    /// Lets the backend send `operation` from this thread, or runs it on the I/O thread if the backend
    /// cannot. Gives whether the backend must be flushed.
    pub(crate) fn send(self, operation: Operation, options: CallOptions) -> bool {
        let backend = Arc::clone(&self.backend);
        let ttl = ttl_of(&operation);
        operation::send(&backend, operation, options, move |ended| match ended {
            Ended::Done(answer) => self.complete(answer, ttl),
            Ended::NotSent(operation, rest) => {
                let never = self.cancelled(false);
                self.run(operation, rest, never);
            }
        })
    }

    /// Completes when JavaScript cancels the operation; never, if it may not.
    pub(crate) fn cancelled(&self, cancellable: bool) -> BoxFuture<()> {
        if cancellable {
            Box::pin(Cancels::register(&self.mailbox, self.number))
        } else {
            Box::pin(pending())
        }
    }

    /// Runs `operation` on the I/O thread.
    pub(crate) fn run(self, operation: Operation, options: CallOptions, cancelled: BoxFuture<()>) {
        let (backend, ttl) = (Arc::clone(&self.backend), ttl_of(&operation));
        self.spawn(async move {
            let answer = operation::run(&backend, operation, options, cancelled).await?;
            Ok(completion(answer, ttl, backend))
        });
    }

    /// Runs anything on the I/O thread.
    pub(crate) fn spawn(
        self,
        running: impl Future<Output = Result<Completion, Error>> + Send + 'static,
    ) {
        let mailbox = Arc::clone(&self.mailbox);
        mailbox.start(Box::pin(async move {
            self.in_flight.arrived();
            let ended = AssertUnwindSafe(running).catch_unwind().await;
            self.put(ended.unwrap_or_else(|_| Err(panicked())));
        }));
    }

    fn complete(self, answer: Result<Outcome, Error>, ttl: Option<Ttl>) {
        let backend = Arc::clone(&self.backend);
        self.put(answer.map(|outcome| completion(outcome, ttl, backend)));
    }

    fn put(self, ended: Result<Completion, Error>) {
        self.mailbox.live_for_background_of(&self.backend);
        self.mailbox
            .put(self.number, ended.unwrap_or_else(Completion::Failed));
    }
}

/// How long a lock lasts that `operation` may be granted.
fn ttl_of(operation: &Operation) -> Option<Ttl> {
    match operation {
        Operation::Acquire(request) => Some(request.ttl),
        _ => None,
    }
}

/// What `outcome` is to JavaScript.
fn completion(outcome: Outcome, ttl: Option<Ttl>, backend: Arc<dyn Backend>) -> Completion {
    match outcome {
        Outcome::Acquire(AcquireOutcome::Acquired(grant)) => {
            Completion::Acquired(Granted::new(grant, ttl.unwrap_or(Ttl::DEFAULT), backend))
        }
        Outcome::Acquire(AcquireOutcome::Locked { free_in }) => Completion::Locked { free_in },
        Outcome::Release(ReleaseOutcome::Released) => Completion::Done,
        Outcome::Extend(ExtendOutcome::Extended { expires_at_ms }) => {
            Completion::Extended { expires_at_ms }
        }
        Outcome::Release(ReleaseOutcome::Absent(absence))
        | Outcome::Extend(ExtendOutcome::Absent(absence)) => Completion::Absent(absence),
        Outcome::IsLocked(answer) | Outcome::ForceRelease(answer) => Completion::Answer(answer),
        Outcome::Lookup(None) => Completion::NotFound,
        Outcome::Lookup(Some(record)) => Completion::Found(Box::new(record)),
    }
}

/// The error of a defect of ours, which must not end the user's process.
pub(crate) fn panicked() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the native core panicked; please report this",
    )
}
