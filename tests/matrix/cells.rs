//! Counting cells, and what became of them.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A cell that is known not to be as it must be, and why. It must stay so: one
/// that is right by now has to leave this list.
pub(crate) struct Known {
    /// What the names of such cells have in them, and no others have all of it.
    pub(crate) words: &'static [&'static str],
    pub(crate) why: &'static str,
}

/// Cells that are not as they must be.
pub(crate) const KNOWN: &[Known] = &[];

/// What a test has run.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    driver: u64,
    system: u64,
    wrong: Vec<String>,
    known: u64,
    right_by_now: Vec<String>,
}

impl Cells {
    /// Runs the cells of several subjects, all at once: most of them wait.
    pub(crate) fn of_each<T: Send>(
        subjects: impl IntoIterator<Item = T>,
        run: impl Fn(T, &mut Self) + Sync,
    ) -> Self {
        let run = &run;
        std::thread::scope(|scope| {
            let threads: Vec<_> = subjects
                .into_iter()
                .map(|subject| {
                    scope.spawn(move || {
                        let mut cells = Self::default();
                        run(subject, &mut cells);
                        cells
                    })
                })
                .collect();
            let mut all = Self::default();
            for thread in threads {
                let cells = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
                all.driver += cells.driver;
                all.system += cells.system;
                all.known += cells.known;
                all.wrong.extend(cells.wrong);
                all.right_by_now.extend(cells.right_by_now);
            }
            all
        })
    }

    /// Runs a driver cell; whether it was as it must be.
    pub(crate) fn driver(&mut self, name: &str, cell: impl FnOnce() -> Result<(), String>) -> bool {
        self.driver += 1;
        self.run(name, cell)
    }

    /// Runs a system-call cell.
    pub(crate) fn system(&mut self, name: &str, cell: impl FnOnce() -> Result<(), String>) -> bool {
        self.system += 1;
        self.run(name, cell)
    }

    /// A process that ends or hangs shows as a panic of whoever waits for it.
    fn run(&mut self, name: &str, cell: impl FnOnce() -> Result<(), String>) -> bool {
        let result = catch_unwind(AssertUnwindSafe(cell)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text.unwrap_or_else(|| "panicked".to_owned()))
        });
        let known = KNOWN
            .iter()
            .find(|known| known.words.iter().all(|word| name.contains(word)));
        match (&result, known) {
            (Ok(()), None) => {}
            (Ok(()), Some(known)) => self.right_by_now.push(format!("{name} ({})", known.why)),
            (Err(_), Some(_)) => self.known += 1,
            (Err(why), None) => self.wrong.push(format!("{name}: {why}")),
        }
        result.is_ok()
    }

    /// The end of a test: everything must have been as it must be.
    pub(crate) fn end(self) {
        let mut text = String::new();
        for wrong in self.wrong.iter().take(100) {
            let _ = writeln!(text, "{wrong}");
        }
        for right in &self.right_by_now {
            let _ = writeln!(text, "known, but right by now: {right}");
        }
        assert!(
            text.is_empty(),
            "of {} driver cells and {} system-call cells {} are wrong:\n{text}",
            self.driver,
            self.system,
            self.wrong.len() + self.right_by_now.len(),
        );
        assert!(self.driver + self.system > 0, "no cell was run");
        println!(
            "{} driver cells, {} system-call cells",
            self.driver, self.system
        );
    }
}
