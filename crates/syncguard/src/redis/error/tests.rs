use super::*;
use ErrorKind::*;

#[test]
fn replies_are_known_by_their_code() {
    for (text, kind) in [
        ("NOAUTH Authentication required.", AuthFailed),
        ("WRONGPASS invalid username-password pair", AuthFailed),
        ("NOPERM this user has no permissions", AuthFailed),
        ("DENIED Redis is running in protected mode", AuthFailed),
        (
            "ERR AUTH <password> called without any password",
            AuthFailed,
        ),
        ("WRONGTYPE Operation against a key", InvalidArgument),
        ("MOVED 3999 127.0.0.1:6381", InvalidArgument),
        ("CROSSSLOT Keys in request", InvalidArgument),
        (
            "ERR This instance has cluster support disabled",
            InvalidArgument,
        ),
        ("ERR DB index is out of range", InvalidArgument),
        (
            "READONLY You can't write against a read only replica.",
            ServiceUnavailable,
        ),
        (
            "LOADING Redis is loading the dataset in memory",
            ServiceUnavailable,
        ),
        ("BUSY Redis is busy running a script", ServiceUnavailable),
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            ServiceUnavailable,
        ),
        (
            "MISCONF Redis is configured to save RDB snapshots",
            ServiceUnavailable,
        ),
        (
            "NOREPLICAS Not enough good replicas to write.",
            ServiceUnavailable,
        ),
        ("CLUSTERDOWN The cluster is down", ServiceUnavailable),
        ("MASTERDOWN Link with MASTER is down", ServiceUnavailable),
        (
            "TRYAGAIN Multiple keys request during rehashing",
            ServiceUnavailable,
        ),
        ("ERR max number of clients reached", RateLimited),
        ("NOSCRIPT No matching script.", Internal),
        ("SYNCGUARD the stored value is not a lock", Internal),
        (
            "ERR unknown command 'evalsha', with args beginning with: 'READONLY'",
            Internal,
        ),
        ("ERR wrong number of arguments for 'auth' command", Internal),
        (
            "ERR Error compiling script (new function): user_script:1: '=' expected",
            Internal,
        ),
    ] {
        for sent in [false, true] {
            let (got, message, lost) = classify(Cause::Reply(text), sent);
            assert_eq!(got, kind, "{text}");
            assert!(message.starts_with("redis answered "), "{message}");
            assert!(!lost, "a server that refuses has done nothing");
        }
    }
}

