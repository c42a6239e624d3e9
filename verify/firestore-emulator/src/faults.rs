//! Faults to order, and a count of the calls.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tonic::{Code, Status};

/// Something to go wrong.
///
/// As JSON: `{"effect": {"status": "ABORTED"}, "method": "Commit", "rate": 0.2, "times": 3}`,
/// `{"effect": {"latencyMs": 20}}`, `{"effect": {"dropReply": "silence"}}`, `{"effect": {"omit": "transaction"}}`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What happens.
    pub effect: Effect,
    /// The RPC it happens to, e.g. `"Commit"`; to all if none. `"ListenResponse"` is each message on a Listen stream
    /// that tells of a document: it can be dropped, or the stream can end with a status in its place.
    #[serde(default)]
    pub method: Option<String>,
    /// How likely it happens to a call, from 0 to 1.
    #[serde(default = "always")]
    pub rate: f64,
    /// How often it happens at most; no limit if none.
    #[serde(default)]
    pub times: Option<u64>,
}

impl Fault {
    /// `effect` on each call of every RPC.
    pub fn new(effect: Effect) -> Self {
        Self {
            effect,
            method: None,
            rate: always(),
            times: None,
        }
    }

    /// Only on calls of that RPC, e.g. `"Commit"`.
    #[must_use]
    pub fn on(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Only on that share of the calls, from 0 to 1.
    #[must_use]
    pub fn at_rate(mut self, rate: f64) -> Self {
        self.rate = rate;
        self
    }

    /// Only that often.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }
}

/// What can happen to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// It takes that many milliseconds longer.
    LatencyMs(u64),
    /// It is refused, and nothing is done.
    Status(Refusal),
    /// It is done, and the client does not hear of it.
    DropReply(Lost),
    /// A read is done, and this is missing in its reply.
    Omit(Part),
}

/// A part of the reply to a read: to `BatchGetDocuments` or `RunQuery`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// The id of the transaction that it has started.
    Transaction,
    /// The documents, and what is said of those that do not exist. Only of `BatchGetDocuments`: without documents, a
    /// reply to `RunQuery` is complete.
    Documents,
}

/// With which status a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Refusal {
    /// 10: a conflict with another transaction.
    Aborted,
    /// 14.
    Unavailable,
    /// 4.
    DeadlineExceeded,
    /// 8.
    ResourceExhausted,
    /// 7.
    PermissionDenied,
    /// 16.
    Unauthenticated,
    /// 13.
    Internal,
}

impl Refusal {
    fn code(self) -> Code {
        match self {
            Self::Aborted => Code::Aborted,
            Self::Unavailable => Code::Unavailable,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::ResourceExhausted => Code::ResourceExhausted,
            Self::PermissionDenied => Code::PermissionDenied,
            Self::Unauthenticated => Code::Unauthenticated,
            Self::Internal => Code::Internal,
        }
    }
}

/// How a reply gets lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lost {
    /// Nothing comes, until the client gives up.
    Silence,
    /// The client sees `UNAVAILABLE`, as when the connection breaks.
    Unavailable,
}

/// The faults in force and the count of calls. All methods may be used while calls are served.
#[derive(Debug)]
pub struct Faults {
    state: Mutex<Planned>,
}

#[derive(Debug)]
struct Planned {
    faults: Vec<Fault>,
    calls: BTreeMap<String, u64>,
    random: fastrand::Rng,
}

/// What is to happen to one call.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Fate {
    pub(crate) delay: Duration,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) lost: Option<Lost>,
    pub(crate) omitted: Option<Part>,
}

impl Faults {
    /// No faults; those to come are drawn from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: Mutex::new(Planned {
                faults: Vec::new(),
                calls: BTreeMap::new(),
                random: fastrand::Rng::with_seed(seed),
            }),
        }
    }

    /// Puts these faults in force instead of those before; an empty list for none.
    pub fn set(&self, faults: impl Into<Vec<Fault>>) {
        self.lock().faults = faults.into();
    }

    /// How often each RPC was called since the last [`reset_calls`](Self::reset_calls), refused
    /// calls included: `"Commit"` → 3.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.lock().calls.clone()
    }

    /// Starts counting anew.
    pub fn reset_calls(&self) {
        self.lock().calls.clear();
    }

    /// Counts a call and draws its fate.
    pub(crate) fn draw(&self, method: &str) -> Fate {
        let mut state = self.lock();
        match state.calls.get_mut(method) {
            Some(count) => *count += 1,
            None => {
                state.calls.insert(method.to_owned(), 1);
            }
        }
        let Planned { faults, random, .. } = &mut *state;
        let mut fate = Fate::default();
        for fault in faults {
            let applies = fault.method.as_deref().is_none_or(|only| only == method);
            if !applies || fault.times == Some(0) || random.f64() >= fault.rate {
                continue;
            }
            fault.times = fault.times.map(|left| left - 1);
            match fault.effect {
                Effect::LatencyMs(ms) => fate.delay += Duration::from_millis(ms),
                Effect::Status(refusal) => fate.refusal = Some(refusal),
                Effect::DropReply(lost) => fate.lost = Some(lost),
                Effect::Omit(part) => fate.omitted = Some(part),
            }
        }
        fate
    }

    fn lock(&self) -> MutexGuard<'_, Planned> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code(), "refused to order")
    }
}

fn always() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_hits_its_method_as_often_as_told() {
        let faults = Faults::new(1);
        let aborted = Effect::Status(Refusal::Aborted);
        faults.set([Fault::new(aborted).on("Commit").times(2)]);
        let hits = |method| faults.draw(method).refusal.is_some();
        assert!(!hits("RunQuery"));
        assert!(hits("Commit") && hits("Commit") && !hits("Commit"));
        assert_eq!(faults.calls().get("Commit"), Some(&3));
    }

    #[test]
    fn rates_are_kept() {
        let faults = Faults::new(7);
        faults.set([Fault::new(Effect::LatencyMs(5)).at_rate(0.25)]);
        let hit = (0..10_000).filter(|_| !faults.draw("Commit").delay.is_zero());
        let count = hit.count();
        assert!((2200..2800).contains(&count), "{count}");
    }

    #[test]
    fn faults_are_read_from_json() {
        let text = r#"[{"effect":{"status":"RESOURCE_EXHAUSTED"},"method":"Commit","rate":0.5,"times":3},
            {"effect":{"latencyMs":20}},{"effect":{"dropReply":"silence"}},{"effect":{"omit":"transaction"}}]"#;
        let faults: Vec<Fault> = serde_json::from_str(text).unwrap();
        let exhausted = Effect::Status(Refusal::ResourceExhausted);
        assert_eq!(
            faults,
            [
                Fault::new(exhausted).on("Commit").at_rate(0.5).times(3),
                Fault::new(Effect::LatencyMs(20)),
                Fault::new(Effect::DropReply(Lost::Silence)),
                Fault::new(Effect::Omit(Part::Transaction)),
            ]
        );
    }
}
