//! Single attempts on a store, without the time limit, cancellation and undo of `operation::run`.

use std::future::Future;

use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Claim, Error, ExtendOutcome, Extension, Facts,
    FromOutcome, Key, LockId, LockPage, LockRecord, Lookup, Operation, PageRequest, ReleaseOutcome,
    Ttl, Watch,
};

pub(crate) trait Attempts: Backend {
    fn ask<T: FromOutcome>(
        &self,
        operation: Operation,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        async move { T::of(self.run(&operation).await?) }
    }

    /// Hears when the lock on the key itself may have been freed.
    fn watch_key(&self, key: &Key) -> Option<Watch> {
        self.watch(&Claim::new(key.clone()).unwrap())
    }

    fn acquire(
        &self,
        request: &AcquireRequest,
    ) -> impl Future<Output = Result<AcquireOutcome, Error>> + Send {
        self.ask(Operation::Acquire(request.clone()))
    }

    fn release(
        &self,
        lock_id: &LockId,
    ) -> impl Future<Output = Result<ReleaseOutcome, Error>> + Send {
        self.ask(Operation::Release([lock_id.clone()].into()))
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
    ) -> impl Future<Output = Result<ExtendOutcome, Error>> + Send {
        self.ask(Operation::Extend(Extension::new(
            [lock_id.clone()].into(),
            ttl,
        )))
    }

    /// As heartbeats do.
    fn extend_with_others(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
    ) -> impl Future<Output = Result<ExtendOutcome, Error>> + Send {
        let mut extension = Extension::new([lock_id.clone()].into(), ttl);
        extension.is_heartbeat = true;
        self.ask(Operation::Extend(extension))
    }

    fn is_locked(&self, key: &Key) -> impl Future<Output = Result<bool, Error>> + Send {
        self.ask(Operation::IsLocked(key.clone()))
    }

    fn lookup(
        &self,
        lookup: &Lookup,
    ) -> impl Future<Output = Result<Option<LockRecord>, Error>> + Send {
        self.ask(Operation::Lookup(lookup.clone()))
    }

    fn force_release(&self, key: &Key) -> impl Future<Output = Result<bool, Error>> + Send {
        self.ask(Operation::ForceRelease(key.clone()))
    }

    fn list(&self, page: &PageRequest) -> impl Future<Output = Result<LockPage, Error>> + Send {
        self.ask(Operation::List(page.clone()))
    }

    fn facts(&self) -> impl Future<Output = Result<Vec<Facts>, Error>> + Send {
        self.ask(Operation::Facts)
    }
}

impl<B: Backend + ?Sized> Attempts for B {}
