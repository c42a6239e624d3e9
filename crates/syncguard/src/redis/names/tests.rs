use super::*;
use crate::text::error::ErrorKind;

#[test]
fn prefixes_that_meet_fence_counters_are_refused() {
    for bad in [
        "fence:",
        "a:fence",
        "a:fence::",
        "fence",
        "fence:a",
        "offence",
    ] {
        let error = Names::new(bad, ClientPrefix::None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().starts_with("keyPrefix"), "{error}");
    }
    for good in ["syncguard", "", "fences", "a:b:", "défense"] {
        assert!(Names::new(good, ClientPrefix::None).is_ok(), "{good}");
    }
    assert!(Names::new(&"p".repeat(980), ClientPrefix::None).is_err());
}

/// Lock, index and fence of `key` in a cluster, with the client's prefix.
fn in_cluster(key_prefix: &str, client_prefix: &str, key: &str) -> Result<[String; 3], Error> {
    let client_prefix = match client_prefix {
        "" => ClientPrefix::None,
        prefix => ClientPrefix::Ours(prefix.to_owned()),
    };
    let names = Names::in_cluster(key_prefix, client_prefix)?;
    let key = Key::new(key)?;
    let id = LockId::parse("AAAAAAAAAAAAAAAAAAAAAA")?;
    let id = id.with_first_byte(names.shard(&key)?.unwrap_or(0xff));
    let lock = names.lock_key(&key)?;
    assert!(names.fits(&lock, &id));
    let (index, fence) = (names.index_key(&id)?, names.fence_key(&lock)?);
    let beside = names.index_key_beside(&lock, Some(id.as_str()))?;
    assert_eq!(beside.as_ref(), Some(&index));
    Ok([lock, index, fence].map(|name| names.before(&name)))
}

