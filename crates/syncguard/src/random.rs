//! Random numbers.
//!
//! Each one comes from the operating system. A generator with a state of its own would give the same numbers in a
//! process and its fork.

use rand::rngs::{SmallRng, SysError, SysRng};
use rand::{RngExt, SeedableRng, TryRng};

use crate::error::{Error, ErrorKind};

/// 16 random bytes.
pub(crate) fn bytes() -> Result<[u8; 16], Error> {
    let mut bytes = [0; 16];
    SysRng.try_fill_bytes(&mut bytes).map_err(none_to_give)?;
    Ok(bytes)
}

/// A number from [0, 1).
pub(crate) fn unit() -> Result<f64, Error> {
    let mut seeded = SmallRng::try_from_rng(&mut SysRng).map_err(none_to_give)?;
    Ok(seeded.random())
}

fn none_to_give(source: SysError) -> Error {
    Error::new(
        ErrorKind::Internal,
        "the operating system gave no random numbers",
    )
    .with_source(source)
}
