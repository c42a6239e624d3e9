//! Firestore: its options, and what they mean to the core.

use std::sync::Arc;

use napi_derive::napi;
use serde_json::json;
use syncguard::Error;
use syncguard::firestore::{Credentials, Endpoint, FirestoreConfig, Warning};

use crate::clients::bridge::Bridge;
use crate::convert::options::{Roots, default_roots, timeout_or};

/// How locks are kept, whatever the transport.
#[napi(object)]
pub struct FirestoreLockOptions {
    pub collection: Option<String>,
    pub fence_collection: Option<String>,
    pub cleanup_in_is_locked: Option<bool>,
    pub ignore_clock_skew: Option<bool>,
    pub operation_timeout_ms: Option<f64>,
}

/// Which database to use, and how to authenticate. Missing settings are taken from the environment.
#[napi(object)]
pub struct FirestoreSettings {
    pub project_id: Option<String>,
    pub database_id: Option<String>,
    /// The JSON of a key file.
    pub credentials: Option<String>,
    pub key_filename: Option<String>,
    /// A server other than Google's: `host` or `host:port`.
    pub host: Option<String>,
    /// Whether that server speaks TLS. Default: true.
    pub ssl: Option<bool>,
    pub emulator_host: Option<String>,
    /// Which authorities to trust.
    pub default_roots: Option<Roots>,
}

pub(super) fn config(settings: FirestoreSettings) -> FirestoreConfig {
    let defaults = FirestoreConfig::default();
    let tls = settings.ssl.unwrap_or(true);
    FirestoreConfig {
        project_id: settings.project_id,
        database_id: settings.database_id.unwrap_or(defaults.database_id),
        credentials: match (settings.credentials, settings.key_filename) {
            (Some(json), _) => Credentials::Json(json),
            (None, Some(path)) => Credentials::KeyFile(path.into()),
            (None, None) => Credentials::ApplicationDefault,
        },
        endpoint: settings.host.map(|host| Endpoint { host, tls }),
        emulator_host: settings.emulator_host,
        default_roots: default_roots(settings.default_roots),
        ..FirestoreConfig::default()
    }
}

/// `warn` gets the warnings.
pub(super) fn locks(
    options: FirestoreLockOptions,
    warn: Arc<Bridge>,
) -> Result<FirestoreConfig, Error> {
    let defaults = FirestoreConfig::default();
    let limit = options.operation_timeout_ms;
    Ok(FirestoreConfig {
        collection: options.collection.unwrap_or(defaults.collection),
        fence_collection: options
            .fence_collection
            .unwrap_or(defaults.fence_collection),
        cleanup_in_is_locked: options
            .cleanup_in_is_locked
            .unwrap_or(defaults.cleanup_in_is_locked),
        ignore_clock_skew: options
            .ignore_clock_skew
            .unwrap_or(defaults.ignore_clock_skew),
        operation_timeout: timeout_or(defaults.operation_timeout, limit, "operationTimeoutMs")?,
        on_warning: Some(Arc::new(move |warning| {
            warn.tell(&match warning {
                Warning::DuplicateLockId {
                    lock_id_hash,
                    live,
                    expired,
                } => json!({
                    "duplicate": { "lockIdHash": lock_id_hash, "live": live, "expired": expired }
                }),
                Warning::ClockSkew { ahead_ms } => json!({ "clockAheadMs": ahead_ms }),
            });
        })),
        ..FirestoreConfig::default()
    })
}
