//! The native handle of a backend.

use std::sync::Arc;
use std::time::Duration;

use napi::Env;
use napi::bindgen_prelude::{FnArgs, Function};
use napi_derive::napi;
use syncguard::operation::CallOptions;
use syncguard::postgres::PostgresBackend;
use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{AcquireRequest, Backend, Error, Key, LockId, Lookup, Operation, Owner, Ttl};

use crate::completion::Completion;
use crate::completions::Completions;
use crate::error::{Code, thrown};
use crate::holder::HoldSettings;
use crate::io_thread;
use crate::operations::Operations;
use crate::options::SqliteOptions;
use crate::watch::Watched;

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
    pub(crate) operations: Operations,
    /// The same backend, where it is PostgreSQL: it has a schema to set up.
    pub(crate) postgres: Option<Arc<PostgresBackend>>,
}

/// Each operation takes its number first. What it comes to, also with bad input, comes through
/// [`Completions`]; nothing throws.
#[napi]
impl NativeBackend {
    #[napi(factory)]
    pub fn sqlite(completions: &Completions, options: SqliteOptions) -> napi::Result<Self, Code> {
        let config = SqliteConfig::try_from(options).map_err(thrown)?;
        let backend = SqliteBackend::new(config).map_err(thrown)?;
        Ok(Self::of(backend, completions))
    }

    #[napi(getter)]
    pub fn capabilities(&self) -> Capabilities {
        let capabilities = self.operations.backend.capabilities();
        Capabilities {
            backend: capabilities.backend.to_owned(),
            supports_fencing: capabilities.supports_fencing,
            time_authority: capabilities.time_authority.into(),
        }
    }

