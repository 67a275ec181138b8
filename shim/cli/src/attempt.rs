//! A failed attempt as text, so that it can cross to another process.

use gpuipc::{Attempt, GpuPair};
use serde_json::{Value, json};
use std::fmt;

/// Who made an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Export,
    Import,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::Import => "import",
        }
    }
}

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttemptText {
    side: Side,
    handle_type: String,
    step: String,
    /// Of several segments, the one at which it ended.
    segment: Option<u64>,
    /// The importing GPU and the memory's, where there was no way between them.
    gpu_pair: Option<(String, String)>,
    code: String,
    reason: String,
    hint: String,
}

impl AttemptText {
    /// The attempts of one side.
    pub(crate) fn all(side: Side, attempts: &[Attempt]) -> Vec<Self> {
        let text = |attempt: &Attempt| Self {
            side,
            handle_type: attempt.handle_type.to_string(),
            step: attempt.step.name().to_owned(),
            segment: attempt.segment.map(u64::from),
            gpu_pair: attempt
                .gpu_pair
                .map(|GpuPair { from, to }| (from.to_string(), to.to_string())),
            code: attempt.code.to_string(),
            reason: attempt.reason.why().to_owned(),
            hint: attempt.reason.hint().to_owned(),
        };
        attempts.iter().map(text).collect()
    }

    /// What happened, without what to do about it, and without GPUs that the
    /// reader knows.
    pub(crate) fn what(&self) -> String {
        let segment = self.segment.map(|segment| format!(" of segment {segment}"));
        format!(
            "{}: {} failed at {}{}: {} [{}]",
            self.side.name(),
            self.handle_type,
            self.step,
            segment.unwrap_or_default(),
            self.reason,
            self.code
        )
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> &str {
        &self.hint
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "side": self.side.name(),
            "type": self.handle_type,
            "step": self.step,
            "segment": self.segment,
            "gpu_pair": self.gpu_pair.as_ref().map(|(from, to)| json!({ "from": from, "to": to })),
            "code": self.code,
            "reason": self.reason,
            "hint": self.hint,
        })
    }

    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name)?.as_str().map(str::to_owned);
        let side = text("side")?;
        Some(Self {
            side: [Side::Export, Side::Import]
                .into_iter()
                .find(|known| known.name() == side)?,
            handle_type: text("type")?,
            step: text("step")?,
            segment: value.get("segment")?.as_u64(),
            gpu_pair: match value.get("gpu_pair")? {
                Value::Null => None,
                gpu_pair => Some((
                    gpu_pair.get("from")?.as_str()?.to_owned(),
                    gpu_pair.get("to")?.as_str()?.to_owned(),
                )),
            },
            code: text("code")?,
            reason: text("reason")?,
            hint: text("hint")?,
        })
    }
}

impl fmt::Display for AttemptText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what())?;
        if let Some((from, to)) = &self.gpu_pair {
            write!(f, " (from {from} to {to})")?;
        }
        write!(f, "; {}", self.hint)
    }
}
