//! The native handle of a backend.

use std::collections::HashMap;
use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::{Float64ArraySlice, FnArgs, Function};
use napi_derive::napi;
use syncguard::operation::CallOptions;
use syncguard::postgres::PostgresBackend;
use syncguard::{
    AcquireRequest, Backend, Batch, Claim, ClientConnections, Due, Error, ErrorKind, Extension,
    Key, Labels, LockId, Lookup, MAX_CLAIMS, MAX_SLOTS, MarkChange, Operation, PageRequest,
    ReleaseRequest, Slots, Ttl,
};

use crate::answers::completion::Completion;
use crate::calls::environment::Completions;
use crate::calls::holder::HoldSettings;
use crate::calls::operations::Operations;
use crate::calls::watch::NativeWatch;
use crate::convert::options::{finish, lock_ids, timeout, whole};
use crate::convert::policy::policy;
use crate::convert::scripts::ScriptSettings;
use crate::io_thread;

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

/// What is asked of one key.
#[napi(object)]
pub struct ClaimSettings {
    pub key: String,
    /// `shared` for the key together with all others who share it; absent for the key alone.
    #[napi(ts_type = "\"shared\"")]
    pub mode: Option<String>,
    /// Any slot of so many; absent for the key itself.
    pub slots: Option<f64>,
    /// How many slots.
    pub take: Option<f64>,
}

impl ClaimSettings {
    fn into_claims(self) -> Result<Vec<Claim>, Error> {
        let key = Key::new(&self.key)?;
        let Some(slots) = self.slots else {
            let claim = match self.mode {
                Some(_) => Claim::shared(key)?,
                None => Claim::new(key)?,
            };
            return Ok(vec![claim]);
        };
        let slots = Slots::new(whole(slots, "slots", f64::from(MAX_SLOTS))? as u16)?;
        let take = whole(self.take.unwrap_or(1.0), "take", MAX_CLAIMS as f64)?;
        (0..take as usize)
            .map(|_| Claim::slot(key.clone(), slots))
            .collect()
    }
}

/// What an acquisition can ask for besides its key and its TTL.
#[napi(object)]
#[derive(Default)]
pub struct AcquireOptions<'env> {
    /// Several keys, or slots, in place of the one key.
    pub claims: Option<Vec<ClaimSettings>>,
    /// What to store with the lock in place of what is stored by default: labels by their names.
    pub labels: Option<HashMap<String, Option<String>>>,
    /// The period for which something is to be done: the lock is granted only if that was not done yet.
    pub due: Option<String>,
    /// How to wait: see `policy.rs`. Without it, the store is asked once.
    pub waiting: Option<Float64ArraySlice<'env>>,
    /// How the lock extends itself from the moment it is granted, whatever JavaScript does meanwhile.
    pub hold: Option<HoldSettings>,
}

/// How locks are released.
#[napi(object)]
pub struct ReleaseSettings {
    /// For how many milliseconds they can last: so long a release that has failed goes on in the background.
    pub lasts_ms: Option<f64>,
    /// For how many milliseconds they are to be held still: a release that is sent before that lets them end then.
    pub hold_ms: Option<f64>,
    /// Their keys, as they were granted, as far as some of this process wait for them.
    pub keys: Vec<String>,
}

#[napi]
pub struct NativeBackend {
    pub(crate) operations: Operations,
    /// The same backend, where it is PostgreSQL: it has a schema to set up.
    pub(crate) postgres: Option<Arc<PostgresBackend>>,
    /// Where to say what the user's client shows, if it is over one.
    pub(crate) client: Option<ClientConnections>,
}

