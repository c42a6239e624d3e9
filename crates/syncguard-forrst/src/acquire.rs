//! Acquires the lock that a request asks for.

use std::sync::Arc;

use super::data::AcquiredData;
use super::error::ForrstError;
use super::options::Options;
use super::owner::label_of;
use syncguard::LockGuard;
use syncguard::{Backend, Owner};
use syncguard::{Error, ErrorKind};
use syncguard::{LockOptions, lock};

/// Why a request got no lock.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The request is refused: answer it with this error.
    #[error(transparent)]
    Refused(#[from] ForrstError),
    /// The store failed. The server decides how to report that in a response.
    #[error(transparent)]
    Store(#[from] Error),
}

/// A lock that a request holds.
#[derive(Debug)]
pub struct Held {
    /// The lock itself. Dropping it releases in the background.
    pub guard: LockGuard,
    /// What the request asked for.
    pub options: Options,
    /// Who may release it from another process.
    pub owner: Owner,
}

impl Held {
    /// To be called when the function has ended, whether it succeeded or not. Releases the lock, or keeps it if the
    /// request says so. Gives the extension's data for the response.
    ///
    /// # Errors
    /// What the store failed with. If the lock was not freed, it ends with its TTL.
    pub async fn end(self) -> Result<AcquiredData, Error> {
        let expires_at_ms = self.guard.expires_at_ms();
        let lost = if self.options.auto_release {
            !self.guard.release().await?
        } else {
            self.guard.keep();
            false
        };
        Ok(AcquiredData::new(
            &self.options,
            &self.owner,
            expires_at_ms,
            lost,
        ))
    }
}

/// Acquires the lock that `options` ask for: tries once, or waits for as long as they say.
///
/// Dropping the future cancels: a lock that the store may have granted is released in the background.
///
/// # Errors
/// `LOCK_ACQUISITION_FAILED` or `LOCK_TIMEOUT` when others hold it; what the store failed with.
pub async fn acquire(backend: &Arc<dyn Backend>, options: Options) -> Result<Held, Failure> {
    let owner = options.owner_or_new()?;
    let how = LockOptions {
        ttl: options.ttl,
        retry: options.retry_policy(),
        owner: Some(label_of(&owner)?),
        ..LockOptions::default()
    };
    match lock(backend, &options.full_key, &how).await {
        Ok(guard) => Ok(Held {
            guard,
            options,
            owner,
        }),
        Err(error) if error.kind() == ErrorKind::AcquisitionTimeout => {
            Err(options.contention().into())
        }
        Err(error) => Err(error.into()),
    }
}
