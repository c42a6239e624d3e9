//! Several locks at once: what is stored, what stands in the way, and what is sent.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{
    Absence, AcquireOutcome, Backend as _, Batch, Claim, ErrorKind, ExtendOutcome, Extension,
    LockId, Lookup, Operation, Outcome, Owner, ReleaseOutcome,
};

use crate::stage::{FOREIGN, Stage, hostile_names, json, scripts};
use crate::support::attempts::Attempts as _;
use crate::support::claims::{asking, extend, ids, plain, release, slot, take, try_take};
use crate::support::link::Link;
use crate::support::locks::ttl;
use crate::support::redis_server::RedisServer;
use crate::support::resp::{Answer, Resp};
use crate::support::suite::tests;

tests![
    each_lock_is_stored_as_if_it_were_alone,
    hostile_names_can_be_claimed,
    several_keys_take_one_script,
    several_keys_take_one_round_trip,
    a_counter_at_its_limit_leaves_nothing,
    what_is_not_a_lock_leaves_nothing,
    what_others_write_stands_in_the_way,
    several_do_to_each_what_one_does,
    a_server_that_lost_its_scripts_gets_them_again,
    one_value_that_is_no_lock_keeps_no_other_from_being_freed,
    a_clients_own_prefix_stands_before_all_keys,
];

/// The names in the database.
fn names(raw: &mut Resp) -> BTreeSet<String> {
    let found = raw.call(&["KEYS", "*"]);
    found
        .list()
        .iter()
        .map(|name| name.text().to_owned())
        .collect()
}

async fn each_lock_is_stored_as_if_it_were_alone() {
    let mut t = Stage::new();
    let before = t.now();
    let mut request = asking(&t.backend, [plain("k"), slot("p", 2), slot("p", 2)]);
    request.labels.owner = Some(Owner::new("me").unwrap());
    let AcquireOutcome::Acquired(grants) = t.backend.acquire(&request).await.unwrap() else {
        panic!("locked");
    };
    let ttl_ms = request.ttl.as_millis();
    let slots: BTreeSet<_> = grants.iter().map(|grant| grant.slot).collect();
    assert_eq!(slots, [None, Some(1), Some(2)].into());
    let mut expected = BTreeSet::new();
    for grant in &grants {
        let key = match grant.slot {
            None => "k".to_owned(),
            Some(slot) => format!("p\u{37e}{slot}"),
        };
        let lock = format!("syncguard:{key}");
        let acquired = grant.expires_at_ms - ttl_ms;
        assert!((before..=t.now()).contains(&acquired));
        assert_eq!(
            json(&t.get(&lock)),
            serde_json::json!({
                "lockId": grant.lock_id.as_str(),
                "expiresAtMs": grant.expires_at_ms,
                "acquiredAtMs": acquired,
                "fence": grant.fence.to_string(),
                "key": key,
                "owner": "me",
            })
        );
        let index = format!("syncguard:id:{}", grant.lock_id.as_str());
        let fence = format!("syncguard:fence:{lock}");
        assert_eq!(t.get(&index), lock);
        assert_eq!(t.get(&fence), grant.fence.get().to_string());
        for name in [&lock, &index] {
            let expires = t.raw.call(&["PEXPIRETIME", name]).int();
            let late = expires - (grant.expires_at_ms + 1000);
            assert!((0..100).contains(&late), "{late}");
        }
        assert_eq!(t.raw.call(&["TTL", &fence]), Answer::Int(-1));
        expected.extend([lock, index, fence]);
    }
    assert_eq!(names(&mut t.raw), expected);
    release(&t.backend, ids(&grants)).await;
    let left = names(&mut t.raw);
    assert!(left.len() == 3 && left.iter().all(|name| name.contains(":fence:")));
}

async fn hostile_names_can_be_claimed() {
    let t = Stage::new();
    let claims = || hostile_names().into_iter().enumerate();
    let claims = || {
        claims().map(|(at, name)| {
            if at % 2 == 0 {
                plain(&name)
            } else {
                slot(&name, 3)
            }
        })
    };
    let request = asking(&t.backend, claims());
    let outcome = t.backend.acquire(&request).await.unwrap();
    let AcquireOutcome::Acquired(grants) = &outcome else {
        panic!("locked");
    };
    for (grant, claim) in grants.iter().zip(&request.claims) {
        let lookup = Lookup::LockId(grant.lock_id.clone());
        let record = t.backend.lookup(&lookup).await.unwrap().unwrap();
        let key = grant
            .slot
            .map_or(claim.key.clone(), |slot| claim.key.slot(slot));
        assert_eq!(record.key, key);
        assert_eq!(record.fence, grant.fence);
        assert!(t.backend.is_locked(&key).await.unwrap());
    }
    assert_eq!(t.backend.acquire(&request).await.unwrap(), outcome);
    let extended = extend(&t.backend, ids(grants), ttl(60_000)).await;
    assert!(matches!(extended, ExtendOutcome::Extended { .. }));
    let released = release(&t.backend, ids(grants)).await;
    assert!(
        released
            .iter()
            .all(|outcome| *outcome == ReleaseOutcome::Released)
    );
}

