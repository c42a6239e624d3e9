//! The options of the extension in a request.

use std::fmt;
use std::time::Duration as Length;

use serde_json::{Map, Value};

use super::duration::{Duration, Unit};
use super::error::{Details, ErrorCode, ForrstError};
use super::owner::{generate_owner, label_of};
use super::scope::Scope;
use syncguard::Error;
use syncguard::{Backoff, Jitter, RetryPolicy};
use syncguard::{Key, MAX_KEY_LENGTH_BYTES};
use syncguard::{Owner, Ttl};

/// Milliseconds between two attempts of a request that waits. Jitter takes off up to half of it. The pause does not grow,
/// so that a request that waits for long still notices promptly when the lock is released.
const RETRY_DELAY_MS: f64 = 100.0;

/// The options of the extension, checked.
#[derive(Clone)]
pub struct Options {
    /// The key as the request gave it.
    pub key: String,
    /// The key of the lock.
    pub full_key: Key,
    /// Which functions share the key.
    pub scope: Scope,
    /// How long the lock lasts.
    pub ttl: Ttl,
    /// How long to wait for the lock; `None` for one attempt.
    pub block: Option<Duration>,
    /// Who may release it from another process; `None` to generate a token.
    pub owner: Option<Owner>,
    /// Whether the server releases it when the function has ended.
    pub auto_release: bool,
}

impl Options {
    /// Reads the options of a request that calls `function`.
    ///
    /// Refuses unknown members: if an option that is misspelt, or unknown to this version, were ignored, the lock would
    /// not protect as its user expects.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` that names the option.
    pub fn parse(function: &str, json: &Value) -> Result<Self, ForrstError> {
        let members = json
            .as_object()
            .ok_or_else(|| ForrstError::invalid("options", "must be an object"))?;
        if let Some(unknown) = members.keys().find(|name| !is_option(name)) {
            return Err(ForrstError::unknown_member("", unknown));
        }
        let key = key(members)?;
        let scope = scope(members)?;
        let ttl = Duration::parse("ttl", members.get("ttl").unwrap_or(&Value::Null))?;
        Ok(Self {
            full_key: full_key(scope, function, &key)?,
            key,
            scope,
            ttl: Ttl::from_duration(Length::from_millis(ttl.as_millis().unsigned_abs()))
                .map_err(|_| ForrstError::invalid("ttl.value", "is out of range"))?,
            block: members
                .get("block")
                .map(|json| Duration::parse("block", json))
                .transpose()?,
            owner: members.get("owner").map(owner).transpose()?,
            auto_release: members.get("auto_release").map_or(Ok(true), |json| {
                json.as_bool()
                    .ok_or_else(|| ForrstError::invalid("auto_release", "must be a boolean"))
            })?,
        })
    }

    /// The owner of the lock: the one given, else a new UUID.
    ///
    /// # Errors
    /// As [`generate_owner`].
    pub fn owner_or_new(&self) -> Result<Owner, Error> {
        self.owner.clone().map_or_else(generate_owner, Ok)
    }

    /// How to try: once without `block`, else at short intervals until that time has passed.
    pub fn retry_policy(&self) -> RetryPolicy {
        let policy = RetryPolicy {
            retry_delay_ms: RETRY_DELAY_MS,
            backoff: Backoff::Fixed,
            jitter: Jitter::Equal,
            ..RetryPolicy::default()
        };
        match self.block {
            None => RetryPolicy {
                max_retries: 0.0,
                ..policy
            },
            Some(block) => RetryPolicy {
                max_retries: f64::INFINITY,
                timeout_ms: block.as_millis() as f64,
                ..policy
            },
        }
    }

