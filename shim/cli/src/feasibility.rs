//! What `gpuipc import --dry-run` says.

use crate::output::{Failure, line};
use crate::table;
use gpuipc::{Feasibility, Feasible};

/// Writes the answer type by type. Fails where nothing could be imported.
pub(crate) fn report(feasibility: &Feasibility) -> Result<(), Failure> {
    if feasibility.is_own {
        line("the memory is this process's own")?;
    }
    let rows: Vec<[String; 3]> = feasibility
        .types
        .iter()
        .map(|(handle_type, feasible)| {
            let (answer, why) = explain(feasible);
            [handle_type.to_string(), answer.to_owned(), why]
        })
        .collect();
    if !rows.is_empty() {
        line(table::render(&rows))?;
    }
    match &feasibility.problem {
        Some(problem) => Err(Failure::text(format!("not importable: {problem}"))),
        None if feasibility.is_importable() => line("importable"),
        None if rows.is_empty() => Err(Failure::text(
            "not importable: the handles have no type in common that is allowed here",
        )),
        None => Err(Failure::text("not importable: see each type above")),
    }
}

fn explain(feasible: &Feasible) -> (&'static str, String) {
    match feasible {
        Feasible::Yes => (
            "yes",
            "everything but the mapping was tried, and worked".to_owned(),
        ),
        Feasible::Unknown => (
            "unknown",
            "nothing speaks against it, but only an import can tell".to_owned(),
        ),
        Feasible::No(attempt) => {
            // The type stands in front already.
            let text = attempt.to_string();
            let start = format!("{} ", attempt.handle_type);
            let why = text.strip_prefix(&start).unwrap_or(&text);
            ("no", why.to_owned())
        }
    }
}
