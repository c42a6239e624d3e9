//! Asks the store after the locks of a guard when another server may have taken over, for example after a switch of primaries. No
//! heartbeat would notice there that they are gone, because these locks do not extend themselves.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio::time::{Instant, sleep};

use super::GuardState;
use crate::asking::inspection::{LockRecord, Lookup};
use crate::asking::request::Operation;
use crate::background::backend::Backend;
use crate::heartbeats::looks::LookedAt;
use crate::holding::lease_state::LeaseState;
use crate::operation::{self, CallOptions};
use crate::text::error::{Error, ErrorKind};
use crate::values::batch::Batch;
use crate::values::lock_id::LockId;

/// A server that cannot answer yet is asked so often, with this pause between.
const PAUSE: Duration = Duration::from_millis(200);
const TRIES: usize = 15;

/// What is needed to ask after the locks of a guard.
#[derive(Debug)]
pub(super) struct GuardLook {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) lock_ids: Batch<LockId>,
    pub(super) state: Arc<GuardState>,
}

impl GuardLook {
    fn is_held(&self) -> bool {
        self.state.state() == LeaseState::Held
    }

    /// Whether the store has all locks that nobody has released by their ids.
    async fn is_stored(&self) -> Result<bool, Error> {
        let left = self.state.left();
        are_stored(&self.backend, left.unwrap_or_else(|| self.lock_ids.clone())).await
    }
}

/// Whether the store has all of these locks.
pub(super) async fn are_stored(
    backend: &Arc<dyn Backend>,
    lock_ids: Batch<LockId>,
) -> Result<bool, Error> {
    for lock_id in lock_ids {
        let lookup = Operation::Lookup(Lookup::LockId(lock_id));
        let call = CallOptions::default();
        let found: Option<LockRecord> = operation::run(backend, lookup, call, pending()).await?;
        if found.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl LookedAt for GuardLook {
    fn end(&self) -> Option<Instant> {
        self.is_held().then(|| self.state.end())?
    }

    fn look(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            for _ in 0..TRIES {
                match self.is_stored().await {
                    Err(error) if error.kind().is_transient() && self.is_held() => {
                        sleep(PAUSE).await;
                    }
                    Ok(false) if self.is_held() => {
                        let message = "the lock was lost: the store no longer has it";
                        return self.state.lose(|| Error::new(ErrorKind::LockLost, message));
                    }
                    _ => return,
                }
            }
        })
    }
}
