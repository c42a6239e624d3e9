//! The core's pure functions and constants.

use napi_derive::napi;
use syncguard::{
    Due, ErrorKind, Fence, KeySpace, Labels, LockId, MAX_CLAIMS, MAX_KEY_LENGTH_BYTES, MAX_SLOTS,
    Owner, TIME_TOLERANCE_MS, Ttl, firestore, is_live as core_is_live,
    make_storage_key as core_storage_key, postgres, redis, redis_server_time_ms as core_redis_time,
};

use crate::answers::completion::WIDTH;
use crate::convert::error::{Code, thrown};
use crate::convert::policy::{backoff_name, jitter_name};

type Result<T> = napi::Result<T, Code>;

/// The core's constants for TypeScript. The build writes the values of `constants` into `native/constants.ts`, so that
/// they are there without a call.
#[napi(object, object_from_js = false)]
pub struct Constants {
    pub version: String,
    pub time_tolerance_ms: f64,
    pub max_key_length_bytes: u32,
    pub lock_id_length: u32,
    pub max_claims: u32,
    pub max_slots: u32,
    pub fence_digits: u32,
    pub fence_max: String,
    pub fence_warn: String,
    pub default_ttl_ms: f64,
    pub max_ttl_ms: f64,
    /// The labels that can be stored with a lock.
    pub label_names: Vec<String>,
    pub max_label_bytes: u32,
    pub max_due_length: u32,
    pub max_due_digits: u32,
    /// How `lock()` waits by default.
    pub retry: RetryPolicy,
    /// The longest wait of `backend.lock()` between two attempts, by default.
    pub max_retry_delay_ms: f64,
    pub storage_keys: StorageKeys,
    /// The codes of errors.
    pub error_codes: Vec<String>,
    /// How many numbers `Completions` writes for each finished operation.
    pub completion_width: u32,
}

/// How long and how often to try. Times in milliseconds.
#[napi(object, object_from_js = false)]
pub struct RetryPolicy {
    pub max_retries: f64,
    pub retry_delay_ms: f64,
    pub timeout_ms: f64,
    pub backoff: String,
    pub jitter: String,
}

#[napi(object, object_from_js = false)]
pub struct StorageKeys {
    pub redis: StorageKeyLimits,
    pub postgres: StorageKeyLimits,
    pub firestore: StorageKeyLimits,
}

#[napi(object, object_from_js = false)]
pub struct StorageKeyLimits {
    /// The longest name that the store accepts, in bytes.
    pub limit_bytes: u32,
    /// How many bytes of that are reserved for derived names.
    pub reserve_bytes: u32,
}

impl From<KeySpace<'_>> for StorageKeyLimits {
    fn from(keys: KeySpace<'_>) -> Self {
        Self {
            limit_bytes: keys.limit_bytes as u32,
            reserve_bytes: keys.reserve_bytes as u32,
        }
    }
}

#[napi]
pub fn constants() -> Constants {
    let retry = syncguard::RetryPolicy::of_typescript_2();
    Constants {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time_tolerance_ms: TIME_TOLERANCE_MS as f64,
        max_key_length_bytes: MAX_KEY_LENGTH_BYTES as u32,
        lock_id_length: LockId::LENGTH as u32,
        max_claims: MAX_CLAIMS as u32,
        max_slots: u32::from(MAX_SLOTS),
        fence_digits: Fence::DIGITS as u32,
        fence_max: Fence::MAX.to_string(),
        fence_warn: Fence::WARN.to_string(),
        default_ttl_ms: Ttl::DEFAULT.as_millis() as f64,
        max_ttl_ms: Ttl::MAX_MS as f64,
        label_names: Labels::NAMES.map(str::to_owned).to_vec(),
        max_label_bytes: Owner::MAX_BYTES as u32,
        max_due_length: Due::MAX_LENGTH as u32,
        max_due_digits: Due::DIGITS as u32,
        retry: RetryPolicy {
            max_retries: retry.max_retries,
            retry_delay_ms: retry.retry_delay_ms,
            timeout_ms: retry.timeout_ms,
            backoff: backoff_name(retry.backoff).to_owned(),
            jitter: jitter_name(retry.jitter).to_owned(),
        },
        max_retry_delay_ms: syncguard::RetryPolicy::default().max_retry_delay_ms,
        storage_keys: StorageKeys {
            redis: redis::KEYS.into(),
            postgres: postgres::KEYS.into(),
            firestore: firestore::KEYS.into(),
        },
        error_codes: ErrorKind::ALL.map(|kind| kind.to_string()).to_vec(),
        completion_width: WIDTH as u32,
    }
}

#[napi]
pub fn make_storage_key(
    prefix: String,
    key: String,
    limit_bytes: f64,
    reserve_bytes: f64,
) -> Result<String> {
    let bytes = |number: f64, field: &str| {
        if number >= 0.0 && number.fract() == 0.0 && number <= f64::from(u32::MAX) {
            Ok(number as usize)
        } else {
            Err(thrown(syncguard::Error::invalid(format!(
                "{field} must be a non-negative integer"
            ))))
        }
    };
    let limit = bytes(limit_bytes, "limitBytes")?;
    let reserve = bytes(reserve_bytes, "reserveBytes")?;
    core_storage_key(&prefix, &key, limit, reserve).map_err(thrown)
}

#[napi]
pub fn is_live(expires_at_ms: f64, now_ms: f64, tolerance_ms: f64) -> bool {
    core_is_live(expires_at_ms, now_ms, tolerance_ms)
}

#[napi]
pub fn redis_server_time_ms(seconds: f64, microseconds: f64) -> f64 {
    if seconds.is_finite() && microseconds.is_finite() {
        core_redis_time(seconds as i64, microseconds as i64) as f64
    } else {
        f64::NAN
    }
}
