//! Taking a lock as a request asks for it.

use std::sync::Arc;

use super::data::AcquiredData;
use super::error::ForrstError;
use super::options::Options;
use crate::backend::{Backend, Owner};
use crate::error::{Error, ErrorKind};
use crate::lock::{LockGuard, LockOptions, lock};

/// Why there is no lock, or no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The request cannot be served: answer it with this error.
    #[error(transparent)]
    Refused(#[from] ForrstError),
    /// The store failed: how that reads in a response is the server's business.
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
    /// Ends the lock after the function, however the function ended: releases it, or keeps it if the
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

/// Takes the lock that `options` ask for: once, or waiting for as long as they say.
///
/// Dropping the future cancels: what the store may have granted is released in the background.
///
/// # Errors
/// `LOCK_ACQUISITION_FAILED` or `LOCK_TIMEOUT` when others hold it; what the store failed with.
pub async fn acquire(backend: &Arc<dyn Backend>, options: Options) -> Result<Held, Failure> {
    let owner = options.owner_or_new()?;
    let how = LockOptions {
        ttl: options.ttl,
        retry: options.retry_policy(),
        owner: Some(owner.clone()),
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
