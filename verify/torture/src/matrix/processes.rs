//! Processes that fail: the same for all stores.

use std::io;

use syncguard::ErrorKind;

use super::row::Row;
use super::stage::{Act, ClockOf, DOWN, Stage, Store};
use crate::clock::Clock;
use crate::run::{STOP, SUSPENSION};
use crate::workers::Workers;

pub(crate) fn rows<S: Store + 'static>(
    store: &'static str,
    start: fn(Option<&Clock>) -> io::Result<S>,
    seen: &'static [ErrorKind],
) -> Vec<Row> {
    vec![
        Act::new(store, "kill-client", start, kill)
            .seen(seen)
            .into(),
        // What was under way when the process was stopped takes too long.
        Act::new(store, "stop-holder", start, stop)
            .seen(TOO_LATE)
            .into(),
        Act::new(store, "waiters", start, kill_waiters)
            .seen(seen)
            .turns()
            .into(),
    ]
}

/// After a stop, the time of operations is over, whether or not the answer has come. A pool may be found to be exhausted.
const TOO_LATE: &[ErrorKind] = &[
    ErrorKind::NetworkTimeout,
    ErrorKind::ServiceUnavailable,
    ErrorKind::RateLimited,
];

/// A process ends without a word.
pub(crate) fn kill<S: Store>(stage: &mut Stage<S>, workers: &mut Workers<'_>) -> io::Result<()> {
    workers.kill_one(&mut stage.random)
}

/// A process is stopped until its locks are others'.
fn stop<S: Store>(stage: &mut Stage<S>, workers: &mut Workers<'_>) -> io::Result<()> {
    workers.stop_one(&mut stage.random, STOP)
}

/// The machine of half of the processes is suspended until their locks are others'. Their monotonic clock lacks that time.
pub(crate) fn suspended<S: Store + 'static>(
    store: &'static str,
    start: fn(Option<&Clock>) -> io::Result<S>,
) -> Row {
    fn strike<S: Store>(stage: &mut Stage<S>, workers: &mut Workers<'_>) -> io::Result<()> {
        let clock = stage.clock()?;
        workers.suspend_half(SUSPENSION, |time| clock.lacks(time))
    }
    Act::new(store, "suspended-machine", start, strike)
        .seen(TOO_LATE)
        .clock(ClockOf::SuspendedWorkers)
        .into()
}

/// One of the processes with waiters ends without a word, when some have had their turn and most have not.
fn kill_waiters<S: Store>(stage: &mut Stage<S>, workers: &mut Workers<'_>) -> io::Result<()> {
    while workers.tally().entered < workers.task().loops as u64 && workers.is_working()? {
        stage.pause(5..10);
    }
    workers.end_one(&mut stage.random)
}

/// All processes reach their limit of open files when they need to connect anew.
pub(crate) fn files<S: Store + 'static>(
    store: &'static str,
    start: fn(Option<&Clock>) -> io::Result<S>,
) -> Row {
    fn strike<S: Store>(stage: &mut Stage<S>, workers: &mut Workers<'_>) -> io::Result<()> {
        workers.limit_files(Some(3))?;
        if let Some(proxy) = &stage.proxy {
            proxy.reset();
        }
        stage.pause(200..1_500);
        workers.limit_files(None)?;
        Ok(())
    }
    Act::new(store, "files", start, strike)
        .behind_proxy()
        .seen(DOWN)
        .into()
}
