//! Replies that end early, or never.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use syncguard::operation::{CallOptions, run};
use syncguard::redis::{RedisBackend, RedisConfig, RedisLocks};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Due, ErrorKind, ExtendOutcome, LockId, LockOptions,
    Lookup, Operation, lock,
};
use tokio::io::AsyncWriteExt;

use crate::fake::{Mixup, listen, mixing, until_script};
use crate::support::attempts::Attempts as _;
use crate::support::claims::{plain, slot};
use crate::support::clients::fred;
use crate::support::locks::{acquire, eventually, key, request, try_acquire, ttl};
use crate::support::redis_server::RedisServer;
use crate::support::suite::tests;

tests![
    a_connection_that_ends_within_a_reply_is_lost_wherever_it_ends,
    a_reply_without_an_end_is_not_read_to_the_end,
    after_a_reply_that_does_not_fit_no_other_is_believed,
    as_much_as_honest_replies_need_is_read,
    a_reply_to_another_call_of_the_same_kind_is_not_believed,
    an_error_that_is_not_the_servers_leaves_no_lock,
];

fn backend_at(port: u16) -> RedisBackend {
    RedisBackend::new(RedisConfig::from_url(&format!("redis://127.0.0.1:{port}")).unwrap()).unwrap()
}

async fn a_connection_that_ends_within_a_reply_is_lost_wherever_it_ends() {
    const REPLY: &[u8] = b"*3\r\n:1\r\n:7\r\n:1700000000000\r\n";
    for cut in 0..REPLY.len() {
        let port = listen(move |stream| async move {
            if let Some(mut stream) = until_script(stream).await {
                stream.write_all(&REPLY[..cut]).await.unwrap();
            }
        })
        .await;
        let error = try_acquire(&backend_at(port), "k").await.unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::ServiceUnavailable,
            "{cut}: {error:?}"
        );
        assert!(error.is_outcome_unknown(), "{cut}: {error:?}");
    }
}

async fn a_reply_without_an_end_is_not_read_to_the_end() {
    // A text that is too long, a list that is too long, and a line that never ends.
    for (head, part) in [
        ("$1000000000\r\n", "x"),
        ("*1000000000\r\n", ":1\r\n"),
        ("+", "x"),
        // Replies to nobody's question.
        ("", "+OK\r\n"),
    ] {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let port = listen(move |stream| {
            let count = Arc::clone(&count);
            async move {
                let Some(mut stream) = until_script(stream).await else {
                    return;
                };
                if head.is_empty() {
                    stream.write_all(b":0\r\n").await.unwrap();
                }
                stream.write_all(head.as_bytes()).await.unwrap();
                let part = part.repeat(1000);
                // Until the other side ends the connection.
                while stream.write_all(part.as_bytes()).await.is_ok() {
                    count.fetch_add(part.len(), SeqCst);
                }
                count.fetch_or(ENDED, SeqCst);
            }
        })
        .await;
        let backend = backend_at(port);
        let outcome = try_acquire(&backend, "k").await;
        if !head.is_empty() {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal, "{head}: {error:?}");
            assert!(error.is_outcome_unknown(), "{head}: {error:?}");
            assert!(error.message().contains("longer"), "{error}");
        }
        while sent.load(SeqCst) & ENDED == 0 {
            tokio::task::yield_now().await;
        }
        let sent = sent.load(SeqCst) & !ENDED;
        // What was read, and what lay in the buffers of the operating system.
        assert!(sent < 32 << 20, "{head}: {sent} bytes were sent");
    }
}

async fn after_a_reply_that_does_not_fit_no_other_is_believed() {
    const GRANT: &str = "*3\r\n:1\r\n:7\r\n:1700000000000\r\n";
    for wrong in [":1\r\n", "*3\r\n:1\r\n:0\r\n:1700000000000\r\n", "+OK\r\n"] {
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let port = listen(move |stream| {
            let number = count.fetch_add(1, SeqCst);
            async move {
                let Some(mut stream) = until_script(stream).await else {
                    return;
                };
                if number == 0 {
                    stream.write_all(GRANT.as_bytes()).await.unwrap();
                    for _ in 0..2 {
                        crate::fake::read_request(&mut stream).await.unwrap();
                    }
                    stream.write_all(wrong.as_bytes()).await.unwrap();
                }
                stream.write_all(GRANT.as_bytes()).await.unwrap();
                let _ = crate::fake::read_request(&mut stream).await;
            }
        })
        .await;
        let backend = backend_at(port);
        acquire(&backend, "k").await;
        // The answers have changed places, so that the second has got the first one's.
        let (first, second) = tokio::join!(try_acquire(&backend, "k"), try_acquire(&backend, "l"));
        let (first, second) = (first.unwrap_err(), second.unwrap_err());
        assert_eq!(first.kind(), ErrorKind::Internal, "{first:?}");
        assert_eq!(second.kind(), ErrorKind::ServiceUnavailable, "{second:?}");
        assert!(first.is_outcome_unknown() && second.is_outcome_unknown());
        acquire(&backend, "k").await;
        assert_eq!(connections.load(SeqCst), 2);
    }
}

/// Beside the count of bytes: the connection has ended.
const ENDED: usize = 1 << 62;

