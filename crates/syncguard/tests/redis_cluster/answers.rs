//! Nodes that answer as no test can make real ones do: what is sent again, and what never is.

use std::future::pending;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use syncguard::operation::{self, CallOptions};
use syncguard::{AcquireOutcome, Backend, Error, ErrorKind, Operation, Outcome, Ttl};
use tokio::io::{AsyncWriteExt, BufReader};

use crate::fake::{listen, read_request};
use crate::stage::backend_with;
use crate::support::attempts::Attempts as _;
use crate::support::locks::{key, prepared};
use crate::support::suite::tests;

tests![
    nodes_that_send_a_call_to_each_other_get_it_a_few_times,
    a_call_whose_answer_is_lost_is_sent_once,
    an_error_inside_a_script_is_told_and_not_sent_again,
    a_node_without_a_host_is_on_that_of_the_one_that_names_it,
    asking_and_the_call_go_together,
    a_node_that_starts_is_left_for_its_successor,
    what_was_sent_and_not_run_is_sent_again_and_nothing_else,
    an_answer_about_the_slots_that_makes_no_sense_is_told,
    a_name_that_a_node_has_not_is_waited_for,
    a_slot_that_nobody_serves_yet_is_waited_for,
];

const GRANT: &str = "*3\r\n:1\r\n:7\r\n:1700000000000\r\n";

/// What a node was sent, without what stands at the start of a connection.
type Requests = Arc<Mutex<Vec<String>>>;

/// A node that answers scripts as told and says that the node at `owner` serves all hash slots, or only the first if that
/// is 0. It ends the connection where it has no answer.
async fn node<F>(owner: &Arc<AtomicU16>, answer: F) -> (u16, Requests)
where
    F: Fn(&str) -> Option<String> + Clone + Send + Sync + 'static,
{
    let heard = Requests::default();
    let (owner, listener) = (Arc::clone(owner), Arc::clone(&heard));
    let port = listen(move |stream| {
        let (owner, answer, heard) = (Arc::clone(&owner), answer.clone(), Arc::clone(&listener));
        async move {
            let mut stream = BufReader::new(stream);
            while let Some(words) = read_request(&mut stream).await {
                let reply = match words[0].as_str() {
                    "PING" => Some("+PONG\r\n".to_owned()),
                    "CLUSTER" => {
                        let (port, last) = match owner.load(SeqCst) {
                            0 => (1, 0),
                            port => (port, 16383),
                        };
                        Some(format!(
                            "*1\r\n*3\r\n:0\r\n:{last}\r\n*3\r\n$0\r\n\r\n:{port}\r\n$2\r\nid\r\n"
                        ))
                    }
                    word => {
                        heard.lock().unwrap().push(word.to_owned());
                        answer(word)
                    }
                };
                match reply {
                    Some(reply) if stream.write_all(reply.as_bytes()).await.is_ok() => {}
                    _ => return,
                }
            }
        }
    })
    .await;
    (port, heard)
}

fn to(port: u16) -> Arc<dyn Backend> {
    backend_with(&format!("redis+cluster://127.0.0.1:{port}"), |config| {
        config.locks.operation_timeout = Duration::from_secs(2);
    })
}

async fn acquire(backend: &Arc<dyn Backend>) -> Result<AcquireOutcome, Error> {
    let request = prepared(backend.as_ref(), &key("k"), Ttl::DEFAULT);
    backend.acquire(&request).await
}

fn count(heard: &Requests) -> usize {
    heard.lock().unwrap().len()
}

async fn nodes_that_send_a_call_to_each_other_get_it_a_few_times() {
    let (owner, other) = (Arc::new(AtomicU16::new(0)), Arc::new(AtomicU16::new(0)));
    let to_other = Arc::clone(&other);
    let moved = |port: u16| format!("-MOVED 1 127.0.0.1:{port}\r\n");
    let (a, at_a) = node(&owner, move |_| Some(moved(to_other.load(SeqCst)))).await;
    owner.store(a, SeqCst);
    let (b, at_b) = node(&owner, move |_| Some(moved(a))).await;
    other.store(b, SeqCst);
    let start = Instant::now();
    let error = acquire(&to(a)).await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    assert!(error.message().contains("do not agree"), "{error}");
    assert!(!error.is_outcome_unknown());
    let sent = count(&at_a) + count(&at_b);
    assert!((4..=17).contains(&sent), "{sent}");
}

async fn a_call_whose_answer_is_lost_is_sent_once() {
    let owner = Arc::new(AtomicU16::new(0));
    let (a, at_a) = node(&owner, |_| None).await;
    owner.store(a, SeqCst);
    let backend = to(a);
    let error = acquire(&backend).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    assert!(error.is_outcome_unknown(), "{error:?}");
    assert_eq!(count(&at_a), 1);
}

