//! The layers of `shim/src`: a module uses those below it, never those above.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the crate, bottom up, and names that a module does not know.
const LAYERS: [(&str, &[&str]); 13] = [
    ("attempt", &[]),
    ("error", &[]),
    // Linux, no CUDA.
    ("process", &["crate::sys", "Driver", "CuDevice"]),
    // CUDA, no handles.
    ("gpu", &["GpuIpcMemHandle", "HandleFields", "Ticket"]),
    ("options", &["GpuIpcMemHandle"]),
    // Descriptors. What is exported, and whether it lives, it asks `Exports`.
    ("fd", &["AllocationHandle", "GpuIpcMemHandle"]),
    ("session", &[]),
    ("export", &[]),
    ("import", &[]),
    ("registered", &[]),
    ("multicast", &[]),
    ("buffer", &[]),
    ("ipc", &[]),
];

/// Other crates, by the names that the root gives them.
const BELOW: [&str; 2] = ["core", "sys"];

/// For tests, and the root itself: they know every layer.
const ABOVE: [&str; 3] = ["fuzzing", "model_check", "lib"];

fn level(module: &str) -> Option<usize> {
    LAYERS.iter().position(|(name, _)| *name == module)
}

#[test]
fn no_module_uses_one_above_it() {
    let mut wrong = BTreeSet::new();
    for (file, text) in sources() {
        let own = module_of(&file)[0];
        if ABOVE.contains(&own) {
            continue;
        }
        let Some(own_level) = level(own) else {
            wrong.insert(format!("{file} is in no layer"));
            continue;
        };
        for used in uses(&file, &text) {
            if BELOW.contains(&used.as_str()) || level(&used).is_some_and(|used| used <= own_level)
            {
                continue;
            }
            wrong.insert(match level(&used) {
                Some(_) => format!("{file} uses {used}, which is above {own}"),
                None => format!("{file} uses crate::{used}, which is in no layer"),
            });
        }
        for name in LAYERS[own_level].1 {
            if code(&text).any(|line| names(line, name)) {
                wrong.insert(format!("{file} names {name}, of which {own} knows nothing"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_layer_is_there() {
    let sources = sources();
    let there: BTreeSet<&str> = sources.iter().map(|(file, _)| module_of(file)[0]).collect();
    let all = LAYERS.iter().map(|(name, _)| *name).chain(ABOVE).collect();
    assert_eq!(there, all);
}

#[test]
fn every_form_of_use_is_seen() {
    let text = "
        use crate::gpu::driver::{self, Driver};
        use crate::{import, ipc::{Ipc, other::Thing}, Error};
        // crate::comment
        use super::super::export::export;
        use super::undo;
        let x = crate::fd::broker::ask(); // crate::behind
        pub(in crate::session) fn f() {}
        use crate::{
            multicast,
            registered::register,
        };
        use crate::*;";
    let mut seen = uses("gpu/driver.rs", text);
    seen.sort();
    let all = [
        "*",
        "Error",
        "export",
        "fd",
        "gpu",
        "import",
        "ipc",
        "multicast",
        "registered",
        "session",
    ];
    assert_eq!(seen, all);
    assert_eq!(
        uses("attempt.rs", "use super::export::Exported;"),
        ["export"]
    );
    // A file's own module for tests.
    assert!(uses("attempt.rs", "mod tests { use super::{Step, Reason}; }").is_empty());
}

#[test]
fn a_name_is_seen_only_as_a_whole() {
    assert!(names("fn f(driver: &Driver) {}", "Driver"));
    assert!(names("use crate::sys::CuDevice;", "crate::sys"));
    assert!(!names("use crate::driver::DriverError;", "Driver"));
    assert!(!names("use crate::system;", "crate::sys"));
}

/// What a file's code names behind `crate::`, and of the layers what it reaches by `super::`.
fn uses(file: &str, text: &str) -> Vec<String> {
    let code = code(text).collect::<Vec<_>>().join("\n");
    let behind = |start: &str| -> Vec<String> {
        let places = code.match_indices(start);
        let paths = places.map(|(at, start)| &code[at + start.len()..]);
        paths.flat_map(first_names).map(str::to_owned).collect()
    };
    // One for each module from the file to the root.
    let to_root = "super::".repeat(module_of(file).len());
    let by_super = behind(&to_root);
    let by_super = by_super.into_iter().filter(|name| level(name).is_some());
    behind("crate::").into_iter().chain(by_super).collect()
}

/// The first name of a path, or of each path in its braces.
fn first_names(path: &str) -> Vec<&str> {
    let Some(group) = path.strip_prefix('{') else {
        return vec![name_at(path)];
    };
    let mut names = Vec::new();
    let mut depth = 0;
    let mut is_first = true;
    for (at, c) in group.char_indices() {
        match c {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => is_first = true,
            c if is_first && is_of_name(c) => {
                names.push(name_at(&group[at..]));
                is_first = false;
            }
            _ => {}
        }
    }
    names
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '*'
}

fn name_at(path: &str) -> &str {
    let end = path.find(|c| !is_of_name(c)).unwrap_or(path.len());
    &path[..end]
}

/// Whether this name or path stands in a line, as a whole.
fn names(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + name.len()..].chars().next();
        !before.is_some_and(is_of_name) && !after.is_some_and(is_of_name)
    })
}

/// Lines without comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines();
    lines.map(|line| line.split("//").next().unwrap_or_default())
}

/// `import/mod.rs` is `import`; `fd/broker/name.rs` is `fd::broker::name`.
fn module_of(file: &str) -> Vec<&str> {
    let file = file.strip_suffix(".rs").unwrap_or(file);
    let file = file.strip_suffix("/mod").unwrap_or(file);
    file.split('/').collect()
}

/// Every source file, by its path in `src`, with its text.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders: Vec<PathBuf> = vec![root.clone()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let file = path.strip_prefix(&root).expect("below the root");
                let text = fs::read_to_string(&path).expect("a source file");
                sources.push((file.display().to_string(), text));
            }
        }
    }
    sources
}
