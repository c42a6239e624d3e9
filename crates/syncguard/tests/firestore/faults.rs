//! Firestore under contention and when things go wrong.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use firestore_emulator::{Effect, Emulator, Fault, Lost, Options, Part, Refusal};
use syncguard::firestore::{Credentials, FirestoreBackend, FirestoreConfig};
use syncguard::operation::{self, CallOptions};
use syncguard::{
    AcquireOutcome, AcquireRequest, AutoExtend, Backend, Clock, ErrorKind, ExtendOutcome,
    LockOptions, Lookup, Operation, ReleaseOutcome, Ttl, lock,
};
use tokio::task::JoinSet;

use crate::mediator::Mediator;
use crate::stage::Server;
use crate::support::attempts::Attempts as _;
use crate::support::link::Link;
use crate::support::locks::{AHEAD, acquire, eventually, key, try_acquire};
use crate::support::precedence::locks_are_kept_and_freed_before_a_crowd;
use crate::support::process::{Pipe, free_port};
use crate::support::suite::tests;

tests![
    heartbeats_and_releases_go_before_a_crowd,
    eight_clients_race_for_twenty_rounds,
    sixty_four_clients_on_one_key_see_contention_and_no_error,
    a_lost_reply_leaves_no_lock_behind,
    a_lost_reply_is_an_unknown_outcome_and_a_refusal_is_not,
    statuses_become_kinds_in_every_operation,
    a_server_that_does_not_answer_is_a_timeout,
    nothing_is_concluded_from_a_reply_that_lacks_a_part,
    it_connects_again_when_the_server_is_back,
    a_connection_that_falls_silent_is_replaced_within_an_operations_limit,
    what_a_silent_connection_was_granted_is_released,
    a_lock_that_is_extended_during_a_slow_read_is_seen_held,
    a_key_file_that_cannot_be_read_holds_up_nobody_else,
];

async fn heartbeats_and_releases_go_before_a_crowd() {
    let server = Server::start();
    let link = Link::slow(server.emulator.address(), Duration::from_millis(100)).await;
    let backend = server.backend_with(|config| {
        config.emulator_host = Some(link.address.to_string());
    });
    locks_are_kept_and_freed_before_a_crowd(&backend).await;
}

async fn eight_clients_race_for_twenty_rounds() {
    let server = Server::start();
    let clients: Vec<_> = (0..8).map(|_| server.backend()).collect();
    let mut last_fence = AHEAD;
    server.count("race").await;
    for round in 0..20 {
        let mut attempts = JoinSet::new();
        for client in &clients {
            let client = Arc::clone(client);
            attempts.spawn(async move {
                let outcome = try_acquire(&*client, "race").await;
                outcome.expect("an attempt failed")
            });
        }
        let outcomes = attempts.join_all().await;
        let mut grants = outcomes.into_iter().filter_map(|outcome| match outcome {
            AcquireOutcome::Acquired(grant) => Some(grant),
            _ => None,
        });
        let winner = grants.next().expect("nobody won");
        assert!(grants.next().is_none(), "two winners in round {round}");
        // The fence is counted once for each lock that was granted, and for nothing else.
        last_fence += 1;
        assert_eq!(winner[0].fence.get(), last_fence);
        let released = clients[0].release(&winner[0].lock_id).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
    }
}

async fn sixty_four_clients_on_one_key_see_contention_and_no_error() {
    let server = Server::start();
    // Conflicts on top of those that they make themselves.
    server.count("hot").await;
    let aborted = Effect::Status(Refusal::Aborted);
    server
        .emulator
        .faults()
        .set([Fault::new(aborted).at_rate(0.3)]);
    let mut clients = JoinSet::new();
    for _ in 0..64 {
        let client = server.backend();
        clients.spawn(async move {
            let mut fences = Vec::new();
            for _ in 0..5 {
                if let AcquireOutcome::Acquired(grant) = try_acquire(&*client, "hot")
                    .await
                    .expect("an attempt failed")
                {
                    fences.push(grant[0].fence);
                    let outcome = client
                        .release(&grant[0].lock_id)
                        .await
                        .expect("a release failed");
                    assert_eq!(outcome, ReleaseOutcome::Released);
                }
            }
            fences
        });
    }
    let mut fences: Vec<_> = clients.join_all().await.concat();
    fences.sort_unstable();
    let numbers: Vec<_> = fences.iter().map(|fence| fence.get()).collect();
    let expected: Vec<_> = (AHEAD + 1..).take(numbers.len()).collect();
    assert!(!numbers.is_empty());
    assert_eq!(
        numbers, expected,
        "a fence was given twice or written without a lock"
    );
}

