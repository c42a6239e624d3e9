use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::*;
use crate::network::switches::SwitchListener;

fn named(port: u16, epoch: u64) -> Named {
    Named {
        address: ("h".to_owned(), port),
        epoch,
    }
}

/// Three Sentinels that have said nothing yet, under a name of their own.
fn sentinels() -> SentinelSet {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    sentinels_of((1..=3).collect(), &format!("main {number}"))
}

fn sentinels_of(ports: Vec<u16>, name: &str) -> SentinelSet {
    let set = RedisSentinel {
        nodes: ports.iter().map(|port| ("s".to_owned(), *port)).collect(),
        name: name.to_owned(),
        username: None,
        password: None,
    };
    SentinelSet::new(&RedisConfig::default(), &set, None)
}

impl SentinelSet {
    fn tell(&self, sentinel: u16, port: u16, epoch: u64) {
        self.note_answer(&("s".to_owned(), sentinel), &named(port, epoch));
    }

    fn settle(&self, now: &Named) {
        self.settle_if(now, |_| true);
    }

    fn known(&self) -> Option<Named> {
        self.primary.borrow().clone()
    }
}

#[test]
fn a_switch_is_what_is_later_or_a_change_of_mind() {
    let sentinels = sentinels();
    let count = Arc::new(AtomicUsize::new(0));
    let listener: Arc<SwitchListener> = {
        let count = Arc::clone(&count);
        Arc::new(move || {
            count.fetch_add(1, SeqCst);
        })
    };
    sentinels.switches.add(Arc::downgrade(&listener));
    let now = |switches: usize, port| {
        assert_eq!(count.load(SeqCst), switches);
        assert_eq!(sentinels.known().map(|now| now.address.1), port);
    };
    let says = |sentinel, port, epoch| sentinels.tell(sentinel, port, epoch);
    says(1, 1, 5);
    now(0, None);
    sentinels.settle(&named(1, 5));
    now(0, Some(1));
    says(1, 2, 6);
    now(1, Some(2));
    // Another Sentinel has not heard of it yet, and then it has.
    says(2, 1, 5);
    now(1, Some(2));
    says(2, 2, 6);
    now(1, Some(2));
    // All have lost what they knew, and fail over.
    for sentinel in 1..=3 {
        says(sentinel, 2, 0);
        now(1, Some(2));
    }
    says(1, 1, 1);
    now(2, Some(1));
    // None tells its epoch.
    sentinels.settle(&named(1, 0));
    says(3, 2, 0);
    now(2, Some(1));
    says(3, 1, 0);
    says(3, 2, 0);
    now(3, Some(2));
}

#[test]
fn a_sentinel_that_is_behind_is_not_followed_back() {
    let sentinels = sentinels();
    let failed_over = Some(named(2, 6));
    sentinels.settle(&named(1, 5));
    sentinels.tell(1, 2, 6);
    assert_eq!(sentinels.known(), failed_over);
    // It was cut off for two failovers, and learns of the first of them.
    sentinels.tell(2, 3, 4);
    sentinels.tell(2, 1, 5);
    assert_eq!(sentinels.known(), failed_over);
    // It starts again with what its configuration says.
    sentinels.tell(3, 2, 6);
    sentinels.tell(3, 1, 0);
    assert_eq!(sentinels.known(), failed_over);
    // A later failover counts, whoever tells of it.
    sentinels.tell(3, 1, 7);
    assert_eq!(sentinels.known(), Some(named(1, 7)));
}

