//! Statements until they count.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use super::error::Failure;
use super::share::{Shares, Subject};
use super::statement::{Call, Row, Statements, Transport};
use crate::error::Error;
use crate::random;

/// How often a transaction that lost against another one is tried again: for some 3 s.
const MAX_RETRIES: u32 = 100;

/// Runs statements, again where they lost against another transaction: that left nothing behind.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) statements: Statements,
    under_way: AtomicUsize,
    /// Where statements have connections to themselves.
    shares: Option<Shares>,
}

impl Runner {
    pub(super) fn new(transport: Arc<dyn Transport>, statements: Statements) -> Self {
        Self {
            shares: transport.connections().map(Shares::new),
            transport,
            statements,
            under_way: AtomicUsize::new(0),
        }
    }

    /// Whether as many operations are under way as there are connections for.
    pub(super) fn is_saturated(&self) -> bool {
        let most = self.transport.connections();
        most.is_some_and(|most| self.under_way.load(Ordering::Relaxed) >= most)
    }

    /// Whether operations are under way for more than three quarters of the connections.
    pub(super) fn is_busy(&self) -> bool {
        let most = self.transport.connections();
        most.is_some_and(|most| self.under_way.load(Ordering::Relaxed) > most * 3 / 4)
    }

    /// Counts an operation as under way until the value is dropped.
    pub(super) fn begin(&self) -> impl Drop + '_ {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(&self.under_way)
    }

    /// Runs a statement; `subject` is what it may have to wait for in the server.
    pub(super) async fn run(
        &self,
        subject: Option<Subject<'_>>,
        call: &Call<'_>,
    ) -> Result<Option<Row>, Error> {
        self.try_run(subject, call).await.map_err(Error::from)
    }

    pub(super) async fn try_run(
        &self,
        subject: Option<Subject<'_>>,
        call: &Call<'_>,
    ) -> Result<Option<Row>, Failure> {
        let _place = match (&self.shares, subject) {
            (Some(shares), Some(subject)) => Some(shares.enter(subject).await),
            _ => None,
        };
        // Who waits for a place of its key takes no connection from anybody.
        let _under_way = self.begin();
        let mut tries = 0;
        loop {
            match self.transport.run(call).await {
                Err(failure) if failure.is_rolled_back_by_chance() && tries < MAX_RETRIES => {
                    let share = random::unit().map_err(Failure::other)?;
                    let longest_ms = f64::from(1u32 << tries.min(6));
                    sleep(Duration::from_secs_f64(longest_ms * share / 1000.0)).await;
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }
}

struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
