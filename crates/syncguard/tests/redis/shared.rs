//! Shared locks: what is stored of a group and its readers, and who is let in.

use std::collections::BTreeSet;
use std::sync::Arc;

use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{
    Absence, AcquireOutcome, Backend, Claim, ErrorKind, Eval, EvalOutcome, ExtendOutcome, Grant,
    LockId, Lookup, Operation, PageRequest, ReleaseOutcome, Sending,
};

use crate::eval::{INCR, NONE, assert_lost, held};
use crate::stage::{Stage, json, scripts};
use crate::support::attempts::Attempts as _;
use crate::support::claims::{asking, extend, ids, plain, release, shared, slot, take, try_take};
use crate::support::locks::{key, ttl};
use crate::support::readers::join;
use crate::support::redis_server::RedisServer;
use crate::support::resp::{Answer, Resp};
use crate::support::suite::tests;

tests![
    a_group_and_its_readers_are_stored_as_ordinary_locks,
    a_reader_is_admitted_in_one_script,
    what_a_reader_of_no_group_says_is_not_held,
    a_group_that_others_have_written_is_in_the_way,
    nobody_is_let_in_by_the_id_of_a_group,
    a_gate_keeps_readers_out_and_nobody_in,
    readers_are_listed_and_their_group_is_not,
    a_script_runs_only_while_the_reader_and_its_group_are_held,
    who_may_not_share_leaves_nothing_and_locks_as_ever,
    the_way_of_an_exclusive_lock_is_what_it_was,
];

pub(crate) fn reader_name(grant: &Grant) -> String {
    format!("syncguard:k\u{37e}r{}", grant.lock_id.as_str())
}

/// When the lock of that name ends.
pub(crate) fn end(t: &mut Stage, name: &str) -> i64 {
    json(&t.get(name))["expiresAtMs"].as_i64().unwrap()
}

/// The names in the database, without those of counters.
pub(crate) fn names(raw: &mut Resp) -> BTreeSet<String> {
    let found = raw.call(&["KEYS", "*"]);
    let names = found.list().iter().map(|name| name.text().to_owned());
    names.filter(|name| !name.contains(":fence:")).collect()
}

pub(crate) fn is_extended(outcome: &ExtendOutcome) -> bool {
    matches!(outcome, ExtendOutcome::Extended { .. })
}

async fn a_group_and_its_readers_are_stored_as_ordinary_locks() {
    let mut t = Stage::new();
    let first = join(&t.backend, "k", ttl(30_000)).await;
    let second = join(&t.backend, "k", ttl(60_000)).await;
    assert_eq!(first.fence, second.fence);
    let group = json(&t.get("syncguard:k"));
    let group_id = LockId::group("k");
    let acquired = first.expires_at_ms - 30_000;
    assert_eq!(
        group,
        serde_json::json!({
            "lockId": group_id.as_str(),
            "expiresAtMs": second.expires_at_ms,
            "acquiredAtMs": acquired,
            "fence": first.fence.to_string(),
            "key": "k",
        })
    );
    assert_eq!(
        t.get("syncguard:fence:syncguard:k"),
        first.fence.get().to_string()
    );
    let mut expected =
        BTreeSet::from(["syncguard:k", "syncguard:k\u{37e}readers"].map(String::from));
    for grant in [&first, &second] {
        let name = reader_name(grant);
        let stored = json(&t.get(&name));
        assert_eq!(stored["lockId"], grant.lock_id.as_str());
        assert_eq!(stored["key"], name["syncguard:".len()..]);
        assert_eq!(stored["fence"], first.fence.to_string());
        let index = format!("syncguard:id:{}", grant.lock_id.as_str());
        assert_eq!(t.get(&index), name);
        for kept in [&name, &index] {
            let late = t.raw.call(&["PEXPIRETIME", kept]).int() - (grant.expires_at_ms + 1000);
            assert!((0..100).contains(&late), "{late}");
        }
        expected.extend([name, index]);
    }
    assert_eq!(names(&mut t.raw), expected);
    for name in ["syncguard:k", "syncguard:k\u{37e}readers"] {
        let late = t.raw.call(&["PEXPIRETIME", name]).int() - (second.expires_at_ms + 1000);
        assert!((0..100).contains(&late), "{name} {late}");
    }
    let record = t.backend.lookup(&Lookup::LockId(second.lock_id)).await;
    let record = record.unwrap().unwrap();
    assert!(record.is_shared && record.key.base() == "k");
    let record = t.backend.lookup(&Lookup::Key(key("k"))).await;
    let record = record.unwrap().unwrap();
    assert!(record.is_shared && record.lock_id == group_id);
    assert!(t.backend.is_locked(&key("k")).await.unwrap());
}

