//! Answers that are lost: what may have been granted is never left behind, nor taken for another's.

use std::future::pending;
use std::sync::Arc;

use syncguard::operation::{self, CallOptions};
use syncguard::postgres::{PostgresBackend, PostgresConfig};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Error, ErrorKind, Operation, ReleaseOutcome, Ttl,
};
use tokio::task::JoinSet;

use crate::mediator::{Forwarding, Mediator};
use crate::stage::{backend, count, options, server, until_waiting};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{AHEAD, acquire, eventually, key};
use crate::support::pgbouncer::PgBouncer;
use crate::support::suite::tests;

tests![
    a_poolers_word_is_not_the_servers,
    a_poolers_word_to_a_group_is_not_the_servers,
    a_pooler_that_gives_up_a_statement_has_not_ended_it,
    ones_own_lock_is_held_as_it_was_granted,
    ones_own_lock_in_a_group_is_held_as_it_was_granted,
];

const CALL: CallOptions = CallOptions::DEFAULT;

async fn try_acquire(backend: &Arc<dyn Backend>, name: &str) -> Result<AcquireOutcome, Error> {
    let request = AcquireRequest::new(key(name), Ttl::DEFAULT).unwrap();
    operation::run::<AcquireOutcome>(backend, Operation::Acquire(request), CALL, pending()).await
}

async fn until_free(beside: &PostgresBackend, names: &[String]) {
    eventually("what was granted is released", async || {
        for name in names {
            if beside.is_locked(&key(name)).await.unwrap() {
                return false;
            }
        }
        true
    })
    .await;
}

/// A key whose fences are counted was granted once and is free again.
async fn is_second(beside: &PostgresBackend, name: &str) {
    let fence = acquire(beside, name).await.fence.get();
    assert_eq!(fence, AHEAD + 2, "never granted");
}

async fn a_poolers_word_is_not_the_servers() {
    let (beside, tables) = backend(server().unix()).await;
    let mediator = Mediator::start(server().port()).await;
    for prepare in [true, false] {
        let config = PostgresConfig {
            prepare,
            ..mediator.config(server().tcp())
        };
        let ours = PostgresBackend::new(config, options(&tables)).unwrap();
        let ours: Arc<dyn Backend> = Arc::new(ours);
        let name = format!("denied {prepare}");
        count(&tables, &name).await;
        assert!(!ours.is_locked(&key(&name)).await.unwrap());
        mediator.meet(Forwarding::Deny);
        let error = try_acquire(&ours, &name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ServiceUnavailable, "{error:?}");
        assert!(error.is_outcome_unknown());
        until_free(&beside, std::slice::from_ref(&name)).await;
        is_second(&beside, &name).await;
    }
}

async fn a_poolers_word_to_a_group_is_not_the_servers() {
    let (beside, tables) = backend(server().unix()).await;
    let mediator = Mediator::start(server().port()).await;
    let config = PostgresConfig {
        pool_size: 1,
        ..mediator.config(server().tcp())
    };
    let ours = PostgresBackend::new(config, options(&tables)).unwrap();
    let ours: Arc<dyn Backend> = Arc::new(ours);
    assert!(!ours.is_locked(&key("k")).await.unwrap());
    mediator.meet(Forwarding::Deny);
    let names: Vec<_> = (0..20).map(|number| format!("denied {number}")).collect();
    for name in &names {
        count(&tables, name).await;
    }
    let mut attempts = JoinSet::new();
    for name in names.clone() {
        let ours = Arc::clone(&ours);
        attempts.spawn(async move { try_acquire(&ours, &name).await });
    }
    let mut denied = 0;
    for answer in attempts.join_all().await {
        match answer {
            Ok(AcquireOutcome::Acquired(grant)) => {
                let released = ours.release(&grant[0].lock_id).await.unwrap();
                assert_eq!(released, ReleaseOutcome::Released);
            }
            Ok(_) => panic!("nobody else wants the key"),
            Err(error) => {
                assert!(error.is_outcome_unknown(), "{error:?}");
                denied += 1;
            }
        }
    }
    assert!(denied > 0);
    until_free(&beside, &names).await;
    for name in &names {
        is_second(&beside, name).await;
    }
}