#[test]
fn what_is_no_known_refusal_leaves_the_outcome_open() {
    let of_script =
        "ERR value is not an integer or out of range script: d8f2cce4, on @user_script:25.";
    for (text, kind) in [
        ("ERR Connection timed out", ServiceUnavailable),
        ("upstream failure", ServiceUnavailable),
        ("TIMEOUT no answer from the shard", ServiceUnavailable),
        ("UNBLOCKED client unblocked", ServiceUnavailable),
        (
            "ERR value is not an integer or out of range",
            ServiceUnavailable,
        ),
        ("", ServiceUnavailable),
        (of_script, Internal),
    ] {
        let (got, message, lost) = classify(Cause::Reply(text), true);
        assert_eq!(got, kind, "{text}");
        assert!(message.starts_with("redis answered "), "{message}");
        assert!(lost, "{text}");
        assert!(!classify(Cause::Reply(text), false).2, "nothing was sent");
    }
    // A script of the caller's chooses its own words.
    assert_eq!(script_error("ERR own words", []).kind(), Internal);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table: one row per error")]
fn errors_inside_scripts_are_known_by_the_code_that_the_script_met() {
    let sha = "d8f2cce404a078aa0378bb59b92d3715541787f1";
    let before_7 =
        |text: &str| format!("ERR Error running script (call to f_{sha}): @user_script:25: {text}");
    let refused = |text: &str| before_7(&format!("@user_script: 25: {text}"));
    let since_7 = |text: &str| format!("{text} script: {sha}, on @user_script:25.");
    let readonly = "READONLY You can't write against a read only replica.";
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    let misconf = "MISCONF Redis is configured to save RDB snapshots";
    let noreplicas = "NOREPLICAS Not enough good replicas to write.";
    let wrongtype = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for (text, code, kind) in [
        (since_7(readonly), "READONLY", ServiceUnavailable),
        (
            refused(&format!("-{readonly}")),
            "READONLY",
            ServiceUnavailable,
        ),
        (since_7(oom), "OOM", ServiceUnavailable),
        (refused(&format!("-{oom}")), "OOM", ServiceUnavailable),
        (since_7(misconf), "MISCONF", ServiceUnavailable),
        (
            refused(&format!("-{misconf}")),
            "MISCONF",
            ServiceUnavailable,
        ),
        (since_7(noreplicas), "NOREPLICAS", ServiceUnavailable),
        (
            refused(&format!("-{noreplicas}")),
            "NOREPLICAS",
            ServiceUnavailable,
        ),
        (since_7(wrongtype), "WRONGTYPE", InvalidArgument),
        (before_7(wrongtype), "WRONGTYPE", InvalidArgument),
        (
            since_7("NOPERM this user has no permissions"),
            "NOPERM",
            AuthFailed,
        ),
        (
            refused("The user executing the script can't run this command or subcommand"),
            "NOPERM",
            AuthFailed,
        ),
        (
            refused(
                "The user executing the script can't access at least one of the keys \
                 mentioned in the command arguments",
            ),
            "NOPERM",
            AuthFailed,
        ),
        (
            since_7("ERR The user executing the script can't run this command or subcommand"),
            "NOPERM",
            AuthFailed,
        ),
        (
            since_7("ERR ACL failure in script: User u has no permissions to run 'incr'"),
            "NOPERM",
            AuthFailed,
        ),
        (
            since_7(
                "ERR Script attempted to execute a write command while the cluster is down and readonly",
            ),
            "CLUSTERDOWN",
            ServiceUnavailable,
        ),
        (
            refused("Lua script attempted to execute a command while the cluster is down"),
            "CLUSTERDOWN",
            ServiceUnavailable,
        ),
        (
            since_7("ERR Script attempted to access a non local key in a cluster node"),
            "ERR",
            Internal,
        ),
        (since_7("ERR value is not an integer"), "ERR", Internal),
        (before_7("ERR value is not an integer"), "ERR", Internal),
        (
            refused("Unknown Redis command called from Lua script"),
            "ERR",
            Internal,
        ),
        (before_7("user_script:25: READONLY"), "ERR", Internal),
        // What only looks like it.
        (format!("ERR {readonly}"), "ERR", ServiceUnavailable),
        (
            before_7("").replace("f_d8", "f_") + readonly,
            "ERR",
            Internal,
        ),
        (
            before_7("").replace("f_d8", "f_xx") + readonly,
            "ERR",
            Internal,
        ),
        (
            before_7("").replace(":25:", ":x:") + readonly,
            "ERR",
            Internal,
        ),
    ] {
        assert_eq!(reply_code(&text).unwrap_or("ERR"), code, "{text}");
        let (got, message, lost) = classify(Cause::Reply(&text), true);
        assert_eq!(got, kind, "{text}");
        assert!(message.starts_with(&format!("redis answered {code}: ")));
        assert_eq!(
            lost,
            code == "ERR",
            "a server that refuses has done nothing"
        );
    }
}

#[test]
fn messages_quote_nothing_that_was_sent() {
    let hidden = |text| {
        let error = to_error_hiding(Cause::Reply(text), true, ["secret", "NOPERM"]);
        error.message().to_owned()
    };
    assert_eq!(
        hidden("ERR unknown command 'EVALSHA', with args beginning with: 'secr"),
        "redis answered ERR: unexpected error: ERR unknown command 'EVALSHA',"
    );
    // What is hidden is nevertheless understood.
    assert_eq!(
        hidden("NOPERM no permissions for 'app:secret'"),
        "redis answered NOPERM: the user may not run scripts, or not on these keys: \
         [hidden] no permissions for 'app:[hidden]'"
    );
    assert_eq!(
        to_error(Cause::Reply("ERR unknown command"), true).message(),
        "redis answered ERR: unexpected error: ERR unknown command"
    );
}

#[test]
fn a_lost_answer_leaves_the_outcome_open() {
    for (cause, kind) in [
        (
            Cause::Unreachable {
                at: "h:1",
                why: "refused",
            },
            ServiceUnavailable,
        ),
        (Cause::ConnectTimeout, NetworkTimeout),
        (Cause::NoPrimary, ServiceUnavailable),
        (Cause::Closed, ServiceUnavailable),
        (Cause::Silent, ServiceUnavailable),
        (Cause::GoneSilent, ServiceUnavailable),
        (Cause::Unanswered, NetworkTimeout),
        (Cause::Unreadable, Internal),
        (Cause::Oversized, Internal),
    ] {
        assert_eq!(classify(cause, true).0, kind, "{cause:?}");
        assert!(classify(cause, true).2);
        assert!(!classify(cause, false).2);
        assert!(to_error(cause, true).is_outcome_unknown());
    }
    assert_eq!(classify(Cause::Settings, false).0, InvalidArgument);
}

#[test]
fn the_drivers_errors_are_known_by_their_kind() {
    for (kind, cause) in [
        (RedisKind::Io, Cause::Closed),
        (RedisKind::Client, Cause::Closed),
        (RedisKind::Parse, Cause::Unreadable),
        (RedisKind::UnexpectedReturnType, Cause::Unreadable),
        (RedisKind::InvalidClientConfig, Cause::Settings),
    ] {
        let error = RedisError::from((kind, "no matter what"));
        assert_eq!(describe(&error), cause, "{kind:?}");
    }
}

#[test]
fn what_the_server_said_is_put_together_again() {
    for text in [
        "NOSCRIPT No matching script.",
        "ERR  two  blanks ",
        "WRONGPASS",
        "SYNCGUARD the stored value is not a lock",
    ] {
        let reply = format!("-{text}\r\n");
        let redis::Value::ServerError(error) = redis::parse_redis_value(reply.as_bytes()).unwrap()
        else {
            panic!("no error");
        };
        assert_eq!(error_text(&error), text);
    }
}

#[test]
fn a_failed_client_is_reported_with_its_words() {
    let cause = Cause::Client {
        kind: NetworkTimeout,
        what: "redis did not answer in time",
        may_be_done: true,
        words: "EVALSHA app:secret timed out",
    };
    let error = to_error_hiding(cause, true, ["app:secret"]);
    assert_eq!(
        error.message(),
        "redis did not answer in time: EVALSHA [hidden] timed out"
    );
    assert_eq!(error.kind(), NetworkTimeout);
    assert!(error.is_outcome_unknown());
    assert!(!to_error(cause, false).is_outcome_unknown());
}
