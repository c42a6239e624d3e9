use super::*;
use crate::values::lock_id::LockId;

const LIMIT: u16 = 2;

fn key() -> Key {
    Key::new("s").unwrap()
}

fn claims() -> [Claim; 1] {
    [Claim {
        key: key(),
        slots: Some(Slots::new(LIMIT).unwrap()),
        lock_id: LockId::generate().unwrap(),
    }]
}

fn turn(queues: &Queues) -> Turn {
    let mut entered = queues.enter(&claims(), &RetryPolicy::default());
    entered.pop().and_then(QueueEntry::first).unwrap()
}

/// One who asks, and by that keeps the queue.
fn asking(queues: &Queues) -> Turn {
    let turn = turn(queues);
    std::mem::forget(turn.asking());
    turn
}

/// Waiters of this process have these slots, then one is refused right after a slot was freed. Whether that makes a rival.
fn makes_a_rival(slots: &[u16]) -> bool {
    let queues = Queues::default();
    let asking = asking(&queues);
    for slot in slots {
        turn(&queues).granted(Instant::now(), [*slot].into_iter());
    }
    let mut refused = turn(&queues);
    refused.with(|queue| queue.freed = 1);
    refused.asks().unwrap();
    refused.found(None, None);
    let is_rival = refused.with(|queue| {
        !queue.hand_over.releases(Instant::now()) && {
            // Of the first release all hear, rival or not.
            !queue.hand_over.releases(Instant::now())
        }
    });
    drop(asking);
    is_rival
}

#[test]
fn a_process_that_has_all_slots_is_no_rival_of_itself() {
    assert!(!makes_a_rival(&[1, 2]));
    assert!(makes_a_rival(&[1]), "somebody else has the other one");
}

#[test]
fn a_slot_that_was_released_is_not_held_any_more() {
    let queues = Queues::default();
    let asking = asking(&queues);
    for slot in 1..=LIMIT {
        turn(&queues).granted(Instant::now(), [slot].into_iter());
    }
    queues.release_sent(&key().slot(2), None);
    assert_eq!(asking.with(|queue| queue.held.clone()), [1].into());
}
