//! What the nodes of a cluster hold, and which scripts are sent to them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use syncguard::redis::{
    ClientPrefix, Plan, RedisBackend, RedisConfig, RedisLocks, Reply, Transport, key_slot,
};
use syncguard::{
    AcquireRequest, Error, ErrorKind, ExtendOutcome, LockId, Lookup, ReleaseOutcome, Ttl,
};

use crate::stage::{backend, backend_with, name_on, names_of, slot_of};
use crate::support::attempts::Attempts as _;
use crate::support::locks::{acquire, key, prepared, ttl};
use crate::support::redis_cluster::RedisCluster;
use crate::support::resp::{Answer, Resp};
use crate::support::suite::tests;

tests![
    a_lock_is_on_one_node_and_its_id_says_where,
    locks_are_on_all_nodes,
    a_lock_id_from_elsewhere_finds_its_lock,
    ones_own_lock_takes_one_script,
    a_lock_id_of_another_shard_is_refused,
    a_prefix_with_a_hash_tag_keeps_all_locks_together,
    a_clients_own_prefix_stands_before_all_keys,
    a_prefix_that_only_the_client_knows_works,
    an_index_that_leads_elsewhere_frees_nothing,
    forced_releases_and_clean_ups_remove_the_index_too,
    what_is_not_a_lock_is_left_alone,
];

/// The connections to the three primaries.
pub(crate) fn primaries(cluster: &RedisCluster) -> Vec<Resp> {
    cluster.nodes[..3]
        .iter()
        .map(|node| node.connect())
        .collect()
}

pub(crate) fn at<'a>(primaries: &'a mut [Resp], name: &str) -> &'a mut Resp {
    &mut primaries[RedisCluster::first_owner(key_slot(name))]
}

fn exists(primaries: &mut [Resp], name: &str) -> bool {
    at(primaries, name).call(&["EXISTS", name]).int() == 1
}

/// How many scripts have run since the last time.
pub(crate) fn scripts(primaries: &mut [Resp]) -> u64 {
    let count = |raw: &mut Resp| {
        let stats = raw.call(&["INFO", "commandstats"]).text().to_owned();
        raw.call(&["CONFIG", "RESETSTAT"]);
        let lines = stats
            .lines()
            .filter(|line| line.starts_with("cmdstat_eval"));
        let calls = lines.filter_map(|line| {
            line.split_once("calls=")?
                .1
                .split(',')
                .next()?
                .parse::<u64>()
                .ok()
        });
        calls.sum::<u64>()
    };
    primaries.iter_mut().map(count).sum()
}

async fn a_lock_is_on_one_node_and_its_id_says_where() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    let mut raw = primaries(&cluster);
    for number in 0..20 {
        let name = format!("job:{number}");
        let grant = acquire(backend.as_ref(), &name).await;
        let names = names_of(backend.as_ref(), &name);
        let start = &names[0][..names[0].len() - name.len()];
        assert!(
            start.starts_with("{syncguard:") && start.ends_with("}:"),
            "{start}"
        );
        let index = format!("{start}id:{}", grant.lock_id.as_str());
        let fence = format!("{start}fence:{}", names[0]);
        assert_eq!(names[2], fence);
        assert_eq!(at(&mut raw, &index).call(&["GET", &index]).text(), names[0]);
        let counter = at(&mut raw, &fence).call(&["GET", &fence]);
        assert_eq!(counter.text(), grant.fence.get().to_string());
        let stored = at(&mut raw, &names[0]).call(&["GET", &names[0]]);
        assert!(
            stored
                .text()
                .starts_with(&format!("{{\"lockId\":\"{}\"", grant.lock_id.as_str()))
        );
    }
}

async fn locks_are_on_all_nodes() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    for number in 0..60 {
        acquire(backend.as_ref(), &number.to_string()).await;
    }
    for raw in &mut primaries(&cluster) {
        assert!(raw.call(&["DBSIZE"]).int() > 3);
    }
    let slots: HashSet<_> = (0..1000)
        .map(|number| slot_of(backend.as_ref(), &number.to_string()))
        .collect();
    assert!((200..=256).contains(&slots.len()), "{}", slots.len());
}