async fn a_reader_is_admitted_in_one_script() {
    let mut t = Stage::with(|config| config.client_key_prefix = "app:".to_owned());
    let set = || [shared("k"), plain("l"), slot("p", 2), shared("m")];
    let grants = take(&t.backend, set()).await;
    extend(&t.backend, ids(&grants), ttl(60_000)).await;
    release(&t.backend, ids(&grants)).await;
    let first = take(&t.backend, [shared("k")]).await;
    scripts(&mut t.raw);
    let request = asking(&t.backend, set());
    let outcome = t.backend.acquire(&request).await.unwrap();
    let AcquireOutcome::Acquired(grants) = &outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(grants[0].fence, first[0].fence);
    assert_eq!(t.backend.acquire(&request).await.unwrap(), outcome);
    assert!(is_extended(
        &extend(&t.backend, ids(grants), ttl(60_000)).await
    ));
    let released = release(&t.backend, ids(grants)).await;
    assert_eq!(released[..], [ReleaseOutcome::Released; 4]);
    assert_eq!(scripts(&mut t.raw).0, 4);
    // Who shares the key is in the way of who does not, and others are in the way of who wants to share it.
    let outcome = try_take(&t.backend, [plain("k")]).await.unwrap();
    assert!(matches!(
        outcome,
        AcquireOutcome::Locked {
            is_shared: true,
            ..
        }
    ));
    let outcome = try_take(&t.backend, [plain("a"), plain("k")])
        .await
        .unwrap();
    assert!(matches!(
        outcome,
        AcquireOutcome::Locked {
            claim: 1,
            is_shared: true,
            ..
        }
    ));
    take(&t.backend, [plain("m")]).await;
    let outcome = try_take(&t.backend, [shared("k"), shared("m")])
        .await
        .unwrap();
    assert!(matches!(
        outcome,
        AcquireOutcome::Locked {
            claim: 1,
            is_shared: false,
            ..
        }
    ));
    assert!(t.raw.call(&["KEYS", "syncguard:*"]).list().is_empty());
}

async fn what_a_reader_of_no_group_says_is_not_held() {
    let mut t = Stage::with(|config| config.locks.cleanup_in_is_locked = true);
    let grant = join(&t.backend, "k", ttl(60_000)).await;
    let reader = key("k").reader(&grant.lock_id);
    assert!(t.backend.is_locked(&reader).await.unwrap());
    let lookups = [
        Lookup::Key(reader.clone()),
        Lookup::LockId(grant.lock_id.clone()),
    ];
    for lookup in &lookups {
        assert!(t.backend.lookup(lookup).await.unwrap().is_some());
    }
    t.raw.call(&["DEL", "syncguard:k"]);
    assert!(!t.backend.is_locked(&reader).await.unwrap());
    for lookup in &lookups {
        assert!(t.backend.lookup(lookup).await.unwrap().is_none());
    }
    assert!(!t.backend.force_release(&reader).await.unwrap());
    // By its own key, one is made to leave, and the others stay.
    let [one, two] = [
        join(&t.backend, "k", ttl(60_000)).await,
        join(&t.backend, "k", ttl(30_000)).await,
    ];
    let reader = key("k").reader(&one.lock_id);
    assert!(t.backend.force_release(&reader).await.unwrap());
    assert_eq!(end(&mut t, "syncguard:k"), two.expires_at_ms);
    let reader = key("k").reader(&two.lock_id);
    assert!(t.backend.force_release(&reader).await.unwrap());
    assert!(names(&mut t.raw).is_empty());
}

async fn a_group_that_others_have_written_is_in_the_way() {
    let mut t = Stage::new();
    let group = LockId::group("k");
    for form in &crate::stage::FOREIGN[1..] {
        let stored = t.write(form, "k", &group, 30_000);
        for claims in [vec![shared("k")], vec![plain("k")]] {
            let outcome = try_take(&t.backend, claims).await.unwrap();
            assert!(outcome.is_locked(), "{form}");
        }
        assert_eq!(t.get("syncguard:k"), stored);
    }
}

