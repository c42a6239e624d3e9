//! Locks in an SQLite file on this machine.
