//! One finding, and all of them as lines or as JSON.

use crate::output::{Failure, line};
use crate::table::wrap;
use serde_json::{Value, json};

/// What a finding means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It works.
    Ok,
    /// It does not.
    No,
    /// It could not be found out.
    Unknown,
    /// Neither good nor bad by itself.
    Note,
}

impl Verdict {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::No => "no",
            Self::Unknown => "unknown",
            Self::Note => "note",
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) subject: String,
    pub(crate) verdict: Verdict,
    pub(crate) found: String,
    /// What to do about it.
    pub(crate) cure: Option<String>,
}

impl Check {
    pub(crate) fn new(
        subject: impl Into<String>,
        verdict: Verdict,
        found: impl Into<String>,
    ) -> Self {
        Self {
            subject: subject.into(),
            verdict,
            found: found.into(),
            cure: None,
        }
    }

    pub(crate) fn ok(subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(subject, Verdict::Ok, found)
    }

    /// Something that does not work always comes with what to do about it.
    pub(crate) fn no(
        subject: impl Into<String>,
        found: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self::new(subject, Verdict::No, found).cure(cure)
    }

    pub(crate) fn unknown(subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(subject, Verdict::Unknown, found)
    }

    pub(crate) fn note(subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(subject, Verdict::Note, found)
    }

    pub(crate) fn cure(mut self, cure: impl Into<String>) -> Self {
        self.cure = Some(cure.into());
        self
    }

    /// The finding as lines.
    fn text(&self) -> String {
        let mut lines = Vec::new();
        for (index, part) in wrap(&self.found, FOUND).into_iter().enumerate() {
            lines.push(if index == 0 {
                let verdict = self.verdict.name();
                format!("{:SUBJECT$}  {verdict:VERDICT$}  {part}", self.subject)
            } else {
                format!("{:INDENT$}{part}", "")
            });
        }
        for (index, part) in wrap(self.cure.as_deref().unwrap_or_default(), FOUND - 6)
            .into_iter()
            .enumerate()
        {
            let head = if index == 0 { "cure: " } else { "      " };
            lines.push(format!("{:INDENT$}{head}{part}", ""));
        }
        lines.join("\n")
    }

    fn to_json(&self) -> Value {
        json!({
            "subject": self.subject,
            "verdict": self.verdict.name(),
            "found": self.found,
            "cure": self.cure,
        })
    }
}

const SUBJECT: usize = 22;
const VERDICT: usize = 7;
const INDENT: usize = SUBJECT + 2 + VERDICT + 2;
const FOUND: usize = 110 - INDENT;

/// What was found so far. Lines are written as they come, so that the last one
/// before a driver call that hangs is there; JSON is written at the end.
#[derive(Debug)]
pub(crate) struct Report {
    json: bool,
    checks: Vec<Check>,
}

impl Report {
    pub(crate) const fn new(json: bool) -> Self {
        Self {
            json,
            checks: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, check: Check) -> Result<(), Failure> {
        if !self.json {
            line(check.text())?;
        }
        self.checks.push(check);
        Ok(())
    }

    pub(crate) fn add_all(
        &mut self,
        checks: impl IntoIterator<Item = Check>,
    ) -> Result<(), Failure> {
        checks.into_iter().try_for_each(|check| self.add(check))
    }

    pub(crate) fn checks_as_json(&self) -> Vec<Value> {
        self.checks.iter().map(Check::to_json).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_go_on_below_themselves() {
        let check = Check::no("subject", "found ".repeat(20), "do this ".repeat(20));
        let text = check.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.len() <= 110), "{text}");
        assert!(lines[0].starts_with("subject                 no       found found"));
        assert!(lines[1].starts_with(&format!("{:33}found", "")), "{text}");
        let cure = lines.iter().position(|line| line.contains("cure: "));
        assert_eq!(cure, Some(2), "{text}");
        assert!(lines[3].starts_with(&format!("{:39}", "")), "{text}");
    }
}
