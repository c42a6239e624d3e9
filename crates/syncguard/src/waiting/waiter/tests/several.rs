//! Those who wait for several keys at once.

use std::collections::HashMap;

use super::*;
use crate::asking::request::ReleaseRequest;
use crate::values::claim::Slots;

/// A store of many keys, by key the lock id that holds it.
#[derive(Debug, Default)]
struct Keys {
    work: Work,
    held: Mutex<HashMap<Key, LockId>>,
    /// For which keys it was asked, in order.
    asked: Mutex<Vec<String>>,
    /// How many questions are on their way to it, and how many were at most.
    on_their_way: Mutex<(usize, usize)>,
}

#[async_trait]
impl Backend for Keys {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "test",
            supports_fencing: true,
            time_authority: TimeAuthority::Server,
        }
    }

    fn work(&self) -> &Work {
        &self.work
    }

    async fn run(&self, operation: &Operation) -> Result<Outcome, Error> {
        if let Operation::Acquire(_) = operation {
            let mut on_their_way = self.on_their_way.lock().unwrap();
            on_their_way.0 += 1;
            on_their_way.1 = on_their_way.1.max(on_their_way.0);
        }
        settle().await;
        if let Operation::Acquire(_) = operation {
            self.on_their_way.lock().unwrap().0 -= 1;
        }
        let mut held = self.held.lock().unwrap();
        Ok(match operation {
            Operation::Acquire(request) => Outcome::Acquire(self.acquire(&mut held, request)),
            Operation::Release(ReleaseRequest { lock_ids, .. }) => {
                held.retain(|_, holder| !lock_ids.contains(holder));
                let released = lock_ids.iter().map(|_| ReleaseOutcome::Released);
                Outcome::Release(released.collect())
            }
            other => panic!("{other:?} is not asked here"),
        })
    }

    async fn shut_down(&self) {}
}

impl Keys {
    fn acquire(&self, held: &mut HashMap<Key, LockId>, request: &AcquireRequest) -> AcquireOutcome {
        let names = request.claims.iter().map(|claim| claim.key.as_str());
        self.asked.lock().unwrap().push(names.collect());
        let mut grants = Batch::new();
        for (claim, wanted) in request.claims.iter().enumerate() {
            let numbers = wanted.slots.map_or(0..=0, |slots| 1..=slots.count());
            let mut keys = numbers.map(|number| match number {
                0 => (wanted.key.clone(), None),
                number => (wanted.key.slot(number), Some(number)),
            });
            let taken = |key: &Key| {
                held.contains_key(key) || grants.iter().any(|(granted, _)| granted == key)
            };
            let Some((key, slot)) = keys.find(|(key, _)| !taken(key)) else {
                return AcquireOutcome::Locked {
                    claim,
                    free_in: None,
                    labels: crate::values::labels::Labels::default(),
                };
            };
            let grant = Grant {
                lock_id: wanted.lock_id.clone(),
                slot,
                fence: Fence::from_counter(1).unwrap(),
                expires_at_ms: 1,
            };
            grants.push((key, grant));
        }
        let grants: Vec<(Key, Grant)> = grants.into_iter().collect();
        for (key, grant) in &grants {
            held.insert(key.clone(), grant.lock_id.clone());
        }
        AcquireOutcome::Acquired(grants.into_iter().map(|(_, grant)| grant).collect())
    }
}

struct Scene {
    store: Arc<Keys>,
    backend: Arc<dyn Backend>,
}

impl Scene {
    fn new() -> Self {
        let store = Arc::<Keys>::default();
        let backend = Arc::clone(&store) as _;
        Self { store, backend }
    }

    /// Waits for what is claimed, holds it for a while, and gives when it was granted.
    fn hold(&self, claims: Vec<Claim>, held: Duration) -> JoinHandle<Duration> {
        let backend = Arc::clone(&self.backend);
        let start = Instant::now();
        tokio::spawn(async move {
            let options = LockOptions {
                retry: patient(),
                ..LockOptions::default()
            };
            let guard = lock(&backend, claims, &options).await.unwrap();
            let granted = start.elapsed();
            sleep(held).await;
            guard.release().await.unwrap();
            granted
        })
    }
}

fn claims(names: &[&str]) -> Vec<Claim> {
    let claim = |name: &&str| Claim::new(Key::new(name).unwrap()).unwrap();
    names.iter().map(claim).collect()
}

const S: Duration = Duration::from_secs(1);

/// Lets those who were started take their places.
async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

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
async fn nobody_passes_one_who_waits_for_several() {
    let t = Scene::new();
    let holder = t.hold(claims(&["b"]), S);
    settle().await;
    let both = t.hold(claims(&["a", "b"]), S);
    settle().await;
    // All of them wait only for what is free, but came later.
    let singles: Vec<_> = (0..5).map(|_| t.hold(claims(&["a"]), S / 10)).collect();
    holder.await.unwrap();
    let both = both.await.unwrap();
    for single in singles {
        assert!(single.await.unwrap() > both);
    }
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

fn slot_of(count: u16) -> Claim {
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
async fn nobody_passes_one_who_waits_for_a_slot_and_a_key() {
    let t = Scene::new();
    let holder = t.hold(claims(&["a"]), S);
    settle().await;
    let both = t.hold(vec![claims(&["a"]).remove(0), slot_of(2)], S);
    settle().await;
    // There is room for it, but it came later.
    let one = t.hold(vec![slot_of(2)], S);
    assert_eq!(seconds(vec![holder, both, one]).await, [0, 1, 1]);
    let asked = t.store.asked.lock().unwrap().clone();
    assert_eq!(asked, ["a", "as", "as", "s"]);
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
