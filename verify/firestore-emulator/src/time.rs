//! Times as Firestore keeps them: whole microseconds since the Unix epoch.

use std::time::{SystemTime, UNIX_EPOCH};

use prost_types::Timestamp;

/// Microseconds since the Unix epoch.
pub(crate) type Micros = i64;

pub(crate) fn now() -> Micros {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
        })
}

pub(crate) fn timestamp(micros: Micros) -> Timestamp {
    Timestamp {
        seconds: micros.div_euclid(1_000_000),
        // Below 10⁹, so it fits.
        nanos: (micros.rem_euclid(1_000_000) * 1000) as i32,
    }
}
