//! One connection to Redis for several backends.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use napi_derive::napi;
use syncguard::Error;
use syncguard::redis::{
    ClientPrefix, Plan, RedisBackend, RedisConfig, RedisLocks, Reply, Transport,
};

use crate::error::{Code, thrown};
use crate::redis::{RedisConnectionOptions, RedisLockOptions, config, lock_settings};

/// A connection that is made when it is needed and that ends with the last backend on it.
#[napi]
pub struct RedisConnection {
    config: RedisConfig,
    line: Mutex<Weak<Line>>,
}

struct Line {
    transport: Arc<dyn Transport>,
}

#[napi]
impl RedisConnection {
    #[napi(constructor)]
    pub fn new(options: RedisConnectionOptions) -> napi::Result<Self, Code> {
        let config = config(options).map_err(thrown)?;
        Ok(Self {
            config,
            line: Mutex::default(),
        })
    }
}

impl RedisConnection {
    /// A backend on the connection.
    pub(crate) fn backend(&self, locks: RedisLockOptions) -> Result<RedisBackend, Error> {
        let locks: RedisLocks = lock_settings(locks, self.config.locks.clone())?;
        let prefix = match self.config.client_key_prefix.as_str() {
            "" => ClientPrefix::None,
            prefix => ClientPrefix::Ours(prefix.to_owned()),
        };
        let mut line = lock(&self.line);
        let shared = match line.upgrade() {
            Some(shared) => shared,
            None => {
                let transport = RedisBackend::transport(&self.config)?;
                Arc::new(Line { transport })
            }
        };
        *line = Arc::downgrade(&shared);
        let share = Share(Mutex::new(Some(shared)));
        RedisBackend::over(Arc::new(share), prefix, &locks)
    }
}

/// What one backend has of a connection, until it is closed.
struct Share(Mutex<Option<Arc<Line>>>);

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Share")
    }
}

#[async_trait]
impl Transport for Share {
    async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        // Not the line itself: what runs must not hide from `close` that nobody else uses it.
        let transport = lock(&self.0)
            .as_ref()
            .map(|line| Arc::clone(&line.transport))
            .ok_or_else(|| Error::invalid("the backend is closed"))?;
        transport.run(plan).await
    }

    fn trouble(&self) -> Option<Error> {
        lock(&self.0)
            .as_ref()
            .and_then(|line| line.transport.trouble())
    }

    async fn close(&self) {
        let line = lock(&self.0).take();
        if let Some(Line { transport }) = line.and_then(Arc::into_inner) {
            transport.close().await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
