//! How to run.

use std::path::PathBuf;
use std::process::Command;

use crate::register::Fences;
use crate::task::Task;

/// How to run.
pub struct Plan<'a> {
    /// Makes the command that starts a worker, which finds its task in the last argument.
    pub command: &'a dyn Fn() -> Command,
    /// Where files are kept.
    pub folder: PathBuf,
    /// What the workers are told.
    pub task: Task,
    /// How many there are.
    pub processes: u32,
    /// What the register does with fences.
    pub fences: Fences,
}
