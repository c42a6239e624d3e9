//! What a history must be read with, when the store itself was harmed: what it forgot, and what its clock showed.

use std::collections::BTreeSet;

use crate::history::{Call, Moment, Operation, Outcome};

/// The store has lost some of what it knew, as in a failover to a replica that was behind.
#[derive(Debug, Clone, Copy)]
pub struct Gap {
    /// Before it, everything was well.
    pub from: Moment,
    /// After it, everything was well again.
    pub to: Moment,
}

/// The clock that the store reads was set.
#[derive(Debug, Clone, Copy)]
pub struct ClockStep {
    /// It was right before the first moment, and is after the second.
    pub between: (Moment, Moment),
    /// How far it is ahead of the machine's from then on.
    pub ahead_ms: i64,
}

/// The history without what cannot be judged, because a store that was about to forget was asked, and with the moments of
/// forgetting.
pub fn with_gaps(mut history: Vec<Operation>, gaps: &[Gap]) -> Vec<Operation> {
    let keys = keys(&history);
    for gap in gaps {
        let (from, to) = (gap.from.order_us, gap.to.order_us);
        let contains = |at: u64| (from..=to).contains(&at);
        let touches = |one: &Operation| one.start.order_us <= to && one.end.order_us >= from;
        history.retain(|one| {
            let is_inside = contains(one.start.order_us) && contains(one.end.order_us);
            !(is_inside || touches(one) && one.call.only_looks())
        });
        // What began before it or ended after it may have had its effect on either side, or none that was kept.
        for one in history.iter_mut().filter(|one| touches(one)) {
            if one.outcome != Outcome::Interrupted {
                one.outcome = Outcome::Unknown;
            }
        }
    }
    for gap in gaps {
        history.extend(keys.iter().map(|key| Operation {
            process: u32::MAX,
            key: key.clone(),
            call: Call::Forget,
            start: gap.from,
            end: gap.to,
            outcome: Outcome::Yes,
        }));
    }
    history
}

/// The history with the times of the store's clock in place of the machine's. An operation may have had its effect until `late_ms`
/// after its end, if its outcome is unknown.
pub fn on_the_stores_clock(
    mut history: Vec<Operation>,
    steps: &[ClockStep],
    late_ms: i64,
) -> Vec<Operation> {
    let keys = keys(&history);
    for one in &mut history {
        let late_us = match one.outcome {
            Outcome::Unknown | Outcome::Interrupted => late_ms.unsigned_abs() * 1000,
            _ => 0,
        };
        let (start, end) = (one.start.order_us, one.end.order_us + late_us);
        let mut shown: Vec<i64> = Vec::new();
        let mut ahead_ms = 0;
        let mut since = 0;
        for step in steps {
            let (before, after) = (step.between.0.order_us, step.between.1.order_us);
            if start <= after && end >= since {
                shown.push(ahead_ms);
            }
            (ahead_ms, since) = (step.ahead_ms, before);
        }
        if end >= since {
            shown.push(ahead_ms);
        }
        one.start.wall_ms += shown.iter().min().unwrap_or(&0);
        one.end.wall_ms += shown.iter().max().unwrap_or(&0);
    }
    let mut before_ms = 0;
    for step in steps {
        if step.ahead_ms < before_ms {
            history.extend(sweeps(&keys, step, before_ms));
        }
        before_ms = step.ahead_ms;
    }
    history
}

/// How long a store may take to remove what it has found to be dead: on a busy machine it may be interrupted in between.
const DELAY_US: u64 = 500_000;

/// What had ended by a clock that is set back may be gone already.
fn sweeps(
    keys: &BTreeSet<String>,
    back: &ClockStep,
    ahead_ms: i64,
) -> impl Iterator<Item = Operation> {
    let on_it = move |moment: Moment| Moment {
        wall_ms: moment.wall_ms + ahead_ms,
        ..moment
    };
    let (start, mut end) = (on_it(back.between.0), on_it(back.between.1));
    end.order_us += DELAY_US;
    keys.iter().map(move |key| Operation {
        process: u32::MAX,
        key: key.clone(),
        call: Call::Sweep,
        start,
        end,
        outcome: Outcome::Yes,
    })
}

fn keys(history: &[Operation]) -> BTreeSet<String> {
    history.iter().map(|one| one.key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Bounds;
    use crate::check::check;

    const BOUNDS: Bounds = Bounds {
        skew_ms: 0,
        late_ms: 1_000,
        cut_ms: 1_000,
        is_steady: false,
        is_spread: false,
        group_ms: 0,
        is_left_in_steps: false,
    };

    fn at(ms: i64) -> Moment {
        Moment {
            order_us: ms.unsigned_abs() * 1000,
            wall_ms: ms,
        }
    }

    fn granted(ms: i64, lock: u64, fence: u64) -> Operation {
        Operation {
            process: 0,
            key: "k".to_owned(),
            call: Call::Acquire {
                lock,
                ttl_ms: 10_000,
            },
            start: at(ms),
            end: at(ms + 2),
            outcome: Outcome::Acquired {
                fence,
                expires_at_ms: ms + 10_000,
            },
        }
    }

    #[test]
    fn what_was_forgotten_may_be_granted_again() {
        let two = |fence| vec![granted(10, 1, 7), granted(100, 2, fence)];
        let gap = Gap {
            from: at(50),
            to: at(60),
        };
        assert!(check(two(8), BOUNDS).is_err());
        assert!(check(with_gaps(two(8), &[gap]), BOUNDS).is_ok());
        // Under a larger fence, also where the store has lost its counter.
        assert!(check(with_gaps(two(1), &[gap]), BOUNDS).is_err());
        // After it, the rules are the same as before.
        let mut three = two(8);
        three.push(granted(200, 3, 9));
        assert!(check(with_gaps(three, &[gap]), BOUNDS).is_err());
    }

    #[test]
    fn a_clock_that_is_ahead_ends_locks_early() {
        let step = ClockStep {
            between: (at(50), at(60)),
            ahead_ms: 11_000,
        };
        let mut second = granted(100, 2, 2);
        second.outcome = Outcome::Acquired {
            fence: 2,
            expires_at_ms: 100 + 21_000,
        };
        let two = vec![granted(10, 1, 1), second];
        assert!(check(two.clone(), BOUNDS).is_err());
        assert!(check(on_the_stores_clock(two.clone(), &[step], 0), BOUNDS).is_ok());
        let back = ClockStep {
            between: (at(70), at(80)),
            ahead_ms: 0,
        };
        let both = [step, back];
        assert!(check(on_the_stores_clock(two, &both, 0), BOUNDS).is_err());
        // What was dead on the way may be gone when the clock is set back.
        let two = vec![granted(10, 1, 1), granted(100, 2, 2)];
        assert!(check(two.clone(), BOUNDS).is_err());
        assert!(check(on_the_stores_clock(two, &both, 0), BOUNDS).is_ok());
    }
}
