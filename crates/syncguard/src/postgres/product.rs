//! Servers that speak PostgreSQL's protocol and are something else, by what they answer to `version()`.

use super::statement::{Statement, Transport};
use super::tables::Tables;
use crate::text::error::Error;

/// Refuses what locks cannot be trusted to on connections of our own, and, [through a client](check_driven), all but PGlite.
pub(super) fn check(version: &str) -> Result<(), Error> {
    check_driven(version)?;
    if version.contains("(PGlite ") {
        return Err(Error::invalid(
            "the server is PGlite, whose socket mixes up what several connections ask for: pass a client of yours \
             that has one connection, with transport: \"client\" (docs/tried.md of the package syncguard)",
        ));
    }
    Ok(())
}

/// Refuses what locks cannot be trusted to through whatever connection.
fn check_driven(version: &str) -> Result<(), Error> {
    let product = if version.starts_with("CockroachDB ") {
        "CockroachDB"
    } else if version.contains("-YB-") {
        "YugabyteDB"
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!(
        "the server is {product}, where it is not known whether advisory locks exclude other sessions, which \
         acquisitions count on (docs/tried.md of the package syncguard)"
    )))
}

/// Asks which server it is before tables are made there. One that does not say it is not refused.
pub(super) async fn ask(transport: &dyn Transport, tables: &Tables) -> Result<(), Error> {
    let question = Statement::new("SELECT version() AS version", tables, &["version"]);
    match transport.run(&question.bind(Vec::new())).await {
        Ok(row) => {
            let version = row.as_ref().and_then(|row| row.first()?.as_deref());
            check_driven(version.unwrap_or_default())
        }
        // The server's word; without one, it cannot be asked for anything.
        Err(failure) if failure.state().is_some() => Ok(()),
        Err(failure) => Err(failure.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;

    const POSTGRES: &str = "PostgreSQL 15.13 (Debian 15.13-0+deb12u1) on x86_64-pc-linux-gnu, \
                            compiled by gcc (Debian 12.2.0-14+deb12u1) 12.2.0, 64-bit";
    const PGLITE: &str =
        "PostgreSQL 18.6 (PGlite 0.5.14) on wasm32-unknown-emscripten, compiled by emcc";
    const COCKROACH: &str =
        "CockroachDB CCL v24.1.2 (x86_64-pc-linux-gnu, built 2024/07/01 00:00:00, go1.22)";
    const YUGABYTE: &str =
        "PostgreSQL 11.2-YB-2.21.1.0-b0 on x86_64-pc-linux-gnu, compiled by clang, 64-bit";

    #[test]
    fn what_is_no_postgresql_is_named() {
        assert!(check(POSTGRES).is_ok());
        for (version, name) in [
            (PGLITE, "PGlite"),
            (COCKROACH, "CockroachDB"),
            (YUGABYTE, "YugabyteDB"),
        ] {
            let error = check(version).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(name), "{error}");
        }
    }

    #[test]
    fn a_client_with_one_connection_reaches_pglite() {
        assert!(check_driven(POSTGRES).is_ok());
        assert!(check_driven(PGLITE).is_ok());
        assert!(check_driven(COCKROACH).is_err());
        assert!(check_driven(YUGABYTE).is_err());
    }
}
