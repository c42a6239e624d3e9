//! One connection to Redis for several backends.

use napi_derive::napi;
use syncguard::Error;
use syncguard::redis::{self, RedisBackend, RedisLocks};

use crate::error::{Code, thrown};
use crate::redis::{RedisLockOptions, RedisSettings, config, lock_settings};

/// A connection that is made when it is needed, and closed with the last backend that uses it.
#[napi]
pub struct RedisConnection {
    shared: redis::RedisConnection,
    /// The defaults for backends whose options do not say otherwise.
    defaults: RedisLocks,
}

#[napi]
impl RedisConnection {
    #[napi(constructor)]
    pub fn new(options: RedisSettings) -> napi::Result<Self, Code> {
        let config = config(options).map_err(thrown)?;
        let defaults = config.locks.clone();
        let shared = redis::RedisConnection::new(config).map_err(thrown)?;
        Ok(Self { shared, defaults })
    }
}

impl RedisConnection {
    /// A backend on the connection.
    pub(crate) fn backend(&self, locks: RedisLockOptions) -> Result<RedisBackend, Error> {
        let locks = lock_settings(locks, self.defaults.clone())?;
        RedisBackend::on(&self.shared, &locks)
    }
}
