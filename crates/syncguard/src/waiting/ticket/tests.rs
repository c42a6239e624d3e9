use tokio::sync::Notify;

use super::*;
use crate::asking::outcome::Grant;
use crate::values::claim::Slots;
use crate::values::fence::Fence;
use crate::values::key::Key;
use crate::values::lock_id::LockId;

const LIMIT: u16 = 2;

fn key(name: &str) -> Claim {
    Claim::new(Key::new(name).unwrap()).unwrap()
}

fn slot_of(count: u16) -> Claim {
    Claim::slot(Key::new("s").unwrap(), Slots::new(count).unwrap()).unwrap()
}

fn enter(queues: &Queues, claims: &[Claim]) -> Ticket {
    Ticket::new(
        queues,
        queues.next_number(),
        claims,
        &RetryPolicy::default(),
    )
}

/// One who asks.
fn asking(queues: &Queues, claims: &[Claim]) -> Ticket {
    let mut ticket = enter(queues, claims);
    assert!(ticket.asks().unwrap());
    ticket
}

/// One who stands behind others, or waits for what is held.
fn waiting(queues: &Queues, claims: &[Claim]) -> Ticket {
    let mut ticket = enter(queues, claims);
    assert!(!ticket.asks().unwrap());
    ticket
}

/// One who was refused what that claim wants.
fn refused(queues: &Queues, claims: &[Claim], claim: usize) -> Ticket {
    let mut ticket = asking(queues, claims);
    ticket.refused(claim, None, None);
    ticket
}

fn grant(slot: Option<u16>) -> Grant {
    Grant {
        lock_id: LockId::generate().unwrap(),
        slot,
        fence: Fence::from_counter(1).unwrap(),
        expires_at_ms: 1,
    }
}

fn gets(queues: &Queues, claims: &[Claim], slot: Option<u16>) {
    asking(queues, claims).granted(Instant::now(), &[grant(slot)]);
}

fn is_ready(ticket: &Ticket) -> bool {
    matches!(ticket.role(), LineRole::Ready)
}

fn is_first(ticket: &Ticket) -> bool {
    matches!(ticket.role(), LineRole::First)
}

/// A release of that key, on a store that does not tell.
fn free(queues: &Queues, key: &Claim) {
    queues.release_sent(&key.key, None);
    queues.release_ended(&key.key);
}

fn with_slots<T>(queues: &Queues, run: impl FnOnce(&mut Queue) -> T) -> T {
    let mut queues = lock(&queues.0);
    run(queues.by_key.get_mut(&all_slots(&slot_of(1).key)).unwrap())
}

/// Waiters of this process have these slots, then one is refused right after a slot was freed. Whether that makes a rival.
fn makes_a_rival(slots: &[u16]) -> bool {
    let queues = Queues::default();
    let _asking = asking(&queues, &[slot_of(LIMIT)]);
    for slot in slots {
        gets(&queues, &[slot_of(LIMIT)], Some(*slot));
    }
    queues.release_ended(&slot_of(LIMIT).key.slot(LIMIT));
    let _refused = refused(&queues, &[slot_of(LIMIT)], 0);
    with_slots(&queues, |queue| {
        let hand_over = &mut queue.lines[0].hand_over;
        // Of the first release all hear, rival or not.
        let is_handed_over = [(); 2].map(|()| hand_over.releases(Instant::now()));
        !is_handed_over[1]
    })
}

#[test]
fn a_process_that_has_all_slots_is_no_rival_of_itself() {
    assert!(!makes_a_rival(&[1, 2]));
    assert!(makes_a_rival(&[1]), "somebody else has the other one");
}

#[test]
fn a_slot_that_was_released_is_not_held_any_more() {
    let queues = Queues::default();
    let _asking = asking(&queues, &[slot_of(LIMIT)]);
    for slot in 1..=LIMIT {
        gets(&queues, &[slot_of(LIMIT)], Some(slot));
    }
    queues.release_sent(&slot_of(LIMIT).key.slot(2), None);
    assert_eq!(with_slots(&queues, |queue| queue.held.clone()), [1].into());
}

#[test]
fn for_one_key_they_ask_as_they_came_and_one_at_a_time() {
    let queues = Queues::default();
    let a = [key("a")];
    let mut first = asking(&queues, &a);
    let (second, third) = (waiting(&queues, &a), waiting(&queues, &a));
    assert!(!is_first(&second), "somebody asks");
    first.refused(0, None, None);
    assert!(is_first(&first) && !is_first(&second));
    free(&queues, &a[0]);
    assert!(is_ready(&first) && !is_ready(&second));
    drop(first);
    assert!(is_ready(&second) && !is_ready(&third));
    drop((second, third));
    assert!(queues.is_empty());
}

