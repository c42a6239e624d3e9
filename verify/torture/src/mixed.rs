//! PostgreSQL with two libraries on the same tables: ours, and one that reads, decides and then writes whatever it has
//! decided, as docs/format.md, "PostgreSQL", says of SyncGuard for TypeScript. Only the advisory lock keeps the two
//! apart.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Capabilities, Claim, Error, ErrorKind, Fence, Grant,
    Operation, Outcome, TIME_TOLERANCE_MS, Watch, Work, make_storage_key,
};
use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_postgres::{Client, NoTls};

/// Every second acquisition is the other library's.
pub(crate) struct Mixed {
    ours: Arc<dyn Backend>,
    theirs: Vec<Mutex<Client>>,
    next: AtomicUsize,
}

/// How many transactions of the other library run at a time.
const CLIENTS: usize = 4;

const READ: &str = "SELECT
    (SELECT expires_at_ms FROM syncguard_locks WHERE key = $1),
    coalesce((SELECT fence FROM syncguard_fence_counters WHERE fence_key = $2), 0),
    floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

const COUNT: &str = "INSERT INTO syncguard_fence_counters (fence_key, fence) VALUES ($1, $2)
    ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence";

const WRITE: &str = "INSERT INTO syncguard_locks
    (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms,
      acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence";

impl Mixed {
    pub(crate) async fn open(ours: Arc<dyn Backend>, url: &str) -> Result<Self, Error> {
        let mut theirs = Vec::new();
        for _ in 0..CLIENTS {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(failed)?;
            tokio::spawn(connection);
            theirs.push(Mutex::new(client));
        }
        Ok(Self {
            ours,
            theirs,
            next: AtomicUsize::new(0),
        })
    }

    async fn acquire_as_they_do(
        client: &mut Client,
        request: &AcquireRequest,
        is_slow: bool,
    ) -> Result<AcquireOutcome, tokio_postgres::Error> {
        let key = request.claims[0].key.as_str();
        let (lock, fence) = names(key);
        let ours = client.transaction().await?;
        let advisory = "SELECT pg_advisory_xact_lock(hashtext($1))";
        ours.query(advisory, &[&lock]).await?;
        let row = ours.query_one(READ, &[&lock, &fence]).await?;
        let (held, counter, now_ms): (Option<i64>, i64, i64) = (row.get(0), row.get(1), row.get(2));
        if held.is_some_and(|expires_at_ms| expires_at_ms > now_ms - TIME_TOLERANCE_MS) {
            return Ok(AcquireOutcome::Locked {
                claim: 0,
                free_in: None,
                labels: syncguard::Labels::default(),
                is_shared: false,
            });
        }
        let Ok(granted) = Fence::from_counter(counter + 1) else {
            return Ok(AcquireOutcome::Locked {
                claim: 0,
                free_in: None,
                labels: syncguard::Labels::default(),
                is_shared: false,
            });
        };
        let expires_at_ms = now_ms + request.ttl.as_millis();
        ours.execute(COUNT, &[&fence, &(counter + 1)]).await?;
        let (id, text) = (request.claims[0].lock_id.as_str(), granted.to_string());
        ours.execute(WRITE, &[&lock, &id, &expires_at_ms, &now_ms, &text, &key])
            .await?;
        // Now and then a process is slow. Whoever looks meanwhile still sees the old lock.
        if is_slow {
            sleep(Duration::from_millis(1)).await;
        }
        ours.commit().await?;
        Ok(AcquireOutcome::one(Grant {
            lock_id: request.claims[0].lock_id.clone(),
            slot: None,
            fence: granted,
            expires_at_ms,
        }))
    }
}

/// Whether it asks for one lock, and for no gate: the other library knows no gates.
fn is_one(request: &AcquireRequest) -> bool {
    let claim = request.single();
    claim.is_some_and(|claim| claim.key.slot_number().is_none())
}

/// The storage key and the fence key: the keys of these runs are short.
fn names(key: &str) -> (String, String) {
    let lock = make_storage_key("", key, 1700, 0).unwrap_or_default();
    let fence = format!("fence:{lock}");
    (lock, fence)
}

fn failed(error: tokio_postgres::Error) -> Error {
    Error::new(ErrorKind::ServiceUnavailable, "the other library failed")
        .with_source(error)
        .with_unknown_outcome()
}

impl fmt::Debug for Mixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mixed")
    }
}

#[async_trait]
impl Backend for Mixed {
    fn capabilities(&self) -> Capabilities {
        self.ours.capabilities()
    }

    fn work(&self) -> &Work {
        self.ours.work()
    }

    fn operation_timeout(&self) -> Duration {
        self.ours.operation_timeout()
    }

    fn heartbeats_at_once(&self) -> usize {
        self.ours.heartbeats_at_once()
    }

    fn prepare(&self, request: &mut AcquireRequest) {
        self.ours.prepare(request);
    }

    fn watch(&self, claim: &Claim) -> Option<Watch> {
        self.ours.watch(claim)
    }

    async fn run(&self, operation: &Operation) -> Result<Outcome, Error> {
        // The other library takes one lock at a time.
        let request = match operation {
            Operation::Acquire(request) if is_one(request) => request,
            _ => return self.ours.run(operation).await,
        };
        let turn = self.next.fetch_add(1, Relaxed);
        match self.theirs.get(turn / 2 % CLIENTS) {
            Some(client) if turn.is_multiple_of(2) => {
                let mut client = client.lock().await;
                let answer =
                    Self::acquire_as_they_do(&mut client, request, turn.is_multiple_of(8)).await;
                answer.map(Outcome::Acquire).map_err(failed)
            }
            _ => self.ours.run(operation).await,
        }
    }

    async fn shut_down(&self) {
        self.ours.shut_down().await;
    }
}
