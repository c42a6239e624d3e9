//! One connection to Firestore for several backends.

use std::sync::Arc;

use napi_derive::napi;
use syncguard::firestore;

use crate::error::{Code, thrown};
use crate::firestore::{FirestoreSettings, connection_config};

/// A connection that is made when it is needed, and closed with the last backend that uses it.
#[napi]
pub struct FirestoreConnection {
    pub(crate) shared: Arc<firestore::FirestoreConnection>,
}

#[napi]
impl FirestoreConnection {
    #[napi(constructor)]
    pub fn new(options: FirestoreSettings) -> napi::Result<Self, Code> {
        let config = connection_config(options);
        let shared = firestore::FirestoreConnection::new(config).map_err(thrown)?;
        Ok(Self {
            shared: Arc::new(shared),
        })
    }
}
