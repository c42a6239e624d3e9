//! Logins that may change while the process runs.

use std::fmt;

use async_trait::async_trait;

use crate::text::error::Error;

/// As whom a new connection logs in, and to which database. What is `None` is as in the configuration.
///
/// `Debug` shows none of it.
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
    /// The login for a connection that is about to be opened. It may take as long as opening may: on Redis before that, on PostgreSQL
    /// of the same time.
    async fn login(&self) -> Result<Login, Error>;
}
