//! The emulated driver's answers against those of real GPUs.
//!
//! `golden/conformance/*.txt` hold what `conformance --driver cuda` printed on a machine with
//! two H200, once where it saw one of them and once with both; lines that begin
//! with `#` are comments. The emulated driver must give the same rows, but for
//! those in `golden/conformance/exceptions.txt`:
//!
//! ```text
//! section / question | emulated answer | reason
//! ```
//!
//! An answer may also be `(no row)`: the emulated driver does not come to that
//! question. A question that the recording lacks is an exception, too. Each
//! exception must still be one: as soon as both drivers agree, or the emulated
//! answer is another than the one that was accepted, it fails.

use gpuipc_tests::Scratch;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_conformance");
/// The longest that one run may take.
const LONGEST: Duration = Duration::from_secs(300);
/// What a driver that does not come to a question answers.
const NO_ROW: &str = "(no row)";

/// A recording, and how many GPUs it saw.
const RECORDINGS: [(&str, &str); 2] = [("h200.txt", "1"), ("h200x2.txt", "2")];

type Rows = BTreeMap<String, String>;

/// The rows of a text; comments and empty lines are none.
fn rows(text: &str) -> Result<Rows, String> {
    let mut rows = Rows::new();
    for line in text.lines().map(str::trim_end) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (question, answer) = line
            .split_once(" = ")
            .ok_or_else(|| format!("no row: {line:?}"))?;
        if rows
            .insert(question.to_owned(), answer.to_owned())
            .is_some()
        {
            return Err(format!("twice: {question}"));
        }
    }
    Ok(rows)
}

/// Emulated answers that are known to differ, by question.
fn exceptions(text: &str) -> Result<Rows, String> {
    let mut exceptions = Rows::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parts: Vec<&str> = line.splitn(3, '|').map(str::trim).collect();
        let [question, answer, reason] = parts[..] else {
            return Err(format!("no exception: {line:?}"));
        };
        if reason.is_empty() {
            return Err(format!("no reason: {question}"));
        }
        if exceptions
            .insert(question.to_owned(), answer.to_owned())
            .is_some()
        {
            return Err(format!("twice: {question}"));
        }
    }
    Ok(exceptions)
}

/// What came of a comparison.
#[derive(Default)]
struct Verdict {
    compared: usize,
    /// Lines that say what is wrong.
    wrong: Vec<String>,
    /// Exceptions that are still needed.
    used: BTreeSet<String>,
}

/// Holds one run against its recording.
fn compare(name: &str, golden: &Rows, emulated: &Rows, exceptions: &Rows) -> Verdict {
    let mut verdict = Verdict::default();
    let questions: BTreeSet<&String> = golden.keys().chain(emulated.keys()).collect();
    for question in questions {
        verdict.compared += 1;
        let answer = |rows: &Rows| rows.get(question).map_or(NO_ROW, String::as_str).to_owned();
        let (real, stand_in) = (answer(golden), answer(emulated));
        if real == stand_in {
            continue;
        }
        let said = format!("{name}: {question}\n    real      {real}\n    emulated  {stand_in}");
        match exceptions.get(question) {
            Some(accepted) if *accepted == stand_in => {
                verdict.used.insert(question.clone());
            }
            Some(accepted) => {
                verdict.used.insert(question.clone());
                verdict
                    .wrong
                    .push(format!("{said}\n    accepted  {accepted}"));
            }
            None => verdict.wrong.push(said),
        }
    }
    verdict
}

/// Exceptions that no recording needs. Without all recordings nothing is known
/// of questions that those at hand lack.
fn not_needed<'a>(
    exceptions: &'a Rows,
    used: &BTreeSet<String>,
    asked: &BTreeSet<String>,
    is_complete: bool,
) -> Vec<&'a String> {
    exceptions
        .keys()
        .filter(|question| !used.contains(*question))
        .filter(|question| is_complete || asked.contains(*question))
        .collect()
}

/// What the program prints on the emulated driver.
fn emulated(gpus: &str) -> String {
    let scratch = Scratch::new();
    let mut command = Command::new(PROGRAM);
    let settings = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_string_lossy().starts_with("GPUIPC_"));
    for name in settings {
        command.env_remove(name);
    }
    let mut child = command
        .args(["--driver", "emulated"])
        .env("GPUIPC_EMULATED_DIR", scratch.path())
        .env("GPUIPC_EMULATED_GPUS", gpus)
        .env_remove("CUDA_VISIBLE_DEVICES")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let stdout = BufReader::new(child.stdout.take().expect("its stdout is a pipe"));
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let (start, mut text) = (Instant::now(), String::new());
    while let Ok(line) = lines.recv_timeout(LONGEST.saturating_sub(start.elapsed())) {
        text.push_str(&line);
        text.push('\n');
    }
    if start.elapsed() >= LONGEST {
        let _ = child.kill();
    }
    let status = child.wait().expect("the program's status");
    assert!(status.success(), "conformance with {gpus} GPUs: {status}");
    text
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/conformance")
}

