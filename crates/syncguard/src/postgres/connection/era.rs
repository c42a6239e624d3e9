//! Since when a server is the primary.

use tokio_postgres::Row;

/// Asks on which timeline the server accepts writes, if it does, and to which cluster it belongs. Every role may ask.
pub(super) const ERA: &str = "SELECT CASE WHEN NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off' \
                              THEN pg_walfile_name(pg_current_wal_lsn()) END, \
                              (SELECT system_identifier::text FROM pg_control_system())";

/// Since which promotion a server is the primary, of which cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Era {
    cluster: String,
    timeline: u32,
}

impl Era {
    /// Reads the answer to [`ERA`]; `None` for a standby.
    pub(super) fn of(rows: &[Row]) -> Option<Self> {
        let row = rows.first()?;
        let text = |column| row.try_get::<_, Option<String>>(column).ok().flatten();
        Self::read(&text(0)?, text(1)?)
    }

    /// `file` is the name of a file of the write-ahead log, which begins with the timeline.
    fn read(file: &str, cluster: String) -> Option<Self> {
        let timeline = u32::from_str_radix(file.get(..8)?, 16).ok()?;
        Some(Self { cluster, timeline })
    }

    #[cfg(test)]
    pub(super) fn at(cluster: &str, timeline: u32) -> Self {
        let cluster = cluster.to_owned();
        Self { cluster, timeline }
    }

    pub(super) fn is_before(&self, other: &Self) -> bool {
        self.cluster == other.cluster && self.timeline < other.timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn era(file: &str, cluster: &str) -> Era {
        Era::read(file, cluster.to_owned()).unwrap()
    }

    #[test]
    fn only_a_later_timeline_of_the_same_cluster_counts() {
        let first = era("000000010000000000000003", "a");
        let tenth = era("0000000A0000000000000001", "a");
        assert_eq!(tenth.timeline, 10);
        assert!(first.is_before(&tenth));
        assert!(!tenth.is_before(&first) && !first.is_before(&first));
        assert!(!first.is_before(&era("000000020000000000000003", "b")));
        assert_eq!(Era::read("0001", String::new()), None);
        assert_eq!(Era::read("é0000001", String::new()), None);
    }
}
