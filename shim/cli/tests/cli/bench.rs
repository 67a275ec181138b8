//! The command `bench`: that each figure is measured, not how fast this machine is.

use crate::place::Place;
use serde_json::Value;

/// Each family's figures, by how their names begin, and how many there are.
const FIGURES: [(&str, usize); 21] = [
    ("export first, ", 4),
    ("export again, ", 4),
    ("export drop, ", 3),
    ("import and map 64 MiB", 2),
    ("unmap 64 MiB", 1),
    ("broker's share of an import", 1),
    ("export, first import elsewhere, both drops", 1),
    ("import, the only window", 1),
    ("drop, the only window", 1),
    ("import, each window after the first of ", 3),
    ("drop, each window after the first of ", 3),
    ("import a window of ", 4),
    ("unmap a window of ", 4),
    ("import and map, ", 4),
    ("unmap, ", 4),
    ("imports by ", 4),
    ("descriptors from a broker to 8 processes", 1),
    ("copy through a mapping", 1),
    ("descriptor by ", 4),
    ("encode a handle", 1),
    ("decode a handle", 1),
];

#[test]
fn each_figure_is_measured_on_the_emulated_driver() {
    let place = Place::new();
    let picture = place.path("scaling.svg");
    let plot = format!("--plot={}", picture.display());
    let ended = place.run(["bench", "--driver", "emulated", "--quick", "--json", &plot]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // No progress is shown where stderr is no terminal.
    assert_eq!(ended.stderr, "");
    let rows: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("one JSON object a line"))
        .collect();
    for (name, count) in FIGURES.iter().chain(&[("memory of a window", 1)]) {
        let figure = |row: &&Value| row["figure"].as_str().is_some_and(|f| f.starts_with(name));
        assert_eq!(rows.iter().filter(figure).count(), *count, "{name}");
    }
    assert_eq!(
        rows.len(),
        1 + FIGURES.map(|(_, count)| count).iter().sum::<usize>()
    );
    for row in &rows {
        assert_eq!(row["driver"], "emulated", "{row}");
        assert_eq!(row["failed"], Value::Null, "{row}");
        assert!(
            row["unit"].is_string() && row["verdict"].is_string(),
            "{row}"
        );
        if row["skipped"].is_null() {
            assert!(row["library"]["median"].is_number(), "{row}");
        }
        // Ratios of what may be no more than noise are only there.
        if row["raw"].is_object() {
            let ratio = |part: &str| row["ratio"][part].as_f64().expect("a number");
            assert!(ratio("low") <= ratio("median"), "{row}");
            assert!(ratio("median") <= ratio("high"), "{row}");
        }
    }
    let picture = std::fs::read_to_string(&picture).expect("it was drawn");
    assert_eq!(picture.matches("<polyline").count(), 4, "{picture}");
    assert_eq!(picture.matches("<circle").count(), 16, "{picture}");
}

#[test]
fn a_person_reads_a_table() {
    let place = Place::new();
    let ended = place.run(["bench", "--driver", "emulated", "--quick"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].starts_with("driver: emulated"), "{ended:?}");
    assert!(lines[1].contains("95 %"), "{ended:?}");
    assert!(lines[2].starts_with("figure "), "{ended:?}");
    assert!(lines.len() > 40, "{ended:?}");
}
