//! Runs scripts over the transport of a backend.

use std::sync::Arc;

use super::operations::scripts::Scripts;
use super::plan::Plan;
use super::reply::Reply;
use super::transport::Transport;
use crate::error::Error;
use crate::shared::Lease;

/// What every operation needs: where to send its scripts, and the settings of those.
pub(super) struct Runner {
    pub(super) transport: Lease<dyn Transport>,
    pub(super) scripts: Scripts,
}

impl Runner {
    pub(super) fn new(transport: Arc<dyn Transport>, scripts: Scripts) -> Self {
        Self {
            transport: Lease::new(transport),
            scripts,
        }
    }

    pub(super) async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        self.transport.get()?.run(plan).await
    }
}
