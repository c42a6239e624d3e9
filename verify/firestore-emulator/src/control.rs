//! Orders to a running emulator, one a line: how a test in another process sets faults.

use crate::emulator::Emulator;
use crate::faults::Fault;

impl Emulator {
    /// Carries out one order and returns the answer, one line without its end.
    ///
    /// `faults JSON` sets the list of [`Fault`]s; `calls` answers the count of calls as JSON;
    /// `reset-calls` starts counting anew; `clear` deletes all documents; `clock MS` sets
    /// how far its clock is ahead; `listeners` answers how many Listen streams
    /// there are and how many targets they have, as JSON; `end-listeners` ends them. Answers are `ok`, JSON, or
    /// `error` and why.
    pub fn order(&self, line: &str) -> String {
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        match word {
            "faults" => match serde_json::from_str::<Vec<Fault>>(rest) {
                Ok(faults) => {
                    self.faults().set(faults);
                    "ok".to_owned()
                }
                Err(error) => format!("error {error}"),
            },
            "calls" => match serde_json::to_string(&self.faults().calls()) {
                Ok(calls) => calls,
                Err(error) => format!("error {error}"),
            },
            "reset-calls" => {
                self.faults().reset_calls();
                "ok".to_owned()
            }
            "clear" => {
                self.clear();
                "ok".to_owned()
            }
            "clock" => match rest.trim().parse() {
                Ok(ahead_ms) => {
                    self.set_clock_ahead(ahead_ms);
                    "ok".to_owned()
                }
                Err(error) => format!("error {error}"),
            },
            "listeners" => format!(
                r#"{{"streams":{},"targets":{}}}"#,
                self.listeners(),
                self.targets()
            ),
            "end-listeners" => {
                self.end_listeners();
                "ok".to_owned()
            }
            _ => "error expected faults, calls, reset-calls, clear, clock, listeners or end-listeners"
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Emulator, Options};

    #[test]
    fn orders_are_answered() {
        let emulator = Emulator::start(Options::default()).unwrap();
        assert_eq!(emulator.order("calls"), "{}");
        assert_eq!(
            emulator.order(r#"faults [{"effect":{"status":"ABORTED"},"rate":0.5}]"#),
            "ok"
        );
        assert!(emulator.order("faults {}").starts_with("error "));
        assert!(emulator.order("dance").starts_with("error "));
        assert_eq!(emulator.order("clear"), "ok");
        assert_eq!(emulator.order("clock -30000"), "ok");
        assert!(emulator.order("clock soon").starts_with("error "));
        assert_eq!(emulator.order("listeners"), r#"{"streams":0,"targets":0}"#);
        assert_eq!(emulator.order("end-listeners"), "ok");
    }
}
