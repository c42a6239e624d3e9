//! Who hears first that this process has released a lock, on a store that tells.

use std::future::pending;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::waiting::listener::{Listen, Listener};

/// A store that tells of releases when it is told to, and answers them when it is told to. Some want its lock.
struct Relay {
    t: Scene,
    holders: Vec<LockGuard>,
    waiters: Vec<JoinHandle<WaitResult>>,
    releases: Vec<JoinHandle<()>>,
}

impl Relay {
    async fn of(count: usize, is_free: bool, lane: Option<Lane>) -> Self {
        let server = Messages::default();
        let t = Scene::with(S(if is_free { 0 } else { 500 }), |store| {
            store.wakeups = Some(Wakeups::new(Server(Arc::clone(&server))));
            store.answers = Some(Semaphore::new(0));
            store.messages = Arc::clone(&server);
            store.lane = lane;
        });
        let waiters = (0..count).map(|_| t.wait(patient())).collect();
        settle().await;
        let mut relay = Self {
            t,
            holders: Vec::new(),
            waiters,
            releases: Vec::new(),
        };
        relay.look().await;
        relay
    }

    /// Looks who has got the lock.
    async fn look(&mut self) {
        settle().await;
        if self.waiters.first().is_some_and(JoinHandle::is_finished) {
            let (guard, _) = self.waiters.remove(0).await.unwrap();
            self.holders.push(guard.unwrap());
        }
    }

    /// Lets the holder go; the release is not answered yet.
    async fn release(&mut self) {
        let guard = self.holders.pop().unwrap();
        self.releases.push(tokio::spawn(async move {
            assert!(guard.release().await.unwrap());
        }));
        self.look().await;
    }

    async fn answer(&mut self) {
        self.t.store.answers.as_ref().unwrap().add_permits(1);
        self.look().await;
    }

    async fn tell(&mut self) {
        let freed = StoreMessage::Freed("k".to_owned());
        let messages = self.t.store.messages.lock().unwrap().clone();
        messages.unwrap().send(freed).unwrap();
        self.look().await;
    }

    /// The first release is one of which all hear.
    async fn open(&mut self) {
        let asked = self.t.asked();
        self.release().await;
        self.answer().await;
        assert!(
            self.holders.is_empty(),
            "nobody asks before the store tells"
        );
        assert_eq!(self.t.asked(), asked);
        self.tell().await;
        assert_eq!(self.holders.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn in_one_lane_the_next_asks_right_behind_the_release() {
    let mut relay = Relay::of(4, true, Some(Lane::EventLoop)).await;
    relay.open().await;
    let asked = relay.t.asked();
    relay.release().await;
    assert_eq!(relay.holders.len(), 1, "before the release is answered");
    // The message of that release comes late, and wakes nobody.
    relay.answer().await;
    relay.tell().await;
    assert_eq!(relay.t.asked(), asked + 1);
    // A message that comes later is of something else, such as a forced release.
    sleep(Duration::from_millis(100)).await;
    relay.tell().await;
    assert_eq!(relay.t.asked(), asked + 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_lane_the_next_asks_when_the_release_has_ended() {
    let mut relay = Relay::of(3, true, None).await;
    relay.open().await;
    relay.release().await;
    assert!(relay.holders.is_empty());
    relay.answer().await;
    assert_eq!(relay.holders.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_release_in_another_lane_is_heard_of_when_it_has_ended() {
    let mut relay = Relay::of(3, true, Some(Lane::Runtime)).await;
    relay.open().await;
    let queues = relay.t.store.work.queues();
    let asked = relay.t.asked();
    queues.release_sent(&key(), Some(Lane::EventLoop));
    settle().await;
    assert_eq!(relay.t.asked(), asked);
    queues.release_ended(&key());
    settle().await;
    assert_eq!(relay.t.asked(), asked + 1);
}

#[tokio::test(start_paused = true)]
async fn four_times_a_second_all_processes_have_the_same_chance() {
    let mut relay = Relay::of(10, true, Some(Lane::EventLoop)).await;
    relay.open().await;
    for _ in 0..4 {
        relay.release().await;
        assert_eq!(relay.holders.len(), 1);
    }
    sleep(Duration::from_millis(250)).await;
    relay.open().await;
    relay.release().await;
    assert_eq!(relay.holders.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn while_others_want_the_lock_it_is_never_handed_over() {
    let mut relay = Relay::of(5, false, Some(Lane::EventLoop)).await;
    assert!(relay.holders.is_empty(), "somebody else has it");
    *relay.t.store.free_at.lock().unwrap() = relay.t.start;
    relay.tell().await;
    relay.open().await;
    relay.open().await;
    // After a second without them, it is.
    sleep(S(1)).await;
    relay.open().await;
    relay.release().await;
    assert_eq!(relay.holders.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_of_several_who_has_had_the_lock_lately_asks_a_little_later() {
    let mut relay = Relay::of(2, false, Some(Lane::EventLoop)).await;
    // Others have it twice, and then this process has it.
    for is_free in [false, false, true] {
        sleep(S(1)).await;
        if is_free {
            *relay.t.store.free_at.lock().unwrap() = relay.t.start;
        }
        let asked = relay.t.asked();
        relay.tell().await;
        assert_eq!(relay.t.asked(), asked + 1);
    }
    assert_eq!(relay.holders.len(), 1);
    sleep(S(1)).await;
    relay.release().await;
    relay.answer().await;
    let asked = relay.t.asked();
    relay.tell().await;
    assert_eq!(relay.t.asked(), asked);
    sleep(S(1) / 100).await;
    relay.look().await;
    assert_eq!(relay.t.asked(), asked + 1);
    assert_eq!(relay.holders.len(), 1);
}

/// Tells of a lock when it is told to.
pub(super) struct Server(pub(super) Messages);

struct Connection(Vec<StoreMessage>, UnboundedReceiver<StoreMessage>);

#[async_trait]
impl Listen for Server {
    async fn open(&self) -> Result<Box<dyn Listener>, Error> {
        let (sender, heard) = unbounded_channel();
        *self.0.lock().unwrap() = Some(sender);
        Ok(Box::new(Connection(Vec::new(), heard)))
    }
}

#[async_trait]
impl Listener for Connection {
    async fn change(&mut self, names: &[(Arc<str>, bool)]) -> Result<(), Error> {
        for (name, is_wanted) in names {
            if *is_wanted {
                self.0
                    .push(StoreMessage::Listening(name.as_ref().to_owned()));
            }
        }
        Ok(())
    }

    async fn test(&mut self) -> Result<(), Error> {
        self.0.push(StoreMessage::Alive);
        Ok(())
    }

    async fn next(&mut self) -> Result<StoreMessage, Error> {
        if let Some(heard) = self.0.pop() {
            return Ok(heard);
        }
        match self.1.recv().await {
            Some(heard) => Ok(heard),
            None => pending().await,
        }
    }
}
