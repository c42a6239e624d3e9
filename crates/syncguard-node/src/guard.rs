//! What users' own transactions need in order to check that a lock is held.

use napi_derive::napi;
use serde_json::{Map, Value};
use syncguard::firestore::{DocumentIds, FirestoreConfig, LockState};
use syncguard::{Error, Key, postgres};

use crate::backend::NativeBackend;
use crate::error::{Code, thrown};
use crate::firestore::client::field;
use crate::options::lock_ids;

/// A statement for a transaction of the user's own.
#[napi(object, object_from_js = false)]
pub struct LockCheck {
    /// With `$1` … for the values.
    pub text: String,
    /// All of them texts.
    pub values: Vec<String>,
}

#[napi]
impl NativeBackend {
    /// What checks that the locks are held whose ids are given, with commas between.
    #[napi]
    pub fn check(&self, ids: String) -> napi::Result<LockCheck, Code> {
        let check = || self.operations.backend.check(&lock_ids(&ids)?);
        let check = check().map_err(thrown)?;
        Ok(LockCheck {
            text: check.text,
            values: check.values,
        })
    }
}

/// What the error of such a statement says of the locks.
#[napi(object, object_from_js = false)]
pub struct CheckFailure {
    pub code: String,
    pub message: String,
}

/// Reads it in the SQLSTATE and the message of the error; nothing if that is about something else.
#[napi]
pub fn check_failure(state: String, message: String) -> Option<CheckFailure> {
    let error = postgres::check_failure(&state, &message)?;
    Some(CheckFailure {
        code: error.kind().as_str().to_owned(),
        message: error.message().to_owned(),
    })
}

/// Where a lock is in Firestore.
#[napi(object, object_from_js = false)]
pub struct LockPlace {
    pub collection: String,
    pub id: String,
}

/// Where the lock on `key`, as it was granted, is in Firestore.
#[napi]
pub fn firestore_lock(collection: Option<String>, key: String) -> napi::Result<LockPlace, Code> {
    let ids = Key::stored(&key).and_then(|key| DocumentIds::of(&key));
    Ok(LockPlace {
        collection: collection.unwrap_or_else(|| FirestoreConfig::default().collection),
        id: ids.map_err(thrown)?.lock,
    })
}

/// Whether the lock document with these fields, in JSON, is the lock of that id, and is live at that time.
#[napi]
pub fn firestore_holds(fields: String, lock_id: String, now_ms: f64) -> napi::Result<bool, Code> {
    let fields: Map<String, Value> = serde_json::from_str(&fields)
        .map_err(|_| thrown(Error::invalid("the fields of a document are malformed")))?;
    let field = |name: &str| fields.get(name).cloned().and_then(field);
    let lock = LockState::read("", field).map_err(thrown)?;
    Ok(lock.lock_id == lock_id && lock.is_live(now_ms as i64))
}