#[test]
fn keys_with_the_names_of_counters_and_index_entries_are_refused() {
    let id = "AAAAAAAAAAAAAAAAAAAAAA";
    let index = format!("id:{id}");
    let lock_key = |names: &Names, key: &str| names.lock_key(&Key::new(key).unwrap());
    for (prefix, bad) in [
        ("syncguard", "fence:syncguard:a"),
        ("syncguard::", "fence:syncguard:fence:syncguard:a"),
        ("syncguard", &index),
        ("", "fence:a"),
        ("", &index),
        // Of the name inside a counter's name, the prefix is in NFC too.
        ("cafe\u{301}", "fence:caf\u{e9}:a"),
    ] {
        let names = Names::new(prefix, ClientPrefix::None).unwrap();
        let error = lock_key(&names, bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{prefix} {bad}");
        assert!(!error.to_string().contains(bad), "{error}");
    }
    for (prefix, good) in [
        ("syncguard", "fence:a"),
        ("syncguard", "fence:syncguardian:a"),
        ("syncguard", "fence:syncguard:"),
        ("syncguard", "id:a"),
        ("syncguard", id),
        ("", "id:a"),
        ("", "fence:"),
        ("", "fences:a"),
    ] {
        let names = Names::new(prefix, ClientPrefix::None).unwrap();
        assert!(lock_key(&names, good).is_ok(), "{prefix} {good}");
    }
}

#[test]
fn in_a_cluster_only_what_is_in_the_same_shard_is_refused() {
    let names = Names::in_cluster("s", ClientPrefix::None).unwrap();
    let refused = (0..=255_u8).filter(|shard| {
        let key = Key::new(&format!("fence:{{s:{shard:02x}}}:job")).unwrap();
        let own = names.shard(&key).unwrap().unwrap();
        let is_refused = names.lock_key(&key).is_err();
        assert_eq!(is_refused, own == *shard, "{shard:02x}");
        is_refused
    });
    let refused = refused.count();
    let id = LockId::parse("AAAAAAAAAAAAAAAAAAAAAA").unwrap();
    let key = Key::new(&format!("id:{}", id.as_str())).unwrap();
    assert!(names.lock_key(&key).is_err());
    let one_slot = Names::in_cluster("{t}", ClientPrefix::None).unwrap();
    let key = Key::new("fence:{t}:a").unwrap();
    assert!(one_slot.lock_key(&key).is_err() && refused < 8);
}

#[test]
fn all_names_of_a_lock_share_a_slot() {
    let long = "k".repeat(512);
    for key_prefix in [
        "syncguard",
        "a:b::",
        "",
        "{t}",
        "a{t}b",
        "a{b",
        "{",
        "x{{t}}",
    ] {
        for client_prefix in ["", "c:", "{c}", "c{", "c{x}{"] {
            for key in ["job", "}", "{x}", &long] {
                let names = in_cluster(key_prefix, client_prefix, key).unwrap();
                let slots = names.each_ref().map(|name| hash_slots::key_slot(name));
                assert!(slots.iter().all(|slot| *slot == slots[0]), "{names:?}");
            }
        }
    }
}

#[test]
fn a_lock_is_in_a_shard_unless_a_prefix_has_a_hash_tag() {
    for (key_prefix, client_prefix, lock) in [
        ("syncguard", "", "{syncguard:26}:job"),
        ("syncguard::", "c:", "c:{syncguard:26}:job"),
        ("{locks}", "", "{locks}:job"),
        ("a{locks}", "c:", "c:a{locks}:job"),
        ("syncguard", "{c}", "{c}syncguard:job"),
        // The first { counts, also where it is not ours.
        ("syncguard", "c{", "c{{syncguard:26}:job"),
    ] {
        assert_eq!(
            in_cluster(key_prefix, client_prefix, "job").unwrap()[0],
            lock
        );
    }
    let spread: std::collections::HashSet<_> = (0..2000)
        .map(|number| in_cluster("s", "", &number.to_string()).unwrap()[0][..6].to_owned())
        .collect();
    assert!(spread.len() > 250, "{}", spread.len());
}

#[test]
fn braces_that_tear_a_lock_apart_are_refused() {
    for (key_prefix, client_prefix) in [
        ("a}b", ""),
        ("}", ""),
        ("{}", ""),
        ("{}{t}", ""),
        ("s", "{}"),
        ("s", "c{}{x}"),
    ] {
        let error = in_cluster(key_prefix, client_prefix, "k").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().starts_with("keyPrefix"), "{error}");
    }
    assert!(in_cluster("s", "}", "k").is_ok(), "before the first {{");
    assert!(in_cluster(&"p".repeat(945), "", "k").is_err());
    assert!(in_cluster(&"p".repeat(940), "", "k").is_ok());
}

#[test]
fn a_lock_id_of_another_shard_does_not_fit() {
    let names = Names::in_cluster("s", ClientPrefix::None).unwrap();
    let id = LockId::parse("f4-_AAAAAAAAAAAAAAAAAA").unwrap();
    assert!(names.fits("{s:7f}:k", &id));
    assert!(!names.fits("{s:80}:k", &id));
    let standalone = Names::new("s", ClientPrefix::None).unwrap();
    assert!(standalone.fits("s:k", &id));
}

/// A claim of some slot of the key.
fn slots(key: &str) -> Claim {
    let slots = crate::values::claim::Slots::new(9).unwrap();
    Claim::slot(Key::new(key).unwrap(), slots).unwrap()
}

#[test]
fn the_names_of_slots_lack_only_the_number() {
    for (key, client) in [
        ("p", ClientPrefix::None),
        (&"k".repeat(512), ClientPrefix::Ours("c:".into())),
    ] {
        // So long that names are hashed.
        for key_prefix in ["s", &"p".repeat(500)] {
            let names = Names::new(key_prefix, client.clone()).unwrap();
            let claim = slots(key);
            let claimed = names.claimed(&claim).unwrap();
            for number in [1, 37, 1000] {
                let key = claim.key.slot(number);
                let lock = names.lock_key(&key).unwrap();
                let fence = names.fence_key(&lock).unwrap();
                let texts = [&lock, &fence, key.as_str()];
                assert!(lock.len() <= 974 && fence.len() <= 974);
                for (claimed, text) in claimed.iter().zip(texts) {
                    assert_eq!(format!("{claimed}{number}"), text);
                }
                let (channel, _) = lock.rsplit_once('\u{37e}').unwrap();
                assert_eq!(names.channel(&claim).unwrap(), names.before(channel));
                let alone = Claim::new(key).unwrap();
                assert_eq!(names.channel(&alone).unwrap(), names.before(channel));
            }
        }
    }
}

