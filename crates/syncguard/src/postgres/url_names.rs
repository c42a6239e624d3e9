//! The names of parameters in URLs: those that are read, and those that may be ignored.

use crate::text::error::Error;
use crate::text::suggest::unknown_parameter;

/// The parameters that are read. The last two are refused with some values.
const READ: &str = "host port user password dbname database application_name options ssl sslmode sslrootcert sslcert \
    sslkey channel_binding connect_timeout target_session_attrs keepalives keepalives_idle keepalives_interval \
    keepalives_count tcp_user_timeout statement_timeout lock_timeout search_path sslnegotiation gssencmode";

/// Parameters that change neither where a connection leads, nor who is trusted, nor how locks are kept: libpq's own, those
/// of the pools of other clients, and what hosting services add to URLs for their own use.
const PASSED_OVER: [&str; 3] = [
    "client_encoding fallback_application_name gssdelegation gsslib krbsrvname load_balance_hosts \
     max_protocol_version min_protocol_version ssl_max_protocol_version sslcertmode sslcompression sslpassword sslsni",
    "connection_limit debug fetch_types idle_in_transaction_session_timeout idle_timeout keepAlive keep_alive max \
     max_lifetime pgbouncer pool_timeout prepare query_timeout schema socket_timeout statement_cache_size uselibpqcompat",
    "endpoint supa workaround",
];

/// libpq's parameters that demand something that this crate does not do; the last three do so with most values.
const REFUSED: &str = "hostaddr oauth_client_id oauth_issuer passfile replication require_auth requirepeer service \
    servicefile sslcrl sslcrldir sslidentity sslkeylogfile sslnegotiation gssencmode ssl_min_protocol_version";

/// Whether libpq or another client knows the parameter.
pub(super) fn is_known(name: &str) -> bool {
    let mut all = [READ, REFUSED].into_iter().chain(PASSED_OVER);
    all.any(|names| names.split(' ').any(|known| known == name)) || name == "sslaccept"
}

/// Refuses unknown parameters, and those that demand something that this crate does not do.
pub(super) fn check(name: &str, value: &str) -> Result<(), Error> {
    let is_among = |names: &str| names.split(' ').any(|known| known == name);
    if name == "family" {
        return Err(Error::invalid(
            "family in url is not needed: leave it out, addresses of IPv4 and IPv6 are both tried",
        ));
    }
    let is_harmless = match name {
        "sslnegotiation" => value == "postgres",
        "gssencmode" => matches!(value, "disable" | "prefer"),
        "sslaccept" => value == "accept_invalid_certs",
        // TLS below 1.2 is never used.
        "ssl_min_protocol_version" => matches!(value, "TLSv1" | "TLSv1.1" | "TLSv1.2"),
        _ => is_among(READ) || PASSED_OVER.into_iter().any(is_among),
    };
    if is_harmless {
        Ok(())
    } else if name == "sslaccept" {
        Err(Error::invalid(
            "sslaccept in url is not supported: use sslmode=verify-full",
        ))
    } else if is_among(REFUSED) {
        Err(Error::invalid(format!(
            "{name} in url asks for something that is not supported: leave it out"
        )))
    } else {
        let read: Vec<_> = READ.split(' ').collect();
        let otherwise = "if it is part of a password, write the ? as %3F";
        Err(unknown_parameter(name, &read, otherwise))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_refused_with_the_nearest_name() {
        for (name, value, words) in [
            (
                "sslmod",
                "verify-full",
                "the url's query holds an unknown parameter: did you mean sslmode?",
            ),
            ("sslMode", "verify-full", "did you mean sslmode?"),
            ("connectTimeout", "3", "did you mean connect_timeout?"),
            (
                "colour",
                "red",
                "the url's query holds an unknown parameter: if it is part",
            ),
            (
                "sslcrl",
                "/crl.pem",
                "sslcrl in url asks for something that is not supported",
            ),
            ("hostaddr", "::1", "hostaddr in url asks for"),
            (
                "require_auth",
                "scram-sha-256",
                "require_auth in url asks for",
            ),
            ("sslnegotiation", "direct", "sslnegotiation in url asks for"),
            ("gssencmode", "require", "gssencmode in url asks for"),
            (
                "ssl_min_protocol_version",
                "TLSv1.3",
                "ssl_min_protocol_version in url asks for",
            ),
            ("sslaccept", "strict", "sslmode=verify-full"),
            ("p:w", "", "an unknown parameter"),
        ] {
            let error = check(name, value).unwrap_err();
            assert!(error.message().contains(words), "{error}");
            assert!(value.is_empty() || !error.message().ends_with(value));
        }
        for name in ["colour", "p:w"] {
            let error = check(name, "").unwrap_err();
            assert!(!error.message().contains(name), "{error}");
        }
    }

    #[test]
    fn what_other_clients_understand_is_passed_over() {
        for (name, value) in [
            ("schema", "public"),
            ("pgbouncer", "true"),
            ("gssencmode", "disable"),
            ("sslnegotiation", "postgres"),
            ("ssl_min_protocol_version", "TLSv1.2"),
            ("fallback_application_name", "psql"),
        ] {
            check(name, value).unwrap();
        }
    }
}
