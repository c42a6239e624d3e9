//! Labels of locks.

use std::fmt;
use std::process;
use std::sync::{Arc, LazyLock};

use crate::text::error::Error;

/// How many bytes of a host's name stand in the label of a process.
const MAX_HOST_BYTES: usize = 80;

/// How many digits the id of a process has at most.
const MAX_ID_BYTES: usize = 10;

/// A label stored with a lock for people and other systems to read: up to 255 bytes of UTF-8.
/// It proves nothing; only the lock id does.
#[derive(Clone, PartialEq, Eq)]
pub struct Owner(Arc<str>);

impl Owner {
    /// The longest label, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// The label of this process, `host:pid`, which locks have by default.
    pub fn of_process() -> Self {
        // Every lock has it, so it is made once.
        static OWNER: LazyLock<Owner> = LazyLock::new(|| {
            let name = host_name().filter(|name| !name.is_empty());
            let name = name.unwrap_or_else(|| "unknown".to_owned());
            let host = &name[..name.floor_char_boundary(MAX_HOST_BYTES)];
            Owner(format!("{host}:{}", process::id()).into())
        });
        OWNER.clone()
    }

    /// Takes `text` as a label.
    ///
    /// # Errors
    /// `InvalidArgument` when it is empty or too long.
    pub fn new(text: impl Into<String>) -> Result<Self, Error> {
        let text = text.into();
        if text.is_empty() {
            return Err(Error::invalid("owner must not be empty"));
        }
        if text.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "owner exceeds maximum length of {} bytes",
                Self::MAX_BYTES
            )));
        }
        Ok(Self(text.into()))
    }

    /// Whether `text` may be the [label of a process](Self::of_process). Anybody can guess that, so it must never count as a
    /// proof.
    pub fn names_process(text: &str) -> bool {
        text.rsplit_once(':').is_some_and(|(host, id)| {
            (1..=MAX_HOST_BYTES).contains(&host.len())
                && (1..=MAX_ID_BYTES).contains(&id.len())
                && id.bytes().all(|byte| byte.is_ascii_digit())
        })
    }

    /// The label.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({} bytes)", self.0.len())
    }
}

#[cfg(unix)]
fn host_name() -> Option<String> {
    let system = rustix::system::uname();
    Some(system.nodename().to_string_lossy().into_owned())
}

#[cfg(not(unix))]
fn host_name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_an_id_name_processes() {
        for text in ["web-3:4711", "a:b:1", ":1:1", "x y:4294967295"] {
            assert!(Owner::names_process(text), "{text}");
        }
        for text in ["", "x", ":1", "x:", "x:1:", "x:1 ", "x:-1", "x:12345678901"] {
            assert!(!Owner::names_process(text), "{text}");
        }
        let host = |length| "x".repeat(length) + ":1";
        assert!(Owner::names_process(&host(80)) && !Owner::names_process(&host(81)));
    }

    #[test]
    fn a_process_is_named_by_its_host_and_its_id() {
        let owner = Owner::of_process();
        let (host, id) = owner.as_str().rsplit_once(':').unwrap();
        assert!(!host.is_empty() && host.len() <= MAX_HOST_BYTES);
        assert_eq!(id, process::id().to_string());
        assert!(Owner::new(owner.as_str()).is_ok());
    }

    #[test]
    fn owner_labels_have_bounds_and_stay_out_of_debug_output() {
        assert!(Owner::new("x".repeat(255)).is_ok());
        assert!(Owner::new("x".repeat(256)).is_err());
        assert!(Owner::new("é".repeat(128)).is_err());
        assert!(Owner::new("").is_err());
        assert!(!format!("{:?}", Owner::new("secret").unwrap()).contains("secret"));
    }
}
