//! Starting operations of a backend, for JavaScript.

use std::future::{Future, pending, ready};
use std::rc::Rc;
use std::sync::Arc;

use napi::Env;
use serde_json::{Value, json};
use syncguard::operation::{self, CallOptions};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, BoxFuture, Busy, Claim, DoneMark, Error, EvalOutcome,
    ExtendOutcome, Hold, Operation, Outcome, ReleaseOutcome, RetryPolicy, Ttl, Waiter,
};

use crate::answers::completion::{Completion, Granted, WaitStats};
use crate::calls::environment::{Completions, Environment};
use crate::calls::holder::HoldSettings;
use crate::convert::inspection::{facts_json, page_json};
use crate::convert::scripts::reply_json;

/// A backend in one environment.
#[derive(Clone)]
pub(crate) struct Operations {
    pub(crate) backend: Arc<dyn Backend>,
    environment: Rc<Environment>,
    /// Whether its connections live on JavaScript's event loop. Then its operations run there, too.
    is_here: bool,
}

impl Operations {
    pub(crate) fn new(backend: Arc<dyn Backend>, completions: &Completions, is_here: bool) -> Self {
        Self {
            backend,
            environment: Rc::clone(&completions.environment),
            is_here,
        }
    }

    /// Calls JavaScript's client of that number whenever another server may keep the locks from now on.
    pub(crate) fn when_another_server(&self, client: u32) {
        let bridge = self.environment.bridge(client);
        let tell = move || bridge.tell(&json!({ "anotherServer": true }));
        self.backend.work().when_another_server(tell);
    }

    /// How JavaScript holds a lock.
    pub(crate) fn hold(&self, settings: HoldSettings, ttl: Ttl) -> Result<Hold, Error> {
        settings.for_ttl(ttl, &self.environment.mailbox, &self.environment.holders)
    }

    /// Carries out an operation of the store.
    #[expect(
        clippy::too_many_arguments,
        reason = "the names of the operation, and what it is"
    )]
    pub(crate) fn submit(
        &self,
        env: &Env,
        number: u32,
        cancellable: bool,
        operation: Result<Operation, Error>,
        options: CallOptions,
    ) {
        let cancelled = self.cancelled(number, cancellable);
        // A lock that extends itself must do so from the grant on, even if JavaScript's thread is busy then.
        let extends_itself =
            matches!(&operation, Ok(Operation::Acquire(request)) if request.hold.is_some());
        let running: BoxFuture<'static, _> = match operation {
            Err(error) => Box::pin(ready(Err(error))),
            Ok(operation) => {
                let backend = Arc::clone(&self.backend);
                let (ttl, claims) = (ttl_of(&operation), claims_of(&operation));
                Box::pin(async move {
                    let outcome = operation::run(&backend, operation, options, cancelled).await?;
                    Ok(completion(outcome, ttl, claims, backend))
                })
            }
        };
        self.start(env, number, self.is_here && !extends_itself, running);
    }

    /// Takes a lock, and waits for it.
    pub(crate) fn wait(
        &self,
        env: &Env,
        number: u32,
        cancellable: bool,
        request: Result<(AcquireRequest, RetryPolicy), Error>,
    ) {
        let cancelled = self.cancelled(number, cancellable);
        // As in `submit`.
        let extends_itself = matches!(&request, Ok((request, _)) if request.hold.is_some());
        let backend = Arc::clone(&self.backend);
        let running: BoxFuture<'static, _> = match request {
            Err(error) => Box::pin(ready(Err(error))),
            Ok((request, policy)) => Box::pin(async move {
                let (ttl, claims) = (request.ttl, several(&request));
                let mut waiter = Waiter::new(&backend, request, policy)?;
                let outcome = waiter.acquire(cancelled).await;
                let mut stats = WaitStats {
                    attempts: waiter.attempts(),
                    contended: waiter.contended(),
                    wakeups: waiter.wakeups(),
                    asked: None,
                };
                Ok(match outcome {
                    Ok(syncguard::Granted { grants, asked }) => {
                        stats.asked = Some(asked);
                        Completion::Waited(Granted::new(grants, claims, ttl, backend), stats)
                    }
                    Err(error) => Completion::GaveUp(error, stats),
                })
            }),
        };
        self.start(env, number, self.is_here && !extends_itself, running);
    }

    /// Runs anything: what `running` gives for a future that completes when the operation is cancelled.
    pub(crate) fn spawn<F>(
        &self,
        env: &Env,
        number: u32,
        cancellable: bool,
        running: impl FnOnce(BoxFuture<'static, ()>) -> F,
    ) where
        F: Future<Output = Result<Completion, Error>> + Send + 'static,
    {
        let running = running(self.cancelled(number, cancellable));
        self.start(env, number, self.is_here, Box::pin(running));
    }

    /// Completes when JavaScript cancels the operation; never, if it may not.
    fn cancelled(&self, number: u32, cancellable: bool) -> BoxFuture<'static, ()> {
        match cancellable {
            true => Box::pin(self.environment.cancels.register(number)),
            false => Box::pin(pending()),
        }
    }

    fn start(
        &self,
        env: &Env,
        number: u32,
        is_here: bool,
        running: BoxFuture<'static, Result<Completion, Error>>,
    ) {
        let backend = Arc::clone(&self.backend);
        self.environment.run(env, number, is_here, backend, running);
    }
}

