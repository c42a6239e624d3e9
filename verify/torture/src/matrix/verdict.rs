//! What came of a row.

use std::fmt;

/// What came of a row.
#[derive(Debug, Default)]
pub struct Verdict {
    /// The store and the row.
    pub name: String,
    /// What is worth knowing of it.
    pub facts: Vec<String>,
    /// What must not have been.
    pub violations: Vec<String>,
    /// What took longer than it may. Other work on the machine can be the reason, too.
    pub late: Vec<String>,
}

impl Verdict {
    pub(crate) fn fact(&mut self, text: String) {
        self.facts.push(text);
    }

    /// Unless `holds`, `text` is a violation.
    pub(crate) fn must(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(text());
        }
    }

    /// Unless `holds`, `text` took too long.
    pub(crate) fn must_in_time(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.late.push(text());
        }
    }

    /// Whether all was as it must be, and in time.
    pub fn is_well(&self) -> bool {
        self.violations.is_empty() && self.late.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<28} {}", self.name, self.facts.join("; "))?;
        let wrong = self.violations.iter().chain(&self.late);
        writeln!(f, "; {} violations", wrong.clone().count())?;
        for violation in wrong {
            writeln!(f, "  {violation}")?;
        }
        Ok(())
    }
}
