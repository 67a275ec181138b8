//! `gpuipc bench`: what the library costs beside the driver calls of the same run.
//!
//! * `statistics`, `measure`: pairs of values, medians and how sure they are.
//! * `report`, `plot`: what is printed, and the picture.
//! * `raw`, `passing`, `asking`: what the library is compared with.
//! * `message`, `other`, `others`: the other processes, their two ends.
//! * `export`, `import`, `scaling`, `crowd`, `copy`, `descriptor`, `small` with
//!   `counting`: the figures.

mod asking;
mod copy;
mod counting;
mod crowd;
mod descriptor;
mod export;
mod import;
mod measure;
mod message;
pub(crate) mod other;
mod others;
mod passing;
mod plot;
mod raw;
mod report;
mod scaling;
mod small;
mod statistics;

pub(crate) use raw::make_current;

use crate::driver::Choice;
use crate::output::{Failure, line};
use crate::session::Session;
use crate::size;
use clap::builder::PossibleValuesParser;
use indicatif::{ProgressBar, ProgressStyle};
use measure::Effort;
use others::Other;
use passing::Passing;
use plot::Panel;
use report::Row;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::PathBuf;

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The driver
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    driver: Choice,
    /// The GPU
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    device: i32,
    /// One JSON object a line for each figure
    #[arg(long)]
    json: bool,
    /// Measure each figure a few times only
    #[arg(long)]
    quick: bool,
    /// Only these figures
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = PossibleValuesParser::new(FAMILIES.map(|(name, _)| name)))]
    only: Vec<String>,
    /// Draw how windows and segments scale
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// A family of figures.
type Family = (&'static str, fn(&mut Bench) -> Result<(), Failure>);

const FAMILIES: [Family; 11] = [
    ("export", export::run),
    ("import", import::one),
    ("end-to-end", import::end_to_end),
    ("windows", scaling::windows),
    ("segments", scaling::segments),
    ("sizes", import::sizes),
    ("processes", crowd::run),
    ("copy", copy::run),
    ("descriptors", descriptor::run),
    ("handle", small::handle),
    ("memory", small::window),
];

/// A bench under way.
struct Bench {
    session: Session,
    effort: Effort,
    /// Holds what this process imports.
    other: Other,
    /// Its descriptors.
    passing: Passing,
    json: bool,
    rows: Vec<Row>,
    panels: Vec<Panel>,
}

/// See the module.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    raise_file_limit();
    let session = Session::on_device(args.driver, "--device", args.device)?;
    make_current(&session)?;
    let mut other = Other::start(session.opened.kind, session.device)?;
    let passing = Passing::connect(&other.passer()?)?;
    if !args.json {
        line(session.opened.describe(session.device))?;
        line(
            "medians; the interval of the paired ratios' median is that of order statistics, 95 %",
        )?;
    }
    let mut bench = Bench {
        session,
        effort: Effort { quick: args.quick },
        other,
        passing,
        json: args.json,
        rows: Vec::new(),
        panels: Vec::new(),
    };
    let ended = bench.measure(&args.only);
    if !args.json && !bench.rows.is_empty() {
        line(report::table_of(&bench.rows))?;
    }
    ended?;
    if let Some(path) = &args.plot {
        std::fs::write(path, plot::svg(&bench.panels)).map_err(|error| {
            Failure::text(format!("{} cannot be written: {error}", path.display()))
        })?;
    }
    bench.other.end()?;
    let failed = bench.rows.iter().filter(|row| row.failed.is_some()).count();
    match failed {
        0 => Ok(()),
        1 => Err(Failure::text("one family of figures failed")),
        _ => Err(Failure::text(format!(
            "{failed} families of figures failed"
        ))),
    }
}

impl Bench {
    /// Each family in turn, or only those. One that fails is told and the next one
    /// begins, unless there is nobody to go on with.
    fn measure(&mut self, only: &[String]) -> Result<(), Failure> {
        let wanted = |name: &str| only.is_empty() || only.iter().any(|only| only == name);
        let families = FAMILIES.map(|family| Some(family).filter(|(name, _)| wanted(name)));
        // Draws on stderr, and only where that is a terminal.
        let bar = ProgressBar::new(families.iter().flatten().count() as u64);
        if let Ok(style) = ProgressStyle::with_template("[{pos}/{len}] {elapsed} {msg}") {
            bar.set_style(style);
        }
        for (name, family) in families.into_iter().flatten() {
            bar.set_message(name);
            match self.other.free().and_then(|()| family(self)) {
                Ok(()) => {}
                Err(Failure::Text(why)) => self.row(Row::failed(name, why.replace('\n', "; ")))?,
                Err(failure) => return Err(failure),
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// One more row.
    fn row(&mut self, row: Row) -> Result<(), Failure> {
        if self.json {
            line(row.to_json(self.session.opened.kind.name()))?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Why so much memory is not to be had: nobody takes more than a quarter of
    /// what is free.
    fn lacks_room(&self, bytes: usize) -> Result<Option<String>, Failure> {
        let (free, _) = self.session.opened.driver.mem_info()?;
        let short = bytes > free / 4;
        Ok(short.then(|| format!("{} of GPU memory are free", size::text(free as u64))))
    }
}

/// Many segments need many descriptors. Where that is not allowed, they will say so.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}
