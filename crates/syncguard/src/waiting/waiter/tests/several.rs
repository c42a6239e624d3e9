//! Those who wait for several keys at once.

use super::scene::{S, Scene, claims, settle};
use super::*;
use crate::values::claim::Slots;

#[tokio::test(start_paused = true)]
async fn of_those_whose_claims_overlap_who_came_first_is_first() {
    let t = Scene::new();
    // The holder releases everything after a second; until then all of them wait.
    let holder = t.hold(claims(&["a", "b", "c"]), S);
    settle().await;
    let both = t.hold(claims(&["b", "a"]), S);
    settle().await;
    let single = t.hold(claims(&["a"]), S);
    settle().await;
    let other = t.hold(claims(&["c", "b"]), S);
    assert_eq!(holder.await.unwrap(), Duration::ZERO);
    let (both, single, other) = (
        both.await.unwrap(),
        single.await.unwrap(),
        other.await.unwrap(),
    );
    assert!(both < single, "{both:?} {single:?}");
    assert!(both < other, "{both:?} {other:?}");
    assert!(t.store.work.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_one_of_several_keeps_nobody_from_the_others() {
    let t = Scene::new();
    let holder = t.hold(claims(&["b"]), S);
    settle().await;
    let both = t.hold(claims(&["a", "b"]), S);
    settle().await;
    let singles: Vec<_> = (0..5).map(|_| t.hold(claims(&["a"]), S / 10)).collect();
    for (number, single) in (0..).zip(singles) {
        assert_eq!(single.await.unwrap(), S * number / 10);
    }
    holder.await.unwrap();
    assert_eq!(both.await.unwrap(), S);
    assert!(t.store.work.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn sets_whose_first_key_is_held_for_long_wait_alone() {
    let t = Scene::new();
    let stuck = Claim::new(Key::new("order:0").unwrap()).unwrap();
    t.store
        .held
        .lock()
        .unwrap()
        .insert(stuck.key.clone(), stuck.lock_id);
    let order = |number: usize| {
        let mut both = claims(&[&format!("order:{number}")]);
        both.push(Claim::slot(Key::new("api").unwrap(), Slots::new(4).unwrap()).unwrap());
        both
    };
    let waits = t.hold(order(0), S);
    // Ten a tenth of a second, four at a time, each for a fortieth.
    for tenth in 0..130 {
        let start = Instant::now();
        let granted: Vec<_> = (1..=10)
            .map(|number| t.hold(order(number), S / 40))
            .collect();
        for one in granted {
            one.await.unwrap();
        }
        assert!(start.elapsed() < S / 10, "{tenth}: {:?}", start.elapsed());
        tokio::time::sleep_until(start + S / 10).await;
    }
    assert!(!waits.is_finished());
    waits.abort();
}

#[tokio::test(start_paused = true)]
async fn a_small_wish_for_slots_passes_a_large_one_and_the_reverse() {
    let t = Scene::new();
    let all = |take: usize| (0..take).map(|_| slot_of(3)).collect::<Vec<_>>();
    let held = t.hold(all(2), 2 * S);
    settle().await;
    // One slot is free.
    let large = t.hold(all(2), S);
    settle().await;
    let small = t.hold(all(1), S);
    assert_eq!(seconds(vec![held, small, large]).await, [0, 0, 2]);
    // Of one slot and of three: the only one that both can have is held.
    let held = t.hold(vec![slot_of(1)], 2 * S);
    settle().await;
    let few = t.hold(vec![slot_of(1)], S);
    settle().await;
    let many = t.hold(vec![slot_of(3)], S);
    assert_eq!(seconds(vec![held, few, many]).await, [0, 2, 0]);
    assert!(t.store.work.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn whose_time_ends_in_line_asks_once_and_hears_what_stood_in_the_way() {
    let t = Scene::new();
    let holder = t.hold(claims(&["b"]), 10 * S);
    settle().await;
    let first = t.hold(claims(&["b"]), S);
    settle().await;
    let waits_a_second = |names: &[&str]| {
        let (backend, claims) = (Arc::clone(&t.backend), claims(names));
        let policy = RetryPolicy {
            timeout_ms: 1000.0,
            ..patient()
        };
        tokio::spawn(async move { lock(&backend, claims, &waits(policy)).await })
    };
    let both = waits_a_second(&["a", "b"]);
    settle().await;
    let asked = t.store.asked.lock().unwrap().len();
    let error = both.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AcquisitionTimeout);
    assert!(
        error.message().ends_with("somebody holds the lock"),
        "{error}"
    );
    assert_eq!(error.busy().unwrap().key.as_deref(), Some("b"));
    assert_eq!(t.store.asked.lock().unwrap()[asked..], ["ab"]);
    // What it waits for is free, and the first does not know it.
    let late = waits_a_second(&["b"]);
    settle().await;
    t.store.held.lock().unwrap().clear();
    late.await.unwrap().unwrap();
    first.abort();
    holder.abort();
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_vain_names_what_it_stood_in_line_for_longest() {
    let t = Scene::new();
    let hold = |name| {
        let (key, id) = (Key::new(name).unwrap(), LockId::generate().unwrap());
        t.store.held.lock().unwrap().insert(key, id);
    };
    hold("b");
    let policy = RetryPolicy {
        timeout_ms: 1000.0,
        ..patient()
    };
    let backend = Arc::clone(&t.backend);
    let options = waits(policy);
    let both = tokio::spawn(async move { lock(&backend, claims(&["a", "b"]), &options).await });
    sleep(9 * S / 10).await;
    // At the end, the store names the first that is held.
    hold("a");
    let error = both.await.unwrap().unwrap_err();
    assert_eq!(t.store.asked.lock().unwrap().len(), 2);
    assert_eq!(error.busy().unwrap().key.as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn who_has_no_key_in_common_does_not_wait() {
    let t = Scene::new();
    let holder = t.hold(claims(&["b"]), S);
    settle().await;
    let both = t.hold(claims(&["a", "b"]), S);
    settle().await;
    assert_eq!(
        t.hold(claims(&["c", "d"]), S).await.unwrap(),
        Duration::ZERO
    );
    holder.await.unwrap();
    both.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_who_gives_up_leaves_all_queues() {
    let t = Scene::new();
    let holder = t.hold(claims(&["b"]), 10 * S);
    settle().await;
    let gives_up = t.hold(claims(&["a", "b", "c"]), S);
    settle().await;
    let behind = t.hold(claims(&["c"]), S);
    settle().await;
    gives_up.abort();
    assert!(gives_up.await.unwrap_err().is_cancelled());
    assert!(behind.await.unwrap() < S);
    holder.await.unwrap();
    assert!(t.store.work.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_slots_get_them_as_they_are_freed() {
    let t = Scene::new();
    let slot = || {
        let slots = Slots::new(2).unwrap();
        vec![Claim::slot(Key::new("s").unwrap(), slots).unwrap()]
    };
    let mut granted = Vec::new();
    for _ in 0..6 {
        granted.push(t.hold(slot(), S));
        settle().await;
    }
    let mut times = Vec::new();
    for one in granted {
        times.push(one.await.unwrap().as_secs());
    }
    assert_eq!(times, [0, 0, 1, 1, 2, 2]);
    assert!(t.store.work.queues().is_empty());
}

pub(super) fn slot_of(count: u16) -> Claim {
    Claim::slot(Key::new("s").unwrap(), Slots::new(count).unwrap()).unwrap()
}

async fn seconds(granted: Vec<JoinHandle<Duration>>) -> Vec<u64> {
    let mut times = Vec::new();
    for one in granted {
        times.push(one.await.unwrap().as_secs());
    }
    times
}

#[tokio::test(start_paused = true)]
async fn while_slots_are_free_all_ask_at_the_same_time() {
    let t = Scene::new();
    let granted = (0..10).map(|_| t.hold(vec![slot_of(10)], S)).collect();
    assert_eq!(seconds(granted).await, [0; 10]);
    assert_eq!(*t.store.on_their_way.lock().unwrap(), (0, 10));
    assert!(t.store.work.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn as_many_ask_at_the_same_time_as_slots_were_released_and_none_in_vain() {
    let t = Scene::new();
    let mut granted = Vec::new();
    for _ in 0..10 {
        granted.push(t.hold(vec![slot_of(4)], S));
        settle().await;
        settle().await;
    }
    // The fifth was refused, and the others stand behind it.
    assert_eq!(t.store.asked.lock().unwrap().len(), 5);
    *t.store.on_their_way.lock().unwrap() = (0, 0);
    sleep(S + S / 2).await;
    assert_eq!(t.store.asked.lock().unwrap().len(), 9);
    assert_eq!(t.store.on_their_way.lock().unwrap().1, 4);
    assert_eq!(seconds(granted).await, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
    assert_eq!(t.store.asked.lock().unwrap().len(), 11);
    assert!(t.store.work.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn more_and_more_ask_at_the_same_time_for_slots_that_others_have_freed() {
    let t = Scene::new();
    let key = Key::new("s").unwrap();
    let elsewhere = (1..=15).map(|number| (key.slot(number), LockId::generate().unwrap()));
    t.store.held.lock().unwrap().extend(elsewhere);
    let granted = (0..15)
        .map(|_| t.hold(vec![slot_of(15)], 100 * S))
        .collect::<Vec<_>>();
    settle().await;
    settle().await;
    *t.store.on_their_way.lock().unwrap() = (0, 0);
    t.store.asked.lock().unwrap().clear();
    // Nobody tells of it: one of them looks when it is time to.
    t.store.held.lock().unwrap().clear();
    for one in granted {
        one.await.unwrap();
    }
    assert_eq!(t.store.asked.lock().unwrap().len(), 15, "none in vain");
    assert!(t.store.on_their_way.lock().unwrap().1 >= 4);
}

#[tokio::test(start_paused = true)]
async fn those_who_were_refused_together_are_served_as_they_came() {
    let t = Scene::new();
    let granted = (0..6).map(|_| t.hold(vec![slot_of(2)], S)).collect();
    assert_eq!(seconds(granted).await, [0, 0, 1, 1, 2, 2]);
    assert!(t.store.work.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_key_keeps_nobody_from_the_slots_that_it_wants_too() {
    let t = Scene::new();
    let holder = t.hold(claims(&["a"]), S);
    settle().await;
    let both = t.hold(vec![claims(&["a"]).remove(0), slot_of(2)], S);
    settle().await;
    let one = t.hold(vec![slot_of(2)], S);
    assert_eq!(seconds(vec![holder, both, one]).await, [0, 1, 0]);
    let asked = t.store.asked.lock().unwrap().clone();
    assert_eq!(asked, ["a", "as", "s", "as"]);
}

#[tokio::test(start_paused = true)]
async fn sets_with_a_slot_ask_beside_each_other_as_slots_do() {
    let t = Scene::new();
    let both = |number: usize| {
        let mut both = claims(&[&number.to_string()]);
        both.push(slot_of(10));
        t.hold(both, S)
    };
    let granted = (0..30).map(both).collect();
    let times: Vec<_> = [[0; 10], [1; 10], [2; 10]].concat();
    assert_eq!(seconds(granted).await, times);
    // All of the first round at once, twenty of them in vain; after that as many as were released.
    assert_eq!(*t.store.on_their_way.lock().unwrap(), (0, 30));
    assert_eq!(t.store.asked.lock().unwrap().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_beside_others_leaves_them_their_turns() {
    let t = Scene::new();
    let mut granted: Vec<_> = (0..6).map(|_| t.hold(vec![slot_of(2)], S)).collect();
    settle().await;
    settle().await;
    let gives_up = granted.remove(2);
    gives_up.abort();
    assert!(gives_up.await.unwrap_err().is_cancelled());
    assert_eq!(seconds(granted).await, [0, 0, 1, 1, 2]);
    assert!(t.store.work.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_cancelled_is_undone_as_a_whole() {
    let t = Scene::new();
    let running = t.hold(claims(&["a", "b", "c"]), S);
    // It is on its way to the store.
    yield_now().await;
    running.abort();
    sleep(S).await;
    assert!(t.store.held.lock().unwrap().is_empty());
}
