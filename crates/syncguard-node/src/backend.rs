//! The native handle of a backend.

use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::Either;
use napi::Env;
use napi::bindgen_prelude::Reference;
use napi_derive::napi;
use syncguard::operation::{self, CallOptions};
use syncguard::postgres::PostgresBackend;
use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Error, ErrorKind, ExtendOutcome, Key, LockId, Lookup,
    Owner, ReleaseOutcome, Ttl,
};

use crate::completion::{Completions, Mailbox, Outcome};
use crate::error::{Code, thrown};
use crate::io_thread;
use crate::options::SqliteOptions;

#[napi(object)]
pub struct Capabilities {
    pub backend: String,
    pub supports_fencing: bool,
    pub time_authority: String,
}

#[napi]
pub struct NativeBackend {
    pub(crate) backend: Arc<dyn Backend>,
    /// The same backend, where it is PostgreSQL: it has a schema to set up.
    pub(crate) postgres: Option<Arc<PostgresBackend>>,
    pub(crate) completions: Reference<Completions>,
}

/// Each operation takes its number first. Its outcome, also that of bad input, comes through
/// [`Completions`]; nothing throws.
#[napi]
impl NativeBackend {
    #[napi(factory)]
    pub fn sqlite(
        completions: Reference<Completions>,
        options: SqliteOptions,
    ) -> napi::Result<Self, Code> {
        let config = SqliteConfig::try_from(options).map_err(thrown)?;
        let backend = Arc::new(SqliteBackend::new(config).map_err(thrown)?);
        Ok(Self {
            backend,
            postgres: None,
            completions,
        })
    }

    #[napi(getter)]
    pub fn capabilities(&self) -> Capabilities {
        let capabilities = self.backend.capabilities();
        Capabilities {
            backend: capabilities.backend.to_owned(),
            supports_fencing: capabilities.supports_fencing,
            time_authority: capabilities.time_authority.as_str().to_owned(),
        }
    }

