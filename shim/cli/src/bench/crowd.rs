//! Several importing processes at once: imports a second, and descriptors a
//! second when they do nothing else.

use super::Bench;
use super::measure::Effort;
use super::message::Message;
use super::others::{Other, together};
use super::passing::Passer;
use super::raw;
use super::report::{Row, Target};
use super::statistics::Pairs;
use crate::output::Failure;
use gpuipc::{Buffer, ExportOptions, Exported, Memory};

const BYTES: usize = 2 << 20;
const MOST: usize = 8;

pub(super) fn run(bench: &mut Bench) -> Result<(), Failure> {
    let (driver, device) = (bench.session.opened.driver, bench.session.device);
    let kind = bench.session.opened.kind;
    let buffer = Buffer::new(driver, device, Memory::VmmFd, BYTES)?;
    let len = buffer.len();
    let offer = buffer.export(&bench.session.ipc, 0, len, &ExportOptions::default())?;
    let (fd, _reference) = raw::export(driver, buffer.device_ptr())?;
    let passer = Passer::start()?;
    drop(passer.replace(vec![fd]));
    let mut crowd = Crowd {
        others: (0..MOST)
            .map(|_| Other::start(kind, device))
            .collect::<Result<_, _>>()?,
        effort: bench.effort,
        offer,
        passer: passer.name().to_owned(),
    };
    for count in [1, 2, 4, 8] {
        let pairs = crowd.measure(count, "import for", "raw import for")?;
        let figure = format!("imports by {count} processes at once, 2 MiB");
        bench.row(Row::of(figure, "/s", &pairs))?;
    }
    let pairs = crowd.measure(MOST, "fetch for", "raw fetch for")?;
    let row = Row::of("descriptors from a broker to 8 processes", "/s", &pairs);
    bench.row(row.target(Target::AtLeast(150_000.0)))?;
    for other in crowd.others {
        other.end()?;
    }
    drop(passer.replace(Vec::new()));
    Ok(())
}

struct Crowd {
    others: Vec<Other>,
    effort: Effort,
    offer: Exported,
    /// Where the raw descriptor is.
    passer: String,
}

impl Crowd {
    /// What the first `count` of them do a second, all together.
    fn measure(&mut self, count: usize, how: &str, raw: &str) -> Result<Pairs, Failure> {
        let (time, bytes) = (
            self.effort.slice().as_millis().to_string(),
            BYTES.to_string(),
        );
        let by_library = Message::new([how, &time]).with(self.offer.handles().to_vec());
        let by_hand = Message::new([raw, &time, &self.passer, &bytes]);
        let others = self.others.get_mut(..count).unwrap_or_default();
        let [pairs] = self.effort.rounds(|| {
            let library = together(others, &by_library)?;
            Ok([(library, together(others, &by_hand)?)])
        })?;
        Ok(pairs)
    }
}
