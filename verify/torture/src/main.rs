//! `torture run URL SECONDS SEED` works on a store with several processes, and checks what they saw.
//! `torture matrix STORES SECONDS SEED` does so while stores, networks, clocks and disks fail.

use std::error::Error;
use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::time::Duration;

use torture::matrix::{Settings, rows};
use torture::register::Fences;
use torture::run::{ClientError, Report, run};
use torture::store::prepare;
use torture::task::{Task, Work};
use torture::worker::work;

const USAGE: &str = "usage: torture run URL SECONDS SEED [stop] [kill] [shift] [unfenced]
       torture matrix STORE[,STORE…] SECONDS SEED [ROW…]";

/// Within so many seconds, somebody who wants several things has to gather them, and a writer meets readers.
const ENOUGH: u64 = 8;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<ExitCode> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["worker", task] => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?;
            runtime.block_on(work(serde_json::from_str(task)?))?;
            Ok(ExitCode::SUCCESS)
        }
        ["run", url, seconds, seed, words @ ..] => {
            torture(url, seconds.parse()?, seed.parse()?, words)
        }
        ["matrix", stores, seconds, seed, names @ ..] => {
            matrix(stores, seconds.parse()?, seed.parse()?, names)
        }
        _ => Err(USAGE.into()),
    }
}

fn torture(url: &str, seconds: u64, seed: u64, words: &[&str]) -> Result<ExitCode> {
    let trouble = ClientError {
        stops: words.contains(&"stop"),
        kills: words.contains(&"kill"),
        shifted_clocks: words.contains(&"shift"),
    };
    let fences = if words.contains(&"unfenced") {
        Fences::Ignored
    } else {
        Fences::Checked
    };
    let folder = tempfile::tempdir()?;
    let task = Task {
        url: url.to_owned(),
        history: folder.path().to_owned(),
        register: folder.path().join("register"),
        seed,
        run: Duration::from_secs(seconds),
        loops: 16,
        keys: 60,
        waits: true,
        guards: false,
        pause: Duration::ZERO,
        work: Work::Anything,
    };
    let program = std::env::current_exe()?;
    let command = || {
        let mut command = Command::new(&program);
        command.arg("worker");
        command
    };
    tokio::runtime::Runtime::new()?.block_on(prepare(url))?;
    let report = run(command, folder.path(), &task, 4, trouble, fences)?;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "seed {seed}: {} operations, {} grants, {} unknown; {} stopped, {} killed; gathered: {} granted, {} in vain; register: {} accepted, {} refused, {} lost; shared: {} joins, {} gates",
        report.operations,
        report.grants,
        report.unknown,
        report.stopped,
        report.killed,
        report.gathered.granted,
        report.gathered.in_vain,
        report.register.accepted,
        report.register.refused,
        report.register.lost,
        report.joins,
        report.gates,
    )?;
    for violation in &report.violations {
        write!(out, "{violation}")?;
    }
    for slow in &report.slow {
        write!(out, "{slow}")?;
    }
    for promise in &report.broken {
        writeln!(out, "{promise}")?;
    }
    let violations = report.violations.len() + report.slow.len() + report.broken.len();
    writeln!(out, "{violations} violations")?;
    has_shown_enough(&report, seconds)?;
    // Without fences, writes are lost: that is what they are for.
    let is_safe = report.register.lost == 0 || fences == Fences::Ignored;
    Ok(exit_code(violations == 0 && is_safe))
}

/// What grants nothing breaks no promise, and shows nothing.
fn has_shown_enough(report: &Report, seconds: u64) -> Result<()> {
    if report.grants == 0 {
        return Err("no lock was granted".into());
    }
    if seconds >= ENOUGH && report.gathered.granted == 0 {
        return Err("nothing was gathered".into());
    }
    if seconds >= ENOUGH && (report.joins == 0 || report.gates == 0) {
        return Err("nothing was shared, or no writer had a gate".into());
    }
    Ok(())
}

fn matrix(stores: &str, seconds: u64, seed: u64, names: &[&str]) -> Result<ExitCode> {
    let stores: Vec<_> = stores.split(',').collect();
    let settings = Settings {
        program: std::env::current_exe()?,
        run: Duration::from_secs(seconds),
        seed,
        processes: 4,
        loops: 16,
        pause: Duration::ZERO,
        waiters: 2_000,
    };
    let chosen: Vec<_> = rows()
        .into_iter()
        .filter(|row| stores.contains(&row.store))
        .filter(|row| names.is_empty() || names.contains(&row.name))
        .collect();
    if chosen.is_empty() {
        return Err(format!("there are no such rows\n{USAGE}").into());
    }
    let mut is_well = true;
    for row in chosen {
        let verdict = row.play(&settings)?;
        write!(std::io::stdout().lock(), "{verdict}")?;
        is_well &= verdict.is_well();
    }
    Ok(exit_code(is_well))
}

fn exit_code(is_well: bool) -> ExitCode {
    if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