async fn a_lost_reply_leaves_no_lock_behind() {
    for lost in [Lost::Unavailable, Lost::Silence] {
        let server = Server::start();
        let backend = server.backend_with(|config| {
            config.operation_timeout = Duration::from_millis(500);
        });
        server.count("a").await;
        let dropped = Fault::new(Effect::DropReply(lost)).on("Commit").times(1);
        server.emulator.faults().set([dropped]);
        let request = AcquireRequest::new(key("a"), Ttl::DEFAULT).unwrap();
        let attempt = operation::run::<AcquireOutcome>(
            &backend,
            Operation::Acquire(request),
            CallOptions::default(),
            pending(),
        );
        let error = attempt.await.unwrap_err();
        assert!(error.kind().is_transient(), "{error:?}");
        let start = Instant::now();
        eventually("the key is free", async || {
            let held = backend.is_locked(&key("a")).await;
            held.is_ok_and(|held| !held)
        })
        .await;
        // Long before its end.
        let took = start.elapsed();
        assert!(took < Duration::from_secs(15), "{took:?}");
        // The lock was really there: its fence is used up.
        let fence = acquire(&*backend, "a").await.fence.get();
        assert_eq!(fence, AHEAD + 2);
    }
}

async fn a_lost_reply_is_an_unknown_outcome_and_a_refusal_is_not() {
    let server = Server::start();
    let backend = server.backend();
    let outcome = async |fault: Fault| {
        server.emulator.faults().set([fault]);
        let error = try_acquire(&*backend, "a").await.unwrap_err();
        (error.kind(), error.is_outcome_unknown())
    };
    let lost = Fault::new(Effect::Status(Refusal::Unavailable));
    let expected = (ErrorKind::ServiceUnavailable, true);
    assert_eq!(outcome(lost.clone().on("Commit")).await, expected);
    let expected = (ErrorKind::ServiceUnavailable, false);
    assert_eq!(outcome(lost.on("BatchGetDocuments")).await, expected);
    let denied = Fault::new(Effect::Status(Refusal::PermissionDenied)).on("Commit");
    assert_eq!(outcome(denied).await, (ErrorKind::AuthFailed, false));
}

async fn statuses_become_kinds_in_every_operation() {
    let server = Server::start();
    let backend = server.backend_with(|config| {
        config.operation_timeout = Duration::from_millis(400);
    });
    let lock_id = acquire(&*backend, "a").await.lock_id;
    for (refusal, kind) in [
        (Refusal::Aborted, ErrorKind::ServiceUnavailable),
        (Refusal::Unavailable, ErrorKind::ServiceUnavailable),
        (Refusal::Internal, ErrorKind::ServiceUnavailable),
        (Refusal::DeadlineExceeded, ErrorKind::NetworkTimeout),
        (Refusal::ResourceExhausted, ErrorKind::RateLimited),
        (Refusal::PermissionDenied, ErrorKind::AuthFailed),
        (Refusal::Unauthenticated, ErrorKind::AuthFailed),
    ] {
        server
            .emulator
            .faults()
            .set([Fault::new(Effect::Status(refusal))]);
        let a = key("a");
        let errors = [
            try_acquire(&*backend, a.as_str()).await.err(),
            backend.release(&lock_id).await.err(),
            backend.extend(&lock_id, Ttl::DEFAULT).await.err(),
            backend.is_locked(&a).await.err(),
            backend.lookup(&Lookup::Key(a.clone())).await.err(),
            backend.lookup(&Lookup::LockId(lock_id.clone())).await.err(),
            backend.force_release(&a).await.err(),
        ];
        for error in errors {
            assert_eq!(error.expect("a refusal").kind(), kind, "{refusal:?}");
        }
    }
    server.emulator.faults().set([]);
    assert!(backend.is_locked(&key("a")).await.unwrap());
}

