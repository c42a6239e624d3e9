//! The native handle of a backend.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use napi::Env;
use napi::bindgen_prelude::Reference;
use napi_derive::napi;
use syncguard::operation::CallOptions;
use syncguard::postgres::PostgresBackend;
use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{
    AcquireRequest, Backend, BoxFuture, Error, Key, LockId, Lookup, Operation, Owner, Ttl,
};

use crate::completion::{Completion, Completions};
use crate::error::{Code, thrown};
use crate::options::SqliteOptions;
use crate::pending::{Pending, panicked};

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

/// Each operation takes its number first. What it comes to, also with bad input, comes through
/// [`Completions`]; nothing throws. What an operation gives is whether something is kept back until
/// [`Completions::flush`] is called, which must be at the end of this turn of the event loop.
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
        let request = || {
            let mut request = AcquireRequest::new(Key::new(&key)?, Ttl::from_f64(ttl_ms)?)?;
            request.owner = owner.map(Owner::new).transpose()?;
            Ok(Operation::Acquire(request))
        };
        let options = CallOptions {
            timeout: timeout_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok()),
        };
        self.submit(env, operation, cancellable, request(), options)
    }

    #[napi]
    pub fn release(&self, env: Env, operation: u32, cancellable: bool, lock_id: String) -> bool {
        let request = LockId::parse(&lock_id).map(Operation::Release);
        self.submit(env, operation, cancellable, request, DEFAULTS)
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
        let request = || {
            Ok(Operation::Extend(
                LockId::parse(&lock_id)?,
                Ttl::from_f64(ttl_ms)?,
            ))
        };
        self.submit(env, operation, cancellable, request(), DEFAULTS)
    }

    #[napi]
    pub fn is_locked(&self, env: Env, operation: u32, cancellable: bool, key: String) -> bool {
        let request = Key::new(&key).map(Operation::IsLocked);
        self.submit(env, operation, cancellable, request, DEFAULTS)
    }

    #[napi]
    pub fn lookup_by_key(&self, env: Env, operation: u32, cancellable: bool, key: String) -> bool {
        let request = Key::new(&key).map(|key| Operation::Lookup(Lookup::Key(key)));
        self.submit(env, operation, cancellable, request, DEFAULTS)
    }

    #[napi]
    pub fn lookup_by_lock_id(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        lock_id: String,
    ) -> bool {
        let request = LockId::parse(&lock_id).map(|id| Operation::Lookup(Lookup::LockId(id)));
        self.submit(env, operation, cancellable, request, DEFAULTS)
    }

    #[napi]
    pub fn force_release(&self, env: Env, operation: u32, cancellable: bool, key: String) -> bool {
        let request = Key::new(&key).map(Operation::ForceRelease);
        self.submit(env, operation, cancellable, request, DEFAULTS)
    }

    #[napi]
    pub fn close(&self, env: Env, operation: u32) -> bool {
        let backend = Arc::clone(&self.backend);
        self.spawn(env, operation, false, |_| async move {
            backend.close().await;
            Ok(Completion::Done)
        })
    }

    /// Carries out an operation. Gives whether [`Completions::flush`] must be called soon.
    fn submit(
        &self,
        env: Env,
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
                self.completions.flush_later(&self.backend);
            }
            Ok(())
        })
    }

    /// Runs anything on the I/O thread: what `running` gives for a future that completes when the operation
    /// is cancelled. Gives what [`submit`](Self::submit) does.
    pub(crate) fn spawn<F>(
        &self,
        env: Env,
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
        env: Env,
        number: u32,
        start: impl FnOnce(Pending) -> Result<(), Error>,
    ) -> bool {
        let pending = Pending {
            number,
            mailbox: Arc::clone(&self.completions.mailbox),
            backend: Arc::clone(&self.backend),
        };
        self.completions.begin(&env);
        let started = self.completions.start_announcing().and_then(|()| {
            // A defect must not end the user's process.
            catch_unwind(AssertUnwindSafe(|| start(pending))).unwrap_or_else(|_| Err(panicked()))
        });
        if let Err(error) = started {
            self.completions.mailbox.fail(number, error);
        }
        self.completions.has_kept()
    }
}

const DEFAULTS: CallOptions = CallOptions { timeout: None };
