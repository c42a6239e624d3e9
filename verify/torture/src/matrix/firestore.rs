//! Firestore, in the form of our emulator.

use std::io;
use std::time::Duration;

use firestore_emulator::{Effect, Emulator, Fault, Lost, Options, Refusal};
use syncguard::ErrorKind;

use super::redis::step;
use super::row::Row;
use super::stage::{Act, ClockOf, DOWN, Stage, Store};
use super::{network, processes};
use crate::clock::Clock;
use crate::workers::Workers;

const NAME: &str = "firestore";

pub(crate) struct Firestore(Emulator);

impl Firestore {
    fn start(_: Option<&Clock>) -> io::Result<Self> {
        Ok(Self(Emulator::start(Options {
            // Firestore takes a minute, which is too long to see that it happens.
            transaction_idle_limit: Duration::from_secs(2),
            ..Options::default()
        })?))
    }
}

impl Store for Firestore {
    fn port(&self) -> Option<u16> {
        Some(self.0.address().port())
    }

    fn url(&self, proxy: Option<u16>) -> String {
        let port = proxy.unwrap_or_else(|| self.0.address().port());
        format!("firestore://127.0.0.1:{port}")
    }

    /// Transactions that were begun end, and so do streams of those who waited.
    fn left(&mut self) -> io::Result<Vec<String>> {
        let mut left = Vec::new();
        let counts = [
            ("transactions", self.0.open_transactions()),
            ("Listen streams", self.0.listeners()),
        ];
        for (what, count) in counts {
            if count > 0 {
                left.push(format!("{count} {what}"));
            }
        }
        Ok(left)
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let act = |name, strike| Act::new(NAME, name, Firestore::start, strike).seen(DOWN);
    let mut rows = network::rows(NAME, Firestore::start, DOWN);
    rows.extend(processes::rows(NAME, Firestore::start, DOWN));
    rows.push(processes::files(NAME, Firestore::start));
    rows.extend([
        act("aborted", aborted).into(),
        act("unavailable", unavailable).into(),
        act("deadline-exceeded", deadline_exceeded).into(),
        act("resource-exhausted", resource_exhausted)
            .seen(LIMITED)
            .into(),
        act("commit-reply-lost", lost_replies).into(),
        act("slow-commits", slow_commits).into(),
        act("clock-of-clients", step).clock(ClockOf::Machine).into(),
        act("clocks-apart", processes::kill)
            .clock(ClockOf::EachWorker)
            .into(),
    ]);
    rows
}

const LIMITED: &[ErrorKind] = &[
    ErrorKind::ServiceUnavailable,
    ErrorKind::NetworkTimeout,
    ErrorKind::RateLimited,
];

/// For a while, a share of the calls of one method goes wrong.
fn share(stage: &mut Stage<Firestore>, effect: Effect, method: &str) {
    let rate = 0.1 + 0.9 * stage.random.f64();
    let fault = Fault::new(effect).on(method).at_rate(rate);
    stage.store.0.faults().set([fault]);
    stage.pause(300..2_000);
    stage.store.0.faults().set([]);
}

fn refused(stage: &mut Stage<Firestore>, refusal: Refusal) -> io::Result<()> {
    let methods = [
        "Commit",
        "BeginTransaction",
        "BatchGetDocuments",
        "RunQuery",
    ];
    let method = stage.random.choice(methods).unwrap_or("Commit");
    share(stage, Effect::Status(refusal), method);
    Ok(())
}

fn aborted(stage: &mut Stage<Firestore>, _: &mut Workers<'_>) -> io::Result<()> {
    share(stage, Effect::Status(Refusal::Aborted), "Commit");
    Ok(())
}

fn unavailable(stage: &mut Stage<Firestore>, _: &mut Workers<'_>) -> io::Result<()> {
    refused(stage, Refusal::Unavailable)
}

fn deadline_exceeded(stage: &mut Stage<Firestore>, _: &mut Workers<'_>) -> io::Result<()> {
    refused(stage, Refusal::DeadlineExceeded)
}

fn resource_exhausted(stage: &mut Stage<Firestore>, _: &mut Workers<'_>) -> io::Result<()> {
    refused(stage, Refusal::ResourceExhausted)
}

fn lost_replies(stage: &mut Stage<Firestore>, _: &mut Workers<'_>) -> io::Result<()> {
    let lost = if stage.random.bool() {
        Lost::Silence
    } else {
        Lost::Unavailable
    };
    share(stage, Effect::DropReply(lost), "Commit");
    Ok(())
}

fn slow_commits(stage: &mut Stage<Firestore>, _: &mut Workers<'_>) -> io::Result<()> {
    let ms = stage.random.u64(20..500);
    share(stage, Effect::LatencyMs(ms), "Commit");
    Ok(())
}
