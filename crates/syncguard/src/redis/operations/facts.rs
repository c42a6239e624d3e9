//! How the server is set up: what `INFO` tells.

use crate::asking::inspection::Facts;
use crate::redis::backend::Runner;
use crate::redis::plan::{Plan, script};
use crate::redis::reply::{Reply, is_list, malformed};
use crate::text::error::Error;

script!(SCRIPT, "facts.lua", is_list);

/// The lines of `INFO` that matter, and what they are called here.
const LINES: &[(&str, &str)] = &[
    ("redis_version", "version"),
    ("valkey_version", "valkeyVersion"),
    ("redis_mode", "mode"),
    ("maxmemory", "maxmemory"),
    ("maxmemory_policy", "maxmemoryPolicy"),
    ("used_memory", "usedMemory"),
    ("aof_enabled", "aofEnabled"),
    ("aof_last_write_status", "aofLastWriteStatus"),
    ("rdb_last_bgsave_status", "rdbLastSaveStatus"),
    ("loading", "loading"),
    ("role", "role"),
    ("connected_slaves", "replicas"),
    ("min_slaves_good_slaves", "goodReplicas"),
    ("evicted_keys", "evictedKeys"),
    // Not of INFO.
    ("undeclared_keys", "undeclaredKeys"),
    ("missing_rights", "missingRights"),
];

impl Runner {
    pub(in crate::redis) async fn facts(&self) -> Result<Vec<Facts>, Error> {
        let names = &self.names;
        let mut all = Vec::new();
        for (node, key) in self.primaries().await? {
            // No key can make that a name: docs/format.md, "Slots".
            let tried = format!("{key}\u{37e}tried");
            let plan = Plan::new(&SCRIPT).key(names, &key).key(names, &tried);
            let mut facts = read(&self.run(plan).await?)?;
            facts.node = node;
            all.push(facts);
        }
        Ok(all)
    }
}

fn read(reply: &Reply) -> Result<Facts, Error> {
    let Reply::Array(items) = reply else {
        return Err(malformed("facts"));
    };
    let [now, sections @ ..] = items.as_slice() else {
        return Err(malformed("facts"));
    };
    let mut facts = Facts::default();
    // Without the right to ask for it, it is 0.
    match now.integer().ok_or_else(|| malformed("facts"))? {
        0 => {}
        now => facts.add("serverTimeMs", now),
    }
    for section in sections {
        if let Reply::Bulk(text) = section {
            add_lines(&mut facts, &String::from_utf8_lossy(text));
        }
    }
    Ok(facts)
}

fn add_lines(facts: &mut Facts, text: &str) {
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let Some((_, ours)) = LINES.iter().find(|(theirs, _)| *theirs == name) else {
            continue;
        };
        // A version such as 7.0 is no number.
        match value.parse::<i64>() {
            Ok(number) if !ours.ends_with("ersion") => facts.add(ours, number),
            _ => facts.add(ours, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asking::inspection::Fact;

    #[test]
    fn lines_that_matter_become_facts() {
        let info = "# Server\r\nredis_version:7\r\nother:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n";
        let reply = Reply::Array(vec![Reply::Int(5), Reply::Bulk(info.into()), Reply::Nil]);
        let facts = read(&reply).unwrap().facts;
        let expected = [
            ("serverTimeMs", Fact::Number(5)),
            ("version", Fact::from("7")),
            ("maxmemory", Fact::Number(0)),
            ("maxmemoryPolicy", Fact::from("noeviction")),
        ];
        assert_eq!(facts, expected);
        assert!(read(&Reply::Nil).is_err());
    }
}