/// How long a lock lasts that `operation` may be granted.
fn ttl_of(operation: &Operation) -> Option<Ttl> {
    match operation {
        Operation::Acquire(request) => Some(request.ttl),
        _ => None,
    }
}

/// What `operation` asks for that JavaScript does not know in order.
fn claims_of(operation: &Operation) -> Vec<Claim> {
    match operation {
        Operation::Acquire(request) => several(request),
        _ => Vec::new(),
    }
}

/// The claims, unless one key itself is asked for.
fn several(request: &AcquireRequest) -> Vec<Claim> {
    match request.single() {
        Some(_) => Vec::new(),
        None => request.claims.as_slice().into(),
    }
}

/// What `outcome` is to JavaScript.
fn completion(
    outcome: Outcome,
    ttl: Option<Ttl>,
    claims: Vec<Claim>,
    backend: Arc<dyn Backend>,
) -> Completion {
    match outcome {
        Outcome::Acquire(AcquireOutcome::Acquired(grants)) => {
            let ttl = ttl.unwrap_or(Ttl::DEFAULT);
            Completion::Acquired(Granted::new(grants, claims, ttl, backend))
        }
        Outcome::Acquire(AcquireOutcome::Locked {
            claim,
            free_in,
            labels,
            is_shared: _,
        }) => Completion::Locked {
            key: claims.into_iter().nth(claim).map(|claim| claim.key),
            busy: Busy {
                key: None,
                free_in,
                labels: labels.to_texts(),
            },
        },
        Outcome::Acquire(AcquireOutcome::Done(mark)) => mark_json(Some(&mark)),
        Outcome::Mark(mark) => mark_json(mark.as_ref()),
        Outcome::Release(outcomes) => released(&outcomes),
        Outcome::Extend(ExtendOutcome::Extended { expires_at_ms }) => {
            Completion::Extended { expires_at_ms }
        }
        Outcome::Extend(ExtendOutcome::Absent { lock, absence }) => {
            Completion::Absent { lock, absence }
        }
        Outcome::IsLocked(answer) | Outcome::ForceRelease(answer) => Completion::Answer(answer),
        Outcome::Lookup(None) => Completion::NotFound,
        Outcome::Lookup(Some(record)) => Completion::Found(Box::new(record)),
        Outcome::List(page) => Completion::Text(page_json(&page).to_string()),
        Outcome::Eval(EvalOutcome::Done(reply)) => Completion::Text(reply_json(&reply).to_string()),
        Outcome::Eval(EvalOutcome::Absent { lock, absence }) => {
            Completion::Absent { lock, absence }
        }
        Outcome::Facts(nodes) => Completion::Text(facts_json(&nodes).to_string()),
    }
}

/// For which period something was done last: a text with JSON.
fn mark_json(mark: Option<&DoneMark>) -> Completion {
    let mark = mark.map(|mark| json!({ "due": mark.due.to_string(), "doneAtMs": mark.done_at_ms }));
    Completion::Text(Value::from(mark).to_string())
}

/// What a release is to JavaScript.
fn released(outcomes: &[ReleaseOutcome]) -> Completion {
    match outcomes {
        [ReleaseOutcome::Released] => Completion::Done,
        [ReleaseOutcome::Absent(absence)] => Completion::Absent {
            lock: 0,
            absence: *absence,
        },
        all => {
            let is_released = |outcome: &_| *outcome == ReleaseOutcome::Released;
            Completion::Released(all.iter().map(is_released).collect())
        }
    }
}