async fn a_lock_id_from_elsewhere_finds_its_lock() {
    let cluster = RedisCluster::start();
    let (ours, theirs) = (backend(&cluster.url()), backend(&cluster.url()));
    for number in 0..10 {
        let name = number.to_string();
        let id = acquire(ours.as_ref(), &name).await.lock_id;
        let found = theirs.lookup(&Lookup::LockId(id.clone())).await.unwrap();
        assert_eq!(found.unwrap().key, key(&name));
        let theirs = backend(&cluster.url());
        let extended = theirs.extend(&id, ttl(60_000)).await.unwrap();
        assert!(matches!(extended, ExtendOutcome::Extended { .. }));
        let theirs = backend(&cluster.url());
        assert_eq!(theirs.release(&id).await.unwrap(), ReleaseOutcome::Released);
        assert!(!ours.is_locked(&key(&name)).await.unwrap());
    }
    let nobodys = LockId::generate().unwrap();
    assert!(matches!(
        ours.release(&nobodys).await.unwrap(),
        ReleaseOutcome::Absent(_)
    ));
    assert!(matches!(
        ours.extend(&nobodys, ttl(1)).await.unwrap(),
        ExtendOutcome::Absent { .. }
    ));
    assert_eq!(ours.lookup(&Lookup::LockId(nobodys)).await.unwrap(), None);
}

async fn ones_own_lock_takes_one_script() {
    let cluster = RedisCluster::start();
    let (ours, theirs) = (backend(&cluster.url()), backend(&cluster.url()));
    let mut raw = primaries(&cluster);
    // The scripts become known to all nodes.
    for primary in 0..3 {
        let name = name_on(ours.as_ref(), primary);
        for backend in [&ours, &theirs] {
            let id = acquire(ours.as_ref(), &name).await.lock_id;
            backend.extend(&id, ttl(60_000)).await.unwrap();
            backend.is_locked(&key(&name)).await.unwrap();
            backend.lookup(&Lookup::LockId(id.clone())).await.unwrap();
            backend.release(&id).await.unwrap();
        }
    }
    scripts(&mut raw);
    let id = acquire(ours.as_ref(), "k").await.lock_id;
    assert_eq!(scripts(&mut raw), 1);
    ours.extend(&id, ttl(60_000)).await.unwrap();
    assert_eq!(scripts(&mut raw), 1);
    ours.is_locked(&key("k")).await.unwrap();
    assert_eq!(scripts(&mut raw), 1);
    ours.lookup(&Lookup::LockId(id.clone())).await.unwrap();
    assert_eq!(scripts(&mut raw), 1);
    // Somebody else finds out first where the lock is, and knows it then.
    theirs.extend(&id, ttl(60_000)).await.unwrap();
    assert_eq!(scripts(&mut raw), 2);
    theirs.extend(&id, ttl(60_000)).await.unwrap();
    assert_eq!(scripts(&mut raw), 1);
    ours.release(&id).await.unwrap();
    assert_eq!(scripts(&mut raw), 1);
}

async fn a_lock_id_of_another_shard_is_refused() {
    let cluster = RedisCluster::start();
    let backend = backend(&cluster.url());
    let fits = prepared(backend.as_ref(), &key("k"), Ttl::DEFAULT);
    let mut again = fits.clone();
    backend.prepare(&mut again);
    assert_eq!(
        again.claims[0].lock_id, fits.claims[0].lock_id,
        "it fits already"
    );
    let shard = fits.claims[0].lock_id.as_str()[..1].to_owned();
    let mut other = fits.clone();
    let first = if shard == "A" { "B" } else { "A" };
    other.claims[0].lock_id =
        LockId::parse(&format!("{first}{}", &fits.claims[0].lock_id.as_str()[1..])).unwrap();
    let error = backend.acquire(&other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().starts_with("lockId"), "{error}");
    assert!(!error.is_outcome_unknown());
    assert!(!backend.is_locked(&key("k")).await.unwrap());
    assert!(!backend.acquire(&fits).await.unwrap().is_locked());
}

async fn a_prefix_with_a_hash_tag_keeps_all_locks_together() {
    let cluster = RedisCluster::start();
    let backend = backend_with(&cluster.url(), |config| {
        config.locks.key_prefix = "{locks}".into()
    });
    let mut raw = primaries(&cluster);
    for number in 0..10 {
        let name = number.to_string();
        let grant = acquire(backend.as_ref(), &name).await;
        let index = format!("{{locks}}:id:{}", grant.lock_id.as_str());
        assert!(exists(&mut raw, &format!("{{locks}}:{name}")) && exists(&mut raw, &index));
        assert!(exists(
            &mut raw,
            &format!("{{locks}}:fence:{{locks}}:{name}")
        ));
        assert_eq!(
            backend.release(&grant.lock_id).await.unwrap(),
            ReleaseOutcome::Released
        );
        // Whatever the lock id begins with.
        let request = AcquireRequest::new(key(&name), Ttl::DEFAULT).unwrap();
        assert!(!backend.acquire(&request).await.unwrap().is_locked());
        assert!(backend.force_release(&key(&name)).await.unwrap());
    }
}

