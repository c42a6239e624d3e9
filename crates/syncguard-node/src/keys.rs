//! The core's pure functions and constants.

use napi::bindgen_prelude::Utf16String;
use napi_derive::napi;
use syncguard::{
    Fence, Key, LockId, MAX_KEY_LENGTH_BYTES, Owner, TIME_TOLERANCE_MS, Ttl,
    format_fence as core_format, hash_key_utf16, is_live as core_is_live,
    make_storage_key as core_storage_key, redis_server_time_ms as core_redis_time,
};

use crate::error::{Code, thrown};

type Result<T> = napi::Result<T, Code>;

#[napi(object)]
pub struct Constants {
    pub time_tolerance_ms: f64,
    pub max_key_length_bytes: f64,
    pub fence_max: String,
    pub fence_warn: String,
    pub default_ttl_ms: f64,
}

#[napi]
pub fn constants() -> Constants {
    Constants {
        time_tolerance_ms: TIME_TOLERANCE_MS as f64,
        max_key_length_bytes: MAX_KEY_LENGTH_BYTES as f64,
        fence_max: Fence::MAX.to_string(),
        fence_warn: Fence::WARN.to_string(),
        default_ttl_ms: Ttl::DEFAULT.as_millis() as f64,
    }
}

#[napi]
pub fn normalize_key(key: String) -> Result<String> {
    let key = Key::new(&key).map_err(thrown)?;
    Ok(key.as_str().to_owned())
}

#[napi]
pub fn validate_lock_id(lock_id: String) -> Result<()> {
    LockId::parse(&lock_id).map_err(thrown)?;
    Ok(())
}

#[napi]
pub fn validate_ttl(ttl_ms: f64) -> Result<()> {
    Ttl::from_f64(ttl_ms).map_err(thrown)?;
    Ok(())
}

#[napi]
pub fn validate_owner(owner: String) -> Result<()> {
    Owner::new(owner).map_err(thrown)?;
    Ok(())
}

#[napi]
pub fn generate_lock_id() -> Result<String> {
    let lock_id = LockId::generate().map_err(thrown)?;
    Ok(lock_id.as_str().to_owned())
}

#[napi]
pub fn hash_key(text: Utf16String) -> String {
    hash_key_utf16(&text)
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
pub fn format_fence(decimal: String) -> Result<String> {
    core_format(&decimal).map_err(thrown)
}

#[napi]
pub fn is_fence_near_limit(fence: String) -> bool {
    Fence::parse(&fence).is_ok_and(Fence::is_near_limit)
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
