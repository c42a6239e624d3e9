//! What came of a row.

use std::fmt;

use syncguard::ErrorKind;

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

    /// `text` tells of errors of that kind. Unless users may see it, it is a violation; that time was over only says that all of it
    /// took too long.
    pub(crate) fn saw(
        &mut self,
        kind: Option<ErrorKind>,
        allowed: &[ErrorKind],
        text: impl FnOnce() -> String,
    ) {
        let is_allowed = kind.is_some_and(|kind| allowed.contains(&kind));
        match kind {
            Some(ErrorKind::NetworkTimeout | ErrorKind::AcquisitionTimeout) => {
                self.must_in_time(is_allowed, text);
            }
            _ => self.must(is_allowed, text),
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
        if !self.late.is_empty() {
            write!(f, "; {} too late", self.late.len())?;
        }
        writeln!(f, "; {} violations", self.violations.len())?;
        for wrong in self.violations.iter().chain(&self.late) {
            writeln!(f, "  {wrong}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_too_long_is_no_violation() {
        let mut verdict = Verdict::default();
        let allowed = &[ErrorKind::ServiceUnavailable];
        let mut saw = |kind, text: &str| verdict.saw(kind, allowed, || text.to_owned());
        saw(Some(ErrorKind::ServiceUnavailable), "allowed");
        saw(Some(ErrorKind::NetworkTimeout), "no answer");
        saw(Some(ErrorKind::AcquisitionTimeout), "no turn");
        saw(Some(ErrorKind::Internal), "a defect");
        saw(None, "an unknown kind");
        assert_eq!(verdict.late, ["no answer", "no turn"]);
        assert_eq!(verdict.violations, ["a defect", "an unknown kind"]);
        assert!(!verdict.is_well());
        assert_eq!(
            verdict.to_string().lines().next().unwrap().trim_start(),
            "; 2 too late; 2 violations"
        );
    }
}
