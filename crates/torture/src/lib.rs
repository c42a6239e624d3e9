//! Whether what processes saw of locks can be explained: histories, what a lock may do, and the checker.
//!
//! Several processes record each call of a lock library and its result ([`history`]). The checker ([`check`]) decides whether
//! there is an order of the calls, each at some moment between its start and its end, in which a lock that keeps
//! its promises ([`lease`]) would have given these results. That is linearizability (Herlihy and Wing, 1990).

pub mod check;
pub mod history;
pub mod lease;
pub mod record;
pub mod register;
pub mod run;
pub mod store;
pub mod worker;
