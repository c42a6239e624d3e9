//! Access tokens, from Google's own authentication library.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use google_cloud_auth::credentials::{
    Builder, CacheableResource, Credentials as Source, EntityTag, external_account, impersonated,
    mds, service_account, user_account,
};
use serde_json::Value;
use tonic::codegen::http::{Extensions, HeaderMap};

use crate::firestore::config::Credentials;
use crate::firestore::error::from_credentials;
use crate::text::error::{Error, ErrorKind};

/// The scope that Firestore requires.
const SCOPES: [&str; 1] = ["https://www.googleapis.com/auth/datastore"];

/// The headers that authenticate requests. The library renews them in the background.
pub(super) struct Token {
    source: Source,
    cached: RwLock<Option<(EntityTag, HeaderMap)>>,
}

/// Credentials, read but not yet used.
pub(super) struct KeyFile(Option<Value>);

impl KeyFile {
    /// Reads the JSON or the file. Errors never show its contents.
    pub(super) fn load(credentials: &Credentials) -> Result<Self, Error> {
        let text = match credentials {
            Credentials::ApplicationDefault => return Ok(Self(None)),
            Credentials::Json(text) => text.clone(),
            Credentials::KeyFile(path) => std::fs::read_to_string(path).map_err(|error| {
                Error::new(ErrorKind::AuthFailed, "the key file cannot be read").with_source(error)
            })?,
        };
        match serde_json::from_str(&text) {
            Ok(json @ Value::Object(_)) => Ok(Self(Some(json))),
            _ => Err(Error::invalid("credentials must be a JSON object")),
        }
    }

    /// The project of the credentials, if they name one.
    pub(super) fn project_id(&self) -> Option<&str> {
        self.0.as_ref()?.get("project_id")?.as_str()
    }

    /// Whether tokens are requested over the network. A service account signs its own.
    fn asks_for_tokens(&self) -> bool {
        let of_default = match self.0 {
            Some(_) => None,
            None => default_key(|name| std::env::var_os(name)),
        };
        let Some(json) = self.0.as_ref().or(of_default.as_ref()) else {
            return true;
        };
        let kind = json.get("type").and_then(Value::as_str);
        !matches!(kind, None | Some("service_account"))
    }

    /// Starts to get tokens.
    pub(super) fn into_token(self) -> Result<Token, Error> {
        // The library panics if its HTTP client finds no certificates, even for servers without TLS.
        if self.asks_for_tokens() && !has_certificates() {
            return Err(Error::new(
                ErrorKind::AuthFailed,
                "access tokens need the operating system's certificates, and there are none: \
                 install ca-certificates, name a file in SSL_CERT_FILE, or use the key of a service account",
            ));
        }
        let built = match self.0 {
            // The library would read a file in the current folder.
            None if has_no_home(|name| std::env::var_os(name)) => {
                mds::Builder::default().with_scopes(SCOPES).build()
            }
            None => Builder::default().with_scopes(SCOPES).build(),
            Some(json) => match json.get("type").and_then(Value::as_str) {
                None | Some("service_account") => service_account::Builder::new(completed(json))
                    .with_access_specifier(service_account::AccessSpecifier::from_scopes(SCOPES))
                    .build(),
                Some("authorized_user") => {
                    user_account::Builder::new(json).with_scopes(SCOPES).build()
                }
                Some("impersonated_service_account") => {
                    impersonated::Builder::new(json).with_scopes(SCOPES).build()
                }
                Some("external_account") => external_account::Builder::new(json)
                    .with_scopes(SCOPES)
                    .build(),
                Some(_) => {
                    return Err(Error::invalid(
                        "credentials are of a type that is not supported",
                    ));
                }
            },
        };
        // Without the library's reason, which may quote what it could not read.
        let source = built.map_err(|_| {
            Error::new(
                ErrorKind::AuthFailed,
                "the credentials are incomplete or malformed",
            )
        })?;
        Ok(Token {
            source,
            cached: RwLock::new(None),
        })
    }
}

impl Token {
    /// The headers for a request that is sent now.
    pub(super) async fn headers(&self) -> Result<HeaderMap, Error> {
        let cached = self
            .cached
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut known = Extensions::new();
        if let Some((tag, _)) = &cached {
            known.insert(tag.clone());
        }
        match (
            self.source.headers(known).await.map_err(from_credentials)?,
            cached,
        ) {
            (CacheableResource::New { entity_tag, data }, _) => {
                let fresh = Some((entity_tag, data.clone()));
                *self.cached.write().unwrap_or_else(PoisonError::into_inner) = fresh;
                Ok(data)
            }
            (CacheableResource::NotModified, Some((_, headers))) => Ok(headers),
            (CacheableResource::NotModified, None) => Err(Error::new(
                ErrorKind::Internal,
                "the authentication library gave no headers",
            )),
        }
    }
}

