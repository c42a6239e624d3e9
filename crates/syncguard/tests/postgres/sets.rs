//! Many who want several locks at once, some of them the same: nobody blocks another for long, and nobody has a part.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use syncguard::postgres::{PostgresBackend, PostgresConfig, Tables};
use syncguard::{
    Absence, AcquireOutcome, Batch, Claim, Error, ExtendOutcome, Extension, Grant, Labels, LockId,
    Operation, Owner, ReleaseOutcome, Ttl, lock,
};
use tokio::task::{JoinSet, yield_now};
use tokio_postgres::Client;

use crate::canonical::Canonical;
use crate::flights::Proxy;
use crate::groups::{COUNT, all_but_one, at_once, scarce};
use crate::scene::Scene;
use crate::stage::{backend, options, own_tables, server};
use crate::support::attempts::Attempts as _;
use crate::support::claims::{asking, extend, ids, plain, release, slot, take};
use crate::support::locks::{key, ttl};
use crate::support::postgres_server::PostgresServer;
use crate::support::suite::tests;
use crate::support::waiters::{patient, soon};

tests![
    overlapping_sets_neither_block_nor_mix,
    with_two_limits_the_larger_one_holds,
    who_waits_for_a_slot_hears_of_each,
    who_waits_for_several_hears_of_the_last,
    sets_are_extended_together_when_connections_are_short,
    a_set_that_must_wait_delays_no_other_extension,
    sets_are_released_together_when_connections_are_short,
];

const TIME: Duration = Duration::from_secs(4);

/// What is held now, as those who hold it know.
#[derive(Default)]
struct Held(Mutex<HashSet<String>>);

impl Held {
    fn names(claims: &[Claim], grants: &[Grant]) -> Vec<String> {
        let each = claims.iter().zip(grants);
        let each = each.map(|(claim, grant)| format!("{} {:?}", claim.key.as_str(), grant.slot));
        each.collect()
    }

    fn enter(&self, names: &[String]) -> usize {
        let mut held = self.0.lock().unwrap();
        for name in names {
            assert!(held.insert(name.clone()), "two holders of {name}");
        }
        held.len()
    }

    fn leave(&self, names: &[String]) {
        let mut held = self.0.lock().unwrap();
        assert!(names.iter().all(|name| held.remove(name)));
    }
}

/// Takes what is claimed, extends it and frees it, time and again. Tells how often.
async fn take_turns(
    ours: PostgresBackend,
    held: Arc<Held>,
    label: Option<String>,
    claims: impl Fn(usize) -> Vec<Claim>,
) -> usize {
    let begun = Instant::now();
    let mut granted = 0;
    for round in 0.. {
        if begun.elapsed() > TIME {
            break;
        }
        let mut request = asking(&ours, claims(round));
        // Stores may not rely on the order for more than that claims of one key stand together.
        if round % 2 == 0 {
            request.claims.reverse();
        }
        request.labels.owner = label.as_deref().map(|label| Owner::new(label).unwrap());
        let AcquireOutcome::Acquired(grants) = ours.acquire(&request).await.unwrap() else {
            yield_now().await;
            continue;
        };
        let names = Held::names(&request.claims, &grants);
        held.enter(&names);
        granted += 1;
        let extended = extend(&ours, ids(&grants), Ttl::DEFAULT).await;
        assert!(matches!(extended, ExtendOutcome::Extended { .. }));
        held.leave(&names);
        let released = release(&ours, ids(&grants)).await;
        assert!(released.iter().all(|one| *one == ReleaseOutcome::Released));
    }
    granted
}

