//! `torture run URL SECONDS SEED` works on a store with several processes, and checks what they saw.

use std::error::Error;
use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::time::Duration;

use torture::run::{Trouble, run};
use torture::worker::{Task, work};

const USAGE: &str = "usage: torture run URL SECONDS SEED [stop] [kill]";

fn main() -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
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
        ["run", url, seconds, seed, troubles @ ..] => {
            let trouble = Trouble {
                stops: troubles.contains(&"stop"),
                kills: troubles.contains(&"kill"),
            };
            torture(url, seconds.parse()?, seed.parse()?, trouble)
        }
        _ => Err(USAGE.into()),
    }
}

fn torture(
    url: &str,
    seconds: u64,
    seed: u64,
    trouble: Trouble,
) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let folder = std::env::temp_dir().join(format!("syncguard-torture-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let task = Task {
        url: url.to_owned(),
        history: folder.clone(),
        register: folder.join("register"),
        seed,
        run: Duration::from_secs(seconds),
        loops: 16,
        keys: 60,
        waits: true,
    };
    let program = std::env::current_exe()?;
    let command = || {
        let mut command = Command::new(&program);
        command.arg("worker");
        command
    };
    let report = run(command, &folder, &task, 4, trouble);
    std::fs::remove_dir_all(&folder)?;
    let report = report?;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "seed {seed}: {} operations, {} grants, {} unknown; {} stopped, {} killed; register: {} accepted, {} refused",
        report.operations,
        report.grants,
        report.unknown,
        report.stopped,
        report.killed,
        report.accepted,
        report.refused,
    )?;
    for violation in &report.violations {
        write!(out, "{violation}")?;
    }
    writeln!(out, "{} violations", report.violations.len())?;
    Ok(if report.violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
