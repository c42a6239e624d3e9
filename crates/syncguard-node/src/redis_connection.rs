//! One connection to Redis for several backends.

use std::sync::Arc;

use napi_derive::napi;
use syncguard::redis::{self, RedisBackend, RedisLocks};
use syncguard::{Error, Login};

use crate::bridge::Bridge;
use crate::completion::Completions;
use crate::error::{Code, thrown};
use crate::login::Asked;
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
    /// `completions` is used to ask JavaScript for the login, if it may change.
    #[napi(constructor)]
    pub fn new(completions: &Completions, options: RedisSettings) -> napi::Result<Self, Code> {
        let login_client = options.login_client;
        let mut config = config(options).map_err(thrown)?;
        if let Some(client) = login_client {
            let bridge = Bridge::new(Arc::clone(&completions.environment.mailbox), client);
            config.login = Some(Arc::new(Asked::new(bridge, Some(Login::default()))));
        }
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