#[test]
fn all_slots_of_a_key_are_in_one_shard() {
    let names = Names::in_cluster("s", ClientPrefix::None).unwrap();
    let mut claim = slots("p");
    let shard = names.claimed_shard(&claim).unwrap().unwrap();
    assert!(
        names.claimed(&claim).is_err(),
        "its lock id fits no other shard"
    );
    claim.lock_id = claim.lock_id.with_first_byte(shard);
    let [lock, fence, _] = names.claimed(&claim).unwrap();
    let start = format!("{{s:{shard:02x}}}:");
    assert!(lock == format!("{start}p\u{37e}") && fence.starts_with(&start));
    for number in 1..=1000 {
        let lock = names.lock_key(&claim.key.slot(number)).unwrap();
        assert!(lock.starts_with(&start), "{lock}");
    }
}

#[test]
fn a_reader_has_the_name_of_its_key_and_more() {
    for prefix in ["s", &"p".repeat(500)] {
        for key in ["k", &"k".repeat(512)] {
            let names = Names::in_cluster(prefix, ClientPrefix::None).unwrap();
            let mut claim = Claim::shared(Key::new(key).unwrap()).unwrap();
            let shard = names.claimed_shard(&claim).unwrap().unwrap();
            claim.lock_id = claim.lock_id.with_first_byte(shard);
            let [lock, fence, _] = names.claimed(&claim).unwrap();
            let [reader, readers, gate] = names.beside_shared(&claim).unwrap();
            assert_eq!(reader, format!("{lock}\u{37e}r{}", claim.lock_id.as_str()));
            assert!(reader.len() <= 1000 && gate.ends_with("\u{37e}0"));
            assert_eq!(
                group_keys(&reader),
                Some([lock.to_string(), readers.clone()])
            );
            assert!([&*lock, &fence, &gate].map(group_keys) == [None, None, None]);
            let start = names.start(shard);
            let all = [&*lock, &fence, &reader, &readers, &gate];
            assert!(all.iter().all(|name| name.starts_with(&*start)));
            // Whoever has only the reader's key finds the same.
            let own = claim.key.reader(&claim.lock_id);
            assert_eq!(names.lock_key(&own).unwrap(), reader);
            assert_eq!(names.fence_key(&reader).unwrap(), fence);
            let alone = Claim::new(claim.key.clone()).unwrap();
            for told in [&claim, &alone, &Claim::new(own).unwrap()] {
                assert_eq!(names.channel(told).unwrap(), *lock);
            }
            let group = names.group_id(&claim);
            assert!(group.first_byte() == shard && group.is_group_of(key));
            assert!(!claim.lock_id.is_group_of(key) && !group.is_group_of("other"));
        }
    }
}

#[test]
fn a_shared_lock_whose_gate_is_elsewhere_is_refused() {
    // The name of the gate is hashed, and that of the key is not.
    let names = Names::in_cluster(&"p".repeat(459), ClientPrefix::None).unwrap();
    let refused = (0..9).filter(|number| {
        let key = format!("{number}{}", "k".repeat(511));
        let mut claim = Claim::shared(Key::new(&key).unwrap()).unwrap();
        let shard = names.claimed_shard(&claim).unwrap().unwrap();
        claim.lock_id = claim.lock_id.with_first_byte(shard);
        let beside = names.beside_shared(&claim);
        beside.is_err_and(|error| error.kind() == ErrorKind::InvalidArgument)
    });
    assert!(refused.count() > 6);
}

#[test]
fn slots_whose_names_are_those_of_counters_are_refused() {
    let names = Names::new("s", ClientPrefix::None).unwrap();
    assert!(names.claimed(&slots("fence:s:a")).is_err());
    assert!(names.claimed(&slots("fence:a")).is_ok());
}