async fn a_clients_own_prefix_stands_before_all_keys() {
    let cluster = RedisCluster::start();
    let backend = backend_with(&cluster.url(), |config| {
        config.client_key_prefix = "app:".into()
    });
    let other = backend_with(&cluster.url(), |config| {
        config.client_key_prefix = "app:".into()
    });
    let mut raw = primaries(&cluster);
    let names = names_of(backend.as_ref(), "k");
    let lock = format!("app:{}", names[0]);
    for _ in 0..2 {
        let id = acquire(backend.as_ref(), "k").await.lock_id;
        let index = format!("app:{}{}", &names[1][..names[1].len() - 22], id.as_str());
        assert!(exists(&mut raw, &lock));
        assert_eq!(at(&mut raw, &index).call(&["GET", &index]).text(), lock);
        assert!(
            other
                .lookup(&Lookup::LockId(id.clone()))
                .await
                .unwrap()
                .is_some()
        );
        // As a client writes it that prefixes keys and not arguments.
        at(&mut raw, &index).call(&["SET", &index, &names[0]]);
        backend.extend(&id, ttl(60_000)).await.unwrap();
        assert_eq!(at(&mut raw, &index).call(&["GET", &index]).text(), lock);
        at(&mut raw, &index).call(&["SET", &index, &names[0]]);
        let stranger = backend_with(&cluster.url(), |config| {
            config.client_key_prefix = "app:".into()
        });
        assert_eq!(
            stranger.release(&id).await.unwrap(),
            ReleaseOutcome::Released
        );
        assert!(!exists(&mut raw, &lock) && !exists(&mut raw, &index));
    }
    acquire(backend.as_ref(), "k").await;
    assert!(backend.force_release(&key("k")).await.unwrap());
    assert!(!exists(&mut raw, &lock));
}

/// A client that puts a prefix before all keys and follows the slots by itself.
#[derive(Debug)]
struct Client(Mutex<Vec<Primary>>);

struct Primary(Resp);

impl std::fmt::Debug for Primary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Primary")
    }
}

#[async_trait]
impl Transport for Client {
    async fn run(&self, plan: Plan) -> Result<Reply, Error> {
        let keys: Vec<_> = plan.keys().map(|key| format!("theirs:{key}")).collect();
        let count = keys.len().to_string();
        let head = ["EVAL", plan.script().source(), &count];
        let words: Vec<&str> = head
            .into_iter()
            .chain(keys.iter().map(String::as_str))
            .chain(plan.args())
            .collect();
        let owner = RedisCluster::first_owner(key_slot(&keys[0]));
        Ok(reply(self.0.lock().unwrap()[owner].0.call(&words)))
    }

    fn is_cluster(&self) -> bool {
        true
    }
}

fn reply(answer: Answer) -> Reply {
    match answer {
        Answer::Nil => Reply::Nil,
        Answer::Int(number) => Reply::Int(number),
        Answer::Text(text) => Reply::Bulk(text.into_bytes()),
        Answer::List(items) => Reply::Array(items.into_iter().map(reply).collect()),
        Answer::Error(words) => panic!("{words}"),
    }
}

async fn a_prefix_that_only_the_client_knows_works() {
    let cluster = RedisCluster::start();
    let client = || {
        let client = Client(Mutex::new(
            primaries(&cluster).into_iter().map(Primary).collect(),
        ));
        let locks = RedisLocks {
            cleanup_in_is_locked: true,
            ..RedisLocks::default()
        };
        RedisBackend::over(Arc::new(client), ClientPrefix::Theirs, &locks).unwrap()
    };
    let (ours, same) = (
        client(),
        backend_with(&cluster.url(), |config| {
            config.client_key_prefix = "theirs:".into()
        }),
    );
    for number in 0..5 {
        let name = number.to_string();
        let id = acquire(&ours, &name).await.lock_id;
        assert!(same.is_locked(&key(&name)).await.unwrap());
        // A client that did not take the lock asks where it is, and is told the name as it is to send it.
        let theirs = client();
        assert!(
            theirs
                .lookup(&Lookup::LockId(id.clone()))
                .await
                .unwrap()
                .is_some()
        );
        let extended = theirs.extend(&id, ttl(60_000)).await.unwrap();
        assert!(matches!(extended, ExtendOutcome::Extended { .. }));
        assert_eq!(
            client().release(&id).await.unwrap(),
            ReleaseOutcome::Released
        );
        assert!(!ours.is_locked(&key(&name)).await.unwrap());
        acquire(&ours, &name).await;
        assert!(client().force_release(&key(&name)).await.unwrap());
    }
    for raw in &mut primaries(&cluster) {
        let keys = raw.call(&["KEYS", "*"]);
        assert!(
            keys.list().iter().all(|key| key.text().contains(":fence:")),
            "{keys:?}"
        );
    }
}

