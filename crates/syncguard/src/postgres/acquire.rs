//! Taking a lock, or several.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::group::Work;
use super::names::Names;
use super::reply;
use super::statement::{Call, Operation, Param, Row, Statements};
use crate::backend::{AcquireOutcome, AcquireRequest, Grant};
use crate::error::Error;
use crate::fence::Fence;
use crate::lock_id::LockId;
use crate::time::TIME_TOLERANCE_MS;

pub(super) const SQL: &str = include_str!("acquire.sql");
pub(super) const GROUP_SQL: &str = include_str!("acquire_group.sql");

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

/// Acquisitions without a label that go together.
#[derive(Debug)]
pub(super) struct Acquisitions;

/// One of them.
pub(super) struct Asked {
    request: AcquireRequest,
    names: Names,
}

impl Asked {
    pub(super) fn new(request: &AcquireRequest, names: &Names) -> Self {
        Self {
            request: request.clone(),
            names: names.clone(),
        }
    }
}

impl Work for Acquisitions {
    type Item = Asked;
    type Outcome = AcquireOutcome;

    fn lock_id(asked: &Asked) -> &LockId {
        &asked.request.lock_id
    }

    /// One statement can take a key once.
    fn agree(one: &Asked, other: &Asked) -> bool {
        one.names.lock != other.names.lock
    }

    fn text<'a>(asked: impl Iterator<Item = &'a Asked>) -> String {
        let asked = asked.map(|Asked { request, names }| {
            json!({
                "lock": names.lock,
                "fence": names.fence,
                "key": request.key.as_str(),
                "id": request.lock_id.as_str(),
                "ttl": request.ttl.as_millis(),
            })
        });
        Value::Array(asked.collect()).to_string()
    }

    fn call<'a>(&self, statements: &'a Statements, text: &'a str) -> Call<'a> {
        let params = vec![Param::Text(text), Param::BigInt(TIME_TOLERANCE_MS)];
        statements.call(Operation::AcquireGroup, params)
    }

    fn outcomes(row: Option<&Row>) -> Result<HashMap<&str, AcquireOutcome>, Error> {
        let each = reply::list(row)?.map(|text| {
            let mut parts = text.split(' ');
            let mut part = || parts.next().ok_or_else(reply::malformed);
            let lock_id = part()?;
            let outcome = match part()? {
                "locked" => AcquireOutcome::Locked,
                fence => AcquireOutcome::Acquired(Grant {
                    lock_id: LockId::parse(lock_id)?,
                    fence: Fence::parse(fence)?,
                    expires_at_ms: part()?.parse().map_err(|_| reply::malformed())?,
                }),
            };
            Ok((lock_id, outcome))
        });
        each.collect()
    }

    /// Nobody would ever release it.
    fn undo<'a>(
        &self,
        statements: &'a Statements,
        asked: &'a Asked,
        outcome: &AcquireOutcome,
    ) -> Option<Call<'a>> {
        match outcome {
            AcquireOutcome::Acquired(_) => Some(super::release::call(
                statements,
                &asked.request.lock_id,
                false,
            )),
            AcquireOutcome::Locked => None,
        }
    }
}
