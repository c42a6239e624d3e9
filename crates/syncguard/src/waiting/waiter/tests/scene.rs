//! A store of many keys, and those who want some of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::*;
use crate::asking::outcome::ExtendOutcome;
use crate::asking::request::{Extension, ReleaseRequest};

/// A store of many keys, by key the lock id that holds it.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pub(super) work: Work,
    pub(super) held: Mutex<HashMap<Key, LockId>>,
    /// When those end that were granted; without one, a lock lasts for ever.
    ends: Mutex<HashMap<LockId, Instant>>,
    /// For which keys it was asked, in order.
    pub(super) asked: Mutex<Vec<String>>,
    /// How many questions are on their way to it, and how many were at most.
    pub(super) on_their_way: Mutex<(usize, usize)>,
    /// Whether those who hold what was asked for are readers.
    pub(super) is_read: AtomicBool,
    /// How many locks each extension was of, and for how long.
    pub(super) extended: Mutex<Vec<(usize, Ttl)>>,
    /// How extensions go wrong.
    pub(super) extensions: Mutex<Option<ExtensionFault>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExtensionFault {
    /// They never reach the store.
    Unheard,
    Refused,
    /// They happen, and their answers are lost.
    Unanswered,
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
        let fault = *self.extensions.lock().unwrap();
        match fault.filter(|_| matches!(operation, Operation::Extend(_))) {
            Some(ExtensionFault::Unheard) => std::future::pending::<()>().await,
            Some(ExtensionFault::Refused) => {
                return Err(Error::new(ErrorKind::ServiceUnavailable, "gone"));
            }
            Some(ExtensionFault::Unanswered) | None => {}
        }
        if let Operation::Acquire(_) = operation {
            self.on_their_way.lock().unwrap().0 -= 1;
        }
        let mut held = self.held.lock().unwrap();
        let mut ends = self.ends.lock().unwrap();
        let lasts = |id: &LockId| ends.get(id).is_none_or(|end| Instant::now() < *end);
        held.retain(|_, holder| lasts(holder));
        Ok(match operation {
            Operation::Acquire(request) => {
                let end = Instant::now() + request.ttl.as_duration();
                ends.extend(request.lock_ids().into_iter().map(|id| (id, end)));
                Outcome::Acquire(self.acquire(&mut held, request))
            }
            Operation::Extend(Extension { lock_ids, ttl, .. }) => {
                self.extended.lock().unwrap().push((lock_ids.len(), *ttl));
                let is_held = |id: &LockId| held.values().any(|holder| holder == id);
                if let Some(lock) = lock_ids.iter().position(|id| !is_held(id)) {
                    let absence = Absence::NotFound;
                    return Ok(Outcome::Extend(ExtendOutcome::Absent { lock, absence }));
                }
                let end = Instant::now() + ttl.as_duration();
                ends.extend(lock_ids.iter().map(|id| (id.clone(), end)));
                if fault == Some(ExtensionFault::Unanswered) {
                    let error = Error::new(ErrorKind::NetworkTimeout, "the answer is lost");
                    return Err(error.with_unknown_outcome());
                }
                Outcome::Extend(ExtendOutcome::Extended { expires_at_ms: 2 })
            }
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
            let numbers = wanted.kind.slots().map_or(0..=0, |slots| 1..=slots.count());
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
                    is_shared: self.is_read.load(SeqCst),
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

pub(super) struct Scene {
    pub(super) store: Arc<Keys>,
    pub(super) backend: Arc<dyn Backend>,
}

impl Scene {
    pub(super) fn new() -> Self {
        let store = Arc::<Keys>::default();
        let backend = Arc::clone(&store) as _;
        Self { store, backend }
    }

    /// From now on extensions go wrong in this way, or not any more.
    pub(super) fn extensions_are(&self, fault: Option<ExtensionFault>) {
        *self.store.extensions.lock().unwrap() = fault;
    }

    /// Waits for what is claimed, holds it for a while, and gives when it was granted.
    pub(super) fn hold(&self, claims: Vec<Claim>, held: Duration) -> JoinHandle<Duration> {
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

pub(super) fn claims(names: &[&str]) -> Vec<Claim> {
    let claim = |name: &&str| Claim::new(Key::new(name).unwrap()).unwrap();
    names.iter().map(claim).collect()
}

pub(super) const S: Duration = Duration::from_secs(1);

/// Lets those who were started take their places.
pub(super) async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}
