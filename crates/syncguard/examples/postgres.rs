//! Two workers that may not print at the same time, on PostgreSQL.
//!
//! ```sh
//! cargo run --features postgres --example postgres -- postgres://user:password@localhost/database
//! ```
//!
//! Without a URL, the PG* variables say where the server is.

use std::sync::Arc;
use std::time::Duration;

use syncguard::postgres::{PostgresBackend, PostgresConfig, PostgresOptions};
use syncguard::{Backend, Key, LockOptions, Owner, lock};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = match std::env::args().nth(1) {
        Some(url) => PostgresConfig::from_url(&url)?,
        None => PostgresConfig::from_env()?,
    };
    let postgres = PostgresBackend::new(config, PostgresOptions::default())?;
    // Once, when the application is installed; here, each time, which does no harm.
    postgres.setup_schema().await?;

    let backend: Arc<dyn Backend> = Arc::new(postgres);
    tokio::try_join!(work(&backend, "one"), work(&backend, "two"))?;
    backend.close().await;
    Ok(())
}

async fn work(backend: &Arc<dyn Backend>, name: &str) -> Result<(), syncguard::Error> {
    let options = LockOptions {
        owner: Some(Owner::new(name)?),
        ..LockOptions::default()
    };
    for _ in 0..3 {
        let guard = lock(backend, &Key::new("printer")?, &options).await?;
        // Whatever the lock protects should refuse fences smaller than the greatest it has seen.
        show(&format!("{name} prints with fence {}", guard.fence()));
        tokio::time::sleep(Duration::from_millis(50)).await;
        guard.release().await?;
    }
    Ok(())
}

#[allow(clippy::print_stdout, reason = "that is what the example does")]
fn show(line: &str) {
    println!("{line}");
}
