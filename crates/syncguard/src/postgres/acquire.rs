//! Taking a lock.

use super::names::Names;
use super::reply;
use super::statement::{Call, Operation, Param, Row, Statements};
use crate::backend::{AcquireOutcome, AcquireRequest, Grant};
use crate::error::Error;
use crate::fence::Fence;
use crate::time::TIME_TOLERANCE_MS;

pub(super) const SQL: &str = include_str!("acquire.sql");

/// The statement that tries to take the lock. With `label`, it stores the owner's label too, which
/// takes a table with a column for it.
pub fn call<'a>(
    statements: &'a Statements,
    request: &'a AcquireRequest,
    names: &'a Names,
    label: Option<&'a str>,
) -> Call<'a> {
    let mut params = vec![
        Param::Text(&names.lock),
        Param::Text(&names.fence),
        Param::Text(request.key.as_str()),
        Param::Text(request.lock_id.as_str()),
        Param::BigInt(request.ttl.as_millis()),
        Param::BigInt(TIME_TOLERANCE_MS),
    ];
    let operation = match label {
        None => Operation::Acquire,
        Some(label) => {
            params.push(Param::Text(label));
            Operation::AcquireLabelled
        }
    };
    statements.call(operation, params)
}

/// What its row says.
///
/// # Errors
/// `Internal` when the fence counter has no number left, and for a row that makes no sense.
pub fn outcome(request: &AcquireRequest, row: Option<&Row>) -> Result<AcquireOutcome, Error> {
    match reply::text(row, 0)? {
        "acquired" => Ok(AcquireOutcome::Acquired(Grant {
            lock_id: request.lock_id.clone(),
            fence: Fence::parse(reply::text(row, 1)?)?,
            expires_at_ms: reply::number(row, 2)?,
        })),
        "locked" => Ok(AcquireOutcome::Locked),
        "exhausted" => Err(match Fence::after(reply::number(row, 1)?) {
            Err(error) => error,
            Ok(_) => reply::malformed(),
        }),
        _ => Err(reply::malformed()),
    }
}
