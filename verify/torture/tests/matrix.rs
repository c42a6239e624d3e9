//! The fault matrix in its short form: each row for a few seconds, several at a time.
//!
//! `npm run torture -- matrix` plays them for longer, with more load.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use torture::matrix::{Row, Settings, rows};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most of a row's time goes into waiting.
    arguments.test_threads = arguments.test_threads.map(|threads| threads.max(12));
    // Sentinel at times takes more than a minute to make a former primary follow.
    let short = rows()
        .into_iter()
        .filter(|row| row.name != "sentinel-failover");
    let trials = short.map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// How often a row is played that took too long, before it has failed. The reason may be the rows beside it, which run servers
/// on the same cores.
const TRIES: u64 = 3;

fn trial(row: Row) -> Trial {
    Trial::test(format!("{}::{}", row.store, row.name), move || {
        for seed in 1..=TRIES {
            let verdict = row.play(&settings(seed))?;
            if verdict.is_well() {
                break;
            }
            if seed == TRIES || !verdict.violations.is_empty() {
                return Err(Failed::from(verdict.to_string()));
            }
        }
        Ok(())
    })
}

fn settings(seed: u64) -> Settings {
    Settings {
        program: PathBuf::from(env!("CARGO_BIN_EXE_torture")),
        run: Duration::from_secs(4),
        seed,
        processes: 3,
        loops: 4,
        // Slow, so that many rows share two cores.
        pause: Duration::from_millis(40),
        waiters: 150,
    }
}
