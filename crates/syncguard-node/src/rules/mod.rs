//! Gives JavaScript the core's rules: pure functions, constants, the checks of guards, and the rules of Forrst.
//!
//! This room knows everything below it, stores too. Nothing may know it.

mod forrst;
mod guard;
mod keys;
