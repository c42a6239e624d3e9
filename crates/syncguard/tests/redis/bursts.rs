//! Many calls at once, and a network that takes them slowly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncguard::redis::{RedisBackend, RedisConfig, RedisTls};
use tokio::task::JoinSet;

use crate::support::certificates::Certificates;
use crate::support::locks::try_acquire;
use crate::support::redis_server::RedisServer;
use crate::support::suite::tests;

tests![the_last_of_a_burst_over_tls_comes_like_the_others];

async fn the_last_of_a_burst_over_tls_comes_like_the_others() {
    const CALLS: usize = 300;
    let certificates = Certificates::for_server(&["127.0.0.1"]);
    let server = RedisServer::start_with_tls(&certificates, &[]);
    let port = crate::fake::narrow(server.port()).await;
    let mut config = RedisConfig::from_url(&format!("rediss://127.0.0.1:{port}")).unwrap();
    config.tls = Some(RedisTls {
        ca: Some(certificates.ca.clone().into_bytes()),
        cert: Some(certificates.client_cert.clone().into_bytes()),
        key: Some(certificates.client_key.clone().into_bytes()),
        ..RedisTls::default()
    });
    // So long that the test of a silent connection, which would write the rest, comes only after a second.
    config.locks.operation_timeout = Duration::from_secs(30);
    let backend = Arc::new(RedisBackend::new(config).unwrap());
    try_acquire(backend.as_ref(), "first").await.unwrap();
    let mut rounds = Vec::new();
    for round in 0..5 {
        let mut tasks = JoinSet::new();
        for number in 0..CALLS {
            let backend = Arc::clone(&backend);
            tasks.spawn(async move {
                let name = format!("{round} {number:x<200}");
                let start = Instant::now();
                try_acquire(backend.as_ref(), &name).await.unwrap();
                start.elapsed()
            });
        }
        rounds.push(tasks.join_all().await.into_iter().max().unwrap());
    }
    // A busy machine may keep one waiting for longer than that test does, but hardly all.
    let best = rounds.iter().min().unwrap();
    assert!(*best < Duration::from_millis(900), "{rounds:?}");
}
