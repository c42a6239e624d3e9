//! Redis: one connection for several backends, and a backend on it or over a client in JavaScript.

mod client;
mod client_errors;
mod cluster;
mod settings;

use std::sync::Arc;

use napi::Env;
use napi_derive::napi;
use serde_json::json;
use syncguard::Login;
use syncguard::redis::{self, ClientPrefix, RedisBackend, RedisLocks};

use self::client::{RedisClient, RedisClientTraits};
use self::settings::{RedisLockOptions, RedisSettings, config, locks};
use crate::calls::backend::NativeBackend;
use crate::calls::environment::Completions;
use crate::calls::operations::Operations;
use crate::clients::login::JavaScriptLogin;
use crate::convert::error::{Code, thrown};

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
        let (login_client, needs_login) = (options.login_client, options.needs_login);
        let few_sentinels_client = options.few_sentinels_client;
        let mut config = config(options).map_err(thrown)?;
        if let Some(client) = login_client {
            let bridge = completions.environment.bridge(client);
            let source = JavaScriptLogin::new(bridge, Login::default(), needs_login);
            config.login = Some(Arc::new(source));
        }
        if let Some(client) = few_sentinels_client {
            let bridge = completions.environment.bridge(client);
            config.on_few_sentinels = Some(Arc::new(move |few| {
                bridge.tell(&json!({ "naming": few.naming, "known": few.known }));
            }));
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

#[napi]
impl NativeBackend {
    /// A backend on `connection`.
    #[napi(factory)]
    pub fn redis(
        completions: &Completions,
        connection: &RedisConnection,
        options: RedisLockOptions,
    ) -> napi::Result<Self, Code> {
        let locks = locks(options, connection.defaults.clone()).map_err(thrown)?;
        let backend = RedisBackend::on(&connection.shared, &locks).map_err(thrown)?;
        let is_on_event_loop = connection.is_on_event_loop;
        Ok(Self {
            operations: Operations::new(Arc::new(backend), completions, is_on_event_loop),
            postgres: None,
            client: None,
        })
    }

    /// A backend over the client object with JavaScript's number `client`.
    #[napi(factory)]
    pub fn redis_over_client(
        completions: &Completions,
        client: u32,
        traits: RedisClientTraits,
        options: RedisLockOptions,
    ) -> napi::Result<Self, Code> {
        let bridge = completions.environment.bridge(client);
        let locks = locks(options, RedisLocks::default()).map_err(thrown)?;
        let prefix = match &traits.key_prefix {
            None => ClientPrefix::Theirs,
            Some(none) if none.is_empty() => ClientPrefix::None,
            Some(prefix) => ClientPrefix::Ours(prefix.clone()),
        };
        let transport = Arc::new(RedisClient::new(bridge, traits));
        let backend = RedisBackend::over(transport, prefix, &locks).map_err(thrown)?;
        Ok(Self {
            client: backend.client_connections().cloned(),
            ..Self::of(backend, completions)
        })
    }
}