async fn several_keys_take_one_script() {
    let mut t = Stage::new();
    let claims = || ["a", "b", "c", "d"].map(plain);
    // The server gets to know the scripts.
    let grants = take(&t.backend, claims()).await;
    extend(&t.backend, ids(&grants), ttl(60_000)).await;
    release(&t.backend, ids(&grants)).await;
    scripts(&mut t.raw);
    let grants = take(&t.backend, claims()).await;
    assert_eq!(scripts(&mut t.raw).0, 1);
    assert!(try_take(&t.backend, claims()).await.unwrap().is_locked());
    assert_eq!(scripts(&mut t.raw).0, 1);
    extend(&t.backend, ids(&grants), ttl(60_000)).await;
    assert_eq!(scripts(&mut t.raw).0, 1);
    release(&t.backend, ids(&grants)).await;
    assert_eq!(scripts(&mut t.raw).0, 1);
}

async fn several_keys_take_one_round_trip() {
    const ONE_WAY: Duration = Duration::from_millis(100);
    let server = RedisServer::start();
    let link = Link::slow(SocketAddr::from(([127, 0, 0, 1], server.port())), ONE_WAY).await;
    let url = format!("redis://{}", link.address);
    let backend = RedisBackend::new(RedisConfig::from_url(&url).unwrap()).unwrap();
    let claims = || ["a", "b", "c", "d"].map(plain);
    // The connection is there, and the server knows the scripts.
    let grants = take(&backend, claims()).await;
    extend(&backend, ids(&grants), ttl(60_000)).await;
    release(&backend, ids(&grants)).await;
    let request = asking(&backend, claims());
    for operation in [
        Operation::Acquire(request.clone()),
        Operation::Extend(Extension::new(request.lock_ids(), ttl(60_000))),
        Operation::Release(request.lock_ids().into()),
    ] {
        let start = Instant::now();
        backend.run(&operation).await.unwrap();
        let took = start.elapsed();
        assert!(took >= 2 * ONE_WAY && took < 4 * ONE_WAY, "{took:?}");
    }
}

async fn a_counter_at_its_limit_leaves_nothing() {
    let mut t = Stage::new();
    for name in ["full", "p\u{37e}1"] {
        let counter = format!("syncguard:fence:syncguard:{name}");
        t.raw.call(&["FLUSHALL"]);
        t.raw.call(&["SET", &counter, "900000000000000"]);
        let claims = [plain("a"), plain("full"), slot("p", 1), plain("z")];
        let error = try_take(&t.backend, claims).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.message().contains("limit") && !error.is_outcome_unknown());
        assert_eq!(names(&mut t.raw), [counter].into());
    }
}

async fn what_is_not_a_lock_leaves_nothing() {
    let mut t = Stage::new();
    for name in ["k", "p\u{37e}1"] {
        let name = format!("syncguard:{name}");
        for value in ["", "hello", "[]", "{}", r#"{"expiresAtMs":"1"}"#] {
            t.raw.call(&["FLUSHALL"]);
            t.raw.call(&["SET", &name, value]);
            let claims = [plain("a"), plain("k"), slot("p", 1)];
            let error = try_take(&t.backend, claims).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal, "{value}");
            assert_eq!(names(&mut t.raw), [name.clone()].into());
            assert_eq!(t.get(&name), value);
        }
        t.raw.call(&["FLUSHALL"]);
        t.raw.call(&["LPUSH", &name, "x"]);
        let claims = [plain("a"), plain("k"), slot("p", 1)];
        let error = try_take(&t.backend, claims).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(names(&mut t.raw), [name].into());
    }
}

async fn what_others_write_stands_in_the_way() {
    let mut t = Stage::new();
    for form in FOREIGN {
        for name in ["k", "p\u{37e}1"] {
            t.raw.call(&["FLUSHALL"]);
            let claims = || [plain("a"), plain("k"), slot("p", 1), plain("z")];
            let id = LockId::generate().unwrap();
            t.write(form, name, &id, 30_000);
            let outcome = try_take(&t.backend, claims()).await.unwrap();
            let AcquireOutcome::Locked { claim, free_in, .. } = outcome else {
                panic!("nothing was in the way");
            };
            assert_eq!(claim, if name == "k" { 1 } else { 2 });
            let free_in_ms = free_in.unwrap().as_millis();
            assert!((29_000..=31_000).contains(&free_in_ms), "{free_in_ms}");
            assert_eq!(names(&mut t.raw).len(), 2, "what was written before");
            // It is extended and freed with others.
            let ours = take(&t.backend, [plain("a"), plain("z")]).await;
            let mut all = ids(&ours);
            all.push(id);
            let extended = extend(&t.backend, all.clone(), ttl(60_000)).await;
            assert!(matches!(extended, ExtendOutcome::Extended { .. }));
            assert_eq!(
                release(&t.backend, all).await[..],
                [ReleaseOutcome::Released; 3]
            );
            // One that has ended is in nobody's way.
            t.write(form, name, &LockId::generate().unwrap(), -1500);
            take(&t.backend, claims()).await;
        }
    }
}

