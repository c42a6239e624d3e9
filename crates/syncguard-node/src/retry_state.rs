//! The retry rules of the core, for the loop in JavaScript that waits for a lock.

use napi::Either;
use napi_derive::napi;
use syncguard::{
    Backoff, Error, ErrorKind, FailedAttempt, GiveUp, Jitter, RetryPolicy, RetryState as Core, Step,
};

use crate::error::{Code, thrown};

#[napi]
pub struct RetryState(Core);

#[napi]
impl RetryState {
    #[napi(constructor)]
    pub fn new(
        max_retries: f64,
        retry_delay_ms: f64,
        backoff: String,
        jitter: String,
        timeout_ms: f64,
        max_retry_delay_ms: f64,
    ) -> napi::Result<Self, Code> {
        let policy = RetryPolicy {
            max_retries,
            retry_delay_ms,
            backoff: parse_backoff(&backoff).map_err(thrown)?,
            jitter: parse_jitter(&jitter).map_err(thrown)?,
            timeout_ms,
            max_retry_delay_ms,
            // The loop in JavaScript sees to that.
            ..RetryPolicy::default()
        };
        Core::new(policy).map(Self).map_err(thrown)
    }

    /// Decides after an attempt that gave no lock; `is_hinted` if it was made before its time, because the lock
    /// may have been freed. A number is how many milliseconds to wait before the next
    /// one. A text means to give up and report the failure, with this text before its message. Throws
    /// `AcquisitionTimeout` when others held the lock for too long.
    #[napi]
    pub fn after(
        &mut self,
        failed_with: Option<String>,
        elapsed_ms: f64,
        random: f64,
        is_hinted: bool,
    ) -> napi::Result<Either<f64, String>, Code> {
        let attempt = match failed_with {
            None => FailedAttempt::Locked,
            Some(code) => FailedAttempt::Error(kind(&code)),
        };
        let step = match is_hinted {
            true => self.0.after_hint(attempt, elapsed_ms, random),
            false => self.0.after(attempt, elapsed_ms, random),
        };
        match step {
            Step::Wait { delay_ms } => Ok(Either::A(delay_ms)),
            Step::GiveUp(GiveUp::Contention(error)) => Err(thrown(error)),
            Step::GiveUp(GiveUp::Failed { effort }) => Ok(Either::B(effort)),
        }
    }

    #[napi]
    pub fn attempt_timeout_ms(&mut self, elapsed_ms: f64) -> f64 {
        self.0.attempt_timeout_ms(elapsed_ms)
    }

    /// Whether an attempt that failed so was only cut short by its own time limit. An earlier failure says
    /// more and is to be reported instead.
    #[napi]
    pub fn is_cut(&self, failed_with: String, elapsed_ms: f64) -> bool {
        self.0.is_cut(kind(&failed_with), elapsed_ms)
    }
}

/// The kind of a code. One that the core does not know counts as `Internal`, which is not tried again.
fn kind(code: &str) -> ErrorKind {
    ErrorKind::from_name(code).unwrap_or(ErrorKind::Internal)
}

fn parse_backoff(name: &str) -> Result<Backoff, Error> {
    match name {
        "exponential" => Ok(Backoff::Exponential),
        "fixed" => Ok(Backoff::Fixed),
        _ => Err(Error::invalid(
            "backoff must be \"exponential\" or \"fixed\"",
        )),
    }
}

pub(crate) fn backoff_name(backoff: Backoff) -> &'static str {
    match backoff {
        Backoff::Exponential => "exponential",
        Backoff::Fixed => "fixed",
    }
}

fn parse_jitter(name: &str) -> Result<Jitter, Error> {
    match name {
        "equal" => Ok(Jitter::Equal),
        "full" => Ok(Jitter::Full),
        "none" => Ok(Jitter::None),
        _ => Err(Error::invalid(
            "jitter must be \"equal\", \"full\" or \"none\"",
        )),
    }
}

pub(crate) fn jitter_name(jitter: Jitter) -> &'static str {
    match jitter {
        Jitter::Equal => "equal",
        Jitter::Full => "full",
        Jitter::None => "none",
    }
}
