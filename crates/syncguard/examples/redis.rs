//! Locks in a Redis server: `cargo run --features redis --example redis -- redis://localhost:6379`.

use std::sync::Arc;

use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{Backend, Key, LockOptions, Lookup, Owner, Ttl, lock};

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

    if let Some(record) = backend.lookup(&Lookup::Key(invoice.clone())).await? {
        let left_ms = record.expires_at_ms - record.read_at_ms;
        let owner = record.owner.as_ref().map_or("nobody", Owner::as_str);
        report(&format!("{owner} holds it for {left_ms} ms more"));
    }

    // Long work asks for more time, and stops when the lock is lost.
    if !guard.extend(Ttl::from_millis(30_000)?).await? {
        return Err("the lock was lost".into());
    }
    guard.release().await?;
    let held = backend.is_locked(&invoice).await?;
    report(&format!("it is {}", if held { "held" } else { "free" }));
    backend.close().await;
    Ok(())
}

#[allow(clippy::print_stdout, reason = "an example shows what it does")]
fn report(text: &str) {
    println!("{text}");
}
