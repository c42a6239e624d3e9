//! The emulator as a program: `firestore-emulator [--port N] [--orders]`.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use firestore_emulator::{Emulator, Options};

const USAGE: &str = "usage: firestore-emulator [--port N] [--orders]

  --port N   listen on 127.0.0.1:N (default: any free port)
  --orders   take orders from standard input, one a line, and end with it:
             faults JSON | calls | reset-calls | clear | clock MS | listeners | end-listeners";

fn main() -> ExitCode {
    let mut options = Options::default();
    let mut orders = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--port" => match arguments.next().and_then(|port| port.parse().ok()) {
                Some(port) => options.port = port,
                None => return refuse("--port needs a number up to 65535"),
            },
            "--orders" => orders = true,
            _ => return refuse("unknown argument"),
        }
    }
    match run(options, orders) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error.to_string()),
    }
}

fn run(options: Options, orders: bool) -> io::Result<()> {
    let emulator = Emulator::start(options)?;
    let mut output = io::stdout();
    writeln!(output, "{}", emulator.address())?;
    output.flush()?;
    if !orders {
        loop {
            std::thread::park();
        }
    }
    for line in io::stdin().lock().lines() {
        writeln!(output, "{}", emulator.order(&line?))?;
        output.flush()?;
    }
    Ok(())
}

fn refuse(why: &str) -> ExitCode {
    // Nobody is left to tell if this fails.
    let _ = writeln!(io::stderr(), "{why}\n\n{USAGE}");
    ExitCode::FAILURE
}
