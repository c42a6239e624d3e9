//! The bodies under proptest, and with everything that fuzzing has found.

use std::env;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use fuzz_bodies::{BODIES, Body};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Pieces of what the inputs are made of, so that random ones get past the first check.
const PIECES: [&str; 44] = [
    "\u{1}",
    "\n",
    "\r\n",
    "://",
    "redis://",
    "rediss://",
    "unix://",
    "redis+sentinel://",
    "redis+cluster://",
    "postgres://",
    "host=",
    "password=",
    "?",
    "&",
    "#",
    "@",
    ":",
    "/",
    ",",
    "[::1]",
    "%",
    "%zz",
    "%00",
    "?sslmode=",
    "&db=",
    "keyPrefix=",
    "{",
    "}",
    "[",
    "]",
    "\"lockId\":\"\u{1}\"",
    "\"expiresAtMs\":1e400",
    "\"acquiredAtMs\":-1",
    "\"fence\":\"000000000000007\"",
    "\"key\":\"\u{1}\"",
    "\"ttl\":{\"value\":1,\"unit\":\"second\"}",
    "\"block\":{\"value\":1e308,\"unit\":\"day\"}",
    "*3\r\n:1\r\n",
    "$-1\r\n",
    "$5\r\n",
    ":-9223372036854775808\r\n",
    "-MOVED 1 h:1\r\n",
    "-ERR \u{1}\r\n",
    "(1\r\n",
];

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => prop::sample::select(&PIECES[..]).prop_map(|text| text.as_bytes().to_vec()),
        1 => any::<char>().prop_map(|one| one.to_string().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ];
    let pieces = prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat());
    prop_oneof![2 => pieces, 1 => prop::collection::vec(any::<u8>(), 0..400)]
}

/// As many inputs as fit into a second: the bodies that talk over sockets take long for each.
#[test]
fn nothing_panics_hangs_or_shows_what_is_private() {
    let mut faults = Vec::new();
    for (name, body) in BODIES {
        let until = Instant::now() + Duration::from_secs(1);
        let mut inputs = 0;
        while inputs == 0 || Instant::now() < until {
            let config = Config {
                cases: 8,
                failure_persistence: None,
                ..Config::default()
            };
            let checked = TestRunner::new(config).run(&bytes(), |bytes| {
                body(&bytes);
                Ok(())
            });
            inputs += 8;
            if let Err(fault) = checked {
                faults.push(format!("{name}: {fault}"));
                break;
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn what_fuzzing_has_found_stays_mended() {
    // Where the test runs, not where it was built: clones share what is built.
    let corpus = env::current_dir().unwrap().join("../fuzz/corpus");
    for (name, body) in BODIES {
        let inputs = replay(&corpus.join(name), body);
        assert!(inputs > 0, "{name} has no corpus");
    }
}

fn replay(folder: &Path, body: Body) -> usize {
    let Ok(files) = fs::read_dir(folder) else {
        return 0;
    };
    let files = files.flatten().map(|file| fs::read(file.path()));
    files.flatten().map(|bytes| body(&bytes)).count()
}
