//! Clients whose clocks are wrong: what they are refused, and what becomes of the locks that they hold.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use syncguard::firestore::{FirestoreConfig, MOST_SKEW_MS, Warning};
use syncguard::{
    AcquireOutcome, AcquireRequest, AutoExtend, Claim, Clock, Due, Error, ErrorKind, Finish,
    LockOptions, Lookup, MarkChange, Operation, Outcome, ReleaseOutcome, ReleaseRequest,
    RetryPolicy, Slots, SystemClock, Ttl, lock,
};

use crate::stage::Server;
use crate::support::attempts::Attempts as _;
use crate::support::clients::firestore_db;
use crate::support::locks::{acquire, eventually, key, request, ttl};
use crate::support::suite::tests;

tests![
    clients_half_a_minute_apart_are_both_told,
    nothing_is_left_of_what_was_refused,
    whoever_waits_gets_the_lock_once_the_clock_is_right,
    whoever_insists_is_granted,
    a_client_of_the_application_is_checked_likewise,
    a_slow_answer_is_no_wrong_clock,
    a_holder_whose_clock_jumps_is_extended_no_further,
    a_holder_whose_clock_jumps_releases_what_it_holds,
    what_is_done_is_noted_though_the_clock_has_jumped,
    a_wrong_clock_deletes_no_lock_of_others,
    a_short_jump_loses_no_lock,
];

/// The system's clock, and so many milliseconds.
#[derive(Clone, Default)]
struct Off(Arc<AtomicI64>);

impl Off {
    fn by(ms: i64) -> Self {
        Self(Arc::new(AtomicI64::new(ms)))
    }

    fn jump_to(&self, ms: i64) {
        self.0.store(ms, Ordering::SeqCst);
    }
}

impl Clock for Off {
    fn now_ms(&self) -> i64 {
        SystemClock.now_ms() + self.0.load(Ordering::SeqCst)
    }
}

const FAR_MS: i64 = 30_000;

/// Notes by how much clocks were found to be ahead.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<i64>>>);

impl Heard {
    fn into(self, config: &mut FirestoreConfig) {
        config.on_warning = Some(Arc::new(move |warning: &Warning| {
            if let Warning::ClockSkew { ahead_ms } = warning {
                self.0.lock().unwrap().push(*ahead_ms);
            }
        }));
    }

    fn all(&self) -> Vec<i64> {
        self.0.lock().unwrap().clone()
    }
}

fn assert_refused(error: &Error, ahead: bool) {
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    assert!(!error.is_outcome_unknown());
    let side = if ahead { "ms ahead of" } else { "ms behind" };
    let text = error.message();
    assert!(text.contains(side), "{text}");
    assert!(text.contains("synchronise it"), "{text}");
    assert!(text.contains("ignoreClockSkew"), "{text}");
}

async fn clients_half_a_minute_apart_are_both_told() {
    let server = Server::start();
    let heard = Heard::default();
    let right = server.backend();
    for ahead_ms in [FAR_MS, -FAR_MS] {
        let hears = heard.clone();
        let wrong = server.backend_by(Off::by(ahead_ms), |config| hears.into(config));
        // Free or held: it is not even asked.
        let error = wrong.acquire(&request("free")).await.unwrap_err();
        assert_refused(&error, ahead_ms > 0);
        let held = acquire(&*right, "held").await;
        let error = wrong.acquire(&request("held")).await.unwrap_err();
        assert_refused(&error, ahead_ms > 0);
        assert!(right.is_locked(&key("held")).await.unwrap());
        right.release(&held.lock_id).await.unwrap();
    }
    let by = heard.all();
    assert_eq!(by.len(), 4, "{by:?}");
    // At most by what the clock is off, less the time that the answer took.
    assert!(
        by[..2]
            .iter()
            .all(|by| *by > MOST_SKEW_MS && *by <= FAR_MS + 1)
    );
    let behind = |by: &i64| *by < -MOST_SKEW_MS && *by >= -FAR_MS - 1;
    assert!(by[2..].iter().all(behind), "{by:?}");
}

