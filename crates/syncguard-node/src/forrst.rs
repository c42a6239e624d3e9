//! The rules of the Forrst extension, for requests that JavaScript serves.

use napi_derive::napi;
use serde::Serialize;
use serde_json::Value;
use syncguard::forrst::{
    AcquiredData, ErrorCode, FORCE_RELEASE_URN, ForceReleaseResult, ForrstError, KeyArgument,
    Options, RELEASE_URN, RefusedData, ReleaseArguments, STATUS_URN, StatusResult, URN,
    outcome_of_release, owns,
};
use syncguard::{Absence, Error, ErrorKind, Owner, ReleaseOutcome};

use crate::acquisition::{backoff_name, jitter_name};

/// An error of a function here: the kind of a core error, or [`REFUSED`].
pub struct ForrstCode(&'static str);

/// The message is an error of the extension, in JSON.
const REFUSED: &str = "ForrstError";

impl AsRef<str> for ForrstCode {
    fn as_ref(&self) -> &str {
        self.0
    }
}

type Result<T> = napi::Result<T, ForrstCode>;

#[napi(object)]
pub struct ForrstConstants {
    pub urn: String,
    pub release: String,
    pub force_release: String,
    pub status: String,
    pub retryable: Vec<String>,
    pub codes: Vec<String>,
}

#[napi]
pub fn forrst_constants() -> ForrstConstants {
    let names = |codes: &mut dyn Iterator<Item = ErrorCode>| {
        codes.map(|code| code.as_str().to_owned()).collect()
    };
    ForrstConstants {
        urn: URN.to_owned(),
        release: RELEASE_URN.to_owned(),
        force_release: FORCE_RELEASE_URN.to_owned(),
        status: STATUS_URN.to_owned(),
        retryable: names(
            &mut ErrorCode::ALL
                .into_iter()
                .filter(|code| code.is_retryable()),
        ),
        codes: names(&mut ErrorCode::ALL.into_iter()),
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

/// The extension's options in one request. Everything that it gives as text is JSON.
#[napi]
pub struct ForrstOptions {
    options: Options,
    owner: Owner,
}

#[napi]
impl ForrstOptions {
    #[napi(constructor)]
    pub fn new(function: String, json: String) -> Result<Self> {
        let options = Options::parse(&function, &value(&json, "options")?).map_err(refused)?;
        let owner = options.owner_or_new().map_err(failed)?;
        Ok(Self { options, owner })
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

    /// Throws what to answer when the lock stayed held.
    #[napi]
    pub fn contention(&self) -> Result<()> {
        Err(refused(self.options.contention()))
    }

    /// The extension's data beside that error, if there are any.
    #[napi]
    pub fn refused_data(&self) -> Result<String> {
        json(&RefusedData::of(&self.options))
    }
}

#[napi]
pub fn forrst_key_argument(arguments: String) -> Result<String> {
    let key = KeyArgument::parse(&value(&arguments, "arguments")?).map_err(refused)?;
    Ok(key.as_str().to_owned())
}

#[napi(object)]
pub struct ForrstReleaseArguments {
    pub key: String,
    pub owner: String,
}

#[napi]
pub fn forrst_release_arguments(arguments: String) -> Result<ForrstReleaseArguments> {
    let parsed = ReleaseArguments::parse(&value(&arguments, "arguments")?).map_err(refused)?;
    Ok(ForrstReleaseArguments {
        key: parsed.key.as_str().to_owned(),
        owner: parsed.owner.as_str().to_owned(),
    })
}

#[napi]
pub fn forrst_owns(stored: Option<String>, claimed: String) -> bool {
    owns(stored.as_deref(), &claimed)
}

/// `absent`: why there was nothing to release, if there was not.
#[napi]
pub fn forrst_release_result(key: String, absent: Option<String>) -> Result<String> {
    let outcome = match absent.as_deref() {
        None => ReleaseOutcome::Released,
        Some("expired") => ReleaseOutcome::Absent(Absence::Expired),
        Some(_) => ReleaseOutcome::Absent(Absence::NotFound),
    };
    json(&outcome_of_release(&key, outcome).map_err(refused)?)
}

#[napi]
pub fn forrst_force_release_result(key: String, released: bool) -> Result<String> {
    if released {
        json(&ForceReleaseResult::new(&key))
    } else {
        Err(refused(ForrstError::not_found(&key)))
    }
}

#[napi]
pub fn forrst_status_free(key: String) -> Result<String> {
    json(&StatusResult::free(&key))
}

#[napi]
pub fn forrst_status_held(
    key: String,
    owner: Option<String>,
    acquired_at_ms: f64,
    expires_at_ms: f64,
    read_at_ms: f64,
) -> Result<String> {
    let [acquired, expires, read] = [acquired_at_ms, expires_at_ms, read_at_ms].map(|ms| ms as i64);
    json(&StatusResult::held(
        &key,
        owner.as_deref(),
        acquired,
        expires,
        read,
    ))
}

/// Throws the error that a lock is another's.
#[napi]
pub fn forrst_mismatch(key: String) -> Result<()> {
    Err(refused(ForrstError::ownership_mismatch(&key)))
}

/// Throws the error that there is no such lock.
#[napi]
pub fn forrst_not_found(key: String) -> Result<()> {
    Err(refused(ForrstError::not_found(&key)))
}

/// Throws the error that a release may not be forced.
#[napi]
pub fn forrst_forbidden(key: String) -> Result<()> {
    Err(refused(ForrstError::forbidden(&key)))
}

/// Throws the error that a request is malformed.
#[napi]
pub fn forrst_invalid_request(field: String, what: String) -> Result<()> {
    Err(refused(ForrstError::invalid_request(&field, &what)))
}

/// What JavaScript hands over as JSON. It can hold what is no Unicode text, or be too deep.
fn value(json: &str, field: &str) -> Result<Value> {
    serde_json::from_str(json)
        .map_err(|_| refused(ForrstError::invalid(field, "must be Unicode JSON")))
}

fn json(answer: &impl Serialize) -> Result<String> {
    serde_json::to_string(answer).map_err(|error| {
        failed(Error::new(ErrorKind::Internal, "an answer cannot be written").with_source(error))
    })
}

fn refused(error: ForrstError) -> napi::Error<ForrstCode> {
    match json(&error) {
        Ok(text) => napi::Error::new(ForrstCode(REFUSED), text),
        Err(error) => error,
    }
}

fn failed(error: Error) -> napi::Error<ForrstCode> {
    napi::Error::new(ForrstCode(error.kind().as_str()), error.message())
}
