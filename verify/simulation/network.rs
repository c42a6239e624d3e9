//! The way of a call to the store and back, and what goes wrong on it.

use std::future::pending;
use std::time::Duration;

use rand::RngExt as _;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use super::world::{How, Sim, World};
use crate::text::error::{Error, ErrorKind};

/// What becomes of one call.
enum Fate {
    /// It is not sent.
    Refused {
        after: Duration,
        kind: ErrorKind,
    },
    Sent(Flight),
    /// The process is dead.
    Nothing,
}

#[derive(Default)]
struct Flight {
    /// How long until the store acts on it; never if it is lost.
    request: Option<Duration>,
    /// The client sends it once more, so long after the store has acted on it.
    again: Option<Duration>,
    /// The store refuses it, and does nothing.
    refusal: Option<ErrorKind>,
    reply: Option<Duration>,
    /// The connection is lost after this time, and the client knows it.
    breaks: Option<Duration>,
}

impl Sim {
    /// Calls the store. Once sent, the call goes on also when nobody waits for its answer any more.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        process: usize,
        mut act: impl FnMut(&mut World) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        if self.with(|world| world.links[process].is_shut) {
            self.with(|world| world.witness.problem("a call after the backend was closed"));
            sleep(Duration::from_millis(1)).await;
            return Err(Error::closed());
        }
        let connected = self.with(|world| match world.is_cut(process) {
            Some(cut) if cut.how == How::Waiting => cut.until,
            _ => Instant::now(),
        });
        sleep_until(connected).await;
        let flight = match self.with(|world| world.fate(process)) {
            Fate::Nothing => pending().await,
            Fate::Refused { after, kind } => {
                sleep(after).await;
                return Err(Error::new(kind, "the call was refused"));
            }
            Fate::Sent(flight) => flight,
        };
        let (answer, answered) = oneshot::channel();
        let sim = self.clone();
        tokio::spawn(async move {
            let Some(way) = flight.request else {
                return;
            };
            sleep(way).await;
            let mut outcome = match flight.refusal {
                Some(kind) => Err(Error::new(kind, "the store refused")),
                None => sim.act(&mut act),
            };
            if let Some(pause) = flight.again {
                sleep(pause).await;
                outcome = sim.act(&mut act);
            }
            let Some(way) = flight.reply else {
                return;
            };
            sleep(way).await;
            let is_lost = sim.with(|world| {
                world
                    .is_cut(process)
                    .is_some_and(|cut| cut.how == How::Lost)
            });
            if !is_lost {
                // The caller may be gone.
                let _ = answer.send(outcome);
            }
        });
        let answered = async {
            match answered.await {
                Ok(outcome) => outcome,
                Err(_) => pending().await,
            }
        };
        let broken = async {
            match flight.breaks {
                Some(after) => sleep(after).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            outcome = answered => outcome,
            () = broken => {
                let lost = Error::new(ErrorKind::ServiceUnavailable, "the connection was lost");
                Err(lost.with_unknown_outcome())
            }
        }
    }
}

impl Sim {
    fn act<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        let outcome = self.with(act);
        self.tell_all();
        outcome
    }
}

impl World {
    fn fate(&mut self, process: usize) -> Fate {
        if self.links[process].is_dead {
            return Fate::Nothing;
        }
        let (request, reply) = (Some(self.way()), Some(self.way()));
        let flight = Flight {
            request,
            reply,
            ..Flight::default()
        };
        if let Some(cut) = self.is_cut(process) {
            let left = cut.until - Instant::now();
            return match cut.how {
                How::Refused | How::Waiting => self.refused(ErrorKind::ServiceUnavailable),
                How::Lost => Fate::Sent(Flight::default()),
                How::Late => Fate::Sent(Flight {
                    request: request.map(|way| way + left),
                    ..flight
                }),
            };
        }
        if !self.has_faults() || self.rng.random_range(0..1000) >= self.plan.faults {
            return Fate::Sent(flight);
        }
        let slow = Duration::from_millis(match self.rng.random_bool(0.7) {
            true => self.rng.random_range(20..1000),
            false => self.rng.random_range(1000..8000),
        });
        let breaks = Some(Duration::from_millis(self.rng.random_range(1..50)));
        match self.rng.random_range(0..10) {
            0 => self.refused(ErrorKind::ServiceUnavailable),
            1 => Fate::Sent(Flight::default()),
            2 => Fate::Sent(Flight {
                reply: None,
                ..flight
            }),
            3 => Fate::Sent(Flight {
                breaks,
                ..Flight::default()
            }),
            4 if self.plan.repeats => Fate::Sent(Flight {
                again: breaks,
                ..flight
            }),
            4 | 5 => Fate::Sent(Flight {
                request: Some(slow),
                reply: None,
                breaks,
                ..flight
            }),
            6 => Fate::Sent(Flight {
                reply: None,
                breaks,
                ..flight
            }),
            7 => Fate::Sent(Flight {
                request: Some(slow),
                ..flight
            }),
            8 => Fate::Sent(Flight {
                reply: Some(slow),
                ..flight
            }),
            _ => Fate::Sent(Flight {
                refusal: Some(self.refusal()),
                reply: Some(Duration::from_millis(1)),
                ..flight
            }),
        }
    }

    fn refused(&mut self, kind: ErrorKind) -> Fate {
        let after = Duration::from_millis(self.rng.random_range(1..5));
        Fate::Refused { after, kind }
    }

    fn refusal(&mut self) -> ErrorKind {
        match self.rng.random_range(0..20) {
            0 => ErrorKind::Internal,
            1 => ErrorKind::RateLimited,
            _ => ErrorKind::ServiceUnavailable,
        }
    }
}