    /// The error for a lock that others kept: `LOCK_ACQUISITION_FAILED`, or `LOCK_TIMEOUT` after waiting.
    pub fn contention(&self) -> ForrstError {
        let (code, message) = match self.block {
            None => (
                ErrorCode::LockAcquisitionFailed,
                "Unable to acquire lock".to_owned(),
            ),
            Some(block) => (
                ErrorCode::LockTimeout,
                format!("Lock acquisition timed out after {}", block.in_words()),
            ),
        };
        ForrstError {
            code,
            message,
            details: Some(Details::Acquisition {
                key: self.key.clone(),
                scope: self.scope,
                full_key: self.full_key.as_str().to_owned(),
                waited: self.block,
            }),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("full_key", &self.full_key)
            .field("scope", &self.scope)
            .field("ttl", &self.ttl)
            .field("block", &self.block)
            .field("owner", &self.owner)
            .field("auto_release", &self.auto_release)
            .finish_non_exhaustive()
    }
}

fn is_option(name: &str) -> bool {
    matches!(
        name,
        "key" | "ttl" | "scope" | "block" | "owner" | "auto_release"
    )
}

fn key(members: &Map<String, Value>) -> Result<String, ForrstError> {
    match members.get("key") {
        Some(Value::String(key)) if !key.is_empty() => Ok(key.clone()),
        _ => Err(ForrstError::invalid("key", "must be a non-empty string")),
    }
}

fn scope(members: &Map<String, Value>) -> Result<Scope, ForrstError> {
    match members.get("scope") {
        None => Ok(Scope::Function),
        Some(json) => [Scope::Function, Scope::Global]
            .into_iter()
            .find(|scope| json.as_str() == Some(scope.as_str()))
            .ok_or_else(|| ForrstError::invalid("scope", "must be \"function\" or \"global\"")),
    }
}

fn full_key(scope: Scope, function: &str, key: &str) -> Result<Key, ForrstError> {
    let text = match scope {
        Scope::Function if function.is_empty() => {
            return Err(ForrstError::invalid_request(
                "call.function",
                "must be a non-empty string",
            ));
        }
        Scope::Function => format!("lock:{function}:{key}"),
        Scope::Global => format!("lock:{key}"),
    };
    checked_key(&text)
}

/// Checks that every store can keep this full key.
pub(super) fn checked_key(text: &str) -> Result<Key, ForrstError> {
    if text.contains('\0') {
        return Err(ForrstError::invalid("key", "must not contain U+0000"));
    }
    Key::new(text).map_err(|_| {
        ForrstError::invalid(
            "key",
            &format!("is too long: with its prefix it may have {MAX_KEY_LENGTH_BYTES} bytes"),
        )
    })
}

/// The owner that a request gives.
pub(super) fn owner(json: &Value) -> Result<Owner, ForrstError> {
    json.as_str()
        .and_then(|text| Owner::new(text).ok())
        .filter(|token| label_of(token).is_ok())
        .ok_or_else(|| {
            ForrstError::invalid(
                "owner",
                &format!("must be a string of 1 to {} bytes", Owner::MAX_BYTES),
            )
        })
}

impl Duration {
    /// Reads the option `field`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` that names the field.
    pub fn parse(field: &str, json: &Value) -> Result<Self, ForrstError> {
        let members = json.as_object().ok_or_else(|| {
            ForrstError::invalid(field, "must be an object with a value and a unit")
        })?;
        if let Some(unknown) = members.keys().find(|name| !is_member(name)) {
            return Err(ForrstError::unknown_member(field, unknown));
        }
        let unit_field = format!("{field}.unit");
        let unit = members
            .get("unit")
            .and_then(Value::as_str)
            .and_then(|name| Unit::ALL.into_iter().find(|unit| unit.as_str() == name))
            .ok_or_else(|| {
                ForrstError::invalid(
                    &unit_field,
                    "must be \"millisecond\", \"second\", \"minute\", \"hour\" or \"day\"",
                )
            })?;
        let value_field = format!("{field}.value");
        let value = members
            .get("value")
            .and_then(whole_number)
            .filter(|value| *value >= 1.0)
            .ok_or_else(|| ForrstError::invalid(&value_field, "must be a positive whole number"))?;
        if value * unit.as_millis() as f64 > Self::MAX_MS as f64 {
            return Err(ForrstError::invalid(
                &value_field,
                "is too large: the longest duration is 36525 days",
            ));
        }
        // Exact: whole, and far below 2^53.
        let value = value as i64;
        Ok(Self { value, unit })
    }
}

/// A JSON number without a fractional part: `30`, and `30.0` too, which is the same in JSON.
fn whole_number(json: &Value) -> Option<f64> {
    json.as_f64().filter(|number| number.fract() == 0.0)
}

fn is_member(name: &str) -> bool {
    name == "value" || name == "unit"
}

#[cfg(test)]
mod tests;
