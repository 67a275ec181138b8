//! The bench: that each figure is measured, not how fast this machine is.
#![allow(missing_docs)]

use serde_json::Value;
use std::process::Command;

/// How the names of figures begin, and how many there are.
const FIGURES: [(&str, usize); 22] = [
    ("export first, ", 4),
    ("export again, ", 4),
    ("export drop, ", 3),
    ("import and map 64 MiB", 2),
    ("unmap 64 MiB", 1),
    ("broker's share of an import", 1),
    ("export, first import elsewhere, both drops", 1),
    ("import, the only range", 1),
    ("drop, the only range", 1),
    ("import, each range after the first of ", 3),
    ("drop, each range after the first of ", 3),
    ("import a range of ", 4),
    ("unmap a range of ", 4),
    ("import and map, ", 4),
    ("unmap, ", 4),
    ("imports by ", 4),
    ("descriptors from a broker to 8 processes", 1),
    ("copy through a mapping", 1),
    ("descriptor by ", 4),
    ("encode a handle", 1),
    ("decode a handle", 1),
    ("memory of a range", 1),
];

fn bench(folder: &std::path::Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_gpuipc-bench"))
        .args(["--driver=emulated", "--quick"])
        .args(arguments)
        .env("GPUIPC_EMULATED_DIR", folder)
        .env("GPUIPC_EMULATED_ROOM", "on-write")
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stderr, b"", "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn each_figure_is_measured_on_the_emulated_driver() {
    let folder = std::env::temp_dir().join(format!("gpuipc-bench-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new folder");
    let text = bench(&folder, &["--json"]);
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("one JSON object a line"))
        .collect();
    for (name, count) in FIGURES {
        let figure = |row: &&Value| row["figure"].as_str().is_some_and(|f| f.starts_with(name));
        assert_eq!(rows.iter().filter(figure).count(), count, "{name}");
    }
    assert_eq!(
        rows.len(),
        FIGURES.map(|(_, count)| count).iter().sum::<usize>()
    );
    for row in &rows {
        let skipped = row["why"]
            .as_str()
            .is_some_and(|why| why.starts_with("skipped: "));
        assert!(skipped || row["library"]["median"].is_number(), "{row}");
        if row["raw"].is_object() {
            let ratio = |part: &str| row["ratio"][part].as_f64().expect("a number");
            assert!(
                ratio("low") <= ratio("median") && ratio("median") <= ratio("high"),
                "{row}"
            );
        }
    }
    let text = bench(&folder, &["--only=handle"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines.len() == 4 && lines[0].starts_with("driver: emulated"),
        "{text}"
    );
    assert!(
        lines[2].starts_with("encode a handle ") && lines[2].contains(" ns"),
        "{text}"
    );
    std::fs::remove_dir_all(folder).expect("the folder");
}