async fn as_much_as_honest_replies_need_is_read() {
    // A thousand calls at once, each with a long reply that comes in pieces.
    let port = listen(move |stream| async move {
        let Some(mut stream) = until_script(stream).await else {
            return;
        };
        let reply = format!("${}\r\n{}\r\n", 6000, "x".repeat(6000));
        loop {
            stream.write_all(reply.as_bytes()).await.unwrap();
            if crate::fake::read_request(&mut stream).await.is_none() {
                return;
            }
        }
    })
    .await;
    let backend = Arc::new(backend_at(port));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..1000 {
        let backend = Arc::clone(&backend);
        let what = Lookup::Key(key("k"));
        tasks.spawn(async move { backend.lookup(&what).await.unwrap_err() });
    }
    for error in tasks.join_all().await {
        // What is stored makes no sense, but it is the reply.
        assert!(error.message().contains("malformed"), "{error}");
    }
}

/// Requests of each kind, by the number of those who ask.
fn asked_for(number: usize) -> AcquireRequest {
    let (own, free) = (format!("own {number}"), number.is_multiple_of(2));
    let held = format!("held {number}");
    match number % 8 {
        0 | 1 => request(if free { &own } else { &held }),
        2 | 3 => AcquireRequest::of([plain(&own), slot("p", 9)], ttl(30_000)).unwrap(),
        4 | 5 => {
            let mut once = request(if free { &own } else { &held });
            once.due = Some(Due::new("v7").unwrap());
            once
        }
        _ => request(&own),
    }
}

async fn a_reply_to_another_call_of_the_same_kind_is_not_believed() {
    const CALLS: usize = 16;
    for mixup in [Mixup::Doubled, Mixup::Dropped] {
        for first in [false, true] {
            let server = RedisServer::start();
            let beside = backend_at(server.port());
            for number in 0..CALLS {
                acquire(&beside, &format!("held {number}")).await;
            }
            let (port, times) = mixing(server.port(), mixup).await;
            let backend = Arc::new(backend_at(port));
            // The scripts are known from now on, and all calls go out together.
            for number in (0..CALLS).take_while(|_| !first) {
                let request = asked_for(number);
                if let AcquireOutcome::Acquired(grants) = backend.acquire(&request).await.unwrap() {
                    for grant in grants {
                        backend.release(&grant.lock_id).await.unwrap();
                    }
                }
            }
            times.store(1, SeqCst);
            let mut calls = tokio::task::JoinSet::new();
            for number in 0..CALLS {
                let backend = Arc::clone(&backend);
                calls.spawn(async move {
                    let request = asked_for(number);
                    let call = backend.acquire(&request);
                    let outcome = tokio::time::timeout(SECONDS, call).await;
                    (request, outcome)
                });
            }
            for (request, outcome) in calls.join_all().await {
                let claim = &request.claims[0];
                let is_held = claim.key.as_str().starts_with("held");
                match outcome {
                    Ok(Ok(AcquireOutcome::Acquired(grants))) => {
                        assert!(!is_held, "{mixup:?}: a grant of a lock that another holds");
                        for grant in grants {
                            assert!(is_there(&beside, &grant.lock_id).await, "{mixup:?}");
                        }
                    }
                    Ok(Ok(other)) => assert!(is_held, "{mixup:?}: {other:?}"),
                    Ok(Err(error)) => {
                        assert!(error.is_outcome_unknown(), "{mixup:?}: {error:?}");
                    }
                    // The reply of the last was dropped.
                    Err(_) => {}
                }
            }
            acquire(backend.as_ref(), "afterwards").await;
        }
    }
}

/// Longer than replies take, so that whoever has none by then gets none.
const SECONDS: std::time::Duration = std::time::Duration::from_secs(2);

async fn is_there(backend: &RedisBackend, lock_id: &LockId) -> bool {
    let lookup = Lookup::LockId(lock_id.clone());
    let extended = backend.extend(lock_id, ttl(30_000)).await.unwrap();
    matches!(extended, ExtendOutcome::Extended { .. })
        && backend.lookup(&lookup).await.unwrap().is_some()
}

async fn an_error_that_is_not_the_servers_leaves_no_lock() {
    const CALLS: usize = 60;
    for (words, kind) in [
        (
            "-ERR Connection timed out\r\n",
            ErrorKind::ServiceUnavailable,
        ),
        ("-upstream failure\r\n", ErrorKind::ServiceUnavailable),
    ] {
        let server = RedisServer::start();
        let (port, replaced) = mixing(server.port(), Mixup::Replaced(words)).await;
        let fred = fred(port).await;
        let driven = syncguard_clients::fred::backend(&fred, &RedisLocks::default()).unwrap();
        let backends: [(&str, Arc<dyn Backend>); 2] = [
            ("own", Arc::new(backend_at(port))),
            ("fred", Arc::new(driven)),
        ];
        for (transport, backend) in backends {
            acquire(&*backend, transport).await;
            replaced.store(1, SeqCst);
            // Many in one pipeline: that for which the proxy has answered itself has been granted, and so have the others.
            let calls = (0..CALLS).map(|number| {
                let request = request(&format!("{transport} {number}"));
                let operation = Operation::Acquire(request);
                run::<AcquireOutcome>(&backend, operation, CallOptions::DEFAULT, pending())
            });
            let answers = futures::future::join_all(calls).await;
            let errors: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
            let [error] = errors.as_slice() else {
                panic!("{errors:?}");
            };
            assert_eq!(error.kind(), kind, "{transport}: {error}");
            assert!(error.is_outcome_unknown());
            // The same, waiting: it is tried again.
            replaced.store(1, SeqCst);
            let (name, options) = (key(&format!("{transport} waits")), LockOptions::default());
            drop(lock(&backend, &name, &options).await.unwrap());
            eventually("what was granted to nobody is freed", async || {
                let held = server
                    .connect()
                    .call(&["KEYS", &format!("syncguard:{transport} *")]);
                held.list().len() == CALLS - 1
            })
            .await;
        }
    }
}
