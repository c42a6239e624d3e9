//! Random inputs for operations on a real server, and what must hold of every answer.

use std::cell::RefCell;
use std::error::Error as _;
use std::ops::RangeInclusive;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use syncguard::{
    Absence, AcquireOutcome, AcquireRequest, Backend, Error, ExtendOutcome, LockId, Lookup, Owner,
    ReleaseOutcome, Ttl,
};
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use tokio::time::timeout;

use super::attempts::Attempts as _;
use super::locks::key;

/// The lock id, key and owner of all operations. Each is so long and without sense that a text which
/// contains it has it from the input.
pub(crate) const LOCK_ID: &str = "Zq7xK9wPvM2rT4bN8cJdLg";
pub(crate) const KEY: &str = "hW3nY6uQ0sA5eF1k";
pub(crate) const OWNER: &str = "pX8mB2vC7zD4gR9t";
pub(crate) const SECRETS: [&str; 3] = [LOCK_ID, KEY, OWNER];

/// Longer than any operation takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Operation {
    Acquire,
    Release,
    Extend,
    IsLocked,
    LookUpKey,
    LookUpLock,
    ForceRelease,
}

impl Operation {
    pub(crate) const ALL: [Self; 7] = [
        Self::Acquire,
        Self::Release,
        Self::Extend,
        Self::IsLocked,
        Self::LookUpKey,
        Self::LookUpLock,
        Self::ForceRelease,
    ];

    /// Whether it may write nothing.
    pub(crate) fn only_reads(self) -> bool {
        matches!(self, Self::IsLocked | Self::LookUpKey | Self::LookUpLock)
    }
}

/// The answer to an operation, as far as the operations have that in common.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Verdict {
    /// Granted, with this fence.
    Acquired(u64),
    /// Released, extended, locked, found or freed.
    Yes,
    /// Held by another, not locked, not found, or not freed.
    No,
    /// The caller's lock is over.
    Expired,
    /// With an error, which says nothing that is private.
    Failed,
}

impl Verdict {
    /// Whether it is a grant, under `next` if that is ahead of `clock`, else under a fence from that.
    pub(crate) fn is_granted_after(&self, next: u64, clock: &RangeInclusive<u64>) -> bool {
        let Self::Acquired(fence) = *self else {
            return false;
        };
        fence >= next && (clock.contains(&fence) || fence == next && next > *clock.end())
    }
}

/// Calls the operation for [`KEY`] or [`LOCK_ID`].
pub(crate) async fn call(backend: &dyn Backend, operation: Operation) -> Verdict {
    let answer = timeout(PATIENCE, ask(backend, operation)).await;
    match answer.expect("the operation hangs") {
        Ok(told) => told,
        Err(error) => {
            assert_discreet(&error);
            Verdict::Failed
        }
    }
}

async fn ask(backend: &dyn Backend, operation: Operation) -> Result<Verdict, Error> {
    let id = LockId::parse(LOCK_ID).unwrap();
    let yes = |is: bool| if is { Verdict::Yes } else { Verdict::No };
    let absent = |absence| match absence {
        Absence::Expired => Verdict::Expired,
        Absence::NotFound => Verdict::No,
    };
    let look = async |lookup| Ok(yes(backend.lookup(&lookup).await?.is_some()));
    match operation {
        Operation::Acquire => {
            let mut request = AcquireRequest::new(key(KEY), Ttl::DEFAULT).unwrap();
            request.claims[0].lock_id = id;
            request.labels.owner = Some(Owner::new(OWNER).unwrap());
            Ok(match backend.acquire(&request).await? {
                AcquireOutcome::Acquired(grant) => Verdict::Acquired(grant[0].fence.get()),
                _ => Verdict::No,
            })
        }
        Operation::Release => Ok(match backend.release(&id).await? {
            ReleaseOutcome::Released => Verdict::Yes,
            ReleaseOutcome::Absent(absence) => absent(absence),
        }),
        Operation::Extend => Ok(match backend.extend(&id, Ttl::DEFAULT).await? {
            ExtendOutcome::Extended { .. } => Verdict::Yes,
            ExtendOutcome::Absent { absence, .. } => absent(absence),
        }),
        Operation::IsLocked => Ok(yes(backend.is_locked(&key(KEY)).await?)),
        Operation::LookUpKey => look(Lookup::Key(key(KEY))).await,
        Operation::LookUpLock => look(Lookup::LockId(id)).await,
        Operation::ForceRelease => Ok(yes(backend.force_release(&key(KEY)).await?)),
    }
}

fn assert_discreet(error: &Error) {
    let mut texts = vec![format!("{error} {error:?}")];
    let mut source = error.source();
    while let Some(cause) = source {
        texts.push(format!("{cause} {cause:?}"));
        source = cause.source();
    }
    for text in texts {
        assert!(!SECRETS.iter().any(|one| text.contains(one)), "{text}");
    }
}

/// Runs `test` with so many random inputs, and looks for the smallest that fails.
pub(crate) fn for_each<S: Strategy>(cases: u32, inputs: &S, test: impl AsyncFnMut(S::Value)) {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 500,
        ..Config::default()
    };
    let test = RefCell::new(test);
    let run = TestRunner::new(config).run(inputs, |input| {
        let mut test = test.borrow_mut();
        block_in_place(|| Handle::current().block_on(test(input)));
        Ok(())
    });
    if let Err(failure) = run {
        panic!("{failure}");
    }
}

/// Any text, often with something private in it, or with what has a meaning somewhere.
pub(crate) fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => prop::sample::select(&SECRETS[..]).prop_map(str::to_owned),
        2 => any::<char>().prop_filter("PostgreSQL has none", |one| *one != '\0').prop_map(String::from),
        2 => prop::sample::select(&["\"", "\\", "{", "}", ":", "%", ",", " ", "000000000000007", "-1", "1e400", "null"][..])
            .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}
