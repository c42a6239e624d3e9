//! What to send for an operation: a script, the keys it touches and its arguments.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use sha1::{Digest, Sha1};
use tokio::time::Instant;

use super::error::{Cause, reply_code, script_error, to_error_hiding};
use super::names::{ClientPrefix, Names, group_keys};
use super::replication::Replication;
use super::reply::{Reply, Tag};
use crate::asking::sending::Sending;
use crate::text::error::Error;
use crate::values::lock_id::LockId;
use crate::values::time::TIME_TOLERANCE_MS;

/// A Lua script that runs atomically in the server.
pub struct Script {
    source: Cow<'static, str>,
    sha: OnceLock<String>,
    /// Whether the script can give a reply, whatever is stored.
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

    /// The commands that it cannot do without, as the rights of a user name them, and those that run it.
    fn commands(&self) -> Vec<String> {
        let called = self.source.split("call('").skip(1);
        let called = called.filter_map(|rest| Some(rest.split_once('\'')?.0.to_lowercase()));
        let inner: BTreeSet<_> = called
            .filter(|name| !["publish", "spublish", "info"].contains(&name.as_str()))
            .collect();
        let outer = ["eval", "evalsha"].map(str::to_owned);
        outer.into_iter().chain(inner).collect()
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

/// Declares a script of the operation whose file this stands in, and whether a reply is one that it can give. The file beside
/// it says what it includes; `build.rs` of the crate makes it whole.
macro_rules! script {
    ($name:ident, $file:literal, $fits:expr) => {
        pub(in crate::redis) static $name: $crate::redis::plan::Script = {
            const SOURCE: &str = include_str!(concat!(env!("OUT_DIR"), "/", $file));
            $crate::redis::plan::Script::new(std::borrow::Cow::Borrowed(SOURCE), $fits)
        };
    };
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
///
/// It is boxed because it goes by value through the calls that build it, and through futures that are moved.
pub struct Plan(Box<Call>);

struct Call {
    script: PlannedScript,
    /// How many of its keys and arguments are the caller's own. They come first, and only a script of the caller's has any.
    callers_counts: Option<[usize; 2]>,
    /// All keys and then all arguments, one after the other: a call is planned for every operation, and one
    /// text costs less than a dozen.
    text: String,
    /// Where in `text` each key and each argument ends.
    ends: Vec<usize>,
    keys: usize,
    /// What to wait for once the script has granted or extended a lock.
    replication: Option<Replication>,
    /// What replies carry that belong to this call, if they carry anything.
    tag: Option<Tag>,
    /// When the answer to the call comes too late, if that is known.
    needed_by: Option<Instant>,
    sending: Sending,
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
    pub(super) fn of_callers(script: Arc<Script>, callers_counts: [usize; 2]) -> Self {
        let mut plan = Self::of(PlannedScript::Callers(script));
        plan.0.callers_counts = Some(callers_counts);
        plan
    }

    fn of(script: PlannedScript) -> Self {
        Self(Box::new(Call {
            script,
            callers_counts: None,
            text: String::with_capacity(320),
            ends: Vec::with_capacity(12),
            keys: 0,
            replication: None,
            tag: None,
            needed_by: None,
            sending: Sending::default(),
        }))
    }

    /// Lets a grant or an extension count only once replicas have it.
    pub(super) fn replicated(mut self, replication: Option<Replication>) -> Self {
        self.0.replication = replication;
        self
    }

    /// Says of which lock id, or of which first of several, replies carry the end.
    pub(super) fn tagged(mut self, lock_id: &LockId) -> Self {
        self.0.tag = Some(Tag::of(lock_id));
        self
    }

    pub(super) fn tag(&self) -> Option<&Tag> {
        self.0.tag.as_ref()
    }

    /// Sets when the answer to the call comes too late, if that is known.
    pub(super) fn answered_by(mut self, needed_by: Option<Instant>) -> Self {
        self.0.needed_by = needed_by;
        self
    }

    /// Notes in `sending` when the call is sent.
    pub(super) fn noted_in(mut self, sending: &Sending) -> Self {
        self.0.sending = sending.clone();
        self
    }

    pub(super) fn sending(&self) -> &Sending {
        &self.0.sending
    }

    pub(super) fn needed_by(&self) -> Option<Instant> {
        self.0.needed_by
    }

    pub(super) fn replication(&self) -> Option<Replication> {
        self.0.replication
    }

    /// Adds a key. They come before the arguments.
    pub(super) fn key(mut self, names: &Names, name: &str) -> Self {
        if let ClientPrefix::Ours(prefix) = names.client_prefix() {
            self.0.text.push_str(prefix);
        }
        self.0.keys += 1;
        self.arg(name)
    }

    /// Adds a key, where it is known or needed.
    pub(super) fn keys_of(self, names: &Names, name: Option<&str>) -> Self {
        match name {
            Some(name) => self.key(names, name),
            None => self,
        }
    }

    /// Adds the names that scripts touch beside the lock of a reader. Adds nothing for any other lock.
    pub(super) fn group_of(mut self, names: &Names, lock_key: Option<&str>) -> Self {
        for name in lock_key.and_then(group_keys).into_iter().flatten() {
            self = self.key(names, &name);
        }
        self
    }

    /// Adds an argument.
    pub(super) fn arg(mut self, text: &str) -> Self {
        self.0.text.push_str(text);
        self.0.ends.push(self.0.text.len());
        self
    }

    /// Adds a number as an argument: Redis takes it as text.
    pub(super) fn number(self, number: i64) -> Self {
        self.arg(itoa::Buffer::new().format(number))
    }

    /// Adds for some scripts, behind all other arguments, that the server is a node of a cluster.
    pub(super) fn for_cluster(self, names: &Names) -> Self {
        match names.is_in_cluster() {
            true => self.arg("cluster"),
            false => self,
        }
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
        match &self.0.script {
            PlannedScript::Ours(script) => script,
            PlannedScript::Callers(script) => script,
        }
    }

    /// Whether the script is the caller's own, which may do and answer anything.
    pub fn is_callers(&self) -> bool {
        self.0.callers_counts.is_some()
    }

    /// The error for a failure of this call, which may have been sent. It shows nothing of what locks are named by.
    pub fn error(&self, cause: Cause<'_>) -> Error {
        match cause {
            Cause::Reply(text) if self.is_callers() => script_error(text, self.secrets()),
            Cause::Reply(text) if reply_code(text) == Some("NOPERM") => {
                // Some versions do not say which command a script may not call.
                let needs = self.script().commands().join(" +");
                let error = to_error_hiding(cause, true, self.secrets());
                error.after(&format!("a script that needs +{needs} was refused: "))
            }
            _ => to_error_hiding(cause, true, self.secrets()),
        }
    }

    /// Whether a reply is one that the script can give. If not, the connection mixes answers up.
    pub(super) fn fits(&self) -> fn(&Reply) -> bool {
        self.script().fits
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.texts().take(self.0.keys)
    }

    /// The arguments, in order.
    pub fn args(&self) -> impl ExactSizeIterator<Item = &str> {
        self.texts().skip(self.0.keys)
    }

    fn texts(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut from = 0;
        self.0.ends.iter().map(move |end| {
            let text = self.0.text.get(from..*end).unwrap_or_default();
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
        let keys = keys.format(self.0.keys);
        let mut digits = itoa::Buffer::new();
        let mut push = |parts: [&str; 3]| {
            for part in parts {
                out.extend_from_slice(part.as_bytes());
            }
        };
        push(["*", digits.format(3 + self.0.ends.len()), "\r\n"]);
        for text in [command, script, keys].into_iter().chain(self.texts()) {
            push(["$", digits.format(text.len()), "\r\n"]);
            push([text, "\r\n", ""]);
        }
    }

    /// What must not be told to anybody: names of keys, lock ids, owners. Numbers of few digits are the
    /// times of locks, and stand in many messages. What the caller's own script says of the caller's own data is his to hear.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let [keys, args] = self.0.callers_counts.unwrap_or_default();
        let ours = self.keys().skip(keys).chain(self.args().skip(args));
        let is_time = |text: &str| text.len() < 6 && text.bytes().all(|byte| byte.is_ascii_digit());
        ours.filter(move |text| !is_time(text))
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("script", self.script())
            .field("keys", &self.0.keys)
            .field("args", &(self.0.ends.len() - self.0.keys))
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
    use crate::values::key::Key;

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
    fn an_error_for_missing_rights_names_what_the_script_needs() {
        let plan = || Plan::new(&super::super::operations::release::SCRIPT).arg("secret");
        for text in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "ERR The user executing the script can't run this command or subcommand script: secret",
        ] {
            let error = plan().error(Cause::Reply(text));
            let needs = "a script that needs +eval +evalsha +del +get +set +time +zrem +zremrangebyscore +zrevrange was refused: ";
            assert!(error.message().starts_with(needs), "{error}");
            assert!(!error.message().contains("secret"));
        }
        let error = plan().error(Cause::Reply("READONLY You can't write"));
        assert!(!error.message().contains("needs"));
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
