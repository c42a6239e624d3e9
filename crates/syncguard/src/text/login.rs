//! The login in a URL, which people write without encoding it.

use crate::text::error::Error;

/// Refuses a URL in which it cannot be told where the login ends: what follows would be taken for a host, and looked up. `rest` is what
/// stands behind the scheme, and `is_parameter` says what the query may hold: an `@` in a value of that belongs to no login.
pub(crate) fn check_login(rest: &str, is_parameter: impl Fn(&str) -> bool) -> Result<(), Error> {
    // A path alone, of a socket or of a database on the usual host.
    if rest.starts_with('/') {
        return Ok(());
    }
    let (front, query) = rest.split_once('?').unwrap_or((rest, ""));
    let names = query.split('&').map(|pair| pair.split('=').next());
    let is_query = query.contains('@') && !rest.contains('#') && names.flatten().all(is_parameter);
    let rest = if is_query { front } else { rest };
    match rest.rsplit_once('@') {
        Some((login, _)) if login.contains(['/', '#', '?', '@']) => Err(Error::invalid(
            "the url has a /, #, ? or @ before its last @: in a user's name and a password write / as %2F, # as %23, ? as %3F and @ \
             as %40; behind the host, too, write @ as %40",
        )),
        _ => Ok(()),
    }
}

/// Refuses a secret, or a url that may hold one, that was read from a file or the output of a program, with the end of its line.
pub(crate) fn check_secret(name: &str, secret: Option<&str>) -> Result<(), Error> {
    match secret {
        Some(secret) if secret.ends_with(['\n', '\r']) => Err(Error::invalid(format!(
            "{name} ends with a line break, as what is read from a file does: trim it"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_no_line_break_at_its_end() {
        for secret in ["s3cret\n", "s3cret\r\n"] {
            let error = check_secret("password", Some(secret)).unwrap_err();
            assert!(
                error
                    .message()
                    .starts_with("password ends with a line break")
            );
        }
        for secret in [None, Some(""), Some("s3\ncret "), Some(" ")] {
            check_secret("password", secret).unwrap();
        }
    }

    #[test]
    fn the_end_of_a_login_is_never_guessed() {
        let check = |rest| check_login(rest, |name| name == "user");
        for rest in [
            "app:s3cret/tail@h",
            "app:s3cret#tail@h",
            "app:s3cret?tail@h",
            "app:s3cret@tail@h",
            "app:p@s3cret/tail@h/x",
            "app:s3cret?user=1&tail@h",
            "app:s3cret?user=1#tail@h",
            "app:s3cret#a?user=tail@h",
            "app:pw@h/s3cret@tail",
        ] {
            let message = check(rest).unwrap_err().to_string();
            assert!(message.contains("? as %3F"), "{message}");
            assert!(
                !message.contains("s3cret") && !message.contains("tail"),
                "{message}"
            );
        }
    }

    #[test]
    fn what_is_in_no_login_is_left_alone() {
        for rest in [
            "h",
            "app:p%40%2F@h:1,h:2/x?a=b#c",
            "app:p@h/x?user=me@home",
            "?user=me@home",
            "/run/me@home.sock",
        ] {
            check_login(rest, |name| name == "user").unwrap();
        }
    }
}
