//! Firestore: one connection for several backends, and a backend on it or over a client in JavaScript.

pub(crate) mod client;
mod settings;

use std::sync::Arc;

use napi_derive::napi;
use syncguard::firestore::{self, FirestoreBackend};

use self::client::FirestoreClient;
use self::settings::{FirestoreLockOptions, FirestoreSettings, config, locks};
use crate::calls::backend::NativeBackend;
use crate::calls::environment::Completions;
use crate::convert::error::{Code, thrown};

/// A connection that is made when it is needed, and closed with the last backend that uses it.
#[napi]
pub struct FirestoreConnection {
    shared: Arc<firestore::FirestoreConnection>,
}

#[napi]
impl FirestoreConnection {
    #[napi(constructor)]
    pub fn new(options: FirestoreSettings) -> napi::Result<Self, Code> {
        let shared = firestore::FirestoreConnection::new(config(options)).map_err(thrown)?;
        Ok(Self {
            shared: Arc::new(shared),
        })
    }
}

#[napi]
impl NativeBackend {
    /// A backend on `connection`. `warn` is JavaScript's number for the client object that gets warnings.
    #[napi(factory)]
    pub fn firestore(
        completions: &Completions,
        connection: &FirestoreConnection,
        options: FirestoreLockOptions,
        warn: u32,
    ) -> napi::Result<Self, Code> {
        let bridge = Arc::new(completions.environment.bridge(warn));
        let config = locks(options, bridge).map_err(thrown)?;
        let connection = Arc::clone(&connection.shared);
        let backend = FirestoreBackend::on(connection, config).map_err(thrown)?;
        Ok(Self::of(backend, completions))
    }

    /// A backend over the client object with JavaScript's number `client`, which also gets warnings.
    #[napi(factory)]
    pub fn firestore_over_client(
        completions: &Completions,
        client: u32,
        options: FirestoreLockOptions,
    ) -> napi::Result<Self, Code> {
        let bridge = Arc::new(completions.environment.bridge(client));
        let config = locks(options, Arc::clone(&bridge)).map_err(thrown)?;
        let transport = Arc::new(FirestoreClient::new(bridge, &config));
        let backend = FirestoreBackend::over(transport, config).map_err(thrown)?;
        Ok(Self::of(backend, completions))
    }
}
