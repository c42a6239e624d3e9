//! Converts options from JavaScript to core types.

use std::time::Duration;

use napi_derive::napi;
use syncguard::{Batch, DefaultRoots, Due, Error, Finish, Key, LockId};

/// The authorities that Node trusts, if they are not just Mozilla's list.
#[napi(object)]
pub struct Roots {
    /// PEM certificates, one after the other.
    pub pem: String,
    /// Whether to trust Mozilla's list as well.
    pub with_mozilla: bool,
}

/// TLS settings as for Node's `tls.connect()`.
#[napi(object)]
pub struct TlsSettings {
    /// PEM.
    pub ca: Option<String>,
    /// Which authorities to trust without `ca`.
    pub default_roots: Option<Roots>,
    /// PEM.
    pub cert: Option<String>,
    /// PEM.
    pub key: Option<String>,
    pub servername: Option<String>,
    pub reject_unauthorized: Option<bool>,
}

pub(crate) fn default_roots(option: Option<Roots>) -> DefaultRoots {
    match option {
        None => DefaultRoots::Mozilla,
        Some(roots) if roots.with_mozilla => DefaultRoots::MozillaAnd(roots.pem.into_bytes()),
        Some(roots) => DefaultRoots::Only(roots.pem.into_bytes()),
    }
}

/// Milliseconds as JavaScript gives them: a positive, finite number.
pub(crate) fn timeout(ms: f64, field: &str) -> Result<Duration, Error> {
    match Duration::try_from_secs_f64(ms / 1000.0) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(Error::invalid(format!(
            "{field} must be a positive number of milliseconds"
        ))),
    }
}

/// The same, and `default` where none are given.
pub(crate) fn timeout_or(
    default: Duration,
    ms: Option<f64>,
    field: &str,
) -> Result<Duration, Error> {
    ms.map_or(Ok(default), |ms| timeout(ms, field))
}

/// A port of a server.
pub(crate) fn port(number: f64, field: &str) -> Result<u16, Error> {
    let port = whole(number, field, f64::from(u16::MAX))?;
    if port < 1.0 {
        return Err(Error::invalid(format!("{field} must be from 1 to 65535")));
    }
    Ok(port as u16)
}

/// A whole number from 0 to `max`.
pub(crate) fn whole(number: f64, field: &str, max: f64) -> Result<f64, Error> {
    if number.fract() == 0.0 && (0.0..=max).contains(&number) {
        Ok(number)
    } else {
        Err(Error::invalid(format!(
            "{field} must be a whole number from 0 to {max}"
        )))
    }
}

pub(crate) fn lock_ids(texts: &[String]) -> Result<Batch<LockId>, Error> {
    texts.iter().map(|text| LockId::parse(text)).collect()
}

/// What is done, of a key as its lock was granted.
pub(crate) fn finish(key: &str, due: &str) -> Result<Finish, Error> {
    Ok(Finish {
        key: Key::stored(key)?,
        due: Due::new(due)?,
    })
}