/// Counts the locks of each label while others are at work: three or none. Tells how often it saw three.
async fn look(client: &Client, tables: &Tables) -> usize {
    let begun = Instant::now();
    let sql = format!(
        "SELECT count(*), user_key FROM {0} GROUP BY 2 HAVING count(*) > 1 UNION ALL \
         SELECT count(*), split_part(owner, ':', 2) FROM {0} WHERE owner <> '' GROUP BY 2",
        tables.locks()
    );
    let mut seen = 0;
    while begun.elapsed() < TIME {
        for row in client.query(&sql, &[]).await.unwrap() {
            assert_eq!(row.get::<_, i64>(0), 3, "a part of what is claimed");
            seen += 1;
        }
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    seen
}

#[expect(
    clippy::too_many_lines,
    reason = "one scene, which many processes share"
)]
async fn overlapping_sets_neither_block_nor_mix() {
    let own = PostgresServer::start();
    let tables = own_tables();
    let with_pool = |pool_size| {
        let config = PostgresConfig {
            pool_size,
            ..own.unix()
        };
        PostgresBackend::new(config, options(&tables)).unwrap()
    };
    with_pool(1).setup_schema().await.unwrap();
    let held = Arc::new(Held::default());
    let name = |number: usize| format!("k{}", number % 6);
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let label = (number < 6).then(|| number.to_string());
        let turns = take_turns(with_pool(2), Arc::clone(&held), label, move |round| {
            let at = number + round;
            match number {
                // Three of six keys; or one, and two of three slots.
                0..5 => [at, at + 1 + round % 2, at + 3 + round % 3]
                    .map(|number| plain(&name(number)))
                    .into(),
                5 => vec![plain(&name(at)), slot("p", 3), slot("p", 3)],
                6 => vec![slot("p", 3)],
                _ => vec![plain(&name(at))],
            }
        });
        tasks.spawn(turns);
    }
    // And who knows nothing of sets, alone and in groups.
    let mut other = Canonical::new(own.client().await, &tables);
    tasks.spawn(async move {
        let begun = Instant::now();
        let mut granted = 0;
        while begun.elapsed() < TIME {
            if let Some(held) = other.acquire(&key(&name(granted)), 60_000).await.unwrap() {
                granted += 1;
                assert!(other.release(&held.lock_id).await.unwrap());
            }
        }
        granted
    });
    let group = Arc::new(with_pool(1));
    tasks.spawn(async move {
        let begun = Instant::now();
        let granted = AtomicUsize::new(0);
        while begun.elapsed() < TIME {
            join_all((0..6).map(async |number| {
                let mut request = asking(&*group, [plain(&name(number))]);
                request.labels = Labels::default();
                if !group.acquire(&request).await.unwrap().is_locked() {
                    granted.fetch_add(1, Ordering::Relaxed);
                    release(&*group, request.lock_ids()).await;
                }
            }))
            .await;
        }
        granted.into_inner()
    });
    let client = own.client().await;
    let seen = look(&client, &tables).await;
    let granted = tasks.join_all().await;
    // How often says how busy the machine is.
    assert!(granted.iter().all(|times| *times > 0), "{granted:?}");
    assert!(seen > 0, "{seen}");
    let left = format!("SELECT count(*) FROM {}", tables.locks());
    assert_eq!(
        client.query_one(&left, &[]).await.unwrap().get::<_, i64>(0),
        0
    );
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    let deadlocks: i64 = client.query_one(deadlocks, &[]).await.unwrap().get(0);
    let log = own.log();
    let errors: Vec<_> = log.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(deadlocks == 0 && errors.is_empty(), "{errors:?}");
}

async fn with_two_limits_the_larger_one_holds() {
    let (ours, tables) = backend(server().unix()).await;
    let ours = Arc::new(ours);
    let held = Arc::new(Held::default());
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let (ours, held) = (Arc::clone(&ours), Arc::clone(&held));
        let limit = if number % 2 == 0 { 2 } else { 5 };
        tasks.spawn(async move {
            let begun = Instant::now();
            let mut most = 0;
            while begun.elapsed() < TIME / 2 {
                let request = asking(&*ours, [slot("limits", limit)]);
                let AcquireOutcome::Acquired(grants) = ours.acquire(&request).await.unwrap() else {
                    continue;
                };
                assert!(grants[0].slot.unwrap() <= limit);
                let names = Held::names(&request.claims, &grants);
                most = most.max(held.enter(&names));
                yield_now().await;
                held.leave(&names);
                release(&*ours, ids(&grants)).await;
            }
            most
        });
    }
    let most = tasks.join_all().await.into_iter().max();
    assert!((3..=5).contains(&most.unwrap()), "{most:?}");
    let sql = format!(
        "SELECT count(*) FROM {} WHERE fence_key LIKE 'fence:limits%'",
        tables.fences()
    );
    let row = server().client().await.query_one(&sql, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 5);
}

async fn who_waits_for_a_slot_hears_of_each() {
    let t = Scene::new("slots in use").await;
    let claim = || slot(t.key("p").as_str(), 2);
    let mut guards = Vec::new();
    for _ in 0..2 {
        guards.push(lock(&t.holder, claim(), &patient()).await.unwrap());
    }
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let (waiter, claim) = (Arc::clone(&t.waiter), claim());
            tokio::spawn(async move {
                let guard = lock(&waiter, claim, &patient()).await.unwrap();
                guard.release().await.unwrap()
            })
        })
        .collect();
    t.until_marked().await;
    // One slot is enough for all, one after the other.
    assert!(guards.remove(0).release().await.unwrap());
    for waiter in waiters {
        assert!(soon(waiter).await.unwrap());
    }
}

async fn who_waits_for_several_hears_of_the_last() {
    let t = Scene::new("several").await;
    let names = ["a", "b", "c"];
    let grants = [t.acquire("a").await, t.acquire("c").await];
    let claims: Vec<_> = names.map(|name| plain(t.key(name).as_str())).into();
    let waiter = Arc::clone(&t.waiter);
    let waiter = tokio::spawn(async move { lock(&waiter, claims, &patient()).await.unwrap() });
    t.until_marked().await;
    for grant in &grants {
        t.holder.release(&grant.lock_id).await.unwrap();
    }
    let guard = soon(waiter).await.unwrap();
    assert_eq!(guard.grants().len(), 3);
}