async fn a_server_that_does_not_answer_is_a_timeout() {
    let server = Server::start();
    let backend = server.backend_with(|config| {
        config.operation_timeout = Duration::from_millis(100);
    });
    let silence = Fault::new(Effect::DropReply(Lost::Silence));
    server
        .emulator
        .faults()
        .set([silence.on("BatchGetDocuments")]);
    let error = try_acquire(&*backend, "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
    assert!(!error.is_outcome_unknown());
    let error = backend.is_locked(&key("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout);
}

async fn nothing_is_concluded_from_a_reply_that_lacks_a_part() {
    let server = Server::start();
    lacks_a_part(&server, server.backend()).await;
}

/// Replies to `backend` lack parts, and it neither grants nor frees a lock then.
pub(crate) async fn lacks_a_part(server: &Server, backend: Arc<dyn Backend>) {
    let held = acquire(&*backend, "held").await;
    let by_key = Lookup::Key(key("held"));
    let faults = server.emulator.faults();
    for part in [Part::Transaction, Part::Documents] {
        faults.reset_calls();
        faults.set([Fault::new(Effect::Omit(part))]);
        let mut errors = vec![
            try_acquire(&*backend, "held").await.err(),
            try_acquire(&*backend, "free").await.err(),
            backend.force_release(&key("held")).await.err(),
        ];
        // By their lock ids, locks are found by a query: a reply without documents has found none.
        if part == Part::Transaction {
            errors.push(backend.release(&held.lock_id).await.err());
            errors.push(backend.extend(&held.lock_id, Ttl::DEFAULT).await.err());
        } else {
            errors.push(backend.is_locked(&key("held")).await.err());
            errors.push(backend.lookup(&by_key).await.err());
        }
        for error in errors {
            let error = error.expect("the reply was taken");
            assert_eq!(error.kind(), ErrorKind::Internal, "{part:?}: {error}");
            assert!(!error.is_outcome_unknown(), "{part:?}");
        }
        faults.set([]);
        assert!(!faults.calls().contains_key("Commit"));
    }
    assert!(!backend.is_locked(&key("free")).await.unwrap());
    let released = backend.release(&held.lock_id).await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
}

async fn it_connects_again_when_the_server_is_back() {
    // One that the system gives to nobody else's connection meanwhile.
    let port = free_port();
    let start = || {
        let options = Options::default();
        Emulator::start(Options { port, ..options }).unwrap()
    };
    let server = Server { emulator: start() };
    let backend = server.backend_with(|config| {
        config.operation_timeout = Duration::from_secs(1);
    });
    acquire(&*backend, "a").await;
    drop(server);
    let error = try_acquire(&*backend, "b").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    let error = backend.is_locked(&key("b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
    let _again = start();
    eventually("it is connected and the key is free", async || {
        backend.is_locked(&key("a")).await.is_ok_and(|held| !held)
    })
    .await;
}

/// How long an operation may take in the tests of silence.
const LIMIT: Duration = Duration::from_secs(3);

async fn a_connection_that_falls_silent_is_replaced_within_an_operations_limit() {
    let server = Server::start();
    let mediator = Mediator::start(server.emulator.address()).await;
    let backend = server.backend_with(|config| {
        config.emulator_host = Some(mediator.address());
        config.operation_timeout = LIMIT;
    });
    for round in 0..3 {
        let grant = acquire(&*backend, "a").await;
        backend.release(&grant.lock_id).await.unwrap();
        if round == 1 {
            // A connection that nobody has used for a while is no better.
            tokio::time::sleep(LIMIT * 2).await;
        }
        mediator.fall_silent();
        let start = Instant::now();
        let mut failures = 0;
        while let Err(error) = backend.is_locked(&key("a")).await {
            assert!(error.kind().is_transient(), "{error:?}");
            failures += 1;
        }
        let past = start.elapsed();
        assert!(past < LIMIT * 3 / 2, "{past:?} and {failures} failures");
        assert_eq!(mediator.connections(), round + 2);
    }
}

async fn what_a_silent_connection_was_granted_is_released() {
    let server = Server::start();
    let mediator = Mediator::start(server.emulator.address()).await;
    let backend = server.backend_with(|config| {
        config.emulator_host = Some(mediator.address());
        config.operation_timeout = LIMIT;
    });
    let peer = server.backend();
    acquire(&*backend, "warm").await;
    server.count("a").await;
    // The commit arrives, and its answer does not.
    server
        .emulator
        .faults()
        .set([Fault::new(Effect::LatencyMs(200)).on("Commit").times(1)]);
    let request = AcquireRequest::new(key("a"), Ttl::DEFAULT).unwrap();
    let attempt = operation::run::<AcquireOutcome>(
        &backend,
        Operation::Acquire(request),
        CallOptions::default(),
        pending(),
    );
    let (answer, ()) = tokio::join!(attempt, async {
        server.emulator.faults().reset_calls();
        let committing = async || server.emulator.faults().calls().contains_key("Commit");
        eventually("it commits", committing).await;
        mediator.keep_replies();
    });
    assert!(answer.unwrap_err().kind().is_transient());
    let start = Instant::now();
    eventually("the key is free", async || {
        !peer.is_locked(&key("a")).await.unwrap()
    })
    .await;
    assert!(start.elapsed() < LIMIT * 3, "{:?}", start.elapsed());
    // It was really granted.
    assert_eq!(acquire(&*peer, "a").await.fence.get(), AHEAD + 2);
}

/// A clock that tests set.
#[derive(Clone)]
struct ManualClock(Arc<AtomicI64>);

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

async fn a_lock_that_is_extended_during_a_slow_read_is_seen_held() {
    let server = Server::start();
    let mediator = Mediator::start(server.emulator.address()).await;
    let now = ManualClock(Arc::new(AtomicI64::new(1_700_000_000_000)));
    let holder = server.backend_on(now.clone(), |_| {});
    let reader = server.backend_on(now.clone(), |config| {
        config.emulator_host = Some(mediator.address());
    });
    let pass_ms = |ms| now.0.fetch_add(ms, Ordering::SeqCst);
    let a = key("a");
    let request = AcquireRequest::new(a.clone(), Ttl::from_millis(2000).unwrap()).unwrap();
    holder.acquire(&request).await.unwrap();
    let id = request.claims[0].lock_id.clone();
    let (by_key, by_id) = (Lookup::Key(a.clone()), Lookup::LockId(id.clone()));
    assert!(reader.is_locked(&a).await.unwrap());
    for question in ["is_locked", "by key", "by lock id"] {
        mediator.keep_replies();
        server.emulator.faults().reset_calls();
        let answer = async {
            match question {
                "is_locked" => reader.is_locked(&a).await.unwrap(),
                "by key" => reader.lookup(&by_key).await.unwrap().is_some(),
                _ => reader.lookup(&by_id).await.unwrap().is_some(),
            }
        };
        let meanwhile = async {
            // The lock was read as it was.
            let call = match question {
                "by lock id" => "RunQuery",
                _ => "BatchGetDocuments",
            };
            let read = async || server.emulator.faults().calls().contains_key(call);
            eventually("it reads", read).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            for _ in 0..2 {
                pass_ms(1900);
                let extended = holder.extend(&id, Ttl::from_millis(2000).unwrap()).await;
                assert!(matches!(extended, Ok(ExtendOutcome::Extended { .. })));
            }
            mediator.pass();
        };
        let (is_held, ()) = tokio::join!(answer, meanwhile);
        assert!(is_held, "{question}");
    }
}

/// Reading it takes as long as somebody else likes: nobody writes into the pipe.
async fn a_key_file_that_cannot_be_read_holds_up_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = Pipe::new_in(folder.path());
    let server = Server::start();
    let free = server.backend();
    let stuck = FirestoreBackend::new(FirestoreConfig {
        emulator_host: None,
        credentials: Credentials::KeyFile(pipe.0.clone()),
        operation_timeout: LIMIT,
        ..FirestoreConfig::project("test")
    });
    let stuck = stuck.unwrap();
    // All of it on one thread, on which a lock also extends itself.
    let others = async {
        let options = LockOptions {
            ttl: Ttl::from_millis(4000).unwrap(),
            auto_extend: Some(AutoExtend::default()),
            ..LockOptions::default()
        };
        let guard = lock(&free, &key("held"), &options).await.unwrap();
        // Longer than its TTL and the tolerance.
        tokio::time::sleep(LIMIT * 2).await;
        assert!(guard.release().await.unwrap());
    };
    let start = Instant::now();
    let a = key("a");
    let (error, ()) = tokio::join!(stuck.is_locked(&a), others);
    assert!(start.elapsed() < LIMIT * 4, "{:?}", start.elapsed());
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkTimeout, "{error:?}");
    assert!(error.message().contains("credentials"), "{error}");
    assert!(!error.is_outcome_unknown());
    // Once it is there, it counts: this one is no key.
    tokio::task::spawn_blocking(move || std::fs::write(&pipe.0, "{}").unwrap());
    eventually("the file is read", async || {
        let answer = stuck.is_locked(&key("a")).await;
        answer.is_err_and(|error| error.kind() == ErrorKind::AuthFailed)
    })
    .await;
}
