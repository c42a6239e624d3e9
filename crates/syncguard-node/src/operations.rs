//! Starting operations of a backend, for JavaScript.

use std::cell::RefMut;
use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use napi::Env;
use syncguard::operation::CallOptions;
use syncguard::{Backend, BoxFuture, Error, Operation};

use crate::completion::{Completion, Completions};
use crate::environment::Environment;
use crate::io_thread::InFlight;
use crate::mailbox::Mailbox;
use crate::pending::{Pending, panicked};
use crate::watch::Watched;

/// A backend in one environment.
#[derive(Clone)]
pub(crate) struct Operations {
    pub(crate) backend: Arc<dyn Backend>,
    environment: Rc<Environment>,
}

impl Operations {
    pub(crate) fn new(backend: Arc<dyn Backend>, completions: &Completions) -> Self {
        Self {
            backend,
            environment: Rc::clone(&completions.environment),
        }
    }

    /// What lies between JavaScript and the I/O thread.
    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.environment.mailbox
    }

    /// What JavaScript watches.
    pub(crate) fn watches(&self) -> RefMut<'_, HashMap<u32, Watched>> {
        self.environment.watches.borrow_mut()
    }

    /// Carries out an operation. Gives whether [`Completions::flush`] must be called soon.
    pub(crate) fn submit(
        &self,
        env: &Env,
        number: u32,
        cancellable: bool,
        operation: Result<Operation, Error>,
        options: CallOptions,
    ) -> bool {
        self.start(env, number, |pending| {
            let operation = operation?;
            if cancellable {
                let cancelled = pending.cancelled(true);
                pending.run(operation, options, cancelled);
            } else if pending.send(operation, options) {
                self.environment.flush_later(&self.backend);
            }
            Ok(())
        })
    }

    /// Runs anything on the I/O thread: what `running` gives for a future that completes when the operation
    /// is cancelled. Gives what [`submit`](Self::submit) does.
    pub(crate) fn spawn<F>(
        &self,
        env: &Env,
        number: u32,
        cancellable: bool,
        running: impl FnOnce(BoxFuture<()>) -> F,
    ) -> bool
    where
        F: Future<Output = Result<Completion, Error>> + Send + 'static,
    {
        self.start(env, number, |pending| {
            let cancelled = pending.cancelled(cancellable);
            pending.spawn(running(cancelled));
            Ok(())
        })
    }

    fn start(
        &self,
        env: &Env,
        number: u32,
        start: impl FnOnce(Pending) -> Result<(), Error>,
    ) -> bool {
        let environment = &self.environment;
        let pending = Pending {
            number,
            mailbox: Arc::clone(&environment.mailbox),
            backend: Arc::clone(&self.backend),
            in_flight: InFlight::start(),
        };
        let started = environment.begin(env).and_then(|()| {
            // A defect must not end the user's process.
            catch_unwind(AssertUnwindSafe(|| start(pending))).unwrap_or_else(|_| Err(panicked()))
        });
        if let Err(error) = started {
            environment.mailbox.fail(number, error);
        }
        if environment.is_lone() {
            // Nothing comes that it could go with, and JavaScript may block its thread now.
            environment.flush();
        }
        environment.has_kept()
    }
}