/// What is stored under the names of a key and of a lock id. What the clock says is left out.
fn about(raw: &mut Resp, id: &LockId) -> Vec<String> {
    let names = ["k", "fence:syncguard:k", &format!("id:{}", id.as_str())];
    let read = |name: &str| {
        let name = format!("syncguard:{name}");
        let lasts = raw.call(&["PTTL", &name]).int() / 10_000;
        let stored = match raw.call(&["GET", &name]) {
            Answer::Text(text) => text,
            other => format!("{other:?}"),
        };
        let digits =
            |text: &str| text.len() >= 13 && text.bytes().all(|byte| byte.is_ascii_digit());
        let words = stored.split_inclusive(|character: char| !character.is_ascii_digit());
        let words =
            words.map(
                |word| match word.trim_end_matches(|last: char| !last.is_ascii_digit()) {
                    number if digits(number) => word.replace(number, "time"),
                    _ => word.to_owned(),
                },
            );
        format!("{} for {lasts}", words.collect::<String>())
    };
    names.map(read).to_vec()
}

/// Writes what stands under the names of the key "k" before an operation with that lock id.
fn place(t: &mut Stage, id: &LockId, [lock, index, counter]: [&str; 3]) {
    t.raw.call(&["FLUSHALL"]);
    match lock.strip_prefix('-') {
        _ if lock.is_empty() => {}
        Some(form) => drop(t.write(form, "k", id, -1500)),
        None => drop(t.write(lock, "k", id, 30_000)),
    }
    let name = format!("syncguard:id:{}", id.as_str());
    match index {
        "" => t.raw.call(&["DEL", &name]),
        index => t.raw.call(&["SET", &name, index]),
    };
    if !counter.is_empty() {
        let name = "syncguard:fence:syncguard:k";
        t.raw.call(&["SET", name, counter]);
    }
}

/// What comes of an operation, and what is stored afterwards.
type Done = (Result<Outcome, ErrorKind>, Vec<String>);

async fn done(t: &mut Stage, id: &LockId, scene: [&str; 3], operation: Operation) -> Done {
    place(t, id, scene);
    let outcome = t.backend.run(&operation).await;
    (outcome.map_err(|error| error.kind()), about(&mut t.raw, id))
}

