//! Takes a lock in Firestore, extends it and frees it.
//!
//! ```sh
//! cargo run -p firestore-emulator -- --port 8080 &
//! FIRESTORE_EMULATOR_HOST=127.0.0.1:8080 GOOGLE_CLOUD_PROJECT=demo \
//!     cargo run -p syncguard --features firestore --example firestore
//! ```
//!
//! Without `FIRESTORE_EMULATOR_HOST` it asks Google, as whoever the Application Default Credentials say.

#![allow(clippy::print_stdout, reason = "an example speaks to its user")]

use std::future::pending;
use std::sync::Arc;

use syncguard::firestore::{FirestoreBackend, FirestoreConfig};
use syncguard::operation::{self, CallOptions};
use syncguard::{Backend, Error, Key, LockOptions, Operation, Ttl, lock};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let backend: Arc<dyn Backend> = Arc::new(FirestoreBackend::new(FirestoreConfig::default())?);
    let key = Key::new("example:firestore")?;

    let mut guard = lock(&backend, &key, &LockOptions::default()).await?;
    println!(
        "held with fence {} until {}",
        guard.fence(),
        guard.expires_at_ms()
    );

    guard.extend(Ttl::from_millis(60_000)?).await?;
    println!("extended until {}", guard.expires_at_ms());

    guard.release().await?;
    let is_locked: bool = operation::run(
        &backend,
        Operation::IsLocked(key),
        CallOptions::DEFAULT,
        pending(),
    )
    .await?;
    println!("free again: {}", !is_locked);
    Ok(())
}
