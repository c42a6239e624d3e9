//! The two collections, as operations read and change them: over a transport, by a clock.

use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;

use super::clock::DecidingClock;
use super::config::FirestoreConfig;
use super::connection::client::Client;
use super::connection::shared::FirestoreConnection;
use super::decision::Warning;
use super::error::TransactionStep;
use super::operations::is_locked;
use super::progress::Progress;
use super::transaction::{read, transact};
use super::transport::{Documents, Page, ReadSet, Transport};
use crate::asking::sending::Sending;
use crate::background::work::Work;
use crate::mutex::lock;
use crate::text::error::Error;
use crate::values::time::Clock;

/// The collections of one backend.
pub(super) struct Collections {
    pub(super) config: FirestoreConfig,
    pub(super) clock: DecidingClock,
    pub(super) work: Work,
    state: Mutex<TransportState>,
    /// Limits how many deletions of expired locks run at a time. Further ones are left to later calls.
    cleanups: Arc<Semaphore>,
}

const CLEANUPS_AT_ONCE: usize = 4;

pub(super) enum TransportState {
    NotStarted(Arc<FirestoreConnection>),
    Started(Arc<dyn Transport>),
    Closed,
}

impl Collections {
    pub(super) fn new(
        state: TransportState,
        config: FirestoreConfig,
        clock: impl Clock,
        work: Work,
    ) -> Self {
        Self {
            clock: DecidingClock {
                clock: Arc::new(clock),
                ignores_skew: config.ignore_clock_skew,
            },
            config,
            work,
            state: Mutex::new(state),
            cleanups: Arc::new(Semaphore::new(CLEANUPS_AT_ONCE)),
        }
    }

    /// The connection is closed when the last operation that uses it has ended.
    pub(super) fn close(&self) {
        *lock(&self.state) = TransportState::Closed;
    }

    /// The transport, prepared by the first operation. After a failure, the next operation tries again.
    pub(super) fn transport(&self) -> Result<Arc<dyn Transport>, Error> {
        let mut state = lock(&self.state);
        match &*state {
            TransportState::Started(transport) => Ok(Arc::clone(transport)),
            TransportState::Closed => Err(Error::closed()),
            TransportState::NotStarted(connection) => {
                let connection = connection.shared()?;
                let client = Client::new(connection, &self.config, self.work.clone());
                let transport: Arc<dyn Transport> = Arc::new(client);
                *state = TransportState::Started(Arc::clone(&transport));
                Ok(transport)
            }
        }
    }

    /// Gives or keeps locks: the clock that decides must be near Firestore's.
    pub(super) async fn grant<T>(
        &self,
        sending: &Sending,
        what: &ReadSet,
        decide: impl Fn(&Documents, i64) -> Result<Progress<T>, Error>,
    ) -> Result<T, Error> {
        self.transact(what, |found| {
            // What is written counts from the time that this takes.
            sending.now();
            let now_ms = self.clock.for_grant(found).map_err(|skew| {
                let ahead_ms = skew.ahead_ms;
                self.warn(&Warning::ClockSkew { ahead_ms });
                skew.into_error()
            })?;
            decide(found, now_ms)
        })
        .await
    }

    /// Changes something else, by whichever clock is right.
    pub(super) async fn change<T>(
        &self,
        what: &ReadSet,
        decide: impl Fn(&Documents, i64) -> Result<Progress<T>, Error>,
    ) -> Result<T, Error> {
        self.transact(what, |found| decide(found, self.clock.for_others(found)))
            .await
    }

    async fn transact<T>(
        &self,
        what: &ReadSet,
        decide: impl Fn(&Documents) -> Result<Progress<T>, Error>,
    ) -> Result<T, Error> {
        transact(
            &self.transport()?,
            self.config.operation_timeout,
            what,
            decide,
            |warning| self.warn(warning),
        )
        .await
    }

    /// Decides something outside of a transaction, and writes nothing. What is read later may show a later moment.
    pub(super) async fn look<T>(
        &self,
        what: &ReadSet,
        decide: impl Fn(&Documents, i64) -> Result<Progress<T>, Error>,
    ) -> Result<T, Error> {
        let (mut found, now_ms) = self.read(what).await?;
        loop {
            match decide(&found, now_ms)? {
                Progress::Decided(decision) => {
                    decision.warnings.iter().for_each(|it| self.warn(it));
                    return Ok(decision.answer);
                }
                Progress::Read(what) => {
                    for what in what {
                        let (more, _) = self.read(&what).await?;
                        found.add(what, more);
                    }
                }
            }
        }
    }

    pub(super) async fn read(&self, what: &ReadSet) -> Result<(Documents, i64), Error> {
        // Taken before the request: by the time of the answer, a lock that was extended after Firestore had read it
        // would look expired.
        let asked_ms = self.clock.now_ms();
        let found = read(&self.transport()?, self.config.operation_timeout, what).await?;
        let now_ms = found.read_at_ms.unwrap_or(asked_ms);
        let now_ms = self.clock.for_read(found.server_time, now_ms);
        Ok((found, now_ms))
    }

    /// Deletes a lock that expired long enough ago, in the background, because the answer does not depend on it. The
    /// transaction reads the document again and decides by that.
    pub(super) fn clean_up(&self, what: ReadSet) {
        let (Ok(permit), Ok(transport)) = (
            Arc::clone(&self.cleanups).try_acquire_owned(),
            self.transport(),
        ) else {
            return;
        };
        let limit = self.config.operation_timeout;
        let clock = self.clock.clone();
        let counted = self.work.start_in_background();
        tokio::spawn(async move {
            let (_permit, _counted) = (permit, counted);
            let decide = |found: &Documents| {
                let now_ms = clock.for_others(found);
                Ok(is_locked::decide_cleanup(found.lock()?.as_ref(), now_ms).into())
            };
            let _ = transact(&transport, limit, &what, decide, |_| {}).await;
        });
    }

    pub(super) async fn page(&self, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        let transport = self.transport()?;
        let answer = transport.page(after, limit).await;
        answer.map_err(|failure| failure.into_error(TransactionStep::Read))
    }

    pub(super) fn warn(&self, warning: &Warning) {
        if let Some(hook) = &self.config.on_warning {
            hook(warning);
        }
    }
}