/// To the terminal even where the test harness keeps the output of tests that pass.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn the_emulated_driver_answers_as_real_ones_do() {
    let exceptions = match std::fs::read_to_string(folder().join("exceptions.txt")) {
        Ok(text) => exceptions(&text).expect("exceptions.txt is well-formed"),
        Err(_) => Rows::new(),
    };
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    let (mut asked, mut is_complete) = (BTreeSet::new(), true);
    for (file, gpus) in RECORDINGS {
        let Ok(text) = std::fs::read_to_string(folder().join(file)) else {
            say(&format!(
                "SKIP conformance: golden/conformance/{file} is not recorded"
            ));
            is_complete = false;
            continue;
        };
        let golden = rows(&text).expect("the recording is well-formed");
        let answers = rows(&emulated(gpus)).expect("rows of the emulated driver");
        let verdict = compare(file, &golden, &answers, &exceptions);
        assert!(verdict.compared > 1000, "{file} has hardly any rows");
        wrong.extend(verdict.wrong);
        used.extend(verdict.used);
        asked.extend(golden.into_keys().chain(answers.into_keys()));
    }
    for question in not_needed(&exceptions, &used, &asked, is_complete) {
        wrong.push(format!("exceptions.txt: no longer one: {question}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn two_runs_print_the_same_rows() {
    let (one, other) = (emulated("2"), emulated("2"));
    assert!(rows(&one).expect("rows").len() > 1000, "few rows:\n{one}");
    assert_eq!(one, other);
}

mod rules {
    use super::{Rows, compare, exceptions, not_needed, rows};
    use std::collections::BTreeSet;

    const GOLDEN: &str = "# a comment\ns / a = 1\ns / b = 2\ns / c = 3 = 4\n";

    fn verdict(emulated: &str, list: &str) -> (Vec<String>, Vec<String>) {
        let (golden, emulated) = (rows(GOLDEN).expect("rows"), rows(emulated).expect("rows"));
        let list: Rows = exceptions(list).expect("exceptions");
        let verdict = compare("golden", &golden, &emulated, &list);
        let stale = not_needed(&list, &verdict.used, &BTreeSet::new(), true);
        (verdict.wrong, stale.into_iter().cloned().collect())
    }

    #[test]
    fn equal_rows_pass_in_any_order() {
        let (wrong, stale) = verdict("s / c = 3 = 4\ns / b = 2\ns / a = 1\n", "");
        assert!(wrong.is_empty() && stale.is_empty());
    }

    #[test]
    fn another_answer_a_missing_row_and_a_new_row_fail() {
        for emulated in [
            "s / a = 1\ns / b = 9\ns / c = 3 = 4\n",
            "s / a = 1\ns / c = 3 = 4\n",
            "s / a = 1\ns / b = 2\ns / c = 3 = 4\ns / d = 5\n",
        ] {
            assert_eq!(verdict(emulated, "").0.len(), 1, "{emulated}");
        }
    }

    #[test]
    fn an_exception_covers_its_answer_only() {
        let emulated = "s / a = 1\ns / b = 9\ns / c = 3 = 4\n";
        assert!(verdict(emulated, "s / b | 9 | because").0.is_empty());
        assert_eq!(verdict(emulated, "s / b | 8 | because").0.len(), 1);
        let none = "s / a = 1\ns / c = 3 = 4\n";
        assert!(verdict(none, "s / b | (no row) | because").0.is_empty());
    }

    #[test]
    fn an_exception_that_no_longer_differs_is_found() {
        let (wrong, stale) = verdict(GOLDEN, "s / b | 9 | because");
        assert!(wrong.is_empty());
        assert_eq!(stale, ["s / b"]);
        let (_, stale) = verdict(GOLDEN, "s / nobody asks | 9 | because");
        assert_eq!(stale, ["s / nobody asks"]);
    }

    #[test]
    fn bad_lines_are_refused() {
        assert!(rows("no row").is_err());
        assert!(rows("s / a = 1\ns / a = 2").is_err());
        assert!(exceptions("s / a | 1").is_err());
        assert!(exceptions("s / a | 1 | ").is_err());
        assert!(exceptions("s / a | 1 | x\ns / a | 2 | y").is_err());
    }
}
