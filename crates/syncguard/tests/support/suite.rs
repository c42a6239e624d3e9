//! How a store's suite runs: its tests by topic, each on a runtime of its own.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// The tests of a topic, with their names.
pub(crate) type Tests = &'static [(&'static str, fn() -> Pin<Box<dyn Future<Output = ()>>>)];

/// Lists the tests of a file, as its `TESTS`. One that is left out is dead code, which clippy finds.
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        pub(crate) const TESTS: $crate::support::suite::Tests =
            &[$((stringify!($test), || Box::pin($test()))),+];
    };
}
pub(crate) use tests;

/// Runs the tests of `topics` that the command line asks for. The harness of Rust would do, but for
/// what must be done after the last test, and for programs that tests run again as their children.
pub(crate) fn run(topics: &[(&str, Tests)]) -> ExitCode {
    let mut trials = Vec::new();
    for (topic, tests) in topics {
        for (name, test) in *tests {
            trials.push(Trial::test(format!("{topic}::{name}"), move || {
                block_on(test());
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}
