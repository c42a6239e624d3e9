//! How to wait for a lock, as JavaScript says it.

use syncguard::{Backoff, Error, Jitter, RetryPolicy, Wait};

/// How to wait: retries, the wait before the first one, its longest and the whole time, in milliseconds; then the places
/// of the backoff in `exponential`, `fixed`, of the jitter in `equal`, `full`, `none`, and of what ends a wait in `notify`,
/// `poll`, `notify-only`.
pub(crate) fn policy(numbers: &[f64]) -> Result<RetryPolicy, Error> {
    let &[
        max_retries,
        retry_delay_ms,
        max_retry_delay_ms,
        timeout_ms,
        backoff,
        jitter,
        wait,
    ] = numbers
    else {
        return Err(Error::invalid("acquisition must be seven numbers"));
    };
    Ok(RetryPolicy {
        max_retries,
        retry_delay_ms,
        max_retry_delay_ms,
        timeout_ms,
        backoff: match backoff {
            1.0 => Backoff::Fixed,
            _ => Backoff::Exponential,
        },
        jitter: match jitter {
            1.0 => Jitter::Full,
            2.0 => Jitter::None,
            _ => Jitter::Equal,
        },
        wait: match wait {
            1.0 => Wait::Poll,
            2.0 => Wait::NotifyOnly,
            _ => Wait::Notify,
        },
    })
}

pub(crate) fn backoff_name(backoff: Backoff) -> &'static str {
    match backoff {
        Backoff::Exponential => "exponential",
        Backoff::Fixed => "fixed",
    }
}

pub(crate) fn jitter_name(jitter: Jitter) -> &'static str {
    match jitter {
        Jitter::Equal => "equal",
        Jitter::Full => "full",
        Jitter::None => "none",
    }
}
