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

use crate::completion::{Completions, Outcome};
use crate::error::{Code, thrown};
use crate::granted::Granted;
use crate::io_thread;
use crate::options::SqliteOptions;

#[napi(object)]
pub struct Capabilities {
    pub backend: String,
    pub supports_fencing: bool,
    pub time_authority: TimeAuthority,
}

/// Whose clock decides when a lock ends.
#[napi(string_enum = "lowercase")]
pub enum TimeAuthority {
    Server,
    Client,
}

impl From<syncguard::TimeAuthority> for TimeAuthority {
    fn from(authority: syncguard::TimeAuthority) -> Self {
        match authority {
            syncguard::TimeAuthority::Server => Self::Server,
            syncguard::TimeAuthority::Client => Self::Client,
        }
    }
}

#[napi]
pub struct NativeBackend {
    pub(crate) backend: Arc<dyn Backend>,
    /// The same backend, where it is PostgreSQL: it has a schema to set up.
    pub(crate) postgres: Option<Arc<PostgresBackend>>,
    pub(crate) completions: Reference<Completions>,
}

/// Each operation takes its number first. Its outcome, also that of bad input, comes through
/// [`Completions`]; nothing throws. What an operation gives is whether it is kept back until
/// [`Completions::hand_over`] is called, which must be soon.
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
            time_authority: capabilities.time_authority.into(),
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
    ) -> bool {
        let start = move |backend, cancelled| async move {
            let ttl = Ttl::from_f64(ttl_ms)?;
            let mut request = AcquireRequest::new(Key::new(&key)?, ttl)?;
            request.owner = owner.map(Owner::new).transpose()?;
            let options = CallOptions {
                timeout: timeout_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok()),
            };
            let outcome = operation::acquire(&backend, request, options, cancelled).await?;
            Ok(match outcome {
                AcquireOutcome::Acquired(grant) => {
                    Outcome::Acquired(Granted::new(grant, ttl, backend))
                }
                AcquireOutcome::Locked => Outcome::Locked,
            })
        };
        self.submit(env, operation, cancellable, start)
    }

    #[napi]
    pub fn release(&self, env: Env, operation: u32, cancellable: bool, lock_id: String) -> bool {
        let start = move |backend, cancelled| async move {
            let id = LockId::parse(&lock_id)?;
            let outcome = operation::release(&backend, &id, DEFAULTS, cancelled).await?;
            Ok(match outcome {
                ReleaseOutcome::Released => Outcome::Done,
                ReleaseOutcome::Absent(absence) => Outcome::Absent(absence),
            })
        };
        self.submit(env, operation, cancellable, start)
    }

    #[napi]
    pub fn extend(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        lock_id: String,
        ttl_ms: f64,
    ) -> bool {
        let start = move |backend, cancelled| async move {
            let (id, ttl) = (LockId::parse(&lock_id)?, Ttl::from_f64(ttl_ms)?);
            let outcome = operation::extend(&backend, &id, ttl, DEFAULTS, cancelled).await?;
            Ok(match outcome {
                ExtendOutcome::Extended { expires_at_ms } => Outcome::Extended { expires_at_ms },
                ExtendOutcome::Absent(absence) => Outcome::Absent(absence),
            })
        };
        self.submit(env, operation, cancellable, start)
    }

    #[napi]
    pub fn is_locked(&self, env: Env, operation: u32, cancellable: bool, key: String) -> bool {
        let start = move |backend, cancelled| async move {
            let key = Key::new(&key)?;
            let answer = operation::is_locked(&backend, &key, DEFAULTS, cancelled).await?;
            Ok(Outcome::Answer(answer))
        };
        self.submit(env, operation, cancellable, start)
    }

    #[napi]
    pub fn lookup_by_key(&self, env: Env, operation: u32, cancellable: bool, key: String) -> bool {
        self.lookup(env, operation, cancellable, move || {
            Key::new(&key).map(Lookup::Key)
        })
    }

    #[napi]
    pub fn lookup_by_lock_id(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        lock_id: String,
    ) -> bool {
        self.lookup(env, operation, cancellable, move || {
            LockId::parse(&lock_id).map(Lookup::LockId)
        })
    }

    #[napi]
    pub fn force_release(&self, env: Env, operation: u32, cancellable: bool, key: String) -> bool {
        let start = move |backend, cancelled| async move {
            let key = Key::new(&key)?;
            let answer = operation::force_release(&backend, &key, DEFAULTS, cancelled).await?;
            Ok(Outcome::Answer(answer))
        };
        self.submit(env, operation, cancellable, start)
    }

    #[napi]
    pub fn close(&self, env: Env, operation: u32) -> bool {
        let start = |backend: Arc<dyn Backend>, _| async move {
            backend.close().await;
            Ok(Outcome::Done)
        };
        self.submit(env, operation, false, start)
    }

    fn lookup(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        what: impl FnOnce() -> Result<Lookup, Error> + Send + 'static,
    ) -> bool {
        let start = move |backend, cancelled| async move {
            let found = operation::lookup(&backend, &what()?, DEFAULTS, cancelled).await?;
            Ok(found.map_or(Outcome::NotFound, |record| Outcome::Found(Box::new(record))))
        };
        self.submit(env, operation, cancellable, start)
    }

    /// Runs what `start` gives on the I/O thread, and sees to it that exactly one outcome is
    /// delivered. Gives whether it is kept back.
    pub(crate) fn submit<F>(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        start: impl FnOnce(Arc<dyn Backend>, Cancelled) -> F + Send + 'static,
    ) -> bool
    where
        F: Future<Output = Result<Outcome, Error>> + Send + 'static,
    {
        self.completions.begin(&env);
        if let Err(error) = self.completions.start_announcing() {
            self.completions.mailbox.fail(operation, error);
            return false;
        }
        let to = Arc::clone(&self.completions.mailbox);
        let cancelled: Cancelled = if cancellable {
            Either::Left(Box::pin(to.cancels.register(operation)))
        } else {
            Either::Right(pending())
        };
        let backend = Arc::clone(&self.backend);
        let more_will_come = self.completions.is_busy();
        let job = move || async move {
            let outcome = outcome_of(start(Arc::clone(&backend), cancelled)).await;
            if cancellable {
                to.cancels.forget(operation);
            }
            to.live_for_background_of(&backend);
            let urgent = !(io_thread::is_crowded() && backend.is_saturated());
            to.put(operation, outcome, urgent);
        };
        let spawned =
            io_thread::spawn_operation(job, more_will_come, || self.backend.is_saturated());
        spawned.unwrap_or_else(|error| {
            self.completions.mailbox.fail(operation, error);
            false
        })
    }
}

const DEFAULTS: CallOptions = CallOptions { timeout: None };

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
