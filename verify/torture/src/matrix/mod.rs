//! The fault matrix: what happens when stores, networks, clocks, disks and processes fail, and what users see of it.
//!
//! Each row has a store, one thing that goes wrong again and again at moments that the seed decides, and what must hold: all
//! that the processes saw can be explained, they work again soon after, they see only errors of kinds that the documentation
//! allows for, and nothing is left behind. docs/reliability/matrix.md says it to users.

mod cluster;
mod firestore;
mod network;
mod postgres;
mod processes;
mod redis;
mod row;
mod sentinel;
mod sqlite;
mod stage;
mod verdict;

pub use row::{Row, Settings};
pub use verdict::Verdict;

/// All rows.
pub fn rows() -> Vec<Row> {
    let mut rows = redis::rows();
    rows.extend(sentinel::rows());
    rows.extend(cluster::rows());
    rows.extend(postgres::rows());
    rows.extend(sqlite::rows());
    rows.extend(firestore::rows());
    rows
}