#[test]
fn a_search_does_not_go_back_behind_what_was_told_meanwhile() {
    for (known, reported) in [(5, 6), (0, 0)] {
        let sentinels = sentinels();
        let (old, new) = (named(1, known), named(2, reported));
        sentinels.tell(1, 1, known);
        sentinels.settle(&old);
        let before = sentinels.known();
        sentinels.tell(1, 2, reported);
        assert_eq!(sentinels.known(), Some(new.clone()));
        assert!(!sentinels.found(&old, before.as_ref()));
        assert_eq!(sentinels.known(), Some(new.clone()));
        // Another search has found the same.
        assert!(sentinels.found(&new, before.as_ref()));
        // A later one, and what all who have forgotten everything say to a search that has begun since.
        let later = named(3, reported + 1);
        assert!(sentinels.found(&later, before.as_ref()));
        assert!(sentinels.found(&named(1, 0), Some(&later)));
        assert_eq!(sentinels.known(), Some(named(1, 0)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_overruled_is_no_news() {
    let sentinels = sentinels();
    let (living, dead) = (named(1, 5), named(2, 6));
    sentinels.settle(&living);
    sentinels.tell(3, 2, 6);
    assert_eq!(sentinels.known(), Some(dead.clone()));
    let is_overruled = |latest: &Named| {
        sentinels.note_dispute(latest);
        sentinels.is_overruled(latest)
    };
    assert!(!is_overruled(&dead), "a failover may be under way");
    tokio::time::advance(AGREEMENT).await;
    // Another one is another dispute.
    assert!(!is_overruled(&named(2, 7)));
    assert!(!is_overruled(&dead));
    tokio::time::advance(AGREEMENT).await;
    assert!(is_overruled(&dead));
    assert!(sentinels.found(&living, Some(&dead)));
    sentinels.tell(3, 2, 6);
    assert_eq!(sentinels.known(), Some(living));
    sentinels.tell(3, 2, 7);
    assert_eq!(sentinels.known(), Some(named(2, 7)));
}

#[tokio::test(start_paused = true)]
async fn a_dispute_is_as_old_as_the_first_that_has_met_it() {
    let dead = named(2, 6);
    let meets = |ports: &[u16], name: &str| {
        let sentinels = sentinels_of(ports.to_vec(), name);
        assert!(
            !sentinels.is_overruled(&dead),
            "it may be reached from here"
        );
        sentinels.note_dispute(&dead);
        sentinels.is_overruled(&dead)
    };
    assert!(!meets(&[1, 2, 3], "first"));
    tokio::time::advance(AGREEMENT).await;
    assert!(meets(&[3, 1, 2], "first"));
    assert!(!meets(&[1, 2, 3], "second"));
    assert!(!meets(&[1, 2, 4], "first"));
    // What was met now and then lasts on, and what was not is another dispute.
    for _ in 0..3 {
        tokio::time::advance(Duration::from_secs(3_599)).await;
        assert!(meets(&[1, 2, 3], "first"));
    }
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert!(!meets(&[1, 2, 3], "first"));
}

/// Three Sentinels that name a server, of which the third is gone. The others name another server by now, and count from the start.
async fn without_the_third() -> SentinelSet {
    let sentinels = sentinels();
    sentinels.settle(&named(1, 6));
    (1..=3).for_each(|sentinel| sentinels.tell(sentinel, 1, 6));
    tokio::time::advance(GONE / 3).await;
    (1..=2).for_each(|sentinel| sentinels.tell(sentinel, 2, 0));
    assert_eq!(
        sentinels.known(),
        Some(named(1, 6)),
        "the third may know better"
    );
    sentinels
}

#[tokio::test(start_paused = true)]
async fn what_a_sentinel_said_that_is_gone_keeps_nobody_at_a_former_primary() {
    let sentinels = without_the_third().await;
    tokio::time::advance(GONE / 3).await;
    (1..=2).for_each(|sentinel| sentinels.tell(sentinel, 2, 0));
    assert_eq!(sentinels.known(), Some(named(1, 6)));
    tokio::time::advance(GONE / 3).await;
    sentinels.tell(1, 2, 0);
    assert_eq!(sentinels.known(), Some(named(2, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_cut_off_itself_takes_no_sentinel_for_gone() {
    let sentinels = without_the_third().await;
    tokio::time::advance(GONE).await;
    (1..=2).for_each(|sentinel| sentinels.tell(sentinel, 2, 0));
    assert_eq!(sentinels.known(), Some(named(1, 6)));
}

#[tokio::test(start_paused = true)]
async fn one_sentinel_does_not_lead_back_because_the_others_are_gone() {
    let sentinels = sentinels();
    sentinels.settle(&named(1, 6));
    (1..=3).for_each(|sentinel| sentinels.tell(sentinel, 1, 6));
    tokio::time::advance(GONE).await;
    // It starts again with what its configuration says.
    sentinels.tell(1, 2, 0);
    assert_eq!(sentinels.known(), Some(named(1, 6)));
}
