//! Who waits for a lock is served in time.

use super::*;

#[test]
fn who_waits_takes_a_released_lock_over_in_time() {
    let history = |key: &str, between: Option<Operation>, granted_ms| {
        let mut history = vec![
            granted(0, 1, 7),
            release(100, 1, Outcome::Released),
            operation(
                50,
                granted_ms + 2,
                Call::Acquire {
                    lock: 2,
                    ttl_ms: TTL_MS,
                },
                Outcome::Acquired {
                    fence: 9,
                    expires_at_ms: granted_ms + TTL_MS,
                },
            ),
        ];
        history.extend(between);
        for operation in &mut history {
            key.clone_into(&mut operation.key);
        }
        history
    };
    let slow = |key, between, granted_ms| {
        let history = history(key, between, granted_ms);
        let found = torture::takeover::slow(&history, 4_000, 1_000);
        found.iter().map(|slow| slow.free_ms).collect::<Vec<_>>()
    };
    assert_eq!(slow("wait:0", None, 110), Vec::<i64>::new());
    assert_eq!(slow("wait:0", None, 9_102), [9_000]);
    // Somebody else had it in between, or nobody waited.
    let other = Some(granted(5_000, 3, 8));
    assert_eq!(slow("wait:0", other, 9_102), Vec::<i64>::new());
    assert_eq!(slow("key:0", None, 9_102), Vec::<i64>::new());
    // Somebody may have had it.
    let call = Call::Acquire {
        lock: 3,
        ttl_ms: TTL_MS,
    };
    let unknown = |start| Some(operation(start, start + 2, call, Outcome::Unknown));
    assert_eq!(slow("wait:0", unknown(5_000), 9_102), Vec::<i64>::new());
    assert_eq!(slow("wait:0", unknown(9_103), 9_102), [9_000]);
    // Its effect may come late, but not so late.
    let late = |late_ms| {
        let history = history("wait:0", unknown(10), 9_102);
        torture::takeover::slow(&history, 4_000, late_ms).len()
    };
    assert_eq!((late(90), late(89)), (0, 1));
}
