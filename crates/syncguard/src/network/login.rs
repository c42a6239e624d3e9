//! Gives each new connection its login, because logins may change while the process runs.

use std::fmt;

use async_trait::async_trait;

use crate::text::error::Error;

/// The user with which a new connection logs in, and the database. A member that is `None` stays as it is in the configuration.
///
/// `Debug` shows no contents.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The database: its name, on Redis its number.
    pub database: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(…)")
    }
}

/// Gives logins.
#[async_trait]
pub trait LoginSource: Send + Sync + 'static {
    /// Gives the login for a connection that is about to be opened. This may take as long as opening a connection may. On PostgreSQL both
    /// share that time; on Redis opening has that time once more.
    async fn login(&self) -> Result<Login, Error>;
}
