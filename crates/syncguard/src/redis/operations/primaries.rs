//! The primaries that have locks. A script goes to the one of its keys, so each is known by a key.

use crate::redis::backend::Runner;
use crate::redis::names::{ClientPrefix, Names};
use crate::text::error::Error;

impl Runner {
    /// For each primary that has locks its address, and a key that leads to it. On one server, the address is empty.
    pub(super) async fn primaries(&self) -> Result<Vec<(String, String)>, Error> {
        let transport = self.transport.get()?;
        let mut primaries: Vec<(String, String)> = Vec::new();
        for key in self.names.key_of_each_shard() {
            let stored = self.names.before(&key);
            let node = transport.node_of(&stored).await?.unwrap_or_default();
            if !primaries.iter().any(|(known, _)| *known == node) {
                primaries.push((node, key));
            }
        }
        Ok(primaries)
    }
}

impl Names {
    /// A key in each slot that has locks. Nothing is stored under them.
    fn key_of_each_shard(&self) -> Vec<String> {
        let shards = if self.is_sharded() {
            0..=u8::MAX
        } else {
            0..=0
        };
        shards
            .map(|shard| format!("{}:", self.start(shard)))
            .collect()
    }

    /// The pattern of the names of all locks, and of what else begins like them.
    ///
    /// # Errors
    /// `InvalidArgument` if only the client knows what they begin with.
    pub(super) fn pattern(&self) -> Result<String, Error> {
        if *self.client_prefix() == ClientPrefix::Theirs {
            return Err(Error::invalid(
                "locks cannot be listed through a client: use a connection of the backend's own",
            ));
        }
        let start = if self.is_sharded() {
            // Two digits for the shard.
            let start = self.start(0);
            let before = start.trim_end_matches("00}");
            format!("{}[0-9a-f][0-9a-f]}}:", escaped(&self.before(before)))
        } else {
            match self.start(0).trim_end_matches(':') {
                "" => escaped(&self.before("")),
                prefix => format!("{}:", escaped(&self.before(prefix))),
            }
        };
        Ok(format!("{start}*"))
    }
}

/// `text` as a pattern that fits nothing else.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_only_what_begins_like_the_locks() {
        let of = |prefix: &str, client: ClientPrefix, cluster: bool| {
            let names = match cluster {
                true => Names::in_cluster(prefix, client),
                false => Names::new(prefix, client),
            };
            names.unwrap().pattern().unwrap()
        };
        let none = || ClientPrefix::None;
        assert_eq!(of("syncguard", none(), false), "syncguard:*");
        assert_eq!(
            of("a*[b]", ClientPrefix::Ours("c?".to_owned()), false),
            "c\\?a\\*\\[b\\]:*"
        );
        assert_eq!(of("s", none(), true), "{s:[0-9a-f][0-9a-f]}:*");
        assert_eq!(of("", none(), true), "{[0-9a-f][0-9a-f]}:*");
        assert_eq!(of("{t}s", none(), true), "{t}s:*");
        let theirs = Names::new("s", ClientPrefix::Theirs).unwrap();
        assert!(theirs.pattern().is_err());
    }
}
