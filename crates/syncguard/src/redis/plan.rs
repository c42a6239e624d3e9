//! What to send for an operation: a script, the keys it touches and its arguments.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use sha1::{Digest, Sha1};

use super::error::{Cause, script_error, to_error_hiding};
use super::names::{ClientPrefix, Names};
use super::replication::Replication;
use super::reply::Reply;
use crate::error::Error;
use crate::time::TIME_TOLERANCE_MS;

/// A Lua script that runs atomically in the server.
pub struct Script {
    source: Cow<'static, str>,
    sha: OnceLock<String>,
    /// Whether a reply is one that it can give, whatever is stored.
    fits: fn(&Reply) -> bool,
}

impl Script {
    pub(super) const fn new(source: Cow<'static, str>, fits: fn(&Reply) -> bool) -> Self {
        Self {
            source,
            sha: OnceLock::new(),
            fits,
        }
    }

    /// The text, for `EVAL`.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The hash under which the server keeps it, for `EVALSHA`: 40 hex digits.
    pub fn sha(&self) -> &str {
        self.sha.get_or_init(|| sha1_hex(&self.source))
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Script({})", self.sha())
    }
}

fn sha1_hex(source: &str) -> String {
    use fmt::Write as _;
    let mut hex = String::with_capacity(40);
    for byte in Sha1::digest(source.as_bytes()) {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// Declares a script of the operation whose file this stands in, and whether a reply is one that it can give. It is made of
/// fragments, of which others share some, and of lines in parentheses.
macro_rules! script {
    ($name:ident, [$($part:tt),+], $fits:expr) => {
        pub(in crate::redis) static $name: $crate::redis::plan::Script = {
            const SOURCE: &str = concat!($($crate::redis::plan::script!(@ $part)),+);
            $crate::redis::plan::Script::new(std::borrow::Cow::Borrowed(SOURCE), $fits)
        };
    };
    (@ ($line:literal)) => { concat!($line, "\n") };
    (@ $file:literal) => { include_str!($file) };
}
pub(super) use script;

/// How a script is named in a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum ScriptForm {
    Hash,
    Source,
}

/// One call of the server, as in `EVALSHA sha numkeys key… arg…`.
///
/// `Debug` shows no keys and no arguments: they hold what users lock.
pub struct Plan {
    script: PlannedScript,
    /// Of its keys and arguments, so many are the caller's own, and come first: where the script is, too.
    given: Option<[usize; 2]>,
    /// All keys and then all arguments, one after the other: a call is planned for every operation, and one
    /// text costs less than a dozen.
    text: String,
    /// Where in `text` each of them ends.
    ends: Vec<usize>,
    keys: usize,
    /// What to wait for once the script has granted a lock.
    replication: Option<Replication>,
}

/// Whose script it is.
enum PlannedScript {
    Ours(&'static Script),
    Callers(Arc<Script>),
}

impl Plan {
    pub(super) fn new(script: &'static Script) -> Self {
        Self::of(PlannedScript::Ours(script))
    }

    /// One with a script of the caller's, who also gives so many of the first keys and arguments.
    pub(super) fn of_callers(script: Arc<Script>, given: [usize; 2]) -> Self {
        Self {
            given: Some(given),
            ..Self::of(PlannedScript::Callers(script))
        }
    }

    fn of(script: PlannedScript) -> Self {
        Self {
            script,
            given: None,
            text: String::with_capacity(320),
            ends: Vec::with_capacity(12),
            keys: 0,
            replication: None,
        }
    }

    /// Lets a grant count only once replicas have it.
    pub(super) fn replicated(self, replication: Option<Replication>) -> Self {
        Self {
            replication,
            ..self
        }
    }

    pub(super) fn replication(&self) -> Option<Replication> {
        self.replication
    }

    /// Adds a key. They come before the arguments.
    pub(super) fn key(mut self, names: &Names, name: &str) -> Self {
        if let ClientPrefix::Ours(prefix) = names.client_prefix() {
            self.text.push_str(prefix);
        }
        self.keys += 1;
        self.arg(name)
    }

    /// Adds a key that only a cluster must be told.
    pub(super) fn keys_of(self, names: &Names, name: Option<&str>) -> Self {
        match name {
            Some(name) => self.key(names, name),
            None => self,
        }
    }

    /// Adds an argument.
    pub(super) fn arg(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self.ends.push(self.text.len());
        self
    }

    /// Adds a number as an argument: Redis takes it as text.
    pub(super) fn number(self, number: i64) -> Self {
        self.arg(itoa::Buffer::new().format(number))
    }

    /// Adds `name` as an argument from which a script finds out the client's prefix; nothing if it is known
    /// that there is none.
    pub(super) fn bare(self, names: &Names, name: &str) -> Self {
        match names.client_prefix() {
            ClientPrefix::None => self,
            ClientPrefix::Ours(_) | ClientPrefix::Theirs => self.arg(name),
        }
    }

    /// What to run.
    pub fn script(&self) -> &Script {
        match &self.script {
            PlannedScript::Ours(script) => script,
            PlannedScript::Callers(script) => script,
        }
    }

    /// Whether the script is the caller's own, which may do and answer anything.
    pub fn is_callers(&self) -> bool {
        self.given.is_some()
    }

    /// The error for a failure of this call, which may have been sent. It shows nothing of what locks are named by.
    pub fn error(&self, cause: Cause<'_>) -> Error {
        match cause {
            Cause::Reply(text) if self.is_callers() => script_error(text, self.secrets()),
            _ => to_error_hiding(cause, true, self.secrets()),
        }
    }

    /// Whether a reply is one that the script can give. If not, the connection mixes answers up.
    pub(super) fn fits(&self) -> fn(&Reply) -> bool {
        self.script().fits
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.texts().take(self.keys)
    }

    /// The arguments, in order.
    pub fn args(&self) -> impl ExactSizeIterator<Item = &str> {
        self.texts().skip(self.keys)
    }

    fn texts(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut from = 0;
        self.ends.iter().map(move |end| {
            let text = self.text.get(from..*end).unwrap_or_default();
            from = *end;
            text
        })
    }

    /// Appends the call as it goes over the wire: an array of bulk strings (RESP, "Sending commands to a
    /// Redis server").
    pub(super) fn write(&self, form: ScriptForm, out: &mut Vec<u8>) {
        let (command, script) = match form {
            ScriptForm::Hash => ("EVALSHA", self.script().sha()),
            ScriptForm::Source => ("EVAL", self.script().source()),
        };
        let mut keys = itoa::Buffer::new();
        let keys = keys.format(self.keys);
        let mut digits = itoa::Buffer::new();
        let mut push = |parts: [&str; 3]| {
            for part in parts {
                out.extend_from_slice(part.as_bytes());
            }
        };
        push(["*", digits.format(3 + self.ends.len()), "\r\n"]);
        for text in [command, script, keys].into_iter().chain(self.texts()) {
            push(["$", digits.format(text.len()), "\r\n"]);
            push([text, "\r\n", ""]);
        }
    }

    /// What must not be told to anybody: names of keys, lock ids, owners. Numbers of few digits are the
    /// times of locks, and stand in many messages. What the caller's own script says of the caller's own data is his to hear.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let [keys, args] = self.given.unwrap_or_default();
        let ours = self.keys().skip(keys).chain(self.args().skip(args));
        let is_time = |text: &str| text.len() < 6 && text.bytes().all(|byte| byte.is_ascii_digit());
        ours.filter(move |text| !is_time(text))
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("script", self.script())
            .field("keys", &self.keys)
            .field("args", &(self.ends.len() - self.keys))
            .finish()
    }
}

/// How long Redis keeps an entry: past its expiry by the tolerance, so that it is there for as long
/// as the liveness rule may count it as held.
pub(super) fn lifetime_ms(ttl_ms: i64) -> i64 {
    ttl_ms + TIME_TOLERANCE_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    #[test]
    fn the_hash_is_the_servers() {
        // What SCRIPT LOAD of the second answers.
        assert_eq!(
            sha1_hex("return 1"),
            "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
        );
        assert_eq!(sha1_hex("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
    }

    #[test]
    fn the_clients_prefix_stands_before_keys_only() {
        let key = Key::new("k").unwrap();
        let names = |prefix| Names::new("app", prefix).unwrap();
        let name = names(ClientPrefix::None).lock_key(&key).unwrap();
        for (prefix, sent, bare) in [
            (ClientPrefix::None, "app:k", None),
            (ClientPrefix::Ours("x:".into()), "x:app:k", Some("app:k")),
            (ClientPrefix::Theirs, "app:k", Some("app:k")),
        ] {
            let names = names(prefix);
            let plan = Plan::new(&super::super::operations::acquire::SCRIPT)
                .key(&names, &name)
                .bare(&names, &name);
            assert!(plan.keys().eq([sent]));
            assert!(plan.args().eq(bare));
        }
    }

    #[test]
    fn debug_output_shows_no_names() {
        let names = Names::new("secret", ClientPrefix::None).unwrap();
        let plan = Plan::new(&super::super::operations::acquire::SCRIPT)
            .key(&names, "secret")
            .arg("secret");
        assert!(!format!("{plan:?}").contains("secret"));
    }
}