async fn an_index_that_leads_elsewhere_frees_nothing() {
    let cluster = RedisCluster::start();
    let (ours, theirs) = (backend(&cluster.url()), backend(&cluster.url()));
    let mut raw = primaries(&cluster);
    let grant = acquire(ours.as_ref(), "k").await;
    let names = names_of(ours.as_ref(), "k");
    // Of the same shard, leads to our lock.
    let stranger = prepared(ours.as_ref(), &key("k"), Ttl::DEFAULT).claims[0]
        .lock_id
        .clone();
    let index = format!("{}{}", &names[1][..names[1].len() - 22], stranger.as_str());
    at(&mut raw, &index).call(&["SET", &index, &names[0]]);
    assert!(matches!(
        theirs.release(&stranger).await.unwrap(),
        ReleaseOutcome::Absent(_)
    ));
    assert!(matches!(
        theirs.extend(&stranger, ttl(1)).await.unwrap(),
        ExtendOutcome::Absent { .. }
    ));
    assert_eq!(
        theirs
            .lookup(&Lookup::LockId(stranger.clone()))
            .await
            .unwrap(),
        None
    );
    // Leads out of the shard.
    at(&mut raw, &index).call(&["SET", &index, "{syncguard:zz}:k"]);
    let error = backend(&cluster.url())
        .release(&stranger)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    // Our own leads to another lock than the one that we took: it is found anew.
    let own = format!(
        "{}{}",
        &names[1][..names[1].len() - 22],
        grant.lock_id.as_str()
    );
    let moved = format!("{}-moved", names[0]);
    at(&mut raw, &own).call(&["SET", &own, &moved]);
    at(&mut raw, &own).call(&["RENAME", &names[0], &moved]);
    assert_eq!(
        ours.release(&grant.lock_id).await.unwrap(),
        ReleaseOutcome::Released
    );
    assert!(!exists(&mut raw, &moved) && !exists(&mut raw, &own));
}

async fn forced_releases_and_clean_ups_remove_the_index_too() {
    let cluster = RedisCluster::start();
    let backend = backend_with(&cluster.url(), |config| {
        config.locks.cleanup_in_is_locked = true
    });
    let mut raw = primaries(&cluster);
    let names = names_of(backend.as_ref(), "k");
    let grant = acquire(backend.as_ref(), "k").await;
    let index = format!(
        "{}{}",
        &names[1][..names[1].len() - 22],
        grant.lock_id.as_str()
    );
    assert!(backend.is_locked(&key("k")).await.unwrap());
    assert!(exists(&mut raw, &index));
    assert!(backend.force_release(&key("k")).await.unwrap());
    assert!(!backend.force_release(&key("k")).await.unwrap());
    assert!(!exists(&mut raw, &names[0]) && !exists(&mut raw, &index));
    let counter = at(&mut raw, &names[2]).call(&["GET", &names[2]]);
    assert_eq!(counter.text(), grant.fence.get().to_string());
    // As a foreign library may leave them: expired, or without a lock id.
    for (id, has_index) in [
        (format!(r#""{}""#, grant.lock_id.as_str()), true),
        ("7".to_owned(), false),
    ] {
        for forced in [true, false] {
            let lock = format!(
                r#"{{"lockId":{id},"expiresAtMs":1000,"acquiredAtMs":1,"key":"k","fence":"1"}}"#
            );
            at(&mut raw, &names[0]).call(&["SET", &names[0], &lock]);
            at(&mut raw, &index).call(&["SET", &index, &names[0]]);
            match forced {
                true => assert!(!backend.force_release(&key("k")).await.unwrap()),
                false => assert!(!backend.is_locked(&key("k")).await.unwrap()),
            }
            assert!(!exists(&mut raw, &names[0]));
            assert_eq!(exists(&mut raw, &index), !has_index);
        }
    }
}

async fn what_is_not_a_lock_is_left_alone() {
    let cluster = RedisCluster::start();
    let config = |cleanup| {
        let mut config = RedisConfig::from_url(&cluster.url()).unwrap();
        config.locks.cleanup_in_is_locked = cleanup;
        RedisBackend::new(config).unwrap()
    };
    let (backend, cleaning) = (config(false), config(true));
    let mut raw = primaries(&cluster);
    let names = names_of(&backend, "k");
    for value in ["", "hello", "[]", "{}", r#"{"expiresAtMs":"1"}"#] {
        at(&mut raw, &names[0]).call(&["SET", &names[0], value]);
        let request = prepared(&backend, &key("k"), Ttl::DEFAULT);
        for error in [
            backend.acquire(&request).await.err(),
            cleaning.is_locked(&key("k")).await.err(),
            backend.lookup(&Lookup::Key(key("k"))).await.err(),
            backend.force_release(&key("k")).await.err(),
        ] {
            assert_eq!(error.unwrap().kind(), ErrorKind::Internal, "{value}");
        }
        let stored = at(&mut raw, &names[0]).call(&["GET", &names[0]]);
        assert_eq!(stored, Answer::Text(value.to_owned()));
    }
}