/// Each operation takes its number first. What it comes to, also with bad input, comes through
/// [`Completions`]; nothing throws.
#[napi]
impl NativeBackend {
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
    /// cancelled, the key, the TTL in milliseconds, and what else is asked for.
    #[napi]
    #[allow(
        clippy::type_complexity,
        reason = "TypeScript's types are made from what stands here, and know no aliases"
    )]
    pub fn acquire<'env>(
        &self,
        env: &'env Env,
    ) -> napi::Result<
        Function<'env, FnArgs<(u32, bool, String, f64, Option<AcquireOptions<'env>>)>, ()>,
    > {
        let operations = self.operations.clone();
        env.create_function_from_closure("acquire", move |call| {
            let (number, cancellable): (u32, bool) = (call.get(0)?, call.get(1)?);
            let (key, ttl_ms): (String, f64) = (call.get(2)?, call.get(3)?);
            let options: Option<AcquireOptions<'_>> = call.get(4)?;
            let AcquireOptions {
                claims,
                labels,
                due,
                waiting,
                hold,
            } = options.unwrap_or_default();
            let request = || {
                let ttl = Ttl::from_f64(ttl_ms)?;
                let mut request = match claims {
                    None => AcquireRequest::new(Key::new(&key)?, ttl)?,
                    Some(claims) => {
                        let claims = claims.into_iter().map(ClaimSettings::into_claims);
                        let claims: Vec<_> = claims.collect::<Result<_, _>>()?;
                        AcquireRequest::of(claims.into_iter().flatten(), ttl)?
                    }
                };
                if let Some(labels) = labels {
                    request.labels = Labels::default();
                    for (name, text) in labels {
                        if let Some(text) = text {
                            request.labels.set(&name, text)?;
                        }
                    }
                }
                request.due = due.as_deref().map(Due::new).transpose()?;
                if let Some(hold) = hold {
                    let hold = operations.hold(hold, request.ttl)?;
                    request.hold = Some(Box::new(hold));
                }
                Ok(request)
            };
            match waiting {
                None => {
                    let operation = request().map(Operation::Acquire);
                    operations.submit(call.env, number, cancellable, operation, DEFAULTS);
                }
                Some(waiting) => {
                    let request = request().and_then(|request| Ok((request, policy(&waiting)?)));
                    operations.wait(call.env, number, cancellable, request);
                }
            }
            Ok(())
        })
    }

    /// Lets all who wait for a lock of this backend fail, and those who come later.
    #[napi]
    pub fn refuse_waiters(&self) {
        let message = "the backend grants no more locks";
        let error = Error::new(ErrorKind::Aborted, message);
        self.operations.backend.work().refuse_waiters(error);
    }

    /// Calls JavaScript's client of that number whenever another server may keep the locks from now on. Only the first one counts.
    #[napi]
    pub fn when_another_server(&self, client: u32) {
        self.operations.when_another_server(client);
    }

    /// The user's client has lost a connection, or has one again.
    #[napi]
    pub fn client_is_connected(&self, is_connected: bool) {
        if let (Some(client), Ok(runtime)) = (self.client.clone(), io_thread::runtime()) {
            runtime.spawn(async move {
                match is_connected {
                    true => client.made(),
                    false => client.lost(),
                }
            });
        }
    }

    /// A function for the reason of [`acquire`](Self::acquire). Its arguments are the operation's number,
    /// whether it can be cancelled, the lock id, for how many milliseconds the lock can last (so long a release that has failed goes
    /// on in the background), and the key as it was granted, for those of this process who wait for it.
    #[napi]
    #[allow(
        clippy::type_complexity,
        reason = "TypeScript's types are made from what stands here, and know no aliases"
    )]
    pub fn release<'env>(
        &self,
        env: &'env Env,
    ) -> napi::Result<Function<'env, FnArgs<(u32, bool, String, Option<f64>, Option<String>)>, ()>>
    {
        let operations = self.operations.clone();
        env.create_function_from_closure("release", move |call| {
            let (number, cancellable, lock_id, lasts_ms, key) =
                call.args::<(u32, bool, String, Option<f64>, Option<String>)>()?;
            let lock_id = LockId::parse(&lock_id);
            let operation = lock_id.map(|lock_id| Operation::Release([lock_id].into()));
            let options = CallOptions {
                lasts: lasts_ms.and_then(|ms| Ttl::from_f64(ms).ok()),
                keys: stored(key),
                ..DEFAULTS
            };
            operations.submit(call.env, number, cancellable, operation, options);
            Ok(())
        })
    }

    /// Releases locks: several, or such as are to be held for longer.
    #[napi]
    #[allow(clippy::too_many_arguments, reason = "each is one of JavaScript's")]
    pub fn release_set(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        ids: Vec<String>,
        how: ReleaseSettings,
    ) {
        let request = lock_ids(&ids).map(|ids| Operation::Release(ids.into()));
        let held_for = how.hold_ms.and_then(|ms| timeout(ms, "holdMs").ok());
        let options = CallOptions {
            lasts: how.lasts_ms.and_then(|ms| Ttl::from_f64(ms).ok()),
            hold_until: held_for.map(|held_for| syncguard::lock_time() + held_for),
            keys: stored(how.keys),
            ..DEFAULTS
        };
        self.operations
            .submit(&env, operation, cancellable, request, options);
    }

    /// Sends no more heartbeats for these locks, which somebody releases through another backend. Others that were granted together
    /// with them go on.
    #[napi]
    pub fn stop_heartbeats(&self, ids: Vec<String>) {
        if let Ok(ids) = lock_ids(&ids) {
            self.operations.backend.work().stop_heartbeats(&ids);
        }
    }

    /// Releases the lock on `key`, and stores in the same step that something is done for a period. `lasts_ms` is as for a
    /// release.
    #[napi]
    #[allow(clippy::too_many_arguments, reason = "each is one of JavaScript's")]
    pub fn finish(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        lock_id: String,
        lasts_ms: Option<f64>,
        key: String,
        due: String,
    ) {
        let request = || {
            let done = finish(&key, &due)?;
            let key = done.key.clone();
            let request = ReleaseRequest {
                done: Some(done),
                ..ReleaseRequest::from([LockId::parse(&lock_id)?])
            };
            Ok((Operation::Release(request), Batch::from([key])))
        };
        let (request, keys) = match request() {
            Ok((request, keys)) => (Ok(request), keys),
            Err(error) => (Err(error), Batch::new()),
        };
        let options = CallOptions {
            lasts: lasts_ms.and_then(|ms| Ttl::from_f64(ms).ok()),
            keys,
            ..DEFAULTS
        };
        self.operations
            .submit(&env, operation, cancellable, request, options);
    }

    /// For which period of the key something was done last, as a text with JSON. What is stored becomes `due`, or nothing if
    /// that is empty.
    #[napi]
    #[allow(clippy::too_many_arguments, reason = "each is one of JavaScript's")]
    pub fn mark(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        key: String,
        due: Option<String>,
    ) {
        let request = || {
            let change = match due.as_deref() {
                None => MarkChange::Keep,
                Some("") => MarkChange::Clear,
                Some(due) => MarkChange::Set(Due::new(due)?),
            };
            let key = Key::new(&key)?;
            Ok(Operation::Mark { key, change })
        };
        self.operations
            .submit(&env, operation, cancellable, request(), DEFAULTS);
    }

    #[napi]
    #[allow(clippy::too_many_arguments, reason = "each is one of JavaScript's")]
    pub fn extend(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        ids: Vec<String>,
        ttl_ms: f64,
    ) {
        let request = || {
            let extension = Extension::new(lock_ids(&ids)?, Ttl::from_f64(ttl_ms)?);
            Ok(Operation::Extend(extension))
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

    /// Some of the live locks, from after a cursor on: a text with the JSON of a page.
    #[napi]
    #[allow(clippy::too_many_arguments, reason = "each is one of JavaScript's")]
    pub fn list(
        &self,
        env: Env,
        operation: u32,
        cancellable: bool,
        after: Option<String>,
        limit: u32,
    ) {
        let limit = limit as usize;
        let request = Ok(Operation::List(PageRequest { after, limit }));
        self.operations
            .submit(&env, operation, cancellable, request, DEFAULTS);
    }

    /// How the store is set up: a text with the JSON of facts by name, for each node.
    #[napi]
    pub fn facts(&self, env: Env, operation: u32, cancellable: bool) {
        let request = Ok(Operation::Facts);
        self.operations
            .submit(&env, operation, cancellable, request, DEFAULTS);
    }

    /// Runs a script only if locks are held: a text with the JSON of its reply.
    #[napi]
    pub fn eval(&self, env: Env, operation: u32, cancellable: bool, script: ScriptSettings) {
        let request = script.into_eval().map(Operation::Eval);
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

    /// Watches the lock on `key`; nothing if the store cannot tell.
    #[napi]
    pub fn watch(&self, key: String) -> Option<NativeWatch> {
        let claim = Claim::new(Key::new(&key).ok()?).ok()?;
        let watch = self.operations.backend.watch(&claim)?;
        Some(NativeWatch {
            watch: Arc::new(watch),
            operations: self.operations.clone(),
        })
    }

    pub(crate) fn of(backend: impl Backend, completions: &Completions) -> Self {
        Self {
            operations: Operations::new(Arc::new(backend), completions, false),
            postgres: None,
            client: None,
        }
    }
}

/// Keys as they were granted.
fn stored(keys: impl IntoIterator<Item = String>) -> Batch<Key> {
    let keys = keys.into_iter();
    keys.filter_map(|key| Key::stored(&key).ok()).collect()
}

const DEFAULTS: CallOptions = CallOptions::DEFAULT;
