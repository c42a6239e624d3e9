//! What counts as held. The statements say it by name, so that one place decides it.

use crate::values::time::TIME_TOLERANCE_MS;

/// What stands in place of each name. A name that another one contains comes after it.
const NAMED: [(&str, &str); 6] = [
    // Of a row `lock` of that table: whether it is held as far as its group goes. A reader's is while the group of its key is there, which ends
    // with the last of its readers. The locks of others have none.
    (
        "{has_group}",
        "({is_reader} IS NOT TRUE OR EXISTS (SELECT FROM {locks} AS shared WHERE shared.key = left(lock.key, -24) AND shared.fence = lock.fence))",
    ),
    // Of a row `lock`: whether it is the lock of a reader. Then its key ends with 24 characters that are not of the key: a mark, an r, its id.
    ("{is_reader}", "right(lock.key, 23) = 'r' || lock.lock_id"),
    // Of a row `lock`: whether it is the group of its key, which nobody owns (docs/format.md, "Shared locks"). Few ids begin with an A.
    (
        "{is_group}",
        "(left(lock.lock_id, 1) = 'A' AND lock.lock_id = translate(left(encode(decode('00', 'hex') || \
         substr(sha256(convert_to('shared:' || lock.key, 'UTF8')), 1, 15), 'base64'), 22), '+/', '-_'))",
    ),
    // Of a row of the table of locks: whether the lock is held when the server comes to this row.
    ("{is_live}", "expires_at_ms > {live_after_ms}"),
    // A lock that ends later is held. The clock is read here. Who has read it before says `now_ms - {tolerance_ms}`.
    ("{live_after_ms}", "({now_ms} - {tolerance_ms})"),
    // The server's clock, read when the server comes to this place. `now()` would be when the transaction began.
    (
        "{now_ms}",
        "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
    ),
];

/// `sql` with all that it says of this by name.
pub(super) fn write_into(sql: &str) -> String {
    NAMED
        .iter()
        .fold(sql.to_owned(), |sql, (name, text)| sql.replace(name, text))
        .replace("{tolerance_ms}", &TIME_TOLERANCE_MS.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_name_becomes_what_it_says() {
        let now = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        assert_eq!(
            write_into("{is_live} AND {now_ms} > 0"),
            format!("expires_at_ms > ({now} - 1000) AND {now} > 0")
        );
    }

    /// A comparison with a clock of its own would be a second place that decides.
    #[test]
    fn the_operations_read_the_clock_by_name_only() {
        // In the folder of the crate, where tests run.
        let folder = Path::new("src/postgres/operations");
        let mut named = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            for own in ["clock_timestamp", "now()", "extract(", "current_timestamp"] {
                assert!(!text.contains(own), "{own} in {}", path.display());
            }
            named += text.matches("{is_live}").count() + text.matches("{live_after_ms}").count();
        }
        assert!(named > 0);
    }
}