async fn nothing_is_left_of_what_was_refused() {
    let server = Server::start();
    let wrong = server.backend_by(Off::by(FAR_MS), |_| {});
    let slots = Slots::new(3).unwrap();
    let several = AcquireRequest::of(
        ["a", "b"].map(|it| Claim::new(key(it)).unwrap()),
        Ttl::DEFAULT,
    );
    let slot = AcquireRequest::of([Claim::slot(key("s"), slots).unwrap()], Ttl::DEFAULT);
    for wanted in [request("k"), several.unwrap(), slot.unwrap()] {
        assert_refused(&wrong.acquire(&wanted).await.unwrap_err(), true);
    }
    // Waits until no transaction is open.
    let calls = server.calls().await;
    assert!(!calls.iter().any(|(call, _)| call == "Commit"), "{calls:?}");
    for path in ["locks/k", "locks/a", "fence_counters/fence:k"] {
        assert!(server.fields(path).await.is_none(), "{path}");
    }
}

async fn whoever_waits_gets_the_lock_once_the_clock_is_right() {
    let server = Server::start();
    let (clock, heard) = (Off::by(-FAR_MS), Heard::default());
    let hears = heard.clone();
    let backend = server.backend_by(clock.clone(), |config| hears.into(config));
    let short = LockOptions {
        retry: RetryPolicy {
            timeout_ms: 300.0,
            ..RetryPolicy::default()
        },
        ..LockOptions::default()
    };
    let error = lock(&backend, &key("k"), &short).await.unwrap_err();
    assert_refused(&error, false);
    assert!(error.message().starts_with("gave up after"), "{error}");
    let told = heard.all().len();
    let long = LockOptions {
        retry: RetryPolicy {
            timeout_ms: 60_000.0,
            ..RetryPolicy::default()
        },
        ..LockOptions::default()
    };
    let waits = async { lock(&backend, &key("k"), &long).await.unwrap() };
    let mended = async {
        eventually("it is refused again", async || heard.all().len() > told).await;
        clock.jump_to(0);
    };
    let (guard, ()) = tokio::join!(waits, mended);
    assert!(guard.release().await.unwrap());
}

async fn whoever_insists_is_granted() {
    let server = Server::start();
    let heard = Heard::default();
    let hears = heard.clone();
    let backend = server.backend_by(Off::by(FAR_MS), |config| {
        hears.into(config);
        config.ignore_clock_skew = true;
    });
    let grant = acquire(&*backend, "k").await;
    backend.extend(&grant.lock_id, Ttl::DEFAULT).await.unwrap();
    let released = backend.release(&grant.lock_id).await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
    assert_eq!(heard.all(), [0; 0]);
}

async fn a_client_of_the_application_is_checked_likewise() {
    let server = Server::start();
    let address = server.emulator.address().to_string();
    let db = firestore_db(&address, "test").await;
    let backend = |ignore_clock_skew| {
        let config = FirestoreConfig {
            ignore_clock_skew,
            ..FirestoreConfig::default()
        };
        syncguard_clients::firestore_db::backend(&db, config).unwrap()
    };
    for ahead_ms in [-FAR_MS, FAR_MS] {
        server.emulator.set_clock_ahead(ahead_ms);
        let error = backend(false).acquire(&request("k")).await.unwrap_err();
        assert_refused(&error, ahead_ms < 0);
    }
    acquire(&backend(true), "k").await;
    server.emulator.set_clock_ahead(0);
    acquire(&backend(false), "l").await;
}

async fn a_slow_answer_is_no_wrong_clock() {
    let server = Server::start();
    let mediator = crate::mediator::Mediator::start(server.emulator.address()).await;
    let backend = server.backend_with(|config| config.emulator_host = Some(mediator.address()));
    acquire(&*backend, "warm").await;
    mediator.keep_replies();
    server.emulator.faults().reset_calls();
    let wanted = request("k");
    let late = async {
        let read = async || {
            let calls = server.emulator.faults().calls();
            calls.contains_key("BatchGetDocuments")
        };
        eventually("it has read", read).await;
        // Firestore's time is as old as this when the answer comes.
        tokio::time::sleep(Duration::from_millis(MOST_SKEW_MS as u64 * 2)).await;
        mediator.pass();
    };
    let (outcome, ()) = tokio::join!(backend.acquire(&wanted), late);
    assert!(matches!(outcome.unwrap(), AcquireOutcome::Acquired(_)));
}