#[test]
fn who_waits_for_one_key_leaves_its_others_to_everybody() {
    let queues = Queues::default();
    let both = refused(&queues, &[key("a"), key("b")], 1);
    asking(&queues, &[key("a")]);
    assert!(is_first(&both));
    drop(waiting(&queues, &[key("b")]));
}

#[test]
fn what_was_freed_goes_to_the_oldest_who_could_use_it() {
    let queues = Queues::default();
    let (a, b) = (key("a"), key("b"));
    let mut both = refused(&queues, &[a.clone(), b.clone()], 0);
    let single = waiting(&queues, std::slice::from_ref(&a));
    let _other = refused(&queues, std::slice::from_ref(&b), 0);
    free(&queues, &a);
    // It is known that the other key is held: it waits for that, by its age before those who came later.
    assert!(is_ready(&both) && !both.asks().unwrap());
    assert!(is_ready(&single) && is_first(&both));
}

#[test]
fn what_was_freed_goes_to_the_next_if_the_first_lacks_something_else() {
    let queues = Queues::default();
    let (a, b) = (key("a"), key("b"));
    let mut both = refused(&queues, &[a.clone(), b], 0);
    let single = waiting(&queues, std::slice::from_ref(&a));
    free(&queues, &a);
    assert!(both.asks().unwrap() && !is_ready(&single));
    both.refused(1, None, None);
    assert!(is_ready(&single));
}

#[test]
fn that_one_wish_for_slots_was_refused_says_nothing_of_another() {
    let queues = Queues::default();
    let _few = refused(&queues, &[slot_of(1)], 0);
    let _two = refused(&queues, &[slot_of(10), slot_of(10)], 0);
    let _many = refused(&queues, &[slot_of(10)], 0);
    // Of ten, the seventh is freed.
    let [mut few, mut two, mut many] = [vec![slot_of(1)], vec![slot_of(10); 2], vec![slot_of(10)]]
        .map(|claims| waiting(&queues, &claims));
    drop((_few, _two, _many));
    queues.release_ended(&slot_of(10).key.slot(7));
    assert!(!is_ready(&few), "it cannot use that");
    assert!(is_ready(&two) && is_ready(&many));
    assert!(two.asks().unwrap() && many.asks().unwrap() && !few.asks().unwrap());
}

#[test]
fn news_that_come_while_somebody_asks_are_not_lost() {
    let queues = Queues::default();
    let a = [key("a")];
    let mut first = asking(&queues, &a);
    let news: Arc<Notify> = first.news();
    free(&queues, &a[0]);
    first.refused(0, None, None);
    assert!(is_ready(&first));
    drop((news, first));
    assert!(queues.is_empty());
}

fn shared(name: &str) -> Claim {
    Claim::shared(Key::new(name).unwrap()).unwrap()
}

/// What somebody has to do whose time is over, after another in its line was granted that claim at the end of its own time.
fn last_turn_after_a_grant(claim: &Claim) -> LastTurn {
    let (queues, wants) = (Queues::default(), std::slice::from_ref(claim));
    let (mut first, mut second) = (refused(&queues, wants, 0), waiting(&queues, wants));
    let over = Some(Instant::now());
    let asks = first.asks_at_last(over, None);
    assert!(matches!(asks, Ok(LastTurn::Asks)));
    let hears = second.asks_at_last(over, None);
    assert!(matches!(hears, Ok(LastTurn::Hears)));
    first.granted(Instant::now(), &[grant(None)]);
    second.asks_at_last(over, Some(Duration::ZERO)).unwrap()
}

#[test]
fn when_a_reader_was_let_in_another_whose_time_is_over_asks_as_well() {
    let shared = last_turn_after_a_grant(&shared("a"));
    assert!(matches!(shared, LastTurn::Asks));
    let alone = last_turn_after_a_grant(&key("a"));
    assert!(matches!(alone, LastTurn::Knows));
}

#[test]
fn a_writer_of_this_process_who_gives_up_lets_readers_ask() {
    let queues = Queues::default();
    let reader = refused(&queues, &[shared("a")], 0);
    let writer = refused(&queues, &[key("a")], 0);
    queues.release_ended(&key("a").key.gate());
    assert!(is_ready(&reader) && !is_ready(&writer));
}
