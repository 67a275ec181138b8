//! What is printed at the end.

use super::leaks::Item;
use super::tally::Deed;
use super::watch::Outcome;
use crate::driver::Kind;
use crate::table::render;
use serde_json::{Value, json};

/// What the user asked for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    pub(super) seed: u64,
    pub(super) processes: u32,
}

/// Whether all is as it must be.
pub(super) fn is_good(outcome: &Outcome) -> bool {
    outcome.failures.is_empty() && outcome.hangs == 0 && leaked(outcome) == 0
}

fn leaked(outcome: &Outcome) -> usize {
    outcome.leaks.iter().filter(|item| item.is_leaked()).count()
}

/// The tables.
pub(super) fn tables(outcome: &Outcome) -> String {
    let tally = &outcome.tally;
    let text = |text: &str| text.to_owned();
    let mut deeds = vec![["operation".to_owned(), text("done"), text("refused")]];
    for deed in Deed::ALL {
        let [done, refused] = tally.deeds.get(deed.name()).copied().unwrap_or_default();
        deeds.push([text(deed.name()), done.to_string(), refused.to_string()]);
    }
    let mut numbers = vec![[text("disturbances, and what was counted"), text("number")]];
    for (name, number) in &tally.numbers {
        numbers.push([name.clone(), number.to_string()]);
    }
    let mut leaks = vec![[text("held"), text("before"), text("after"), text("")]];
    for item in &outcome.leaks {
        leaks.push([
            item.name.clone(),
            item.before.to_string(),
            item.after.to_string(),
            verdict(item),
        ]);
    }
    [render(&deeds), render(&numbers), render(&leaks)].join("\n\n")
}

fn verdict(item: &Item) -> String {
    match (item.is_leaked(), item.counts) {
        (true, _) => format!("LEAK {}", item.detail).trim_end().to_owned(),
        (false, true) => "no leak".to_owned(),
        (false, false) => "told only".to_owned(),
    }
}

/// The last line.
pub(super) fn last_line(asked: &Asked, outcome: &Outcome) -> String {
    let Asked { processes, .. } = asked;
    let tally = &outcome.tally;
    let early = outcome
        .interrupted
        .map(|signal| format!(", ended early by {signal}"));
    let others = match outcome.failures.len() {
        0 => String::new(),
        1 => ", 1 failure".to_owned(),
        many => format!(", {many} failures"),
    };
    format!(
        "soak: {:.1} seconds, {processes} processes, {} kills, {} events, {} wrong bytes, {} hangs, {} leaks{others}{}",
        outcome.time.as_secs_f64(),
        tally.number("kills"),
        tally.all_deeds(),
        tally.number("wrong bytes"),
        outcome.hangs,
        leaked(outcome),
        early.unwrap_or_default(),
    )
}

/// The same as one JSON object.
pub(super) fn json(asked: &Asked, outcome: &Outcome) -> Value {
    let tally = outcome.tally.to_json();
    let leaks: Vec<Value> = outcome.leaks.iter().map(Item::to_json).collect();
    json!({
        "driver": asked.kind.name(),
        "seed": asked.seed,
        "processes": asked.processes,
        "seconds": outcome.time.as_secs_f64(),
        "interrupted": outcome.interrupted,
        "operations": tally["deeds"],
        "numbers": tally["numbers"],
        "events": outcome.tally.all_deeds(),
        "kills": outcome.tally.number("kills"),
        "wrong_bytes": outcome.tally.number("wrong bytes"),
        "hangs": outcome.hangs,
        "normal_ends": outcome.ended,
        "leaks": leaks,
        "leaked": leaked(outcome),
        "failures": outcome.failures,
        "good": is_good(outcome),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_trouble_is_no_good_end() {
        assert!(is_good(&Outcome::default()));
        let hang = Outcome {
            hangs: 1,
            ..Outcome::default()
        };
        let failure = Outcome {
            failures: vec!["x".to_owned()],
            ..Outcome::default()
        };
        let leak = Outcome {
            leaks: vec![Item::new("threads", 1, 2)],
            ..Outcome::default()
        };
        for outcome in [hang, failure, leak] {
            assert!(!is_good(&outcome), "{outcome:?}");
        }
    }
}
