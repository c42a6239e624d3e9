//! Firestore: its options, and the transport over a client in JavaScript.

use std::sync::Arc;

use napi_derive::napi;
use serde_json::json;
use syncguard::Error;
use syncguard::firestore::{Credentials, Endpoint, FirestoreBackend, FirestoreConfig, Warning};

use crate::backend::NativeBackend;
use crate::bridge::Bridge;
use crate::completions::Completions;
use crate::error::{Code, thrown};
use crate::firestore_client::ClientTransport;
use crate::firestore_connection::FirestoreConnection;
use crate::options::{Roots, default_roots, timeout};

/// How locks are kept, whatever the transport.
#[napi(object)]
pub struct FirestoreLockOptions {
    pub collection: Option<String>,
    pub fence_collection: Option<String>,
    pub cleanup_in_is_locked: Option<bool>,
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

#[napi]
impl NativeBackend {
    /// A backend on `connection`. `warn` is JavaScript's number for the client object that gets warnings.
    #[napi(factory)]
    pub fn firestore(
        completions: &Completions,
        connection: &FirestoreConnection,
        locks: FirestoreLockOptions,
        warn: u32,
    ) -> napi::Result<Self, Code> {
        let bridge = Arc::new(completions.environment.bridge(warn));
        let config = locks_config(locks, bridge).map_err(thrown)?;
        let connection = Arc::clone(&connection.shared);
        let backend = FirestoreBackend::on(connection, config).map_err(thrown)?;
        Ok(Self::of(backend, completions))
    }

    /// A backend over the client object with JavaScript's number `client`, which also gets warnings.
    #[napi(factory)]
    pub fn firestore_over_client(
        completions: &Completions,
        client: u32,
        locks: FirestoreLockOptions,
    ) -> napi::Result<Self, Code> {
        let bridge = Arc::new(completions.environment.bridge(client));
        let config = locks_config(locks, Arc::clone(&bridge)).map_err(thrown)?;
        let transport = Arc::new(ClientTransport::new(bridge, &config));
        let backend = FirestoreBackend::over(transport, config).map_err(thrown)?;
        Ok(Self::of(backend, completions))
    }
}

pub(crate) fn connection_config(options: FirestoreSettings) -> FirestoreConfig {
    let defaults = FirestoreConfig::default();
    let tls = options.ssl.unwrap_or(true);
    FirestoreConfig {
        project_id: options.project_id,
        database_id: options.database_id.unwrap_or(defaults.database_id),
        credentials: match (options.credentials, options.key_filename) {
            (Some(json), _) => Credentials::Json(json),
            (None, Some(path)) => Credentials::KeyFile(path.into()),
            (None, None) => Credentials::ApplicationDefault,
        },
        endpoint: options.host.map(|host| Endpoint { host, tls }),
        emulator_host: options.emulator_host,
        default_roots: default_roots(options.default_roots),
        ..FirestoreConfig::default()
    }
}

fn locks_config(locks: FirestoreLockOptions, warn: Arc<Bridge>) -> Result<FirestoreConfig, Error> {
    let mut config = FirestoreConfig::default();
    if let Some(name) = locks.collection {
        config.collection = name;
    }
    if let Some(name) = locks.fence_collection {
        config.fence_collection = name;
    }
    if let Some(cleanup) = locks.cleanup_in_is_locked {
        config.cleanup_in_is_locked = cleanup;
    }
    if let Some(ms) = locks.operation_timeout_ms {
        config.operation_timeout = timeout(ms, "operationTimeoutMs")?;
    }
    config.on_warning = Some(Arc::new(move |warning| {
        let Warning::DuplicateLockId {
            lock_id_hash,
            live,
            expired,
        } = warning;
        warn.tell(&json!({
            "duplicate": { "lockIdHash": lock_id_hash, "live": live, "expired": expired }
        }));
    }));
    Ok(config)
}
