//! Settings and their validation.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::decision::Warning;
use super::ids::is_reserved;
use crate::background::backend::DEFAULT_OPERATION_TIMEOUT;
use crate::network::tls::DefaultRoots;
use crate::text::error::Error;

/// How the backend authenticates.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Credentials {
    /// Application Default Credentials: the file in `GOOGLE_APPLICATION_CREDENTIALS`, that of `gcloud`,
    /// or the machine's own account.
    #[default]
    ApplicationDefault,
    /// The text of a key file: JSON of a service account, an authorized user, an impersonation or a
    /// federation. `{ "client_email", "private_key" }` is enough.
    Json(String),
    /// A key file, read by the first operation.
    KeyFile(PathBuf),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ApplicationDefault => "ApplicationDefault",
            Self::Json(_) => "Json(…)",
            Self::KeyFile(_) => "KeyFile(…)",
        })
    }
}

/// A server other than Google's public one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `host` or `host:port`.
    pub host: String,
    /// Whether to use TLS.
    pub tls: bool,
}

/// A callback for [`Warning`]s. It is called on the thread that runs the operation and must not block.
pub type WarningHook = Arc<dyn Fn(&Warning) + Send + Sync>;

/// The settings of a Firestore backend.
///
/// Settings that are `None` are taken from the environment when the backend is made: the emulator from
/// `FIRESTORE_EMULATOR_HOST`, the project from `GOOGLE_CLOUD_PROJECT` or `GCLOUD_PROJECT`. If neither names a
/// project, it is taken from the JSON of the credentials. No server is asked for it.
#[derive(Clone)]
pub struct FirestoreConfig {
    /// The Google Cloud project.
    pub project_id: Option<String>,
    /// The database in it: `"(default)"` unless set.
    pub database_id: String,
    /// How to authenticate.
    pub credentials: Credentials,
    /// A server other than Google's.
    pub endpoint: Option<Endpoint>,
    /// `host:port` of an emulator, which needs no credentials.
    pub emulator_host: Option<String>,
    /// Which authorities to trust when connecting to Firestore over TLS. Requests for access tokens use the operating
    /// system's certificates instead, because Google's authentication library makes them.
    pub default_roots: DefaultRoots,
    /// The collection of locks: `"locks"` unless set.
    pub collection: String,
    /// The collection of fence counters: `"fence_counters"` unless set.
    pub fence_collection: String,
    /// Whether `is_locked` deletes a lock that expired more than two seconds ago. The answer is the same, but the call
    /// may write. `false` unless set.
    pub cleanup_in_is_locked: bool,
    /// Whether locks are given and extended however far this machine's clock is from Firestore's. `false` unless set: then
    /// both fail with `ServiceUnavailable` beyond [`MOST_SKEW_MS`](super::MOST_SKEW_MS), because two holders could be the
    /// result.
    pub ignore_clock_skew: bool,
    /// How long one operation may take, including its retries after conflicts:
    /// [`DEFAULT_OPERATION_TIMEOUT`] unless set, at most [`MAX_OPERATION_TIMEOUT`](Self::MAX_OPERATION_TIMEOUT).
    pub operation_timeout: Duration,
    /// The callback for warnings.
    pub on_warning: Option<WarningHook>,
}

impl Default for FirestoreConfig {
    fn default() -> Self {
        Self {
            project_id: None,
            database_id: "(default)".to_owned(),
            credentials: Credentials::default(),
            endpoint: None,
            emulator_host: None,
            default_roots: DefaultRoots::default(),
            collection: "locks".to_owned(),
            fence_collection: "fence_counters".to_owned(),
            cleanup_in_is_locked: false,
            ignore_clock_skew: false,
            operation_timeout: DEFAULT_OPERATION_TIMEOUT,
            on_warning: None,
        }
    }
}

impl FirestoreConfig {
    /// The longest time for one operation: an hour.
    pub const MAX_OPERATION_TIMEOUT: Duration = Duration::from_secs(3600);

    /// Locks in the default database of that project.
    pub fn project(id: impl Into<String>) -> Self {
        Self {
            project_id: Some(id.into()),
            ..Self::default()
        }
    }

    /// The same settings, completed from the environment `env`, or the error that says what is wrong with them.
    pub(super) fn validated(mut self, env: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let env = |name| env(name).filter(|value| !value.is_empty());
        if self.emulator_host.is_none() && self.endpoint.is_none() {
            self.emulator_host = env("FIRESTORE_EMULATOR_HOST");
        }
        if self.project_id.is_none() {
            self.project_id = env("GOOGLE_CLOUD_PROJECT").or_else(|| env("GCLOUD_PROJECT"));
        }
        if let Some(project) = &self.project_id {
            check_segment("projectId", project)?;
        }
        check_segment("databaseId", &self.database_id)?;
        check_collection("collection", &self.collection)?;
        check_collection("fenceCollection", &self.fence_collection)?;
        if self.collection == self.fence_collection {
            return Err(Error::invalid(
                "Fence counter collection must differ from lock collection: fenceCollection equals collection",
            ));
        }
        if let Some(host) = &self.emulator_host {
            check_host("emulatorHost", host)?;
        }
        if let Some(endpoint) = &self.endpoint {
            check_host("host", &endpoint.host)?;
        }
        if self.operation_timeout.is_zero() || self.operation_timeout > Self::MAX_OPERATION_TIMEOUT
        {
            return Err(Error::invalid(format!(
                "operationTimeoutMs must be from 1 to {}",
                Self::MAX_OPERATION_TIMEOUT.as_millis()
            )));
        }
        Ok(self)
    }
}

