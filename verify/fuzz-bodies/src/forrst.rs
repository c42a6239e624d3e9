//! Requests of the Forrst extension: any JSON. Its errors go back to the caller who sent the request, and name the key
//! by design; an owner is shown to nobody.

use serde_json::{Map, Value};
use syncguard_forrst::{AcquiredData, KeyArgument, Options, RefusedData, ReleaseArguments};

use crate::input::{SECRET, assert_discreet, checked};

/// Options and arguments. The first line is the function's name, the rest JSON.
pub fn forrst(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (function, json) = text.split_once('\n').unwrap_or(("f", text));
    let Ok(json) = serde_json::from_str::<Value>(json) else {
        return;
    };
    parse(function, &json);
    // The same with the secret as the owner, whatever else is wrong.
    if let Value::Object(members) = json {
        parse(
            function,
            &Value::Object(with_owner(members.clone(), Value::from(SECRET))),
        );
        let long = Value::from(SECRET.repeat(20));
        parse(function, &Value::Object(with_owner(members.clone(), long)));
        let listed = Value::from(vec![SECRET]);
        parse(function, &Value::Object(with_owner(members, listed)));
    }
}

fn with_owner(mut members: Map<String, Value>, owner: Value) -> Map<String, Value> {
    members.insert("owner".to_owned(), owner);
    members
}

fn parse(function: &str, json: &Value) {
    let shows = |error: &dyn std::fmt::Debug| assert_discreet(&format!("{error:?}"));
    match Options::parse(function, json) {
        Ok(options) => {
            shows(&options);
            let _ = (options.retry_policy().validate(), options.contention());
            let _ = serde_json::to_value(RefusedData::of(&options));
            if let Some(owner) = checked(options.owner_or_new()) {
                for expires_at_ms in [0, i64::MAX, i64::MIN, 1_700_000_000_000] {
                    let data = AcquiredData::new(&options, &owner, expires_at_ms, false);
                    let _ = serde_json::to_value(data);
                }
            }
        }
        Err(error) => {
            shows(&error);
            assert_discreet(&serde_json::to_string(&error).unwrap_or_default());
        }
    }
    if let Err(error) = KeyArgument::parse(json) {
        shows(&error);
    }
    match ReleaseArguments::parse(json) {
        Ok(arguments) => {
            shows(&arguments);
            for owner in [None, Some(""), Some("another")] {
                if let Err(error) = arguments.owned(Some(owner), |owner| *owner) {
                    shows(&error);
                }
            }
        }
        Err(error) => shows(&error),
    }
}