async fn nobody_is_let_in_by_the_id_of_a_group() {
    let mut t = Stage::new();
    let grant = join(&t.backend, "k", ttl(60_000)).await;
    let (group, before) = (LockId::group("k"), t.get("syncguard:k"));
    let absent = Absence::NotFound;
    let released = t.backend.release(&group).await.unwrap();
    assert_eq!(released, ReleaseOutcome::Absent(absent));
    let extended = t.backend.extend(&group, ttl(90_000)).await.unwrap();
    assert_eq!(extended, ExtendOutcome::absent(absent));
    let both = vec![grant.lock_id.clone(), group.clone()];
    let outcome = extend(&t.backend, both.into(), ttl(90_000)).await;
    assert!(matches!(outcome, ExtendOutcome::Absent { lock: 1, .. }));
    let lookup = Lookup::LockId(group.clone());
    assert!(t.backend.lookup(&lookup).await.unwrap().is_none());
    let eval = Operation::Eval(Eval {
        locks: [(key("k"), group)].into(),
        script: INCR.to_owned(),
        keys: vec!["n".to_owned()],
        arguments: vec![],
        sending: Sending::default(),
    });
    let outcome: EvalOutcome = t.backend.ask(eval).await.unwrap();
    assert!(matches!(outcome, EvalOutcome::Absent { lock: 0, .. }));
    assert!(t.get("syncguard:k") == before && !t.exists("n"));
}

async fn a_gate_keeps_readers_out_and_nobody_in() {
    let mut t = Stage::new();
    let inside = join(&t.backend, "k", ttl(60_000)).await;
    let gate = take(&t.backend, [Claim::new(key("k").slot(0)).unwrap()]).await;
    let again = Claim {
        lock_id: inside.lock_id.clone(),
        ..shared("k")
    };
    let outcome = try_take(&t.backend, [shared("k")]).await.unwrap();
    let AcquireOutcome::Locked {
        is_shared, free_in, ..
    } = outcome
    else {
        panic!("{outcome:?}");
    };
    assert!(!is_shared && free_in.unwrap() > std::time::Duration::from_secs(20));
    // Those who are in are heard again, and go on.
    let repeated = take(&t.backend, [again]).await;
    assert_eq!(repeated[0], inside);
    let extended = t
        .backend
        .extend(&inside.lock_id, ttl(60_000))
        .await
        .unwrap();
    assert!(is_extended(&extended));
    t.backend.release(&inside.lock_id).await.unwrap();
    // With the key free, it keeps readers out still, and no writer.
    assert!(
        try_take(&t.backend, [shared("k")])
            .await
            .unwrap()
            .is_locked()
    );
    let writer = take(&t.backend, [plain("k")]).await;
    release(&t.backend, ids(&writer)).await;
    let mut listener = t.server.connect();
    listener.call(&["SUBSCRIBE", "syncguard:k"]);
    release(&t.backend, ids(&gate)).await;
    assert_eq!(listener.read().list()[1].text(), "syncguard:k");
    join(&t.backend, "k", ttl(60_000)).await;
    // One that has ended is in nobody's way.
    t.write(
        crate::stage::FOREIGN[0],
        "k\u{37e}0",
        &LockId::generate().unwrap(),
        -1500,
    );
    join(&t.backend, "k", ttl(60_000)).await;
}

async fn readers_are_listed_and_their_group_is_not() {
    let mut t = Stage::new();
    let grants = take(&t.backend, [shared("k"), plain("l")]).await;
    let more = take(&t.backend, [shared("k"), shared("gone")]).await;
    t.raw.call(&["DEL", "syncguard:gone"]);
    let page = PageRequest {
        limit: 100,
        ..PageRequest::default()
    };
    let page = t.backend.list(&page).await.unwrap();
    let listed: BTreeSet<_> = page
        .locks
        .iter()
        .map(|lock| (lock.key.as_str(), lock.is_shared, lock.lock_id.as_str()))
        .collect();
    let [reader, exclusive] = &grants[..] else {
        panic!("two");
    };
    let readers = [reader, &more[1]].map(|grant| key("k").reader(&grant.lock_id));
    let expected = BTreeSet::from([
        (readers[0].as_str(), true, reader.lock_id.as_str()),
        (readers[1].as_str(), true, more[1].lock_id.as_str()),
        ("l", false, exclusive.lock_id.as_str()),
    ]);
    assert_eq!(listed, expected);
}

