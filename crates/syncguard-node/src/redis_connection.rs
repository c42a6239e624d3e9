//! One connection to Redis for several backends.

use std::sync::Arc;

use napi::Env;
use napi_derive::napi;
use syncguard::redis::{self, RedisBackend, RedisLocks};
use syncguard::{Error, Login};

use crate::completions::Completions;
use crate::error::{Code, thrown};
use crate::login::Asked;
use crate::redis::{RedisLockOptions, RedisSettings, config, lock_settings};

/// A connection that is made when it is needed, and closed with the last backend that uses it.
#[napi]
pub struct RedisConnection {
    shared: redis::RedisConnection,
    is_on_event_loop: bool,
    /// The defaults for backends whose options do not say otherwise.
    defaults: RedisLocks,
}

#[napi]
impl RedisConnection {
    /// It lives on JavaScript's event loop, where that is possible. `completions` is also used to ask JavaScript for the
    /// login, if it may change.
    #[napi(constructor)]
    pub fn new(
        env: &Env,
        completions: &Completions,
        options: RedisSettings,
    ) -> napi::Result<Self, Code> {
        let login_client = options.login_client;
        let mut config = config(options).map_err(thrown)?;
        if let Some(client) = login_client {
            let bridge = completions.environment.bridge(client);
            config.login = Some(Arc::new(Asked::new(bridge, Some(Login::default()))));
        }
        let defaults = config.locks.clone();
        let mut shared = redis::RedisConnection::new(config).map_err(thrown)?;
        let event_loop = completions.environment.event_loop(env);
        let is_on_event_loop = event_loop.is_some();
        if let Some(event_loop) = event_loop {
            shared = shared.on_event_loop(event_loop);
        }
        Ok(Self {
            shared,
            is_on_event_loop,
            defaults,
        })
    }
}

impl RedisConnection {
    /// Whether it lives on JavaScript's event loop.
    pub(crate) fn is_on_event_loop(&self) -> bool {
        self.is_on_event_loop
    }

    /// A backend on the connection.
    pub(crate) fn backend(&self, locks: RedisLockOptions) -> Result<RedisBackend, Error> {
        let locks = lock_settings(locks, self.defaults.clone())?;
        RedisBackend::on(&self.shared, &locks)
    }
}
