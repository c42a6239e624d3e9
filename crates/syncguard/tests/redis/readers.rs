//! How those who share a key end, and their group with them.

use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::{Absence, ExtendOutcome, LockId, Lookup, ReleaseOutcome};

use crate::shared::{end, is_extended, names, reader_name};
use crate::stage::{Stage, scripts};
use crate::support::attempts::Attempts as _;
use crate::support::claims::{extend, ids, plain, release, shared, slot, take, try_take};
use crate::support::locks::{key, ttl};
use crate::support::readers::join;
use crate::support::suite::tests;

tests![
    a_group_ends_with_the_last_of_its_readers,
    a_reader_that_dies_costs_its_own_time,
    the_last_one_to_leave_frees_the_key,
    a_reader_of_a_group_that_was_freed_by_force_is_lost,
    a_writer_that_overwrites_a_group_that_has_ended_is_left_alone,
    one_batch_extends_readers_of_several_groups,
    a_group_whose_readers_are_forgotten_stays,
];

async fn a_group_ends_with_the_last_of_its_readers() {
    let mut t = Stage::new();
    let long = join(&t.backend, "k", ttl(60_000)).await;
    let short = join(&t.backend, "k", ttl(5000)).await;
    assert_eq!(end(&mut t, "syncguard:k"), long.expires_at_ms);
    t.backend.extend(&short.lock_id, ttl(10_000)).await.unwrap();
    assert_eq!(end(&mut t, "syncguard:k"), long.expires_at_ms);
    let later = t.backend.extend(&short.lock_id, ttl(90_000)).await.unwrap();
    let expires_at_ms = end(&mut t, "syncguard:k");
    assert_eq!(later, ExtendOutcome::Extended { expires_at_ms });
    assert_eq!(end(&mut t, &reader_name(&short)), expires_at_ms);
    assert_eq!(end(&mut t, &reader_name(&long)), long.expires_at_ms);
}

async fn a_reader_that_dies_costs_its_own_time() {
    let mut t = Stage::new();
    let dead = join(&t.backend, "k", ttl(5000)).await;
    let long = join(&t.backend, "k", ttl(60_000)).await;
    let released = t.backend.release(&long.lock_id).await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
    assert_eq!(end(&mut t, "syncguard:k"), dead.expires_at_ms);
    let late = t.raw.call(&["PEXPIRETIME", "syncguard:k"]).int() - (dead.expires_at_ms + 1000);
    assert!((0..100).contains(&late), "{late}");
    // One that is dead by the clock, and stored still, is nobody for whom the key stays locked.
    let now = t.now();
    let readers = "syncguard:k\u{37e}readers";
    t.raw.call(&[
        "ZADD",
        readers,
        &(now - 1000).to_string(),
        dead.lock_id.as_str(),
    ]);
    let last = join(&t.backend, "k", ttl(60_000)).await;
    t.backend.release(&last.lock_id).await.unwrap();
    assert!(!t.exists("syncguard:k") && !t.exists(readers));
}

async fn the_last_one_to_leave_frees_the_key() {
    let mut t = Stage::new();
    let mut listener = t.server.connect();
    listener.call(&["PSUBSCRIBE", "*"]);
    let [one, two] = [
        join(&t.backend, "k", ttl(30_000)).await,
        join(&t.backend, "k", ttl(30_000)).await,
    ];
    let other = RedisBackend::new(RedisConfig::from_url(&t.server.url()).unwrap()).unwrap();
    let (first, second) =
        tokio::join!(t.backend.release(&one.lock_id), other.release(&two.lock_id));
    assert_eq!(
        [first.unwrap(), second.unwrap()],
        [ReleaseOutcome::Released; 2]
    );
    assert!(names(&mut t.raw).is_empty());
    assert_eq!(listener.read().list()[2].text(), "syncguard:k");
    // In one batch, too. Of each group, its waiters are told once.
    let grants = take(&t.backend, [shared("k"), shared("l")]).await;
    let more = take(&t.backend, [shared("k"), shared("l")]).await;
    let all = ids(&grants).into_iter().chain(ids(&more)).collect();
    let released = release(&t.backend, all).await;
    assert_eq!(released[..], [ReleaseOutcome::Released; 4]);
    assert!(names(&mut t.raw).is_empty());
    let told = [0, 1].map(|_| listener.read().list()[2].text().to_owned());
    assert_eq!(told, ["syncguard:k", "syncguard:l"]);
    let writer = take(&t.backend, [plain("k")]).await;
    assert!(writer[0].fence > grants[0].fence);
    let absent = ReleaseOutcome::Absent(Absence::NotFound);
    assert_eq!(t.backend.release(&one.lock_id).await.unwrap(), absent);
    assert!(t.exists("syncguard:k"));
}

