//! Scripts of the caller's: what is sent of them, and which are known.
//!
//! The server runs what is sent as one script. It begins with the check, which ends it unless the locks are held, and takes its
//! own keys and arguments away. The caller's text follows as it is, to the very end: whatever is in it, and also if its blocks do
//! not match, none of it comes before the check. The check stands on one line and in a block, so that the numbers of lines in
//! errors are the caller's, and no name of the check is seen there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::plan::Script;
use crate::mutex::lock;

/// How many scripts are remembered. Their texts are constants of a program.
const MOST: usize = 1024;

/// What is sent for a script, by its text. Finding it costs less than its hash.
#[derive(Default)]
pub(super) struct CallersScripts(Mutex<HashMap<Box<str>, Arc<Script>>>);

impl CallersScripts {
    /// The script that runs `check` and then `text`.
    pub(super) fn get(&self, text: &str, check: &str) -> Arc<Script> {
        if let Some(known) = lock(&self.0).get(text) {
            return Arc::clone(known);
        }
        let script = Arc::new(Script::new(compose(check, text).into(), |_| true));
        let mut known = lock(&self.0);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(text.into(), Arc::clone(&script));
        script
    }
}

/// One script of both. A line such as `#!lua flags=no-writes`, which tells the server how to run a script, has to be the first.
fn compose(check: &str, text: &str) -> String {
    let lines = check.lines().map(str::trim);
    let check: Vec<_> = lines.filter(|line| !line.starts_with("--")).collect();
    let check = check.join(" ");
    match text.split_once('\n').filter(|_| text.starts_with("#!")) {
        Some((first, rest)) => format!("{first}\n{check} {rest}"),
        None => format!("{check} {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: &str = "-- what it is\ndo\n  -- why\n  check()\nend\n";

    #[test]
    fn the_callers_text_is_on_its_own_lines_behind_the_check() {
        for (text, expected) in [
            ("return 1", "do check() end return 1"),
            ("return\n1\n", "do check() end return\n1\n"),
            ("", "do check() end "),
            ("-- #!lua", "do check() end -- #!lua"),
            (
                "#!lua flags=no-writes\nreturn 1",
                "#!lua flags=no-writes\ndo check() end return 1",
            ),
        ] {
            assert_eq!(compose(CHECK, text), expected);
        }
    }

    #[test]
    fn a_text_is_one_script() {
        let scripts = CallersScripts::default();
        let first = scripts.get("return 1", CHECK);
        assert!(Arc::ptr_eq(&first, &scripts.get("return 1", CHECK)));
        assert_ne!(first.sha(), scripts.get("return 2", CHECK).sha());
        for number in 0..2 * MOST {
            scripts.get(&format!("return {number}"), CHECK);
        }
        assert!(lock(&scripts.0).len() <= MOST);
        assert_eq!(first.sha(), scripts.get("return 1", CHECK).sha());
    }
}
