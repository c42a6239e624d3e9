//! The atomic-lock extension of the Forrst protocol, `urn:forrst:ext:atomicLock`.
//!
//! The rules are pure: [`Options`] are parsed from JSON, and the data of the answers ([`AcquiredData`],
//! [`ForrstError`], [`StatusResult`], …) serialise to the extension's JSON. [`acquire`], [`release`],
//! [`force_release`] and [`status`] apply them to a [`Backend`](syncguard::Backend).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), syncguard_forrst::Failure> {
//! use std::sync::Arc;
//! use syncguard::sqlite::{SqliteBackend, SqliteConfig};
//! use syncguard::Backend;
//! use syncguard_forrst::{self as forrst, Options};
//!
//! let backend: Arc<dyn Backend> = Arc::new(SqliteBackend::new(SqliteConfig::in_memory())?);
//! let extension_options = serde_json::json!({
//!     "key": "user:123",
//!     "ttl": { "value": 30, "unit": "second" },
//! });
//! let options = Options::parse("payments.charge", &extension_options)?;
//!
//! let held = forrst::acquire(&backend, options).await?; // Failure::Refused(error) goes into the response
//! // … the function …
//! let data = held.end().await?; // released, or kept if the request says so
//! # let data = serde_json::to_value(data).unwrap_or_default();
//! # assert_eq!(data["acquired"], true);
//! # Ok(())
//! # }
//! ```

// In tests, each assertion counts as a branch.
#![cfg_attr(not(test), warn(clippy::cognitive_complexity))]

mod acquire;
mod arguments;
mod data;
mod date;
mod duration;
mod error;
mod functions;
#[cfg(test)]
mod malformed;
mod options;
mod owner;
mod scope;

pub use acquire::{Failure, Held, acquire};
pub use arguments::{KeyArgument, ReleaseArguments};
pub use data::{AcquiredData, ForceReleaseResult, RefusedData, ReleaseResult, StatusResult};
pub use date::iso8601;
pub use duration::{Duration, Unit};
pub use error::{Details, ErrorCode, ForrstError};
pub use functions::{force_release, release, status};
pub use options::Options;
pub use owner::{generate_owner, label_of};
pub use scope::Scope;

/// The extension's name on the wire.
pub const URN: &str = "urn:forrst:ext:atomicLock";

/// The function that frees a lock for its owner.
pub const RELEASE_URN: &str = "urn:cline:forrst:ext:atomic-lock:fn:release";

/// The function that frees a lock whoever owns it.
pub const FORCE_RELEASE_URN: &str = "urn:cline:forrst:ext:atomic-lock:fn:force-release";

/// The function that says who holds a lock.
pub const STATUS_URN: &str = "urn:cline:forrst:ext:atomic-lock:fn:status";
