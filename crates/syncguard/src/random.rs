//! Random numbers from the operating system.

use crate::error::{Error, ErrorKind};

/// 16 random bytes.
pub(crate) fn bytes() -> Result<[u8; 16], Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(none_to_give)?;
    Ok(bytes)
}

/// A number from [0, 1).
pub(crate) fn unit() -> Result<f64, Error> {
    let number = getrandom::u32().map_err(none_to_give)?;
    Ok(f64::from(number) / (f64::from(u32::MAX) + 1.0))
}

fn none_to_give(source: getrandom::Error) -> Error {
    Error::new(
        ErrorKind::Internal,
        "the operating system gave no random numbers",
    )
    .with_source(source)
}
