//! Random numbers.
//!
//! Each one comes from the operating system. A generator with a state of its own would give the same numbers in a
//! process and its fork.

use std::time::Duration;

use rand::rngs::{SmallRng, SysError, SysRng};
use rand::{RngExt, SeedableRng, TryRng};

use crate::text::error::{Error, ErrorKind};

/// 16 random bytes.
pub(crate) fn bytes() -> Result<[u8; 16], Error> {
    let mut bytes = [0; 16];
    #[cfg(test)]
    if seeded::fill(&mut bytes) {
        return Ok(bytes);
    }
    SysRng.try_fill_bytes(&mut bytes).map_err(none_to_give)?;
    Ok(bytes)
}

/// A number from [0, 1).
pub(crate) fn unit() -> Result<f64, Error> {
    #[cfg(test)]
    if let Some(unit) = seeded::unit() {
        return Ok(unit);
    }
    let mut seeded = SmallRng::try_from_rng(&mut SysRng).map_err(none_to_give)?;
    Ok(seeded.random())
}

/// Between half and all of a pause, so that processes that lost the same server do not all come back at once.
pub(crate) fn scattered(pause: Duration) -> Duration {
    pause.mul_f64(unit().unwrap_or(0.5).mul_add(0.5, 0.5))
}

fn none_to_give(source: SysError) -> Error {
    Error::new(
        ErrorKind::Internal,
        "the operating system gave no random numbers",
    )
    .with_source(source)
}

/// Numbers that a seed decides, for the simulation: it must be able to repeat a run.
#[cfg(test)]
pub(crate) mod seeded {
    use std::cell::RefCell;

    use rand::rngs::SmallRng;
    use rand::{Rng, RngExt, SeedableRng};

    thread_local! {
        static GENERATOR: RefCell<Option<SmallRng>> = const { RefCell::new(None) };
    }

    /// All numbers that this thread asks for come from `seed` from now on; with `None` from the operating system again.
    pub(crate) fn seed(seed: Option<u64>) {
        GENERATOR.set(seed.map(SmallRng::seed_from_u64));
    }

    pub(super) fn fill(bytes: &mut [u8]) -> bool {
        let fill = |generator: &mut SmallRng| generator.fill_bytes(bytes);
        GENERATOR.with_borrow_mut(|generator| generator.as_mut().map(fill).is_some())
    }

    pub(super) fn unit() -> Option<f64> {
        GENERATOR.with_borrow_mut(|generator| generator.as_mut().map(RngExt::random))
    }
}
