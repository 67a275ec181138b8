//! The other processes of a bench: they hold memory that the measuring process
//! imports, or import what it holds, as they are told.
#![allow(unsafe_code)]

use super::asking::Asking;
use super::measure::{micros, timed};
use super::message::Message;
use super::passing::{Passer, Passing};
use super::raw::{self, Copied};
use crate::driver::Choice;
use crate::message::Answer;
use crate::output::Failure;
use crate::session::Session;
use crate::wire::Channel;
use gpuipc::{Buffer, ExportOptions, Exported, ImportOptions, Memory};
use std::time::{Duration, Instant};

/// What the measuring process tells it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The driver, the measuring process's own
    #[arg(long, value_enum)]
    driver: Choice,
    /// The GPU
    #[arg(long)]
    device: i32,
    /// How long the measuring process may be silent
    #[arg(long)]
    silence_ms: u64,
}

/// See the module.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // As in the demo's other process.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    super::raise_file_limit();
    let mut channel = Channel::of_this_process(Duration::from_millis(args.silence_ms))?;
    let opened = Session::on_device(args.driver, "--device", args.device)
        .and_then(|session| raw::make_current(&session).map(|()| session));
    let session = match opened {
        Ok(session) => session,
        Err(failure) => return channel.send(&Answer::failed(failure.to_string()).encode()),
    };
    channel.send(&Answer::default().encode())?;
    let mut other = Other {
        session,
        passer: Passer::start()?,
        exported: Vec::new(),
        retained: Vec::new(),
        buffer: None,
    };
    while let Some(body) = channel.receive()? {
        let answer = match Message::decode(&body).and_then(|order| other.obey(&order)) {
            Ok(answer) => answer,
            Err(failure) => Message::new(["failed".to_owned(), failure.to_string()]),
        };
        channel.send(&answer.encode())?;
    }
    Ok(())
}

struct Other {
    session: Session,
    passer: Passer,
    // In the order in which they must go.
    exported: Vec<Exported>,
    retained: Vec<raw::Reference>,
    buffer: Option<Buffer>,
}

/// An answer with a number.
fn answer(number: f64) -> Result<Message, Failure> {
    Ok(Message::new(["done".to_owned(), number.to_string()]))
}

impl Other {
    fn obey(&mut self, order: &Message) -> Result<Message, Failure> {
        match order.word(0)? {
            "allocate" => self.allocate(order),
            "free" => {
                self.exported.clear();
                self.retained.clear();
                drop(self.passer.replace(Vec::new()));
                self.buffer = None;
                answer(0.0)
            }
            "export" => self.export(order),
            "withdraw" => answer(super::measure::time_of_drop(core::mem::take(
                &mut self.exported,
            ))),
            "raw export" => self.raw_export(order),
            "raw withdraw" => {
                let start = Instant::now();
                drop(self.passer.replace(Vec::new()));
                self.retained.clear();
                answer(micros(start.elapsed()))
            }
            "passer" => Ok(Message::new(["done", "0", self.passer.name()])),
            "copy" => {
                let buffer = self.buffer()?;
                let (driver, ptr, len) = (
                    self.session.opened.driver,
                    buffer.device_ptr(),
                    buffer.len(),
                );
                answer(Copied { driver, ptr, len }.rate(order.number(1)?)?)
            }
            "import for" => self.import_for(order),
            "raw import for" => self.raw_import_for(order),
            "fetch for" => {
                let asking = Asking::of(first(order)?)?;
                work_for(order, || asking.fetch().map(drop))
            }
            "raw fetch for" => {
                let passing = Passing::connect(order.word(2)?)?;
                work_for(order, || passing.get(0).map(drop))
            }
            what => Err(Failure::text(format!("{what}: nobody knows how"))),
        }
    }

    fn buffer(&self) -> Result<&Buffer, Failure> {
        let none = || Failure::text("there is no memory");
        self.buffer.as_ref().ok_or_else(none)
    }

    fn allocate(&mut self, order: &Message) -> Result<Message, Failure> {
        let memory = Memory::from_name(order.word(1)?);
        let memory = memory.ok_or_else(|| Failure::text("a kind of memory that nobody knows"))?;
        let (driver, device) = (self.session.opened.driver, self.session.device);
        self.buffer = Some(Buffer::new(driver, device, memory, order.number(2)?)?);
        answer(0.0)
    }

    /// So many windows side by side, each of so many bytes: the time of all, and
    /// their handles.
    fn export(&mut self, order: &Message) -> Result<Message, Failure> {
        let (count, len): (u64, usize) = (order.number(1)?, order.number(2)?);
        let (base, ipc) = (self.buffer()?.device_ptr(), self.session.ipc.clone());
        let mut took = 0.0;
        for at in 0..count {
            let ptr = base + at * len as u64;
            // SAFETY: the buffer is freed after its exports have ended.
            let export = || unsafe { ipc.export(ptr, len, &ExportOptions::default()) };
            let (exported, time) = timed(export)?;
            took += time;
            self.exported.push(exported);
        }
        let handles = self.exported.iter().flat_map(Exported::handles);
        Ok(answer(took)?.with(handles.cloned().collect()))
    }

    /// So many pieces of so many bytes by hand.
    fn raw_export(&mut self, order: &Message) -> Result<Message, Failure> {
        let (count, piece): (u64, u64) = (order.number(1)?, order.number(2)?);
        let (base, driver) = (self.buffer()?.device_ptr(), self.session.opened.driver);
        let mut fds = Vec::new();
        let start = Instant::now();
        for at in 0..count {
            let (fd, handle) = raw::export(driver, base + at * piece)?;
            fds.push(fd);
            self.retained.push(handle);
        }
        let took = micros(start.elapsed());
        drop(self.passer.replace(fds));
        answer(took)
    }

    fn import_for(&self, order: &Message) -> Result<Message, Failure> {
        let handle = core::slice::from_ref(first(order)?);
        let (ipc, options) = (&self.session.ipc, ImportOptions::default());
        work_for(order, || {
            drop(ipc.import(handle, &options)?);
            Ok(())
        })
    }

    fn raw_import_for(&self, order: &Message) -> Result<Message, Failure> {
        let fd = Passing::connect(order.word(2)?)?.get(0)?;
        let size = order.number(3)?;
        let fds = [fd];
        work_for(order, || Ok(raw::map(&self.session, &fds, size)?.undo()?))
    }
}

fn first(order: &Message) -> Result<&gpuipc::GpuIpcMemHandle, Failure> {
    let none = || Failure::text("there is no handle");
    order.handles.first().ok_or_else(none)
}

/// Does it again and again for the order's milliseconds; how often a second.
fn work_for(
    order: &Message,
    mut work: impl FnMut() -> Result<(), Failure>,
) -> Result<Message, Failure> {
    let time = Duration::from_millis(order.number(1)?);
    // What is done once only.
    work()?;
    let start = Instant::now();
    let mut done = 0_u32;
    loop {
        work()?;
        done += 1;
        let took = start.elapsed();
        if took >= time {
            return answer(f64::from(done) / took.as_secs_f64());
        }
    }
}
