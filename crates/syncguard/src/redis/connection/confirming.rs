//! Sends one `WAIT` for all extensions that the server has carried out by then.
//!
//! While a connection waits, the server runs nothing else of it. Heartbeats come by the hundred, so a wait for each would hold up
//! the others, and for a long time when replicas are missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::sync::Mutex;

use super::pipeline::Pipeline;
use crate::redis::replication::Replication;
use crate::redis::reply::is_count;
use crate::text::error::Error;

/// Which extensions of one connection the replicas have.
#[derive(Default)]
pub(super) struct Confirming {
    /// How many extensions the server has answered.
    answered: AtomicU64,
    last: Mutex<Confirmed>,
}

/// The result of the last wait.
#[derive(Default)]
struct Confirmed {
    /// It was about the first so many extensions.
    up_to: u64,
    /// For how many replicas it was to wait.
    wanted: u32,
    /// How many replicas have these extensions.
    count: i64,
}

impl Confirming {
    /// Waits until enough replicas have an extension that the server has just answered.
    pub(super) async fn confirm(
        &self,
        pipeline: &Arc<Pipeline>,
        replication: Replication,
    ) -> Result<(), Error> {
        let number = self.answered.fetch_add(1, SeqCst) + 1;
        let mut last = self.last.lock().await;
        if last.up_to < number || last.wanted < replication.replicas() {
            let up_to = self.answered.load(SeqCst);
            pipeline.is_held_up(replication.limit());
            let wait = |out: &mut Vec<u8>| replication.command().write_packed_command(out);
            let waited = pipeline.call(wait, is_count).await?;
            *last = Confirmed {
                up_to,
                wanted: replication.replicas(),
                count: replication.count(waited)?,
            };
        }
        replication.enough(last.count)
    }
}
