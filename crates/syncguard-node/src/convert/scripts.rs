//! Scripts of users' own, and what they reply.

use napi_derive::napi;
use serde_json::{Value, json};
use syncguard::{Error, Eval, Key, Reply, Sending};

use crate::convert::options::lock_ids;

/// A script, and the locks that must be held.
#[napi(object)]
pub struct ScriptSettings {
    pub lock_ids: Vec<String>,
    /// The key of each, as it was granted.
    pub locks: Vec<String>,
    pub script: String,
    pub keys: Vec<String>,
    pub arguments: Vec<String>,
}

impl ScriptSettings {
    pub(crate) fn into_eval(self) -> Result<Eval, Error> {
        let keys: Vec<_> = self
            .locks
            .iter()
            .map(|key| Key::stored(key))
            .collect::<Result<_, _>>()?;
        Ok(Eval {
            locks: keys.into_iter().zip(lock_ids(&self.lock_ids)?).collect(),
            script: self.script,
            keys: self.keys,
            arguments: self.arguments,
            sending: Sending::default(),
        })
    }
}

/// A reply as JSON. An error among several is an object with its words.
pub(crate) fn reply_json(reply: &Reply) -> Value {
    match reply {
        Reply::Nil => Value::Null,
        Reply::Int(number) => json!(number),
        Reply::Bulk(bytes) => json!(String::from_utf8_lossy(bytes)),
        Reply::Array(items) => items.iter().map(reply_json).collect(),
        Reply::Error(words) => json!({ "error": words }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_what_clients_make_of_them() {
        let bulk = |bytes: &[u8]| Reply::Bulk(bytes.to_vec());
        let reply = Reply::Array(vec![
            Reply::Nil,
            Reply::Int(-7),
            bulk("é".as_bytes()),
            bulk(b"a\xffb"),
            Reply::Array(vec![Reply::Error("MINE text".to_owned())]),
        ]);
        let expected = json!([null, -7, "é", "a\u{fffd}b", [{ "error": "MINE text" }]]);
        assert_eq!(reply_json(&reply), expected);
    }
}