async fn a_script_runs_only_while_the_reader_and_its_group_are_held() {
    let t = Stage::new();
    let backend: Arc<dyn Backend> = crate::eval::backend_at(&t.server);
    let mut raw = t.server.connect();
    let guard = held(&backend, vec![plain("a"), shared("k"), shared("l")]).await;
    let script = "return {#KEYS, #ARGV, KEYS[1]}";
    let seen = guard.eval(script, ["n"], ["x", "y"]).await.unwrap();
    let [one, two] = [1, 2].map(syncguard::Reply::Int);
    let expected = vec![one, two, syncguard::Reply::Bulk(b"n".to_vec())];
    assert_eq!(seen, syncguard::Reply::Array(expected));
    for gone in ["k", "l"] {
        let guard = held(&backend, vec![plain("b"), shared(gone), shared("m")]).await;
        raw.call(&["DEL", &format!("syncguard:{gone}")]);
        assert_lost(guard.eval(INCR, ["n"], NONE).await);
        assert_eq!(guard.lost().await.kind(), ErrorKind::LockLost);
        assert_eq!(raw.call(&["EXISTS", "n"]), Answer::Int(0));
        drop(guard);
        backend.force_release(&key("b")).await.unwrap();
    }
}

async fn who_may_not_share_leaves_nothing_and_locks_as_ever() {
    let mut t = Stage::new();
    let user = "ACL SETUSER locks on >secret ~syncguard:* &syncguard:* +eval +evalsha +get +set +del \
                +time +ping +publish";
    t.raw.call(&user.split_whitespace().collect::<Vec<_>>());
    let mut config = RedisConfig::from_url(&t.server.url()).unwrap();
    config.username = Some("locks".to_owned());
    config.password = Some("secret".to_owned());
    let backend = RedisBackend::new(config).unwrap();
    for claims in [vec![shared("k")], vec![plain("a"), shared("k")]] {
        let error = try_take(&backend, claims).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error}");
        assert!(error.message().contains("+zadd"), "{error}");
        assert!(t.raw.call(&["KEYS", "*"]).list().is_empty());
    }
    let grants = take(&backend, [plain("k"), plain("l")]).await;
    assert!(is_extended(
        &extend(&backend, ids(&grants), ttl(60_000)).await
    ));
    let released = release(&backend, ids(&grants)).await;
    assert_eq!(released[..], [ReleaseOutcome::Released; 2]);
}

/// What the server was told to do in scripts, without the time.
fn commands(monitor: &mut Resp) -> Vec<String> {
    let mut commands = Vec::new();
    loop {
        let line = monitor.read().text().to_owned();
        let command = line.split('"').nth(1).unwrap_or_default().to_owned();
        match command.as_str() {
            "ECHO" => return commands,
            "TIME" => {}
            _ if line.contains(" lua]") => commands.push(command),
            _ => {}
        }
    }
}

async fn the_way_of_an_exclusive_lock_is_what_it_was() {
    let server = RedisServer::start();
    let backend = crate::eval::backend_at(&server);
    let mut monitor = server.connect();
    monitor.call(&["MONITOR"]);
    let mut done = || {
        server.connect().call(&["ECHO", "done"]);
        commands(&mut monitor)
    };
    for names in [vec!["a"], vec!["a", "b"]] {
        let claims = || names.iter().map(|name| plain(name));
        let count = names.len();
        let times = |commands: &[&str]| {
            let all = std::iter::repeat_n(commands, count).flatten();
            all.map(|command| (*command).to_owned()).collect::<Vec<_>>()
        };
        let grants = take(backend.as_ref(), claims()).await;
        let (looks, writes) = (times(&["GET", "GET"]), times(&["SET", "SET", "SET"]));
        assert_eq!(done(), [looks, writes].concat());
        try_take(backend.as_ref(), claims()).await.unwrap();
        assert_eq!(done(), ["GET"]);
        extend(backend.as_ref(), ids(&grants), ttl(60_000)).await;
        let writes = times(&["SET", "SET"]);
        assert_eq!(done(), [times(&["GET", "GET"]), writes].concat());
        release(backend.as_ref(), ids(&grants)).await;
        assert_eq!(done(), times(&["GET", "GET", "DEL", "PUBLISH"]));
    }
}
