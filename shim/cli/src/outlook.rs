//! What `gpuipc import --dry-run` says.

use crate::output::{Failure, line};
use crate::table;
use gpuipc::{Outlook, Verdict};

/// Writes the answer type by type. Fails where nothing could be imported.
pub(crate) fn report(outlook: &Outlook) -> Result<(), Failure> {
    if outlook.is_own {
        line("the memory is this process's own")?;
    }
    let rows: Vec<[String; 3]> = outlook
        .types
        .iter()
        .map(|(handle_type, verdict)| {
            let (answer, why) = explain(verdict);
            [handle_type.to_string(), answer.to_owned(), why]
        })
        .collect();
    if !rows.is_empty() {
        line(table::render(&rows))?;
    }
    match &outlook.problem {
        Some(problem) => Err(Failure::text(format!("not importable: {problem}"))),
        None if outlook.is_importable() => line("importable"),
        None if rows.is_empty() => Err(Failure::text(
            "not importable: the handles have no type in common that is allowed here",
        )),
        None => Err(Failure::text("not importable: see each type above")),
    }
}

fn explain(verdict: &Verdict) -> (&'static str, String) {
    match verdict {
        Verdict::Yes => (
            "yes",
            "everything but the mapping was tried, and worked".to_owned(),
        ),
        Verdict::Perhaps => (
            "perhaps",
            "nothing speaks against it, but only an import can tell".to_owned(),
        ),
        Verdict::No(attempt) => {
            // The type stands in front already.
            let text = attempt.to_string();
            let start = format!("{} ", attempt.handle_type);
            let why = text.strip_prefix(&start).unwrap_or(&text);
            ("no", why.to_owned())
        }
    }
}