    #[napi]
    #[allow(
        clippy::too_many_arguments,
        reason = "an object would cost a property look-up per field, on the hottest path there is"
    )]
    pub fn acquire(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        key: String,
        ttl_ms: f64,
        owner: Option<String>,
        timeout_ms: Option<f64>,
    ) {
        let request = || {
            let mut request = AcquireRequest::new(Key::new(&key)?, Ttl::from_f64(ttl_ms)?)?;
            request.owner = owner.map(Owner::new).transpose()?;
            Ok(request)
        };
        let options = CallOptions {
            timeout: timeout_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok()),
        };
        self.submit(
            env,
            operation,
            cancellable,
            request(),
            move |backend, request, cancelled| async move {
                Ok(
                    match operation::acquire(&backend, request, options, cancelled).await? {
                        AcquireOutcome::Acquired(grant) => Outcome::Acquired(grant),
                        AcquireOutcome::Locked => Outcome::Locked,
                    },
                )
            },
        );
    }

    #[napi]
    pub fn release(&self, env: Env, operation: u32, cancellable: bool, lock_id: String) {
        let lock_id = LockId::parse(&lock_id);
        self.submit(
            env,
            operation,
            cancellable,
            lock_id,
            |backend, lock_id, cancelled| async move {
                let options = CallOptions::default();
                Ok(
                    match operation::release(&backend, &lock_id, options, cancelled).await? {
                        ReleaseOutcome::Released => Outcome::Done,
                        ReleaseOutcome::Absent(absence) => Outcome::Absent(absence),
                    },
                )
            },
        );
    }

    #[napi]
    pub fn extend(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        lock_id: String,
        ttl_ms: f64,
    ) {
        let input = LockId::parse(&lock_id).and_then(|id| Ok((id, Ttl::from_f64(ttl_ms)?)));
        self.submit(
            env,
            operation,
            cancellable,
            input,
            |backend, (id, ttl), cancelled| async move {
                let options = CallOptions::default();
                Ok(
                    match operation::extend(&backend, &id, ttl, options, cancelled).await? {
                        ExtendOutcome::Extended { expires_at_ms } => {
                            Outcome::Extended { expires_at_ms }
                        }
                        ExtendOutcome::Absent(absence) => Outcome::Absent(absence),
                    },
                )
            },
        );
    }

    #[napi]
    pub fn is_locked(&self, env: Env, operation: u32, cancellable: bool, key: String) {
        let key = Key::new(&key);
        self.submit(
            env,
            operation,
            cancellable,
            key,
            |backend, key, cancelled| async move {
                let options = CallOptions::default();
                operation::is_locked(&backend, &key, options, cancelled)
                    .await
                    .map(Outcome::Answer)
            },
        );
    }

    #[napi]
    pub fn lookup_by_key(&self, env: Env, operation: u32, cancellable: bool, key: String) {
        self.lookup(env, operation, cancellable, Key::new(&key).map(Lookup::Key));
    }

    #[napi]
    pub fn lookup_by_lock_id(&self, env: Env, operation: u32, cancellable: bool, lock_id: String) {
        self.lookup(
            env,
            operation,
            cancellable,
            LockId::parse(&lock_id).map(Lookup::LockId),
        );
    }

    #[napi]
    pub fn force_release(&self, env: Env, operation: u32, cancellable: bool, key: String) {
        let key = Key::new(&key);
        self.submit(
            env,
            operation,
            cancellable,
            key,
            |backend, key, cancelled| async move {
                let options = CallOptions::default();
                operation::force_release(&backend, &key, options, cancelled)
                    .await
                    .map(Outcome::Answer)
            },
        );
    }

    #[napi]
    pub fn close(&self, env: Env, operation: u32) {
        self.submit(env, operation, false, Ok(()), |backend, (), _| async move {
            backend.close().await;
            Ok(Outcome::Done)
        });
    }

    fn lookup(&self, env: Env, operation: u32, cancellable: bool, lookup: Result<Lookup, Error>) {
        self.submit(
            env,
            operation,
            cancellable,
            lookup,
            |backend, lookup, cancelled| async move {
                let options = CallOptions::default();
                let found = operation::lookup(&backend, &lookup, options, cancelled).await?;
                Ok(found.map_or(Outcome::NotFound, |record| Outcome::Found(Box::new(record))))
            },
        );
    }

    /// Runs `operate` on `input` on the I/O thread, and sees to it that exactly one outcome is
    /// delivered.
    pub(crate) fn submit<T, F>(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        input: Result<T, Error>,
        operate: impl FnOnce(Arc<dyn Backend>, T, Cancelled) -> F,
    ) where
        F: Future<Output = Result<Outcome, Error>> + Send + 'static,
    {
        self.completions.begin(&env);
        let mailbox = &self.completions.mailbox;
        let input = match input {
            Ok(input) => input,
            Err(error) => return refuse(mailbox, operation, error),
        };
        let cancelled: Cancelled = if cancellable {
            Either::Left(Box::pin(mailbox.cancels.register(operation)))
        } else {
            Either::Right(pending())
        };
        let running = operate(Arc::clone(&self.backend), input, cancelled);
        let backend = Arc::clone(&self.backend);
        let to = Arc::clone(mailbox);
        let job = async move {
            let outcome = outcome_of(running).await;
            if cancellable {
                to.cancels.forget(operation);
            }
            match outcome {
                // The environment ended meanwhile: nobody will ever release this lock.
                Outcome::Acquired(grant) if to.is_closed() => {
                    let options = CallOptions::default();
                    let _ = operation::release(&backend, &grant.lock_id, options, pending()).await;
                }
                outcome => to.deliver(operation, outcome),
            }
        };
        if let Err(error) = io_thread::spawn_operation(job) {
            refuse(mailbox, operation, error);
        }
    }
}

/// Completes when the operation is cancelled.
type Cancelled =
    Either<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>, std::future::Pending<()>>;

/// What `running` came to, whatever happens in it: a defect must not end the user's process.
async fn outcome_of(running: impl Future<Output = Result<Outcome, Error>>) -> Outcome {
    match AssertUnwindSafe(running).catch_unwind().await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => Outcome::Failed(error),
        Err(_) => Outcome::Failed(Error::new(
            ErrorKind::Internal,
            "the native core panicked; please report this",
        )),
    }
}

fn refuse(mailbox: &Arc<Mailbox>, operation: u32, error: Error) {
    mailbox.deliver(operation, Outcome::Failed(error));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_internal_error() {
        let running = async {
            tokio::task::yield_now().await;
            panic!("defect")
        };
        let outcome = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(outcome_of(running));
        let Outcome::Failed(error) = outcome else {
            panic!("expected a failure");
        };
        assert_eq!(error.kind(), ErrorKind::Internal);
    }
}