/// The variable that names the file of Application Default Credentials.
const FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// Whether the file of Application Default Credentials would be looked for below a home that is no absolute path.
fn has_no_home(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let home = variable("HOME").map(PathBuf::from);
    variable(FILE).is_none() && home.is_some_and(|home| !home.is_absolute())
}

/// The contents of the file of Application Default Credentials, if there is one.
fn default_key(variable: impl Fn(&str) -> Option<OsString>) -> Option<Value> {
    if has_no_home(&variable) {
        return None;
    }
    let path = match variable(FILE) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(variable("HOME")?)
            .join(".config/gcloud/application_default_credentials.json"),
    };
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Whether the library finds authorities to trust.
#[cfg(all(unix, not(target_vendor = "apple")))]
fn has_certificates() -> bool {
    !rustls_native_certs::load_native_certs().certs.is_empty()
}

/// Whether the library finds authorities to trust. On this platform, the operating system verifies each server.
#[cfg(not(all(unix, not(target_vendor = "apple"))))]
fn has_certificates() -> bool {
    true
}

/// Adds members that the library requires but does not use, and that keys given as `{ client_email, private_key }`
/// lack.
fn completed(mut json: Value) -> Value {
    if let Some(members) = json.as_object_mut() {
        for name in ["private_key_id", "project_id"] {
            members
                .entry(name)
                .or_insert_with(|| Value::String(String::new()));
        }
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_without_quoting_it() {
        for (text, kind) in [
            ("no json: secret", ErrorKind::InvalidArgument),
            (r#""secret""#, ErrorKind::InvalidArgument),
            (r#"{"type":"secret"}"#, ErrorKind::InvalidArgument),
            (
                r#"{"type":"service_account","client_email":["secret"]}"#,
                ErrorKind::AuthFailed,
            ),
        ] {
            let key = KeyFile::load(&Credentials::Json(text.into()));
            let Err(error) = key.and_then(KeyFile::into_token) else {
                panic!("{text} was taken");
            };
            assert_eq!(error.kind(), kind);
            assert!(!format!("{error:?}").contains("secret"));
        }
    }

    #[test]
    fn a_missing_key_file_is_said() {
        let Err(error) = KeyFile::load(&Credentials::KeyFile("/no/such/file.json".into())) else {
            panic!("read a file that is not there");
        };
        assert_eq!(error.message(), "the key file cannot be read");
    }

    #[test]
    fn a_service_account_needs_nobody_for_its_tokens() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let named =
            |name: &str| (name == "GOOGLE_APPLICATION_CREDENTIALS").then(|| file.path().into());
        for (text, asks) in [
            (r#"{"type":"service_account"}"#, false),
            (r#"{"client_email":"a@b"}"#, false),
            (r#"{"type":"authorized_user"}"#, true),
            (r#"{"type":"external_account"}"#, true),
        ] {
            std::fs::write(file.path(), text).unwrap();
            let from_file = default_key(named).unwrap();
            assert_eq!(KeyFile(Some(from_file)).asks_for_tokens(), asks, "{text}");
        }
        assert!(default_key(|_| None).is_none());
    }

    #[test]
    fn a_home_is_an_absolute_path() {
        for (home, file, expected) in [
            (Some(""), None, true),
            (Some("."), None, true),
            (Some("/root"), None, false),
            (None, None, false),
            (Some(""), Some("key.json"), false),
        ] {
            let variable = |name: &str| if name == FILE { file } else { home };
            assert_eq!(
                has_no_home(|name| variable(name).map(Into::into)),
                expected,
                "{home:?}"
            );
        }
    }

    #[tokio::test]
    async fn two_members_are_enough_for_a_key() {
        let text = r#"{"client_email":"a@b","private_key":"k","project_id":"p"}"#;
        let key = KeyFile::load(&Credentials::Json(text.into())).unwrap();
        assert_eq!(key.project_id(), Some("p"));
        assert!(key.into_token().is_ok());
        let text = r#"{"client_email":"a@b","private_key":"k"}"#;
        let key = KeyFile::load(&Credentials::Json(text.into())).unwrap();
        assert!(key.into_token().is_ok());
    }
}
