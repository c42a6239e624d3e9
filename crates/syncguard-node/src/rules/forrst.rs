//! The rules of the Forrst extension, for servers in JavaScript.

use std::sync::{Arc, OnceLock};

use napi::Env;
use napi_derive::napi;
use serde::Serialize;
use serde_json::Value;
use syncguard::{Absence, Error, ErrorKind, Owner, ReleaseOutcome};
use syncguard_forrst::{
    AcquiredData, FORCE_RELEASE_URN, Failure, ForceReleaseResult, ForrstError, KeyArgument,
    Options, RELEASE_URN, RefusedData, ReleaseArguments, ReleaseResult, STATUS_URN, StatusResult,
    URN, label_of, release,
};

use crate::answers::completion::Completion;
use crate::calls::backend::NativeBackend;
use crate::convert::policy::{backoff_name, jitter_name};

/// An error of a function here: the kind of a core error, or [`REFUSED`].
pub struct ForrstCode(&'static str);

/// The message is a [`Refusal`] in JSON.
const REFUSED: &str = "ForrstError";

impl AsRef<str> for ForrstCode {
    fn as_ref(&self) -> &str {
        self.0
    }
}

type Result<T> = napi::Result<T, ForrstCode>;

#[napi(object)]
pub struct ForrstUrns {
    pub urn: String,
    pub release: String,
    pub force_release: String,
    pub status: String,
}

#[napi]
pub fn forrst_urns() -> ForrstUrns {
    ForrstUrns {
        urn: URN.to_owned(),
        release: RELEASE_URN.to_owned(),
        force_release: FORCE_RELEASE_URN.to_owned(),
        status: STATUS_URN.to_owned(),
    }
}

#[napi(object)]
pub struct ForrstWaiting {
    pub max_retries: f64,
    pub retry_delay_ms: f64,
    pub backoff: String,
    pub jitter: String,
    pub timeout_ms: f64,
}

/// The extension's options in one request. `acquired` gives JSON.
#[napi]
pub struct ForrstOptions {
    options: Options,
    owner: Owner,
    label: Owner,
}

#[napi]
impl ForrstOptions {
    #[napi(constructor)]
    pub fn new(function: String, json: String) -> Result<Self> {
        let options = Options::parse(&function, &value(&json, "options")?).map_err(refused)?;
        let owner = options.owner_or_new().map_err(failed)?;
        let label = label_of(&owner).map_err(failed)?;
        Ok(Self {
            options,
            owner,
            label,
        })
    }

    #[napi(getter)]
    pub fn full_key(&self) -> String {
        self.options.full_key.as_str().to_owned()
    }

    #[napi(getter)]
    pub fn ttl_ms(&self) -> f64 {
        self.options.ttl.as_millis() as f64
    }

    #[napi(getter)]
    pub fn owner(&self) -> String {
        self.owner.as_str().to_owned()
    }

    /// What is stored as the lock's owner.
    #[napi(getter)]
    pub fn label(&self) -> String {
        self.label.as_str().to_owned()
    }

    #[napi(getter)]
    pub fn auto_release(&self) -> bool {
        self.options.auto_release
    }

    #[napi(getter)]
    pub fn waiting(&self) -> ForrstWaiting {
        let policy = self.options.retry_policy();
        ForrstWaiting {
            max_retries: policy.max_retries,
            retry_delay_ms: policy.retry_delay_ms,
            backoff: backoff_name(policy.backoff).to_owned(),
            jitter: jitter_name(policy.jitter).to_owned(),
            timeout_ms: policy.timeout_ms,
        }
    }

    #[napi]
    pub fn acquired(&self, expires_at_ms: f64, lost: bool) -> Result<String> {
        let expires_at_ms = expires_at_ms as i64;
        json(&AcquiredData::new(
            &self.options,
            &self.owner,
            expires_at_ms,
            lost,
        ))
    }

    /// Throws the error for a lock that others kept.
    #[napi(ts_return_type = "never")]
    pub fn contention(&self) -> Result<()> {
        Err(refused_with(
            self.options.contention(),
            RefusedData::of(&self.options),
        ))
    }
}

/// A call of the release function.
///
/// `start` does all of it on the I/O thread, and `answer` then gives the result. If JavaScript has wrapped the
/// backend, for example for telemetry, the wrapper has to see each step. Then JavaScript does the steps:
/// `check_owner` checks what the lookup has found, and `released` gives the result of the release. Either way, the
/// same functions of the core decide.
#[napi]
pub struct ForrstRelease {
    arguments: ReleaseArguments,
    answer: Arc<OnceLock<Answer>>,
}

type Answer = std::result::Result<ReleaseResult, ForrstError>;

#[napi]
impl ForrstRelease {
    #[napi(constructor)]
    pub fn new(arguments: String) -> Result<Self> {
        let parsed = ReleaseArguments::parse(&value(&arguments, "arguments")?).map_err(refused)?;
        Ok(Self {
            arguments: parsed,
            answer: Arc::default(),
        })
    }

    #[napi(getter)]
    pub fn key(&self) -> String {
        self.arguments.key.as_str().to_owned()
    }

    /// Starts an operation like those of [`NativeBackend`]. It fails only if the store fails: a refusal is in `answer`.
    #[napi]
    pub fn start(&self, env: Env, backend: &NativeBackend, operation: u32, cancellable: bool) {
        let (arguments, answer) = (self.arguments.clone(), Arc::clone(&self.answer));
        let store = Arc::clone(&backend.operations.backend);
        let start = move |cancelled| async move {
            let result = match release(&store, &arguments, cancelled).await {
                Ok(released) => Ok(released),
                Err(Failure::Refused(error)) => Err(error),
                Err(Failure::Store(error)) => return Err(error),
            };
            // Cannot fail: each call is started only once.
            let _ = answer.set(result);
            Ok(Completion::Done)
        };
        backend
            .operations
            .spawn(&env, operation, cancellable, start);
    }

    /// The result, once the operation has ended. Throws the error to answer with if nothing was released.
    #[napi]
    pub fn answer(&self) -> Result<String> {
        match self.answer.get() {
            Some(Ok(released)) => json(released),
            Some(Err(error)) => Err(refused(error.clone())),
            None => Err(failed(Error::new(
                ErrorKind::Internal,
                "the release has not ended",
            ))),
        }
    }

    /// Throws the error to answer with if the caller may not release the lock that was found.
    #[napi]
    pub fn check_owner(&self, found: Option<ForrstFound>) -> Result<()> {
        self.arguments
            .owned(found, |lock| lock.owner.as_deref())
            .map(drop)
            .map_err(refused)
    }

    /// The result of the release. If there was nothing to release, `absent` says why.
    #[napi]
    pub fn released(&self, absent: Option<String>) -> Result<String> {
        let outcome = match absent.as_deref() {
            None => ReleaseOutcome::Released,
            Some("expired") => ReleaseOutcome::Absent(Absence::Expired),
            Some(_) => ReleaseOutcome::Absent(Absence::NotFound),
        };
        json(&ReleaseResult::of(self.arguments.key.as_str(), outcome).map_err(refused)?)
    }
}

/// What the functions need to know about a lock that somebody holds.
#[napi(object)]
pub struct ForrstFound {
    pub owner: Option<String>,
    pub acquired_at_ms: f64,
    pub expires_at_ms: f64,
    pub read_at_ms: f64,
}

/// Checks the arguments of a function that takes only a key. Gives the key.
#[napi]
pub fn forrst_key_argument(arguments: String) -> Result<String> {
    let key = KeyArgument::parse(&value(&arguments, "arguments")?).map_err(refused)?;
    Ok(key.as_str().to_owned())
}

#[napi]
pub fn forrst_force_release_result(key: String, released: bool) -> Result<String> {
    json(&ForceReleaseResult::of(&key, released).map_err(refused)?)
}

#[napi]
pub fn forrst_status_result(key: String, found: Option<ForrstFound>) -> Result<String> {
    json(&match found {
        None => StatusResult::free(&key),
        Some(found) => StatusResult::held(
            &key,
            found.owner.as_deref(),
            found.acquired_at_ms as i64,
            found.expires_at_ms as i64,
            found.read_at_ms as i64,
        ),
    })
}

/// Throws the error for a forced release that is not allowed.
#[napi(ts_return_type = "never")]
pub fn forrst_forbidden(key: String) -> Result<()> {
    Err(refused(ForrstError::forbidden(&key)))
}

/// Throws the error for a malformed request.
#[napi(ts_return_type = "never")]
pub fn forrst_invalid_request(field: String, what: String) -> Result<()> {
    Err(refused(ForrstError::invalid_request(&field, &what)))
}

/// Parses JSON from JavaScript. This can fail: the text may contain lone surrogates, or be nested too deeply.
fn value(json: &str, field: &str) -> Result<Value> {
    serde_json::from_str(json)
        .map_err(|_| refused(ForrstError::invalid(field, "must be Unicode JSON")))
}

fn json(answer: &impl Serialize) -> Result<String> {
    serde_json::to_string(answer).map_err(|error| {
        failed(Error::new(ErrorKind::Internal, "an answer cannot be written").with_source(error))
    })
}

/// What is thrown when a request is refused.
#[derive(Serialize)]
struct Refusal {
    error: ForrstError,
    retryable: bool,
    /// The extension's data beside the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<RefusedData>,
}

fn refused(error: ForrstError) -> napi::Error<ForrstCode> {
    refused_with(error, None)
}

fn refused_with(error: ForrstError, data: Option<RefusedData>) -> napi::Error<ForrstCode> {
    let refusal = Refusal {
        retryable: error.code.is_retryable(),
        error,
        data,
    };
    match json(&refusal) {
        Ok(text) => napi::Error::new(ForrstCode(REFUSED), text),
        Err(error) => error,
    }
}

fn failed(error: Error) -> napi::Error<ForrstCode> {
    napi::Error::new(ForrstCode(error.kind().as_str()), error.message())
}