impl fmt::Debug for FirestoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirestoreConfig")
            .field("project_id", &self.project_id)
            .field("database_id", &self.database_id)
            .field("credentials", &self.credentials)
            .field("collection", &self.collection)
            .field("fence_collection", &self.fence_collection)
            .field("cleanup_in_is_locked", &self.cleanup_in_is_locked)
            .field("operation_timeout", &self.operation_timeout)
            .finish_non_exhaustive()
    }
}

/// Checks that `name` is a valid id of a collection.
fn check_collection(field: &str, name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::invalid(format!("{field} must not be empty")));
    }
    if name.contains('/') {
        return Err(Error::invalid(format!("{field} must not contain \"/\"")));
    }
    if is_reserved(name) {
        return Err(Error::invalid(format!(
            "{field} must not be \".\", \"..\" or \"__…__\": Firestore reserves them"
        )));
    }
    if name.len() > 1500 {
        return Err(Error::invalid(format!(
            "{field} must not exceed 1500 bytes"
        )));
    }
    Ok(())
}

/// Checks a part of a resource name, which is also sent in a header.
fn check_segment(field: &str, text: &str) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::invalid(format!("{field} must not be empty")));
    }
    if !text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b'&')
    {
        return Err(Error::invalid(format!(
            "{field} contains a character that ids do not have"
        )));
    }
    Ok(())
}

fn check_host(field: &str, host: &str) -> Result<(), Error> {
    let plain = !host.contains(['/', '@', '?', '#']);
    match host.parse::<tonic::codegen::http::uri::Authority>() {
        Ok(authority) if plain && !authority.host().is_empty() => Ok(()),
        _ => Err(Error::invalid(format!("{field} must be host or host:port"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;

    fn refused(change: impl FnOnce(&mut FirestoreConfig)) -> String {
        let mut config = FirestoreConfig::project("p");
        change(&mut config);
        let error = config.validated(|_| None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.message().to_owned()
    }

    #[test]
    fn collections_must_be_names_and_two() {
        for name in ["", "a/b", ".", "..", "__a__", "____"] {
            let message = refused(|config| config.collection = name.to_owned());
            assert!(message.starts_with("collection must not"), "{message}");
            let message = refused(|config| config.fence_collection = name.to_owned());
            assert!(message.starts_with("fenceCollection must not"), "{message}");
        }
        let message = refused(|config| config.fence_collection = "locks".to_owned());
        assert!(message.starts_with("Fence counter collection must differ from lock collection"));
    }

    #[test]
    fn names_and_hosts_must_be_such() {
        assert!(refused(|config| config.project_id = Some("a/b".into())).starts_with("projectId"));
        assert!(refused(|config| config.database_id = String::new()).starts_with("databaseId"));
        for host in [
            "",
            "http://localhost:1",
            "a b",
            "user@host",
            "host/path",
            ":80",
        ] {
            let message = refused(|config| config.emulator_host = Some(host.to_owned()));
            assert_eq!(message, "emulatorHost must be host or host:port", "{host}");
        }
        for timeout in [Duration::ZERO, Duration::from_secs(3601)] {
            let message = refused(|config| config.operation_timeout = timeout);
            assert_eq!(message, "operationTimeoutMs must be from 1 to 3600000");
        }
    }

    #[test]
    fn the_environment_fills_in_what_is_missing() {
        let env = |name: &str| match name {
            "FIRESTORE_EMULATOR_HOST" => Some("127.0.0.1:8080".to_owned()),
            "GOOGLE_CLOUD_PROJECT" => Some(String::new()),
            "GCLOUD_PROJECT" => Some("from-env".to_owned()),
            _ => None,
        };
        let config = FirestoreConfig::default().validated(env).unwrap();
        assert_eq!(config.emulator_host.as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(config.project_id.as_deref(), Some("from-env"));
        let mut config = FirestoreConfig::project("own");
        config.endpoint = Some(Endpoint {
            host: "firestore.internal".into(),
            tls: true,
        });
        let config = config.validated(env).unwrap();
        assert_eq!(config.emulator_host, None);
        assert_eq!(config.project_id.as_deref(), Some("own"));
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let mut config = FirestoreConfig::project("p");
        config.credentials = Credentials::Json("secret".into());
        assert!(!format!("{config:?}").contains("secret"));
    }
}