async fn a_holder_whose_clock_jumps_is_extended_no_further() {
    let server = Server::start();
    let right = server.backend();
    for jump_ms in [FAR_MS, -FAR_MS] {
        let clock = Off::default();
        let holder = server.backend_by(clock.clone(), |_| {});
        let grant = acquire(&*holder, "k").await;
        let before = server.fields("locks/k").await;
        clock.jump_to(jump_ms);
        let error = holder
            .extend(&grant.lock_id, Ttl::DEFAULT)
            .await
            .unwrap_err();
        assert_refused(&error, jump_ms > 0);
        // The lock is there until the end that it was granted with.
        assert_eq!(server.fields("locks/k").await, before);
        assert!(right.is_locked(&key("k")).await.unwrap());
        clock.jump_to(0);
        holder.extend(&grant.lock_id, Ttl::DEFAULT).await.unwrap();
        right.force_release(&key("k")).await.unwrap();
    }
}

async fn a_holder_whose_clock_jumps_releases_what_it_holds() {
    let server = Server::start();
    for jump_ms in [FAR_MS * 2, -FAR_MS * 2] {
        let clock = Off::default();
        let holder = server.backend_by(clock.clone(), |_| {});
        let grant = acquire(&*holder, "k").await;
        clock.jump_to(jump_ms);
        assert!(holder.is_locked(&key("k")).await.unwrap());
        let found = holder.lookup(&Lookup::Key(key("k"))).await.unwrap();
        assert!(found.unwrap().is_live());
        let released = holder.release(&grant.lock_id).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released, "{jump_ms}");
        assert!(!holder.is_locked(&key("k")).await.unwrap());
    }
}

async fn what_is_done_is_noted_though_the_clock_has_jumped() {
    let server = Server::start();
    let clock = Off::default();
    let holder = server.backend_by(clock.clone(), |_| {});
    let due = Due::new("2026-11-25").unwrap();
    let grant = acquire(&*holder, "k").await;
    clock.jump_to(FAR_MS * 2);
    let release = ReleaseRequest {
        done: Some(Finish {
            key: key("k"),
            due: due.clone(),
        }),
        ..[grant.lock_id.clone()].into()
    };
    let Outcome::Release(outcomes) = holder.run(&Operation::Release(release)).await.unwrap() else {
        panic!("no release");
    };
    assert_eq!(outcomes[..], [ReleaseOutcome::Released]);
    let keep = Operation::Mark {
        key: key("k"),
        change: MarkChange::Keep,
    };
    let Outcome::Mark(Some(mark)) = holder.run(&keep).await.unwrap() else {
        panic!("nothing is noted");
    };
    assert_eq!(mark.due, due);
    let now_ms = SystemClock.now_ms();
    assert!((now_ms - FAR_MS..=now_ms).contains(&mark.done_at_ms));
}

async fn a_wrong_clock_deletes_no_lock_of_others() {
    let server = Server::start();
    let right = server.backend();
    let wrong = server.backend_by(Off::by(FAR_MS * 2), |config| {
        config.cleanup_in_is_locked = true;
    });
    acquire(&*right, "k").await;
    assert!(wrong.is_locked(&key("k")).await.unwrap());
    let calls = server.calls().await;
    assert!(!calls.iter().any(|(call, _)| call == "RunQuery"));
    assert!(right.is_locked(&key("k")).await.unwrap());
}

async fn a_short_jump_loses_no_lock() {
    let server = Server::start();
    let (clock, heard) = (Off::default(), Heard::default());
    let hears = heard.clone();
    let backend = server.backend_by(clock.clone(), |config| hears.into(config));
    let options = LockOptions {
        ttl: ttl(6000),
        auto_extend: Some(AutoExtend::default()),
        ..LockOptions::default()
    };
    let guard = lock(&backend, &key("k"), &options).await.unwrap();
    let end_ms = guard.expires_at_ms();
    clock.jump_to(-FAR_MS);
    eventually("an extension is refused", async || !heard.all().is_empty()).await;
    clock.jump_to(0);
    eventually("it goes on", async || guard.expires_at_ms() > end_ms).await;
    assert!(guard.release().await.unwrap());
}
