//! The table of malformed input, which these tests share with those of the npm package.

use serde::Deserialize;
use serde_json::Value;

use super::error::{Details, ErrorCode, ForrstError};

#[derive(Deserialize)]
struct Table {
    options: Vec<Case>,
    arguments: Vec<Case>,
    owners: Vec<Case>,
}

/// Input, and the error that it causes.
#[derive(Deserialize)]
struct Case {
    input: Value,
    field: String,
    message: String,
}

fn table() -> Table {
    serde_json::from_str(include_str!("../tests/malformed.json")).unwrap()
}

/// Malformed options of requests.
pub(super) fn assert_options_refused<T>(parse: impl Fn(&Value) -> Result<T, ForrstError>) {
    assert_refused(&table().options, parse);
}

/// Malformed arguments of the release function.
pub(super) fn assert_arguments_refused<T>(parse: impl Fn(&Value) -> Result<T, ForrstError>) {
    let Table {
        arguments, owners, ..
    } = table();
    assert_refused(&arguments, &parse);
    assert_refused(&owners, parse);
}

fn assert_refused<T>(cases: &[Case], parse: impl Fn(&Value) -> Result<T, ForrstError>) {
    assert!(!cases.is_empty());
    for Case {
        input,
        field,
        message,
    } in cases
    {
        let error = parse(input).err().unwrap();
        assert_eq!(error.code, ErrorCode::InvalidArguments, "{input}");
        assert_eq!(&error.message, message, "{input}");
        let named = Some(Details::Field {
            field: field.clone(),
        });
        assert!(error.details == named, "{input}");
    }
}
