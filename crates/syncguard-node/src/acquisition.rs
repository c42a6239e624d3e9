//! The rules of waiting, driven by a loop in JavaScript.

use napi_derive::napi;
use syncguard::{
    Acquisition as Core, Backoff, Error, ErrorKind, GiveUp, Jitter, RetryPolicy, Setback, Step,
};

use crate::error::{Code, thrown};

#[napi]
pub struct Acquisition(Core);

#[napi]
impl Acquisition {
    #[napi(constructor)]
    pub fn new(
        max_retries: f64,
        retry_delay_ms: f64,
        backoff: String,
        jitter: String,
        timeout_ms: f64,
    ) -> napi::Result<Self, Code> {
        let policy = RetryPolicy {
            max_retries,
            retry_delay_ms,
            backoff: parse_backoff(&backoff).map_err(thrown)?,
            jitter: parse_jitter(&jitter).map_err(thrown)?,
            timeout_ms,
        };
        Core::new(policy).map(Self).map_err(thrown)
    }

    /// After an attempt that gave no lock: the milliseconds to wait, or nothing when the failure is
    /// to be reported. Throws `AcquisitionTimeout` when others held the lock for too long.
    #[napi]
    pub fn after(
        &mut self,
        failed_with: Option<String>,
        elapsed_ms: f64,
        random: f64,
    ) -> napi::Result<Option<f64>, Code> {
        let setback = match failed_with {
            None => Setback::Locked,
            // A code that the core does not know is nothing that passes by itself.
            Some(code) => Setback::Failed(
                ErrorKind::from_name(&code).unwrap_or(ErrorKind::Internal),
                (),
            ),
        };
        match self.0.after(setback, elapsed_ms, random) {
            Step::Wait { delay_ms } => Ok(Some(delay_ms)),
            Step::GiveUp(GiveUp::Contention(error)) => Err(thrown(error)),
            Step::GiveUp(GiveUp::Failed(())) => Ok(None),
        }
    }

    #[napi]
    pub fn attempt_timeout_ms(&self, elapsed_ms: f64) -> f64 {
        self.0.attempt_timeout_ms(elapsed_ms)
    }
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