#[expect(
    clippy::too_many_lines,
    reason = "one scene, which one lock and several go through"
)]
async fn several_do_to_each_what_one_does() {
    let mut t = Stage::new();
    let (one, both) = ([plain("k")], [plain("k"), plain("z")]);
    let id = one[0].lock_id.clone();
    let nobodys = LockId::generate().unwrap();
    let theirs = FOREIGN[0].replace("$ID", nobodys.as_str());
    let ended = FOREIGN.map(|form| format!("-{form}"));
    let more = ["", "no lock", "{}", &theirs];
    let locks = FOREIGN.into_iter().chain(ended.iter().map(String::as_str));
    let mut granted = [0, 0];
    for lock in locks.chain(more) {
        for index in ["", "syncguard:k", "syncguard:elsewhere"] {
            for counter in ["", "7", "900000000000000", "x"] {
                let scene = [lock, index, counter];
                place(&mut t, &id, scene);
                let before = about(&mut t.raw, &id);

                let acquire = |claims: &[Claim]| {
                    let mut request = asking(&t.backend, claims.to_vec());
                    request.claims[0].lock_id = id.clone();
                    Operation::Acquire(request)
                };
                let [alone, together] = [acquire(&one), acquire(&both)];
                let (alone, expected) = done(&mut t, &id, scene, alone).await;
                let (together, found) = done(&mut t, &id, scene, together).await;
                let is_granted = [&alone, &together].map(|outcome| {
                    matches!(outcome, Ok(Outcome::Acquire(AcquireOutcome::Acquired(_))))
                });
                for (count, is_granted) in granted.iter_mut().zip(is_granted) {
                    *count += usize::from(is_granted);
                }
                assert_eq!(alone.as_ref().err(), together.as_ref().err(), "{scene:?}");
                assert_eq!(t.exists("syncguard:z"), is_granted[1], "{scene:?}");
                match is_granted {
                    // The lock was granted once, and does not stand for the whole.
                    [true, false] => assert!(expected == before && found == before, "{scene:?}"),
                    _ => assert_eq!(found, expected, "{scene:?}"),
                }

                let lock_ids = [[id.clone()].to_vec(), vec![id.clone(), nobodys.clone()]];
                let [alone, together] = lock_ids
                    .clone()
                    .map(|ids| Operation::Release(Batch::from(ids).into()));
                let (alone, expected) = done(&mut t, &id, scene, alone).await;
                let (together, found) = done(&mut t, &id, scene, together).await;
                assert_eq!(found, expected, "{scene:?}");
                match (alone, together) {
                    (Ok(Outcome::Release(alone)), Ok(Outcome::Release(together))) => {
                        assert_eq!(alone[0], together[0], "{scene:?}");
                    }
                    (alone, together) => assert_eq!(alone, together, "{scene:?}"),
                }

                let extend =
                    |ids: Vec<LockId>| Operation::Extend(Extension::new(ids.into(), ttl(60_000)));
                let [alone, together] = lock_ids.map(extend);
                let (alone, expected) = done(&mut t, &id, scene, alone).await;
                let (together, found) = done(&mut t, &id, scene, together).await;
                match alone {
                    Ok(Outcome::Extend(ExtendOutcome::Extended { .. })) => {
                        let (lock, absence) = (1, Absence::NotFound);
                        let absent = ExtendOutcome::Absent { lock, absence };
                        assert_eq!(together, Ok(Outcome::Extend(absent)), "{scene:?}");
                        assert_eq!(found, before, "{scene:?}");
                    }
                    alone => {
                        assert_eq!(together, alone, "{scene:?}");
                        assert_eq!(found, expected, "{scene:?}");
                    }
                }
            }
        }
    }
    assert!(granted[1] > 20 && granted[0] > granted[1], "{granted:?}");
}

async fn a_server_that_lost_its_scripts_gets_them_again() {
    let mut t = Stage::new();
    for _ in 0..2 {
        t.raw.call(&["SCRIPT", "FLUSH"]);
        let grants = take(&t.backend, [plain("k"), slot("p", 2)]).await;
        t.raw.call(&["SCRIPT", "FLUSH"]);
        extend(&t.backend, ids(&grants), ttl(60_000)).await;
        t.raw.call(&["SCRIPT", "FLUSH"]);
        let released = release(&t.backend, ids(&grants)).await;
        assert_eq!(released[..], [ReleaseOutcome::Released; 2]);
    }
}

async fn one_value_that_is_no_lock_keeps_no_other_from_being_freed() {
    let mut t = Stage::new();
    let grants = take(&t.backend, ["a", "b", "c"].map(plain)).await;
    t.raw.call(&["SET", "syncguard:b", "hello"]);
    let error = t
        .backend
        .ask::<ReleaseOutcome>(Operation::Release(ids(&grants).into()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(!t.exists("syncguard:a") && !t.exists("syncguard:c"));
    assert_eq!(t.get("syncguard:b"), "hello");
}

async fn a_clients_own_prefix_stands_before_all_keys() {
    let mut t = Stage::with(|config| config.client_key_prefix = "app:".to_owned());
    let request = asking(&t.backend, [plain("k"), slot("p", 1)]);
    let outcome = t.backend.acquire(&request).await.unwrap();
    let AcquireOutcome::Acquired(grants) = &outcome else {
        panic!("locked");
    };
    let locks = ["syncguard:k", "syncguard:p\u{37e}1"];
    let index = |at: usize| format!("app:syncguard:id:{}", grants[at].lock_id.as_str());
    for (at, lock) in locks.into_iter().enumerate() {
        assert_eq!(t.get(&index(at)), format!("app:{lock}"));
        assert!(t.exists(&format!("app:syncguard:fence:{lock}")));
        assert!(!t.exists(lock));
    }
    assert_eq!(t.backend.acquire(&request).await.unwrap(), outcome);
    // As a client writes it that prefixes keys and not arguments.
    for (at, lock) in locks.into_iter().enumerate() {
        t.raw.call(&["SET", &index(at), lock]);
    }
    let extended = extend(&t.backend, ids(grants), ttl(60_000)).await;
    assert!(matches!(extended, ExtendOutcome::Extended { .. }));
    for (at, lock) in locks.into_iter().enumerate() {
        assert_eq!(t.get(&index(at)), format!("app:{lock}"));
        t.raw.call(&["SET", &index(at), lock]);
    }
    let released = release(&t.backend, ids(grants)).await;
    assert_eq!(released[..], [ReleaseOutcome::Released; 2]);
    assert_eq!(names(&mut t.raw).len(), 2, "the counters");
}