async fn an_error_inside_a_script_is_told_and_not_sent_again() {
    let owner = Arc::new(AtomicU16::new(0));
    let sha = "0123456789012345678901234567890123456789";
    let inside = format!("-CLUSTERDOWN x script: {sha}, on @user_script:6.\r\n");
    let (a, at_a) = node(&owner, move |_| Some(inside.clone())).await;
    owner.store(a, SeqCst);
    let error = acquire(&to(a)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    assert_eq!(count(&at_a), 1);
}

async fn a_node_without_a_host_is_on_that_of_the_one_that_names_it() {
    let owner = Arc::new(AtomicU16::new(0));
    let (b, at_b) = node(&owner, |_| Some(GRANT.to_owned())).await;
    let (a, at_a) = node(&owner, move |_| Some(format!("-MOVED 1 :{b}\r\n"))).await;
    owner.store(a, SeqCst);
    assert!(!acquire(&to(a)).await.unwrap().is_locked());
    assert_eq!((count(&at_a), count(&at_b)), (1, 1));
}

async fn asking_and_the_call_go_together() {
    let owner = Arc::new(AtomicU16::new(0));
    let (b, at_b) = node(&owner, |word| {
        Some(if word == "ASKING" { "+OK\r\n" } else { GRANT }.to_owned())
    })
    .await;
    let (a, at_a) = node(&owner, move |_| Some(format!("-ASK 1 127.0.0.1:{b}\r\n"))).await;
    owner.store(a, SeqCst);
    let backend = to(a);
    for round in 1..=3 {
        assert!(!acquire(&backend).await.unwrap().is_locked());
        // The slot is still where it was.
        assert_eq!(count(&at_a), round);
        assert_eq!(*at_b.lock().unwrap(), ["ASKING", "EVALSHA"].repeat(round));
    }
}

async fn a_node_that_starts_is_left_for_its_successor() {
    let owner = Arc::new(AtomicU16::new(0));
    let (b, at_b) = node(&owner, |_| Some(GRANT.to_owned())).await;
    let succeeds = Arc::clone(&owner);
    let (a, at_a) = node(&owner, move |_| {
        succeeds.store(b, SeqCst);
        Some("-LOADING Redis is loading the dataset in memory\r\n".to_owned())
    })
    .await;
    owner.store(a, SeqCst);
    assert!(!acquire(&to(a)).await.unwrap().is_locked());
    assert_eq!((count(&at_a), count(&at_b)), (1, 1));
    // Without a successor, it is unavailable.
    let (a, _) = node(&owner, |_| Some("-LOADING x\r\n".to_owned())).await;
    owner.store(a, SeqCst);
    let error = acquire(&to(a)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    assert!(error.message().contains("LOADING"), "{error}");
}

async fn what_was_sent_and_not_run_is_sent_again_and_nothing_else() {
    let sha = "0123456789012345678901234567890123456789";
    for (refusal, is_run) in [
        ("MOVED 1 127.0.0.1:{b}".to_owned(), false),
        ("ASK 1 127.0.0.1:{b}".to_owned(), false),
        ("TRYAGAIN x".to_owned(), false),
        ("CLUSTERDOWN x".to_owned(), false),
        ("LOADING x".to_owned(), false),
        ("READONLY x".to_owned(), true),
        (
            format!("CLUSTERDOWN x script: {sha}, on @user_script:6."),
            true,
        ),
    ] {
        let owner = Arc::new(AtomicU16::new(0));
        let (b, at_b) = node(&owner, |word| {
            Some(if word == "ASKING" { "+OK\r\n" } else { GRANT }.to_owned())
        })
        .await;
        let calls = Arc::new(AtomicUsize::new(0));
        let reply = format!("-{}\r\n", refusal.replace("{b}", &b.to_string()));
        let (counted, succeeds) = (Arc::clone(&calls), Arc::clone(&owner));
        let (a, at_a) = node(&owner, move |_| {
            // The first makes the connection.
            let is_second = counted.fetch_add(1, SeqCst) == 1;
            if is_second && reply.starts_with("-LOADING") {
                succeeds.store(b, SeqCst);
            }
            Some(if is_second {
                reply.clone()
            } else {
                GRANT.to_owned()
            })
        })
        .await;
        owner.store(a, SeqCst);
        let backend = to(a);
        acquire(&backend).await.unwrap();
        let request = prepared(backend.as_ref(), &key("k"), Ttl::DEFAULT);
        let (acquisition, call) = (Operation::Acquire(request), CallOptions::default());
        let answer = operation::run(&backend, acquisition, call, pending()).await;
        if is_run {
            // Sent again, it would have been granted.
            answer.unwrap_err();
        } else {
            let Outcome::Acquire(outcome) = answer.unwrap() else {
                panic!("{refusal}");
            };
            assert!(!outcome.is_locked(), "{refusal}");
            let scripts = [&at_a, &at_b].map(|heard| {
                let heard = heard.lock().unwrap();
                heard.iter().filter(|word| *word != "ASKING").count()
            });
            assert_eq!(scripts.iter().sum::<usize>(), 3, "{refusal}: {scripts:?}");
        }
    }
}

async fn an_answer_about_the_slots_that_makes_no_sense_is_told() {
    let port = listen(|stream| async move {
        let mut stream = BufReader::new(stream);
        while read_request(&mut stream).await.is_some() {
            let _ = stream.write_all(b"+OK\r\n").await;
        }
    })
    .await;
    let error = acquire(&to(port)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(!error.is_outcome_unknown());
}

async fn a_name_that_a_node_has_not_is_waited_for() {
    let owner = Arc::new(AtomicU16::new(0));
    let (b, _) = node(&owner, |_| Some(GRANT.to_owned())).await;
    let succeeds = Arc::clone(&owner);
    let (a, _) = node(&owner, move |_| {
        succeeds.store(b, SeqCst);
        Some(format!("-MOVED 1 ?:{b}\r\n"))
    })
    .await;
    owner.store(a, SeqCst);
    assert!(!acquire(&to(a)).await.unwrap().is_locked());
}

async fn a_slot_that_nobody_serves_yet_is_waited_for() {
    let owner = Arc::new(AtomicU16::new(0));
    let (a, _) = node(&owner, |_| Some(GRANT.to_owned())).await;
    let backend = to(a);
    let error = acquire(&backend).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceUnavailable);
    assert!(error.message().contains("no node"), "{error}");
    assert!(!error.is_outcome_unknown());
    let waiting = tokio::spawn(async move { acquire(&backend).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    owner.store(a, SeqCst);
    assert!(!waiting.await.unwrap().unwrap().is_locked());
}