    /// A function, and not a method, because it is called for every lock: what napi-rs does for the receiver of
    /// a method costs more than the call itself. Its arguments are the operation's number, whether it can be
    /// cancelled, the key, the TTL and the time limit in milliseconds, the owner, and a lock id: that of a lock
    /// whose release has been started, and behind which this goes.
    #[napi]
    #[allow(
        clippy::type_complexity,
        reason = "TypeScript's types are made from what stands here, and know no aliases"
    )]
    pub fn acquire<'env>(
        &self,
        env: &'env Env,
    ) -> napi::Result<
        Function<
            'env,
            FnArgs<(
                u32,
                bool,
                String,
                f64,
                Option<f64>,
                Option<String>,
                Option<String>,
            )>,
            (),
        >,
    > {
        let operations = self.operations.clone();
        env.create_function_from_closure("acquire", move |call| {
            let (number, cancellable, key, ttl_ms, timeout_ms, owner, behind) = call.args::<(
                u32,
                bool,
                String,
                f64,
                Option<f64>,
                Option<String>,
                Option<String>,
            )>(
            )?;
            let operation = request(&key, ttl_ms, owner, behind).map(Operation::Acquire);
            let options = limited(timeout_ms);
            operations.submit(call.env, number, cancellable, operation, options);
            Ok(())
        })
    }

    /// [`acquire`](Self::acquire) for a lock that extends itself from the moment it is granted, whatever JavaScript
    /// does meanwhile.
    #[napi]
    #[allow(clippy::too_many_arguments, reason = "they are those of `acquire`")]
    pub fn acquire_and_hold(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        key: String,
        ttl_ms: f64,
        timeout_ms: Option<f64>,
        owner: Option<String>,
        behind: Option<String>,
        hold: HoldSettings,
    ) {
        let request = || {
            let mut request = request(&key, ttl_ms, owner, behind)?;
            let hold = self.operations.hold(hold, request.ttl)?;
            request.hold = Some(Box::new(hold));
            Ok(Operation::Acquire(request))
        };
        let options = limited(timeout_ms);
        self.operations
            .submit(&env, operation, cancellable, request(), options);
    }

    /// A function for the reason of [`acquire`](Self::acquire). Its arguments are the operation's number,
    /// whether it can be cancelled, the lock id, and for how many milliseconds the lock can last: so long a
    /// release that has failed goes on in the background.
    #[napi]
    #[allow(
        clippy::type_complexity,
        reason = "TypeScript's types are made from what stands here, and know no aliases"
    )]
    pub fn release<'env>(
        &self,
        env: &'env Env,
    ) -> napi::Result<Function<'env, FnArgs<(u32, bool, String, Option<f64>)>, ()>> {
        let operations = self.operations.clone();
        env.create_function_from_closure("release", move |call| {
            let (number, cancellable, lock_id, lasts_ms) =
                call.args::<(u32, bool, String, Option<f64>)>()?;
            let operation = LockId::parse(&lock_id).map(Operation::Release);
            let options = CallOptions {
                lasts: lasts_ms.and_then(|ms| Ttl::from_f64(ms).ok()),
                ..DEFAULTS
            };
            operations.submit(call.env, number, cancellable, operation, options);
            Ok(())
        })
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
        let request = || {
            Ok(Operation::Extend(
                LockId::parse(&lock_id)?,
                Ttl::from_f64(ttl_ms)?,
            ))
        };
        self.operations
            .submit(&env, operation, cancellable, request(), DEFAULTS);
    }

    #[napi]
    pub fn is_locked(&self, env: Env, operation: u32, cancellable: bool, key: String) {
        let request = Key::new(&key).map(Operation::IsLocked);
        self.operations
            .submit(&env, operation, cancellable, request, DEFAULTS);
    }

    #[napi]
    pub fn lookup_by_key(&self, env: Env, operation: u32, cancellable: bool, key: String) {
        let request = Key::new(&key).map(|key| Operation::Lookup(Lookup::Key(key)));
        self.operations
            .submit(&env, operation, cancellable, request, DEFAULTS);
    }

    #[napi]
    pub fn lookup_by_lock_id(&self, env: Env, operation: u32, cancellable: bool, lock_id: String) {
        let request = LockId::parse(&lock_id).map(|id| Operation::Lookup(Lookup::LockId(id)));
        self.operations
            .submit(&env, operation, cancellable, request, DEFAULTS);
    }

    #[napi]
    pub fn force_release(&self, env: Env, operation: u32, cancellable: bool, key: String) {
        let request = Key::new(&key).map(Operation::ForceRelease);
        self.operations
            .submit(&env, operation, cancellable, request, DEFAULTS);
    }

    #[napi]
    pub fn close(&self, env: Env, operation: u32) {
        let backend = Arc::clone(&self.operations.backend);
        self.operations
            .spawn(&env, operation, false, |_| async move {
                backend.close().await;
                Ok(Completion::Done)
            });
    }

    /// Watches the lock on `key` under `number`, which JavaScript chooses. It is no operation: it does not keep the
    /// process alive. After each call of [`Completions::next_freed`], when the lock may have been freed, JavaScript
    /// finds [`Tag::Freed`](crate::completion::Tag::Freed) with `number` once. `false`: the store cannot tell.
    #[napi]
    pub fn watch(&self, number: u32, key: String) -> bool {
        let key = Key::new(&key).ok();
        let watch = key.and_then(|key| self.operations.backend.watch(&key));
        let (Some(watch), Ok(runtime)) = (watch, io_thread::runtime()) else {
            return false;
        };
        let _on_it = runtime.enter();
        let watched = Watched::new(watch, number, self.operations.mailbox());
        self.operations.watches().insert(number, watched);
        true
    }

    pub(crate) fn of(backend: impl Backend, completions: &Completions) -> Self {
        Self {
            operations: Operations::new(Arc::new(backend), completions, false),
            postgres: None,
        }
    }
}

fn request(
    key: &str,
    ttl_ms: f64,
    owner: Option<String>,
    behind: Option<String>,
) -> Result<AcquireRequest, Error> {
    let mut request = AcquireRequest::new(Key::new(key)?, Ttl::from_f64(ttl_ms)?)?;
    request.owner = owner.map(Owner::new).transpose()?;
    request.behind = behind.as_deref().map(LockId::parse).transpose()?;
    Ok(request)
}

fn limited(timeout_ms: Option<f64>) -> CallOptions {
    CallOptions {
        timeout: timeout_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok()),
        ..DEFAULTS
    }
}

const DEFAULTS: CallOptions = CallOptions::DEFAULT;
