//! Locks in an SQLite file: `cargo run --example sqlite`.
//!
//! Two backends stand for two processes that work on the same invoice.

use std::sync::Arc;

use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{Backend, ErrorKind, Key, LockOptions, Owner, RetryPolicy, Ttl, lock};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let config = SqliteConfig::file(folder.path().join("locks.db"));
    let ours: Arc<dyn Backend> = Arc::new(SqliteBackend::new(config.clone())?);
    let theirs: Arc<dyn Backend> = Arc::new(SqliteBackend::new(config)?);
    let invoice = Key::new("invoice:42")?;

    // Taking a lock. Give the fence to whatever the lock protects: it refuses smaller ones.
    let options = LockOptions {
        ttl: Ttl::from_millis(10_000)?,
        owner: Some(Owner::new("worker 1")?),
        ..LockOptions::default()
    };
    let mut guard = lock(&ours, &invoice, &options).await?;
    report(&format!("we hold it with fence {}", guard.fence()));

    // Others wait, and give up after a time of their choice.
    let impatient = LockOptions {
        retry: RetryPolicy {
            timeout_ms: 300.0,
            ..RetryPolicy::default()
        },
        ..LockOptions::default()
    };
    match lock(&theirs, &invoice, &impatient).await {
        Err(error) if error.kind() == ErrorKind::AcquisitionTimeout => {
            report(&format!("they gave up: {error}"));
        }
        other => return Err(format!("expected contention, got {other:?}").into()),
    }

    // The work takes longer than thought: the lock ends ten seconds from now.
    let extended = guard.extend(Ttl::from_millis(10_000)?).await?;
    report(&format!("we extended it: {extended}"));
    let released = guard.release().await?;
    report(&format!("we released it: {released}"));

    let guard = lock(&theirs, &invoice, &LockOptions::default()).await?;
    report(&format!("now they hold it with fence {}", guard.fence()));
    guard.release().await?;

    ours.close().await;
    theirs.close().await;
    Ok(())
}

#[allow(clippy::print_stdout, reason = "an example shows what it does")]
fn report(line: &str) {
    println!("{line}");
}
