//! Reads the answers by which a node says that it has not run a script, and where or when somebody can run it.

use crate::redis::error::reply_code;

/// An answer that says that the script was not run, so that it can be sent again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect<'a> {
    /// From now on, the node at this host and port serves the hash slot. An empty host is that of the node that answers.
    Moved(&'a str, u16),
    /// The hash slot is about to move to the node at this host and port, and the node that answers does not have the keys.
    Ask(&'a str, u16),
    /// The keys of the script are on their way to another node.
    TryAgain,
    /// The cluster does not serve the hash slot at the moment.
    Down,
    /// The node is starting.
    Loading,
}

impl<'a> Redirect<'a> {
    /// `None` for an error that does not say that the script was not run.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        // Where a command inside a script fails, Redis before version 7 starts the text with ERR; later versions
        // name the script at the end.
        if text.contains(" script: ") {
            return None;
        }
        let mut words = text.split(' ');
        let code = words.next().filter(|code| reply_code(text) == Some(code))?;
        match code {
            "MOVED" | "ASK" => {
                let (host, port) = words.nth(1)?.rsplit_once(':')?;
                let port = port.parse().ok().filter(|port| *port > 0)?;
                Some(match code {
                    "MOVED" => Self::Moved(host, port),
                    _ => Self::Ask(host, port),
                })
            }
            "TRYAGAIN" => Some(Self::TryAgain),
            "CLUSTERDOWN" => Some(Self::Down),
            "LOADING" => Some(Self::Loading),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_proves_that_nothing_was_run_is_one() {
        for (text, redirect) in [
            (
                "MOVED 3999 127.0.0.1:6381",
                Some(Redirect::Moved("127.0.0.1", 6381)),
            ),
            ("MOVED 3999 ::1:6381", Some(Redirect::Moved("::1", 6381))),
            (
                "MOVED 3999 node.example:6381",
                Some(Redirect::Moved("node.example", 6381)),
            ),
            ("MOVED 3999 :6381", Some(Redirect::Moved("", 6381))),
            (
                "ASK 3999 127.0.0.1:6381",
                Some(Redirect::Ask("127.0.0.1", 6381)),
            ),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                Some(Redirect::TryAgain),
            ),
            ("CLUSTERDOWN The cluster is down", Some(Redirect::Down)),
            ("CLUSTERDOWN Hash slot not served", Some(Redirect::Down)),
            (
                "LOADING Redis is loading the dataset in memory",
                Some(Redirect::Loading),
            ),
            ("MOVED", None),
            ("MOVED 3999 127.0.0.1", None),
            ("MOVED 3999 127.0.0.1:0", None),
            ("MOVED 3999 127.0.0.1:65536", None),
            (
                "CROSSSLOT Keys in request don't hash to the same slot",
                None,
            ),
            (
                "READONLY You can't write against a read only replica.",
                None,
            ),
            (
                "CLUSTERDOWN x script: 0123456789012345678901234567890123456789, on @user_script:6.",
                None,
            ),
            (
                "ERR Error running script (call to f_0123456789012345678901234567890123456789): @user_script:6: \
                 @user_script: 6: -CLUSTERDOWN x",
                None,
            ),
            (
                "ERR Script attempted to access a non local key in a cluster node",
                None,
            ),
        ] {
            assert_eq!(Redirect::read(text), redirect, "{text}");
        }
    }
}