async fn a_reader_of_a_group_that_was_freed_by_force_is_lost() {
    let mut t = Stage::new();
    let old = join(&t.backend, "k", ttl(60_000)).await;
    let beats = join(&t.backend, "k", ttl(60_000)).await;
    assert!(t.backend.force_release(&key("k")).await.unwrap());
    let lookup = Lookup::LockId(old.lock_id.clone());
    assert!(t.backend.lookup(&lookup).await.unwrap().is_none());
    let writer = take(&t.backend, [plain("k")]).await;
    assert!(t.backend.lookup(&lookup).await.unwrap().is_none());
    release(&t.backend, ids(&writer)).await;
    let new = join(&t.backend, "k", ttl(5000)).await;
    assert!(new.fence > writer[0].fence && writer[0].fence > old.fence);
    // Neither revives the group nor makes the new one last longer.
    let beat = t
        .backend
        .extend_with_others(&beats.lock_id, ttl(90_000))
        .await;
    assert!(matches!(beat.unwrap(), ExtendOutcome::Absent { .. }));
    let released = t.backend.release(&old.lock_id).await.unwrap();
    assert!(matches!(released, ReleaseOutcome::Absent(_)));
    assert_eq!(end(&mut t, "syncguard:k"), new.expires_at_ms);
    // Nor are they counted in it.
    t.backend.release(&new.lock_id).await.unwrap();
    assert!(names(&mut t.raw).is_empty());
}

async fn a_writer_that_overwrites_a_group_that_has_ended_is_left_alone() {
    let mut t = Stage::new();
    let reader = join(&t.backend, "k", ttl(60_000)).await;
    // The reader's own lock is there still, as where clocks were set.
    let ended = t.get("syncguard:k").replace(
        &reader.expires_at_ms.to_string(),
        &(t.now() - 1001).to_string(),
    );
    t.raw.call(&["SET", "syncguard:k", &ended]);
    let outcome = t
        .backend
        .extend(&reader.lock_id, ttl(60_000))
        .await
        .unwrap();
    assert!(matches!(outcome, ExtendOutcome::Absent { .. }));
    let reader = join(&t.backend, "k", ttl(60_000)).await;
    let writer = LockId::generate().unwrap();
    let fence = format!("{:015}", reader.fence.get() + 1);
    let form = format!(
        "{{\"lockId\":\"$ID\",\"expiresAtMs\":$EXPIRES,\"acquiredAtMs\":1,\"key\":\"k\",\"fence\":\"{fence}\"}}"
    );
    let stored = t.write(&form, "k", &writer, 30_000);
    let outcome = t
        .backend
        .extend(&reader.lock_id, ttl(60_000))
        .await
        .unwrap();
    assert!(matches!(outcome, ExtendOutcome::Absent { .. }));
    let released = t.backend.release(&reader.lock_id).await.unwrap();
    assert!(matches!(released, ReleaseOutcome::Absent(_)));
    assert_eq!(t.get("syncguard:k"), stored);
    assert!(
        try_take(&t.backend, [shared("k")])
            .await
            .unwrap()
            .is_locked()
    );
    let released = t.backend.release(&writer).await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
}

async fn one_batch_extends_readers_of_several_groups() {
    let mut t = Stage::new();
    let one = take(&t.backend, [shared("k"), shared("l"), plain("m")]).await;
    let two = take(&t.backend, [shared("k"), shared("l"), slot("p", 2)]).await;
    let third = take(&t.backend, [shared("k")]).await;
    // The server gets to know the script.
    extend(&t.backend, ids(&one), ttl(30_000)).await;
    let all: Vec<_> = [&one, &two, &third]
        .into_iter()
        .flat_map(|grants| ids(grants))
        .collect();
    scripts(&mut t.raw);
    let extended = extend(&t.backend, all.clone().into(), ttl(60_000)).await;
    assert_eq!(scripts(&mut t.raw).0, 1);
    let ExtendOutcome::Extended { expires_at_ms } = extended else {
        panic!("gone");
    };
    for name in ["syncguard:k", "syncguard:l", "syncguard:m"] {
        assert_eq!(end(&mut t, name), expires_at_ms);
    }
    for grant in [&one[0], &two[0], &third[0]] {
        assert_eq!(end(&mut t, &reader_name(grant)), expires_at_ms);
    }
    // All or none: the group of one is gone.
    t.raw.call(&["DEL", "syncguard:l"]);
    let outcome = extend(&t.backend, all.clone().into(), ttl(90_000)).await;
    assert!(
        matches!(outcome, ExtendOutcome::Absent { lock: 1, .. }),
        "{outcome:?}"
    );
    assert_eq!(end(&mut t, "syncguard:k"), expires_at_ms);
    let released = release(&t.backend, all.into()).await;
    let is_released = released
        .iter()
        .map(|outcome| *outcome == ReleaseOutcome::Released);
    let expected = [true, false, true, true, false, true, true];
    assert!(is_released.eq(expected), "{released:?}");
    assert!(!t.exists("syncguard:k"));
}

async fn a_group_whose_readers_are_forgotten_stays() {
    let mut t = Stage::new();
    let [one, two] = [
        join(&t.backend, "k", ttl(60_000)).await,
        join(&t.backend, "k", ttl(60_000)).await,
    ];
    // A server that is short of memory may evict what ends.
    t.raw.call(&["DEL", "syncguard:k\u{37e}readers"]);
    let released = t.backend.release(&one.lock_id).await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
    assert!(t.exists("syncguard:k"));
    let extended = t.backend.extend(&two.lock_id, ttl(30_000)).await.unwrap();
    assert!(is_extended(&extended));
    let lasts = t.raw.call(&["PTTL", "syncguard:k\u{37e}readers"]).int();
    assert!(lasts > 50_000, "{lasts}");
    t.backend.release(&two.lock_id).await.unwrap();
    assert!(names(&mut t.raw).is_empty());
}
