//! What the command prints: a row for each figure.

use super::statistics::{Interval, Pairs};
use crate::table;
use serde_json::{Value, json};

/// What a figure is to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    /// The library's median is at most this.
    AtMost(f64),
    /// The library's median is at least this.
    AtLeast(f64),
    /// The ratio is at least this.
    RatioAtLeast(f64),
    /// The ratio's interval ends at this or below.
    RatioAtMost(f64),
}

/// One figure.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) figure: String,
    pub(crate) unit: &'static str,
    library: Option<Interval>,
    raw: Option<Interval>,
    ratio: Option<Interval>,
    /// How often it was measured.
    count: usize,
    target: Option<Target>,
    /// Why it could not be measured.
    pub(crate) skipped: Option<String>,
    /// What went wrong.
    pub(crate) failed: Option<String>,
}

impl Row {
    fn new(figure: impl Into<String>, unit: &'static str) -> Self {
        Self {
            figure: figure.into(),
            unit,
            library: None,
            raw: None,
            ratio: None,
            count: 0,
            target: None,
            skipped: None,
            failed: None,
        }
    }

    /// The library beside the raw calls.
    pub(crate) fn of(figure: impl Into<String>, unit: &'static str, pairs: &Pairs) -> Self {
        Self {
            library: Interval::of(&pairs.library),
            raw: Interval::of(&pairs.raw),
            ratio: pairs.ratio(),
            count: pairs.len(),
            ..Self::new(figure, unit)
        }
    }

    /// The library where no raw calls do the same.
    pub(crate) fn alone(figure: impl Into<String>, unit: &'static str, values: &[f64]) -> Self {
        Self {
            library: Interval::of(values),
            count: values.len(),
            ..Self::new(figure, unit)
        }
    }

    /// Not measured.
    pub(crate) fn skipped(figure: impl Into<String>, unit: &'static str, why: &str) -> Self {
        Self {
            skipped: Some(why.to_owned()),
            ..Self::new(figure, unit)
        }
    }

    /// Went wrong.
    pub(crate) fn failed(figure: &str, why: String) -> Self {
        Self {
            failed: Some(why),
            ..Self::new(figure, "")
        }
    }

    /// With a target.
    pub(crate) const fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    fn verdict(&self) -> &'static str {
        let at_hand = match self.target {
            None => None,
            Some(Target::AtMost(limit)) => self.library.map(|value| value.median <= limit),
            Some(Target::AtLeast(limit)) => self.library.map(|value| value.median >= limit),
            Some(Target::RatioAtLeast(limit)) => self.ratio.map(|value| value.median >= limit),
            Some(Target::RatioAtMost(limit)) => self.ratio.map(|value| value.high <= limit),
        };
        match at_hand {
            None => "-",
            Some(true) => "met",
            Some(false) => "missed",
        }
    }

    fn target_text(&self) -> String {
        match self.target {
            None => "-".to_owned(),
            Some(Target::AtMost(limit)) => format!("<= {} {}", number(limit), self.unit),
            Some(Target::AtLeast(limit)) => format!(">= {} {}", number(limit), self.unit),
            Some(Target::RatioAtLeast(limit)) => format!("ratio >= {limit}"),
            Some(Target::RatioAtMost(limit)) => format!("ratio <= {limit}"),
        }
    }

    /// One object.
    pub(crate) fn to_json(&self, driver: &str) -> Value {
        let interval = |interval: Option<Interval>| match interval {
            None => Value::Null,
            Some(Interval { median, low, high }) => {
                json!({ "median": median, "low": low, "high": high })
            }
        };
        json!({
            "driver": driver,
            "figure": self.figure,
            "unit": self.unit,
            "library": interval(self.library),
            "raw": interval(self.raw),
            "ratio": interval(self.ratio),
            "count": self.count,
            "target": self.target.map(|_| self.target_text()),
            "verdict": self.verdict(),
            "skipped": self.skipped,
            "failed": self.failed,
        })
    }

    fn cells(&self) -> [String; 7] {
        let cell = |value: Option<Interval>| {
            value.map_or_else(
                || "-".to_owned(),
                |value| format!("{} {}", number(value.median), self.unit),
            )
        };
        let ratio = match (&self.failed, &self.skipped, self.ratio) {
            (Some(why), ..) => format!("failed: {why}"),
            (_, Some(why), _) => format!("skipped: {why}"),
            (.., Some(Interval { median, low, high })) => {
                format!("{median:.3} [{low:.3}, {high:.3}]")
            }
            _ => "-".to_owned(),
        };
        [
            self.figure.clone(),
            cell(self.library),
            cell(self.raw),
            self.count.to_string(),
            self.target_text(),
            self.verdict().to_owned(),
            ratio,
        ]
    }
}

/// All rows below each other. What was skipped says so in the last column, which
/// may be long.
pub(crate) fn table_of(rows: &[Row]) -> String {
    let heads = [
        "figure",
        "library",
        "raw calls",
        "n",
        "target",
        "",
        "ratio [95 %]",
    ];
    let mut lines = vec![heads.map(str::to_owned)];
    lines.extend(rows.iter().map(Row::cells));
    table::render(&lines)
}

/// Three digits that matter, or all before the point.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => grouped(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// With a comma at the thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 {
        text.insert(0, '-');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts = [
            (0.01234, "0.0123"),
            (0.5, "0.50"),
            (15.0, "15.0"),
            (123.4, "123"),
            (150_000.0, "150,000"),
            (-1234.0, "-1,234"),
            (1_234_567.0, "1,234,567"),
        ];
        for (value, text) in texts {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_target_is_met_by_the_median() {
        let row = |target| Row::alone("x", "us", &[1.0, 2.0, 9.0]).target(target);
        assert_eq!(row(Target::AtMost(2.0)).verdict(), "met");
        assert_eq!(row(Target::AtMost(1.9)).verdict(), "missed");
        assert_eq!(row(Target::AtLeast(2.1)).verdict(), "missed");
        assert_eq!(row(Target::RatioAtLeast(0.5)).verdict(), "-");
        let mut pairs = Pairs::default();
        for library in [1.0, 2.0, 9.0] {
            pairs.push((library, 2.0));
        }
        let ratio = |limit| Row::of("x", "us", &pairs).target(Target::RatioAtMost(limit));
        assert_eq!(ratio(4.5).verdict(), "met");
        assert_eq!(ratio(4.4).verdict(), "missed", "the median alone is below");
        assert_eq!(row(Target::AtMost(2.0)).target_text(), "<= 2.00 us");
        assert_eq!(Row::alone("x", "us", &[1.0]).verdict(), "-");
    }

    #[test]
    fn a_row_has_each_field_and_says_why_it_is_empty() {
        let mut pairs = Pairs::default();
        pairs.push((3.0, 2.0));
        let value = Row::of("x", "us", &pairs).to_json("emulated");
        assert_eq!(value["library"]["median"], 3.0);
        assert_eq!(value["ratio"]["high"], 1.5);
        assert_eq!(value["target"], Value::Null);
        let skipped = Row::skipped("y", "us", "no room");
        assert_eq!(skipped.to_json("emulated")["skipped"], "no room");
        let text = table_of(&[Row::of("x", "us", &pairs), skipped]);
        assert!(text.contains("1.500 [1.500, 1.500]"), "{text}");
        assert!(text.ends_with("skipped: no room"), "{text}");
    }
}
