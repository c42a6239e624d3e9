use super::*;
use crate::malformed::assert_options_refused;
use proptest::prelude::*;
use serde_json::json;

fn parse(json: &Value) -> Result<Options, ForrstError> {
    Options::parse("payments.charge", json)
}

/// Valid options with `more` members in place of or beside the required ones.
fn with(more: Value) -> Value {
    let mut json = json!({ "key": "user:123", "ttl": { "value": 30, "unit": "second" } });
    json.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json
}

#[test]
fn defaults_are_those_of_the_specification() {
    let options = parse(&with(json!({}))).unwrap();
    assert_eq!(options.key, "user:123");
    assert_eq!(options.full_key.as_str(), "lock:payments.charge:user:123");
    assert_eq!(options.scope, Scope::Function);
    assert_eq!(options.ttl.as_millis(), 30_000);
    assert_eq!(options.block, None);
    assert_eq!(options.owner, None);
    assert!(options.auto_release);
    assert_eq!(options.retry_policy().max_retries, 0.0);
}

#[test]
fn a_ttl_may_be_as_long_as_it_is_since_1970() {
    let days = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() / 86_400;
    let ttl = json!({ "ttl": { "value": days, "unit": "day" } });
    assert!(parse(&with(ttl)).is_ok());
}

#[test]
fn every_option_counts() {
    let options = parse(&json!({
        "key": "billing:report",
        "ttl": { "value": 1, "unit": "hour" },
        "scope": "global",
        "block": { "value": 5, "unit": "second" },
        "owner": "host:1",
        "auto_release": false,
    }))
    .unwrap();
    assert_eq!(options.full_key.as_str(), "lock:billing:report");
    assert_eq!(options.ttl.as_millis(), 3_600_000);
    assert_eq!(options.owner_or_new().unwrap().as_str(), "host:1");
    assert!(!options.auto_release);
    let policy = options.retry_policy();
    assert_eq!(
        (policy.max_retries, policy.timeout_ms),
        (f64::INFINITY, 5000.0)
    );
    policy.validate().unwrap();
}

#[test]
fn contention_reads_as_in_the_specification() {
    let options = parse(&with(json!({}))).unwrap();
    assert_eq!(
        serde_json::to_string(&options.contention()).unwrap(),
        concat!(
            r#"{"code":"LOCK_ACQUISITION_FAILED","message":"Unable to acquire lock","#,
            r#""details":{"key":"user:123","scope":"function","#,
            r#""full_key":"lock:payments.charge:user:123"}}"#
        )
    );
    let block = json!({
        "key": "billing:report",
        "scope": "global",
        "block": { "value": 5, "unit": "second" },
    });
    assert_eq!(
        serde_json::to_string(&parse(&with(block)).unwrap().contention()).unwrap(),
        concat!(
            r#"{"code":"LOCK_TIMEOUT","#,
            r#""message":"Lock acquisition timed out after 5 seconds","#,
            r#""details":{"key":"billing:report","scope":"global","#,
            r#""full_key":"lock:billing:report","waited":{"value":5,"unit":"second"}}}"#
        )
    );
}

#[test]
fn what_is_wrong_is_named() {
    assert_options_refused(parse);
    let long = "key is too long: with its prefix it may have 512 bytes";
    let owner = "owner must be a string of 1 to 255 bytes";
    for (more, message) in [
        (json!({ "key": "x".repeat(492) }), long),
        (json!({ "key": "é".repeat(250) }), long),
        (json!({ "owner": "x".repeat(256) }), owner),
        (json!({ "owner": "é".repeat(128) }), owner),
    ] {
        let error = parse(&with(more)).unwrap_err();
        assert_eq!(error.message, message);
    }
    assert!(parse(&with(json!({ "key": "x".repeat(491) }))).is_ok());
    assert!(parse(&with(json!({ "owner": "x".repeat(255) }))).is_ok());
}

#[test]
fn a_function_needs_a_name_where_it_scopes_the_key() {
    let error = Options::parse("", &with(json!({}))).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidRequest);
    assert_eq!(error.message, "call.function must be a non-empty string");
    assert!(Options::parse("", &with(json!({ "scope": "global" }))).is_ok());
}

#[test]
fn debug_output_shows_no_key_and_no_owner() {
    let options = parse(&with(
        json!({ "key": "secret-key", "owner": "secret-owner" }),
    ))
    .unwrap();
    assert!(!format!("{options:?}").contains("secret"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (1..100i64).prop_map(Value::from),
        prop::sample::select(vec!["second", "day", "function", "global", ""]).prop_map(Value::from),
        ".{0,600}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 12, 3, |inner| {
        let name = prop::sample::select(vec!["value", "unit"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..3).prop_map(|members| json!(members)),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_sent_is_refused_by_name_or_within_bounds(
        members in prop::collection::btree_map(
            prop::sample::select(vec!["key", "ttl", "scope", "block", "owner", "auto_release"]),
            any_json(),
            0..4,
        ),
        function in ".{0,20}",
    ) {
        match Options::parse(&function, &with(json!(members))) {
            Ok(options) => {
                prop_assert!(options.full_key.as_str().starts_with("lock:"));
                prop_assert!(options.full_key.as_str().len() <= 512);
                prop_assert!((1..=Duration::MAX_MS).contains(&options.ttl.as_millis()));
                prop_assert!(options.retry_policy().validate().is_ok());
            }
            Err(error) => {
                let names_a_field = matches!(error.details, Some(Details::Field { .. }));
                prop_assert!(names_a_field);
                prop_assert!(error.message.len() < 200);
            }
        }
    }
}