/// Pairs of locks, of one claim each.
async fn pairs(ours: &PostgresBackend, test: &str) -> Vec<Batch<Grant>> {
    let mut pairs = Vec::new();
    for number in 0..COUNT {
        let claims = [plain(&format!("{test} {number}")), slot(test, 1000)];
        pairs.push(take(ours, claims).await);
    }
    pairs
}

async fn prolong(ours: &PostgresBackend, lock_ids: Batch<LockId>) -> Result<ExtendOutcome, Error> {
    let mut extension = Extension::new(lock_ids, ttl(90_000));
    extension.is_heartbeat = true;
    ours.ask(Operation::Extend(extension)).await
}

async fn sets_are_extended_together_when_connections_are_short() {
    let (beside, tables) = backend(server().unix()).await;
    let proxy = Proxy::start(server().port()).await;
    let config = proxy.config(server().tcp());
    let ours = Arc::new(PostgresBackend::new(config, options(&tables)).unwrap());
    let pairs = pairs(&ours, "together").await;
    // Of some, one lock is gone.
    for pair in &pairs[..5] {
        beside.release(&pair[1].lock_id).await.unwrap();
    }
    let expire = format!(
        "UPDATE {} SET expires_at_ms = 1 WHERE lock_id = $1",
        tables.locks()
    );
    let client = server().client().await;
    for pair in &pairs[5..10] {
        client
            .execute(&expire, &[&pair[0].lock_id.as_str()])
            .await
            .unwrap();
    }
    let all = pairs.iter().map(|pair| {
        let (ours, lock_ids) = (Arc::clone(&ours), ids(pair));
        async move { prolong(&ours, lock_ids).await.unwrap() }
    });
    proxy.take();
    let outcomes = at_once(all).await;
    let flights = proxy.take();
    assert!(flights.requests <= COUNT / 4 + 5, "{flights:?}");
    let absent = |lock, absence| ExtendOutcome::Absent { lock, absence };
    assert!(
        outcomes[..5]
            .iter()
            .all(|one| *one == absent(1, Absence::NotFound))
    );
    assert!(
        outcomes[5..10]
            .iter()
            .all(|one| *one == absent(0, Absence::Expired))
    );
    let is_extended = |one: &_| matches!(one, ExtendOutcome::Extended { .. });
    assert!(outcomes[10..].iter().all(is_extended));
    let sql = format!(
        "SELECT count(*) FROM {} WHERE expires_at_ms > acquired_at_ms + 80000",
        tables.locks()
    );
    let extended: i64 = client.query_one(&sql, &[]).await.unwrap().get(0);
    assert_eq!(usize::try_from(extended), Ok(2 * (COUNT - 10)));
}

/// Somebody else has locked one row of one pair.
async fn a_set_that_must_wait_delays_no_other_extension() {
    let (ours, tables) = scarce("pair", 2).await;
    let pairs = pairs(&ours, "pair").await;
    let open = format!(
        "BEGIN; SELECT FROM {} WHERE key = 'pair 20' FOR UPDATE",
        tables.locks()
    );
    let all = pairs.iter().map(|pair| {
        let (ours, lock_ids) = (Arc::clone(&ours), ids(pair));
        async move { prolong(&ours, lock_ids).await.unwrap() }
    });
    for outcome in all_but_one("pair", &open, all.collect()).await {
        assert!(matches!(outcome, ExtendOutcome::Extended { .. }));
    }
}

async fn sets_are_released_together_when_connections_are_short() {
    let (ours, tables) = scarce("parted", 2).await;
    let mut pairs = pairs(&ours, "parted").await;
    let gone = pairs[3][0].lock_id.clone();
    ours.release(&gone).await.unwrap();
    // One is asked for twice.
    pairs.push(pairs[4].clone());
    let open = format!(
        "BEGIN; SELECT FROM {} WHERE key = 'parted 20' FOR UPDATE",
        tables.locks()
    );
    let all = pairs.iter().map(|pair| {
        let (ours, lock_ids) = (Arc::clone(&ours), ids(pair));
        async move {
            let outcome: Batch<ReleaseOutcome> = ours
                .ask(Operation::Release(lock_ids.clone().into()))
                .await
                .unwrap();
            (lock_ids, outcome)
        }
    });
    let mut twice = Vec::new();
    for (lock_ids, outcome) in all_but_one("parted", &open, all.collect()).await {
        let absent = ReleaseOutcome::Absent(Absence::NotFound);
        let expected = [
            if lock_ids[0] == gone {
                absent
            } else {
                ReleaseOutcome::Released
            },
            ReleaseOutcome::Released,
        ];
        if lock_ids[0] == pairs[4][0].lock_id {
            twice.push(outcome);
        } else {
            assert_eq!(outcome[..], expected);
        }
    }
    let released = |at: usize| {
        twice
            .iter()
            .filter(|one| one[at] == ReleaseOutcome::Released)
            .count()
    };
    assert_eq!((twice.len(), released(0), released(1)), (2, 1, 1));
    let sql = format!("SELECT count(*) FROM {}", tables.locks());
    let left: i64 = server()
        .client()
        .await
        .query_one(&sql, &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(left, 0);
}
