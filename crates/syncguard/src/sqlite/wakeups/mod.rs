//! How whoever waits hears that a lock was freed: by looking at the file, more often while others write to it.

pub(super) mod listen;
mod pace;
