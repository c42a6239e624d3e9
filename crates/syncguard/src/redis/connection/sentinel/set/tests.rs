use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::redis::switches::SwitchListener;

fn named(port: u16, epoch: u64) -> Named {
    Named {
        address: ("h".to_owned(), port),
        epoch,
    }
}

/// Three Sentinels that have said nothing yet.
fn sentinels() -> SentinelSet {
    let set = RedisSentinel {
        nodes: (1..=3).map(|port| ("s".to_owned(), port)).collect(),
        name: "main".to_owned(),
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

#[tokio::test(start_paused = true)]
async fn a_switch_is_what_most_name() {
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
    says(2, 1, 5);
    now(0, Some(1));
    // One is alone with it, whatever its epoch is.
    says(3, 2, 99);
    now(0, Some(1));
    says(1, 2, 6);
    now(1, Some(2));
    // All have lost what they knew, and fail over.
    for sentinel in 1..=3 {
        says(sentinel, 2, 0);
        now(1, Some(2));
    }
    says(1, 1, 1);
    now(1, Some(2));
    says(2, 1, 1);
    now(2, Some(1));
    // None tells its epoch any more, or they were told to watch another server.
    for sentinel in 1..=3 {
        says(sentinel, 3, 0);
    }
    now(3, Some(3));
}

#[tokio::test(start_paused = true)]
async fn most_are_believed_against_a_later_epoch_after_ten_seconds() {
    let sentinels = Arc::new(sentinels());
    sentinels.settle(&named(2, 6));
    sentinels.tell(1, 2, 6);
    // Two start again with what their configuration says.
    sentinels.tell(2, 1, 0);
    sentinels.tell(3, 1, 0);
    assert_eq!(sentinels.known(), Some(named(2, 6)));
    let at = sentinels.count_votes().unwrap();
    assert_eq!(at - Instant::now(), Duration::from_secs(10));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(sentinels.count_votes(), None);
    assert_eq!(sentinels.known(), Some(named(1, 0)));
}

#[tokio::test(start_paused = true)]
async fn who_cannot_be_reached_has_no_voice() {
    let sentinels = sentinels();
    sentinels.settle(&named(1, 5));
    for (sentinel, port) in [(1, 1), (2, 1), (3, 2)] {
        sentinels.tell(sentinel, port, 4 + u64::from(port));
    }
    assert_eq!(sentinels.known(), Some(named(1, 5)));
    for sentinel in [1, 2] {
        sentinels.forget(&("s".to_owned(), sentinel));
    }
    assert_eq!(
        sentinels.known(),
        Some(named(1, 5)),
        "fewer than most say so"
    );
    tokio::time::advance(Duration::from_millis(500)).await;
    sentinels.count_votes();
    assert_eq!(sentinels.known(), Some(named(2, 6)));
}

#[tokio::test(start_paused = true)]
async fn a_search_does_not_go_back_behind_what_was_told_meanwhile() {
    for (known, reported) in [(5, 6), (0, 0)] {
        let sentinels = sentinels();
        let (old, new) = (named(1, known), named(2, reported));
        sentinels.settle(&old);
        let before = sentinels.known();
        sentinels.tell(1, 2, reported);
        sentinels.tell(2, 2, reported);
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
