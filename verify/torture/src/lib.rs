//! Whether what processes saw of locks can be explained: histories, what a lock may do, and the checker.
//!
//! Several processes record each call of a lock library and its result ([`history`]). The checker ([`check`]) decides whether
//! there is an order of the calls, each at some moment between its start and its end, in which a lock that keeps
//! its promises ([`lease`]) would have given these results. That is linearizability (Herlihy and Wing, 1990).
//!
//! A run ([`run`]) makes such a history. The fault matrix ([`matrix`]) is many runs: in each, one thing fails again and again.

pub mod bounds;
pub mod check;
pub mod clock;
pub mod disk;
pub mod history;
pub mod lease;
pub mod matrix;
mod mixed;
pub mod plan;
pub mod proxy;
pub mod record;
pub mod register;
pub mod run;
mod servers;
pub mod store;
pub mod store_faults;
pub mod takeover;
pub mod task;
mod turns;
pub mod worker;
pub mod workers;
mod writer;
