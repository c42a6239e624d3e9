//! What users' own transactions need in order to check that a lock is held.

use napi_derive::napi;
use serde_json::{Map, Value};
use syncguard::firestore::{
    DocumentIds, Field, FirestoreConfig, LockDocument, LockState, MarkDocument, mark_after,
};
use syncguard::{Error, Key, LockId, postgres};

use crate::calls::backend::NativeBackend;
use crate::convert::error::{Code, thrown};
use crate::convert::options::{finish, lock_ids};
use crate::firestore::client::{field, fields as json};

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
    /// What checks that the locks are held whose ids are given; of one, on `key`, it may store that something is done for the period
    /// `due`.
    #[napi]
    pub fn check(
        &self,
        ids: Vec<String>,
        key: Option<String>,
        due: Option<String>,
    ) -> napi::Result<LockCheck, Code> {
        let check = || {
            let done = key.zip(due).map(|(key, due)| finish(&key, &due));
            let (ids, done) = (lock_ids(&ids)?, done.transpose()?);
            self.operations.backend.check(&ids, done.as_ref())
        };
        let check = check().map_err(thrown)?;
        Ok(LockCheck {
            text: check.text,
            values: check.values,
        })
    }
}

/// What is to be run in the transaction after a guard that failed, so that it cannot be committed.
#[napi]
pub fn stop_transaction() -> &'static str {
    postgres::STOP_TRANSACTION
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

/// Where a lock is in Firestore, and what is done under it.
#[napi(object, object_from_js = false)]
pub struct LockPlace {
    pub collection: String,
    pub id: String,
    pub mark_collection: String,
    pub mark_id: String,
    /// The id of the lock of all who share the key, if it is that of one of them.
    pub group_id: Option<String>,
}

/// Where the lock on `key`, as it was granted, is in Firestore, in the collections of the backend.
#[napi]
pub fn firestore_lock(
    collection: Option<String>,
    fence_collection: Option<String>,
    key: String,
) -> napi::Result<LockPlace, Code> {
    let ids = Key::stored(&key).and_then(|key| DocumentIds::of(&key));
    let ids = ids.map_err(thrown)?;
    let config = FirestoreConfig::default();
    Ok(LockPlace {
        collection: collection.unwrap_or(config.collection),
        mark_collection: fence_collection.unwrap_or(config.fence_collection),
        mark_id: ids.mark(),
        group_id: ids.group(),
        id: ids.lock,
    })
}

/// Whether the lock document with these fields, in JSON, is the lock of that id, and is live at that time.
#[napi]
pub fn firestore_holds(fields: String, lock_id: String, now_ms: f64) -> napi::Result<bool, Code> {
    let lock = read(&fields).and_then(|field| LockState::read("", field));
    let lock = lock.map_err(thrown)?;
    Ok(lock.lock_id == lock_id && lock.is_live(now_ms as i64))
}

/// Whether the lock documents with these fields, in JSON, are that of one who shares a key, and that of all who do, which has this id
/// and is live at that time.
#[napi]
pub fn firestore_shares(
    fields: String,
    group_id: String,
    group: String,
    now_ms: f64,
) -> napi::Result<bool, Code> {
    let shares = || {
        let (reader, field) = (LockDocument::read(read(&fields)?)?, read(&group)?);
        let state = LockState::read(group_id, &field)?;
        let is_group = state.is_group() && state.is_live(now_ms as i64);
        Ok(is_group && LockDocument::read(field)?.fence == reader.fence)
    };
    shares().map_err(thrown)
}

/// The fields of the document, in JSON, that says that something is done under the lock of that id for the period `due` of `key`;
/// nothing if what is there, in JSON, says that a later one is.
#[napi]
pub fn firestore_done(
    fields: String,
    key: String,
    due: String,
    lock_id: String,
    now_ms: f64,
) -> napi::Result<Option<String>, Code> {
    let mark = || {
        let found = read(&fields).and_then(MarkDocument::read)?;
        let (done, lock_id) = (finish(&key, &due)?, LockId::parse(&lock_id)?);
        let mark = mark_after(found.as_ref(), &done, &lock_id, now_ms as i64);
        let fields = |mark| json(MarkDocument::fields(Some(&mark), &done.key));
        Ok(mark.map(|mark| Value::from(fields(mark)).to_string()))
    };
    mark().map_err(thrown)
}

/// The fields of a document that are given in JSON.
fn read(fields: &str) -> Result<impl Fn(&str) -> Option<Field> + use<>, Error> {
    let fields: Map<String, Value> = serde_json::from_str(fields)
        .map_err(|_| Error::invalid("the fields of a document are malformed"))?;
    Ok(move |name: &str| fields.get(name).cloned().and_then(field))
}
