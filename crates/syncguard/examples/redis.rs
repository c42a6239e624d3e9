//! Locks in a Redis server: `cargo run --features redis --example redis -- redis://localhost:6379`.

use std::future::pending;
use std::sync::Arc;

use syncguard::operation::{self, CallOptions};
use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{Backend, Key, LockOptions, LockRecord, Lookup, Operation, Owner, Ttl, lock};

const CALL: CallOptions = CallOptions::DEFAULT;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let mut config = RedisConfig::from_url(url.as_deref().unwrap_or("redis://localhost:6379"))?;
    // All names in the server start with it: `example:invoice:42`, and so on.
    config.locks.key_prefix = "example".to_owned();
    // Connects at the first operation, and again whenever the connection is lost.
    let backend: Arc<dyn Backend> = Arc::new(RedisBackend::new(config)?);
    let invoice = Key::new("invoice:42")?;

    // Waits while others hold it, for five seconds at most.
    let options = LockOptions {
        ttl: Ttl::from_millis(10_000)?,
        owner: Some(Owner::new("worker 1")?),
        ..LockOptions::default()
    };
    let mut guard = lock(&backend, &invoice, &options).await?;
    // Give the fence to whatever the lock protects, and let it refuse smaller ones.
    report(&format!("we hold it with fence {}", guard.fence()));

    let lookup = Operation::Lookup(Lookup::Key(invoice.clone()));
    let found: Option<LockRecord> = operation::run(&backend, lookup, CALL, pending()).await?;
    if let Some(record) = found {
        let left_ms = record.expires_at_ms - record.read_at_ms;
        let owner = record.labels.owner.as_ref().map_or("nobody", Owner::as_str);
        report(&format!("{owner} holds it for {left_ms} ms more"));
    }

    // Long work asks for more time, and stops when the lock is lost.
    if !guard.extend(Ttl::from_millis(30_000)?).await? {
        return Err("the lock was lost".into());
    }
    guard.release().await?;
    let asked = Operation::IsLocked(invoice);
    let held: bool = operation::run(&backend, asked, CALL, pending()).await?;
    report(&format!("it is {}", if held { "held" } else { "free" }));
    backend.close().await;
    Ok(())
}

#[allow(clippy::print_stdout, reason = "an example shows what it does")]
fn report(text: &str) {
    println!("{text}");
}
