//! Listing locks: `SCAN` on each primary, one after the other.

use tokio::time::Instant;

use super::record;
use crate::asking::inspection::{LockPage, PageRequest, bad_cursor};
use crate::redis::backend::Runner;
use crate::redis::declaring::is_refusal;
use crate::redis::names::Names;
use crate::redis::plan::{Plan, script};
use crate::redis::reply::{Reply, is_list, malformed};
use crate::text::error::Error;
use crate::values::time::TIME_TOLERANCE_MS;

script!(SCRIPT, "list.lua", is_list);

/// How many names the server looks at for each call, for at least a page of locks in an otherwise empty database: a lock
/// has three names. It is busy for well below a millisecond.
const NAMES_AT_ONCE: usize = 300;

/// A cursor: of the nodes one by its place among those that have locks, and there `SCAN`'s own.
struct Cursor {
    place: usize,
    scan: u64,
}

impl Cursor {
    fn read(text: &str) -> Option<Self> {
        let (place, scan) = text.split_once('-')?;
        Some(Self {
            place: place.parse().ok()?,
            scan: scan.parse().ok()?,
        })
    }
}

impl Runner {
    pub(in crate::redis) async fn list(&self, page: &PageRequest) -> Result<LockPage, Error> {
        let limit = page.checked_limit()?;
        let names = &self.names;
        let mut at = match &page.after {
            None => Cursor { place: 0, scan: 0 },
            Some(text) => Cursor::read(text).ok_or_else(bad_cursor)?,
        };
        let primaries = self.primaries().await?;
        let pattern = names.pattern()?;
        let mut found = LockPage::default();
        // In a large database with few locks, the page stays short rather than take all of the operation's time.
        let until = Instant::now() + self.operation_timeout / 4;
        while found.locks.len() < limit {
            let Some((_, key)) = primaries.get(at.place) else {
                return Ok(found);
            };
            let reply = match self.run(plan(names, key, at.scan, &pattern)).await {
                Err(error) if is_refusal(&error) => return Err(cannot_be_listed()),
                reply => reply?,
            };
            at.scan = read(&reply, names, &mut found)?;
            if at.scan == 0 {
                at.place += 1;
            }
            if Instant::now() >= until {
                break;
            }
        }
        let has_more = at.place < primaries.len();
        found.next = has_more.then(|| format!("{}-{}", at.place, at.scan));
        Ok(found)
    }
}

/// The script finds out which locks there are, so their names cannot be declared.
fn cannot_be_listed() -> Error {
    Error::invalid(
        "locks cannot be listed: the server lets scripts touch only the keys that a call declares (start Dragonfly with \
         --default_lua_flags=allow-undeclared-keys)",
    )
}

fn plan(names: &Names, key: &str, scan: u64, pattern: &str) -> Plan {
    Plan::new(&SCRIPT)
        .key(names, key)
        .arg(&scan.to_string())
        .arg(pattern)
        .arg(&NAMES_AT_ONCE.to_string())
        .number(TIME_TOLERANCE_MS)
}

/// Adds the locks in a reply to the page, and gives the next cursor.
fn read(reply: &Reply, names: &Names, page: &mut LockPage) -> Result<u64, Error> {
    let Reply::Array(items) = reply else {
        return Err(malformed("list"));
    };
    let [next, now, locks @ ..] = items.as_slice() else {
        return Err(malformed("list"));
    };
    for [name, lock] in locks.as_chunks::<2>().0 {
        // What is no lock although it looks like one does not hide the others. Nor does a lock of a longer prefix belong here.
        let pair = Reply::Array(vec![lock.clone(), now.clone()]);
        if let Ok(Some(lock)) = record::outcome(&pair)
            && let Ok(expected) = names.stored_lock_key(&lock.key)
            && *name == Reply::Bulk(expected.into_bytes())
            // Readers are listed, and their group is not.
            && !lock.is_group()
        {
            page.locks.push(lock);
        }
    }
    let Reply::Bulk(next) = next else {
        return Err(malformed("list"));
    };
    // Cursors have 64 bits, without a sign.
    let next = std::str::from_utf8(next)
        .ok()
        .and_then(|text| text.parse().ok());
    next.ok_or_else(|| malformed("list"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::names::ClientPrefix;

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(text.into())
    }

    #[test]
    fn only_what_has_the_name_of_its_key_is_a_lock_of_ours() {
        let names = Names::new("s", ClientPrefix::Ours("c:".to_owned())).unwrap();
        let lock = r#"{"lockId":"AAAAAAAAAAAAAAAAAAAAAA","expiresAtMs":9000,"acquiredAtMs":1,"fence":1,"key":"k"}"#;
        let reply = Reply::Array(vec![
            bulk("18446744073709551615"),
            Reply::Int(5),
            bulk("c:s:k"),
            bulk(lock),
            bulk("c:s:more:k"),
            bulk(lock),
            bulk("c:s:x"),
            bulk("{}"),
        ]);
        let mut page = LockPage::default();
        assert_eq!(read(&reply, &names, &mut page).unwrap(), u64::MAX);
        assert_eq!(page.locks.len(), 1);
        for reply in [
            Reply::Nil,
            Reply::Array(vec![]),
            Reply::Array(vec![bulk("-1"), Reply::Int(5)]),
        ] {
            assert!(read(&reply, &names, &mut page).is_err());
        }
    }

    #[test]
    fn cursors_are_checked() {
        for text in ["", "1", "1-", "-1", "1-x", "x-1", "1-2-3", "1--2"] {
            assert!(Cursor::read(text).is_none(), "{text}");
        }
        let cursor = Cursor::read("2-18446744073709551615").unwrap();
        assert_eq!((cursor.place, cursor.scan), (2, u64::MAX));
    }
}
