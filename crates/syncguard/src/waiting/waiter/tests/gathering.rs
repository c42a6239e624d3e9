//! Those who gather several things, because others take them one by one.

use std::sync::atomic::Ordering::SeqCst;

use super::scene::{ExtensionFault, S, Scene, claims, settle};
use super::several::slot_of;
use super::*;
use crate::asking::hold::AutoExtend;

/// Some who want one of these keys again and again, until they are aborted.
fn singles(t: &Scene, each: &[(&'static str, u64)]) -> Vec<JoinHandle<()>> {
    let loops = each.iter().map(|&(key, held_ms)| {
        let backend = Arc::clone(&t.backend);
        tokio::spawn(async move {
            loop {
                let guard = lock(&backend, claims(&[key]), &waits(patient())).await;
                sleep(Duration::from_millis(held_ms)).await;
                guard.unwrap().release().await.unwrap();
            }
        })
    });
    loops.collect()
}

#[tokio::test(start_paused = true)]
async fn a_set_is_not_starved_by_those_who_want_one_of_its_keys() {
    let t = Scene::new();
    let keys = [("a", 7), ("b", 11), ("c", 5), ("d", 13)];
    let others = singles(&t, &[keys, keys, keys].concat());
    settle().await;
    for _ in 0..10 {
        let waited = t
            .hold(claims(&["a", "b", "c", "d"]), S / 100)
            .await
            .unwrap();
        assert!(waited < S / 2, "{waited:?}");
    }
    others.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn however_long_others_hold_each_key_a_set_gets_all_in_the_end() {
    let t = Scene::new();
    let others = singles(&t, &[("a", 3000), ("a", 3000), ("b", 4100), ("b", 4100)]);
    settle().await;
    let waited = t.hold(claims(&["a", "b"]), S).await.unwrap();
    assert!(waited < 100 * S, "{waited:?}");
    others.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn who_takes_all_slots_is_not_starved_by_those_who_take_one() {
    let t = Scene::new();
    let one = |held_ms: u64| {
        let backend = Arc::clone(&t.backend);
        tokio::spawn(async move {
            loop {
                let guard = lock(&backend, slot_of(4), &waits(patient())).await;
                sleep(Duration::from_millis(held_ms)).await;
                guard.unwrap().release().await.unwrap();
            }
        })
    };
    let others: Vec<_> = [20, 23, 29, 31, 37, 40].map(one).into();
    settle().await;
    let all = || (0..4).map(|_| slot_of(4)).collect();
    for _ in 0..10 {
        let waited = t.hold(all(), S / 100).await.unwrap();
        assert!(waited < S, "{waited:?}");
    }
    others.iter().for_each(JoinHandle::abort);
}

/// Whoever took them in another order could wait for one who waits for it.
#[tokio::test(start_paused = true)]
async fn whoever_gathers_takes_what_it_wants_in_one_order_and_a_gate_before_slots() {
    let slots = || [claims(&["c"]), vec![slot_of(2), slot_of(2)]].concat();
    for (wanted, order) in [
        (claims(&["c", "a", "b", "d"]), "a b c d"),
        (claims(&["d", "b", "c", "a"]), "a b c d"),
        (slots(), "c s;0 s"),
    ] {
        let t = Scene::new();
        let keys = ["a", "b", "c", "d"];
        keys.iter().for_each(|name| hold_elsewhere(&t, name));
        let backend = Arc::clone(&t.backend);
        let all = tokio::spawn(async move { lock(&backend, wanted, &waits(eager())).await });
        sleep(S / 2).await;
        for name in keys {
            free_elsewhere(&t, name);
            sleep(S / 100).await;
        }
        assert!(all.await.unwrap().is_ok());
        let asked = t.store.asked.lock().unwrap().clone();
        let gate = Key::new("s").unwrap().gate();
        let asked = asked.iter().map(|name| name.replace(gate.as_str(), "s;0"));
        // Those for all at once are longer.
        let is_part = |name: &String| name.len() == 1 || name == "s;0";
        let mut parts: Vec<_> = asked.filter(is_part).collect();
        parts.dedup();
        assert_eq!(parts.join(" "), order);
    }
}

/// Holds a key as another process would, which ends never.
fn hold_elsewhere(t: &Scene, name: &str) {
    let id = LockId::generate().unwrap();
    let key = Key::new(name).unwrap();
    t.store.held.lock().unwrap().insert(key, id);
}

fn free_elsewhere(t: &Scene, name: &str) {
    let key = Key::new(name).unwrap();
    t.store.held.lock().unwrap().remove(&key);
    t.store.work.queues().release_ended(&key);
}

fn holder_of(t: &Scene, name: &str) -> Option<LockId> {
    let key = Key::new(name).unwrap();
    t.store.held.lock().unwrap().get(&key).cloned()
}

/// Asks again after a fifth of a second at the latest.
fn eager() -> RetryPolicy {
    RetryPolicy {
        retry_delay_ms: 200.0,
        backoff: crate::Backoff::Fixed,
        jitter: Jitter::None,
        ..patient()
    }
}

/// One who wants `a` and `b`, of which somebody else holds `b`, has waited until it has `a`.
async fn gathers(t: &Scene, options: LockOptions) -> JoinHandle<Result<LockGuard, Error>> {
    hold_elsewhere(t, "b");
    let backend = Arc::clone(&t.backend);
    let both = tokio::spawn(async move { lock(&backend, claims(&["a", "b"]), &options).await });
    while holder_of(t, "a").is_none() {
        sleep(Duration::from_millis(1)).await;
    }
    both
}

#[tokio::test(start_paused = true)]
async fn once_it_has_all_parts_one_extension_grants_them() {
    let t = Scene::new();
    let options = LockOptions {
        auto_extend: Some(AutoExtend::default()),
        ..waits(eager())
    };
    let both = gathers(&t, options).await;
    let part = holder_of(&t, "a").unwrap();
    sleep(S / 20).await;
    assert!(!both.is_finished() && t.store.extended.lock().unwrap().is_empty());
    free_elsewhere(&t, "b");
    let guard = both.await.unwrap().unwrap();
    assert_eq!(*t.store.extended.lock().unwrap(), [(2, Ttl::DEFAULT)]);
    assert_eq!(guard.lock_id(), &part);
    assert_eq!(guard.expires_at_ms(), 2);
    let held = ["a", "b"].map(|name| holder_of(&t, name).unwrap());
    assert_eq!(guard.lock_ids().as_slice(), held);
    // It extends itself from then on.
    sleep(11 * S).await;
    assert_eq!(t.store.extended.lock().unwrap().len(), 2);
    assert!(guard.release().await.unwrap());
    assert!(t.store.work.kept().is_empty());
}

#[tokio::test(start_paused = true)]
async fn those_behind_it_know_when_what_it_has_gathered_ends() {
    let t = Scene::new();
    let options = LockOptions {
        ttl: Ttl::from_millis(10).unwrap(),
        ..waits(eager())
    };
    let both = gathers(&t, options).await;
    let single = t.hold(claims(&["a"]), Duration::ZERO);
    settle().await;
    let start = Instant::now();
    free_elsewhere(&t, "b");
    both.await.unwrap().unwrap().keep();
    single.await.unwrap();
    // With the tolerance. A part would have lasted for half a second.
    assert_eq!(start.elapsed().as_millis(), 1010);
}

#[tokio::test(start_paused = true)]
async fn others_lose_a_quarter_of_the_time_to_one_who_gathers_in_vain() {
    let t = Scene::new();
    let both = gathers(&t, waits(eager())).await;
    let (start, mut held, mut parts) = (Instant::now(), Duration::ZERO, HashSet::new());
    // Windows of 0.5, 1, 2, 4, 8 and 16 seconds, each with a rest that is three times as long, take 126 seconds. The seventh begins.
    let mut last = start;
    while start.elapsed() < 126 * S {
        sleep(Duration::from_millis(10)).await;
        let now = Instant::now();
        if let Some(part) = holder_of(&t, "a") {
            held += now - last;
            parts.insert(part);
        }
        last = now;
    }
    assert!((31 * S..33 * S).contains(&held), "{held:?}");
    assert_eq!(parts.len(), 7);
    let extended = t.store.extended.lock().unwrap().clone();
    let short = Ttl::from_millis(3000).unwrap();
    assert!(
        extended.iter().all(|(_, ttl)| *ttl == short),
        "{extended:?}"
    );
    both.abort();
    assert!(both.await.unwrap_err().is_cancelled());
    settle().await;
    settle().await;
    assert_eq!(holder_of(&t, "a"), None);
}

#[tokio::test(start_paused = true)]
async fn who_waits_long_for_its_first_lock_has_time_for_the_others() {
    let t = Scene::new();
    hold_elsewhere(&t, "a");
    hold_elsewhere(&t, "b");
    let backend = Arc::clone(&t.backend);
    let wanted = claims(&["a", "b"]);
    let both = tokio::spawn(async move { lock(&backend, wanted, &waits(eager())).await });
    sleep(4 * S).await;
    free_elsewhere(&t, "a");
    settle().await;
    let part = holder_of(&t, "a").unwrap();
    sleep(6 * S).await;
    free_elsewhere(&t, "b");
    assert_eq!(both.await.unwrap().unwrap().lock_ids().first(), Some(&part));
}

/// As one `lock()` within another does.
#[tokio::test(start_paused = true)]
async fn who_holds_one_key_and_waits_for_another_waits_for_a_window_at_most() {
    let t = Scene::new();
    let both = gathers(&t, waits(eager())).await;
    let gathered = Instant::now();
    t.hold(claims(&["a"]), Duration::ZERO).await.unwrap();
    assert!(gathered.elapsed() <= S / 2);
    free_elsewhere(&t, "b");
    both.await.unwrap().unwrap().keep();
}

#[tokio::test(start_paused = true)]
async fn a_part_that_somebody_frees_by_force_is_none_of_a_grant() {
    let t = Scene::new();
    let both = gathers(&t, waits(eager())).await;
    let part = holder_of(&t, "a").unwrap();
    hold_elsewhere(&t, "a");
    free_elsewhere(&t, "b");
    sleep(S / 10).await;
    assert!(!both.is_finished());
    assert_eq!(holder_of(&t, "b"), None, "what it had is given back");
    free_elsewhere(&t, "a");
    let guard = both.await.unwrap().unwrap();
    assert!(!guard.lock_ids().contains(&part));
}

#[tokio::test(start_paused = true)]
async fn when_the_answer_of_the_extension_is_lost_all_is_undone() {
    let t = Scene::new();
    t.extensions_are(Some(ExtensionFault::Unanswered));
    let both = gathers(&t, waits(eager())).await;
    let part = holder_of(&t, "a");
    // Others get in when it gives up what it has.
    let other = t.hold(claims(&["a"]), S / 2);
    settle().await;
    free_elsewhere(&t, "b");
    other.await.unwrap();
    let guard = both.await.unwrap().unwrap();
    assert_ne!(guard.lock_ids().first(), part.as_ref());
}

#[tokio::test(start_paused = true)]
async fn one_who_is_aborted_while_it_gathers_leaves_nothing() {
    let t = Scene::new();
    let both = gathers(&t, waits(eager())).await;
    both.abort();
    assert!(both.await.unwrap_err().is_cancelled());
    settle().await;
    settle().await;
    assert_eq!(holder_of(&t, "a"), None);
    assert!(t.store.work.kept().is_empty());
}

#[tokio::test(start_paused = true)]
async fn closing_the_backend_frees_what_was_gathered() {
    let t = Scene::new();
    let both = gathers(&t, waits(eager())).await;
    t.backend.close().await;
    assert_eq!(both.await.unwrap().unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(holder_of(&t, "a"), None);
    assert!(t.store.work.kept().is_empty());
}

#[tokio::test(start_paused = true)]
async fn its_own_time_ends_the_gathering_and_it_says_what_it_waited_for() {
    let t = Scene::new();
    let policy = RetryPolicy {
        timeout_ms: 1500.0,
        ..eager()
    };
    let both = gathers(&t, waits(policy)).await;
    let error = both.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AcquisitionTimeout);
    assert_eq!(error.busy().unwrap().key.as_deref(), Some("b"));
    settle().await;
    settle().await;
    assert_eq!(holder_of(&t, "a"), None);
}

#[tokio::test(start_paused = true)]
async fn its_last_question_does_not_meet_what_it_has_gathered() {
    let t = Scene::new();
    let policy = RetryPolicy {
        timeout_ms: 700.0,
        ..eager()
    };
    let both = gathers(&t, waits(policy)).await;
    t.extensions_are(Some(ExtensionFault::Unheard));
    free_elsewhere(&t, "b");
    both.await.unwrap().unwrap().keep();
}

/// When the gate of `a` is taken and given back within that time, in tenths of a second. Readers hold the key.
async fn changes_of_the_gate(t: &Scene, time: Duration) -> Vec<u128> {
    let gate = Key::new("a").unwrap().gate();
    let (start, mut changes, mut was_held) = (Instant::now(), Vec::new(), false);
    while start.elapsed() < time {
        sleep(Duration::from_millis(10)).await;
        let is_held = t.store.held.lock().unwrap().contains_key(&gate);
        if is_held != was_held {
            changes.push(start.elapsed().as_millis() / 100);
            was_held = is_held;
        }
    }
    changes
}

/// One who wants `a`, which readers elsewhere hold.
fn writes_among_readers(t: &Scene) -> JoinHandle<Duration> {
    hold_elsewhere(t, "a");
    t.store.is_read.store(true, SeqCst);
    t.hold(claims(&["a"]), Duration::ZERO)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_a_moment_opens_no_gate() {
    let t = Scene::new();
    let writer = writes_among_readers(&t);
    assert_eq!(changes_of_the_gate(&t, S / 2).await, [0]);
    t.extensions_are(Some(ExtensionFault::Refused));
    // The gate is extended each second, and ends three seconds after the last time.
    sleep(2 * S).await;
    t.extensions_are(None);
    assert_eq!(changes_of_the_gate(&t, 50 * S).await, [0]);
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn who_has_lost_its_gate_leaves_it_alone_for_as_long_as_it_had_it() {
    let t = Scene::new();
    let writer = writes_among_readers(&t);
    t.extensions_are(Some(ExtensionFault::Refused));
    assert_eq!(changes_of_the_gate(&t, 5 * S).await, [0, 30]);
    t.extensions_are(None);
    assert_eq!(changes_of_the_gate(&t, 5 * S).await, [10]);
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn of_a_gate_and_its_key_the_grant_extends_the_key_alone() {
    let t = Scene::new();
    let writer = writes_among_readers(&t);
    sleep(S / 2).await;
    free_elsewhere(&t, "a");
    writer.await.unwrap();
    assert_eq!(*t.store.extended.lock().unwrap(), [(1, Ttl::DEFAULT)]);
}

/// It needs no retry for that, which would come after a day.
#[tokio::test(start_paused = true)]
async fn before_a_long_read_a_writer_keeps_others_out_for_a_minute_of_two() {
    let t = Scene::new();
    let writer = writes_among_readers(&t);
    assert_eq!(changes_of_the_gate(&t, 200 * S).await, [0, 600, 1200, 1800]);
    // The read ends.
    assert!(!writer.is_finished());
    free_elsewhere(&t, "a");
    assert!((200 * S..201 * S).contains(&writer.await.unwrap()));
    settle().await;
    settle().await;
    assert!(t.store.held.lock().unwrap().is_empty());
    assert!(t.store.work.queues().is_empty());
}