async fn a_pooler_that_gives_up_a_statement_has_not_ended_it() {
    let bouncer = PgBouncer::start_with(server(), true, "query_timeout = 1");
    let (beside, tables) = backend(server().unix()).await;
    let ours = PostgresBackend::new(bouncer.config(), options(&tables)).unwrap();
    let ours: Arc<dyn Backend> = Arc::new(ours);
    let blocker = server().client().await;
    let advisory = "BEGIN; SELECT pg_advisory_xact_lock(hashtext('given up'))";
    blocker.batch_execute(advisory).await.unwrap();
    let error = try_acquire(&ours, "given up").await.unwrap_err();
    assert!(error.is_outcome_unknown(), "{error:?}");
    blocker.batch_execute("COMMIT").await.unwrap();
    let sql = format!("SELECT count(*) FROM {}", tables.fences());
    eventually("the server carries it out all the same", async || {
        let count: i64 = blocker.query_one(&sql, &[]).await.unwrap().get(0);
        count == 1
    })
    .await;
    until_free(&beside, &["given up".to_owned()]).await;
}

async fn ones_own_lock_is_held_as_it_was_granted() {
    let (ours, tables) = backend(server().unix()).await;
    count(&tables, "k").await;
    let mut request = AcquireRequest::new(key("k"), Ttl::DEFAULT).unwrap();
    let first = ours.acquire(&request).await.unwrap();
    assert!(matches!(first, AcquireOutcome::Acquired(_)));
    assert_eq!(ours.acquire(&request).await.unwrap(), first);
    request.labels.owner = Some(syncguard::Owner::new("me").unwrap());
    assert_eq!(ours.acquire(&request).await.unwrap(), first);
    let other = AcquireRequest::new(key("k"), Ttl::DEFAULT).unwrap();
    assert!(ours.acquire(&other).await.unwrap().is_locked());
    ours.release(&request.claims[0].lock_id).await.unwrap();
    // No number was spent on what was held already.
    assert_eq!(acquire(&ours, "k").await.fence.get(), AHEAD + 2);
}

async fn ones_own_lock_in_a_group_is_held_as_it_was_granted() {
    let name = "own in group";
    let (ours, tables) = backend(PostgresConfig {
        pool_size: 1,
        application_name: Some(name.to_owned()),
        ..server().unix()
    })
    .await;
    let ours = Arc::new(ours);
    let requests: Vec<_> = (0..20)
        .map(|number| AcquireRequest::new(key(&format!("own {number}")), Ttl::DEFAULT).unwrap())
        .collect();
    let mut first = Vec::new();
    for request in &requests {
        first.push(ours.acquire(request).await.unwrap());
    }
    // The only connection is busy until all have asked.
    let blocker = server().client().await;
    let lock = format!("BEGIN; LOCK TABLE {} IN EXCLUSIVE MODE", tables.locks());
    blocker.batch_execute(&lock).await.unwrap();
    let busy = Arc::clone(&ours);
    let waiting = tokio::spawn(async move { acquire(&*busy, "k").await });
    until_waiting(&server().client().await, name, 1).await;
    let mut again = Vec::new();
    for request in requests.clone() {
        let ours = Arc::clone(&ours);
        again.push(tokio::spawn(async move {
            ours.acquire(&request).await.unwrap()
        }));
    }
    tokio::task::yield_now().await;
    blocker.batch_execute("COMMIT").await.unwrap();
    waiting.await.unwrap();
    for (again, first) in again.into_iter().zip(&first) {
        assert_eq!(again.await.unwrap(), *first);
    }
}
