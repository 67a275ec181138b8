//! The other processes of the bench: they hold memory that the measuring process imports, or
//! import what it holds, as lines of words tell them.

use crate::measure::{micros, time_of_drop, timed};
use crate::raw::{self, Copied};
use crate::socket::{Client, Server};
use crate::{Result, Session};
use gpuipc::{
    Buffer, ExportOptions, Exported, GpuIpcMemHandle, HANDLE_BYTES, ImportOptions, Memory,
};
use gpuipc_kit::Kind;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// One of them, as the measuring process sees it. It ends with its stdin.
pub(crate) struct Other {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Other {
    pub(crate) fn start(kind: Kind, device: i32) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--other", "--driver", kind.name()])
            .arg(format!("--device={device}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        let stdin = child.stdin.take();
        Ok(Self {
            child,
            stdin,
            stdout,
        })
    }

    pub(crate) fn tell(&mut self, order: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().ok_or("no stdin")?;
        Ok(writeln!(stdin, "{order}")?)
    }

    /// The words that it answers.
    pub(crate) fn hear(&mut self) -> Result<Vec<String>> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        match line.trim_end().split_once(' ') {
            Some(("ok", words)) => Ok(words.split(' ').map(str::to_owned).collect()),
            _ => Err(format!("in the other process: {}", line.trim_end()).into()),
        }
    }

    fn ask(&mut self, order: &str) -> Result<Vec<String>> {
        self.tell(order)?;
        self.hear()
    }

    /// Has something done that is answered by a number.
    pub(crate) fn number(&mut self, order: &str) -> Result<f64> {
        Ok(self.ask(order)?[0].parse()?)
    }

    pub(crate) fn free(&mut self) -> Result<()> {
        self.ask("free").map(drop)
    }

    /// Frees what it holds, and allocates.
    pub(crate) fn allocate(&mut self, memory: Memory, bytes: usize) -> Result<()> {
        self.free()?;
        self.ask(&format!("allocate {memory} {bytes}")).map(drop)
    }

    /// Exports ranges of its memory: the microseconds, and their handles.
    pub(crate) fn export(
        &mut self,
        count: usize,
        len: usize,
    ) -> Result<(f64, Vec<GpuIpcMemHandle>)> {
        let answer = self.ask(&format!("export {count} {len}"))?;
        Ok((answer[0].parse()?, from_hex(&answer[1])?))
    }

    /// Exports pieces of its memory by hand: the microseconds.
    pub(crate) fn raw_export(&mut self, count: usize, piece: usize) -> Result<f64> {
        self.number(&format!("raw-export {count} {piece}"))
    }

    /// The name of its server of descriptors.
    pub(crate) fn server(&mut self) -> Result<String> {
        Ok(self.ask("server")?.swap_remove(0))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It has nothing left to do.
        let _ = self.child.wait();
    }
}

/// Has all of them do the same at the same time: the sum of their numbers.
pub(crate) fn together(others: &mut [Other], order: &str) -> Result<f64> {
    for other in &mut *others {
        other.tell(order)?;
    }
    let mut sum = 0.0;
    for other in others {
        sum += other.hear()?[0].parse::<f64>()?;
    }
    Ok(sum)
}

pub(crate) fn to_hex(handles: &[GpuIpcMemHandle]) -> String {
    let bytes = handles.iter().flat_map(GpuIpcMemHandle::encode);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Result<Vec<GpuIpcMemHandle>> {
    let digits = text.as_bytes().chunks(2);
    let bytes: Vec<u8> = digits
        .map(|pair| Ok(u8::from_str_radix(core::str::from_utf8(pair)?, 16)?))
        .collect::<Result<_>>()?;
    let handles = bytes.chunks(HANDLE_BYTES).map(GpuIpcMemHandle::decode);
    Ok(handles.collect::<Result<_, _>>()?)
}

/// What such a process does.
pub(crate) fn run(driver: &str, device: i32) -> Result<()> {
    let mut worker = Worker {
        session: Session::new(driver, device)?,
        server: Server::start()?,
        exported: Vec::new(),
        retained: Vec::new(),
        buffer: None,
    };
    for line in std::io::stdin().lines() {
        let answer = worker
            .obey(&line?)
            .unwrap_or_else(|error| format!("failed {error}"));
        println!(
            "{}",
            if answer.starts_with("failed") {
                answer.replace('\n', "; ")
            } else {
                format!("ok {answer}")
            }
        );
    }
    Ok(())
}

struct Worker {
    session: Session,
    server: Server,
    // In the order in which they must go.
    exported: Vec<Exported>,
    retained: Vec<raw::Reference>,
    buffer: Option<Buffer>,
}

impl Worker {
    fn obey(&mut self, order: &str) -> Result<String> {
        let words: Vec<&str> = order.split(' ').collect();
        let word = |at: usize| words.get(at).copied().ok_or("a word is missing");
        let number = |at: usize| -> Result<usize> { Ok(word(at)?.parse()?) };
        let (driver, ipc) = (self.session.driver, self.session.ipc.clone());
        let time = || -> Result<_> { Ok(Duration::from_millis(number(1)? as u64)) };
        let options = ImportOptions::default();
        let answer = match word(0)? {
            "server" => return Ok(self.server.name.clone()),
            "allocate" => {
                let memory = Memory::from_name(word(1)?).ok_or("no such memory")?;
                let buffer = Buffer::new(driver, self.session.device, memory, number(2)?)?;
                self.buffer = Some(buffer);
                0.0
            }
            "free" => {
                self.exported.clear();
                self.retained.clear();
                drop(self.server.replace(Vec::new()));
                self.buffer = None;
                0.0
            }
            "export" => {
                let buffer = self.buffer.as_ref().ok_or("no memory")?;
                let len = number(2)?;
                let mut took = 0.0;
                for at in 0..number(1)? {
                    let export = || buffer.export(&ipc, at * len, len, &ExportOptions::default());
                    let (exported, time) = timed(export)?;
                    took += time;
                    self.exported.push(exported);
                }
                let handles = self.exported.iter().flat_map(Exported::handles);
                let handles: Vec<_> = handles.cloned().collect();
                return Ok(format!("{took} {}", to_hex(&handles)));
            }
            "revoke" => time_of_drop(core::mem::take(&mut self.exported)),
            "raw-export" => {
                let (base, mut fds, start) = (self.base()?, Vec::new(), Instant::now());
                for at in 0..number(1)? {
                    let (fd, handle) = raw::export(driver, base + (at * number(2)?) as u64)?;
                    fds.push(fd);
                    self.retained.push(handle);
                }
                let took = micros(start.elapsed());
                drop(self.server.replace(fds));
                took
            }
            "raw-revoke" => {
                let start = Instant::now();
                drop(self.server.replace(Vec::new()));
                self.retained.clear();
                micros(start.elapsed())
            }
            "copy" => {
                let buffer = self.buffer.as_ref().ok_or("no memory")?;
                let (ptr, len) = (buffer.device_ptr(), buffer.len());
                Copied { driver, ptr, len }.rate(u32::try_from(number(1)?)?)?
            }
            "import-for" => {
                let handles = from_hex(word(2)?)?;
                rate(time()?, || {
                    drop(ipc.import(&handles, &options)?);
                    Ok(())
                })?
            }
            "raw-import-for" => {
                let (fds, size) = ([Client::connect(word(2)?)?.get(0)?], number(3)?);
                rate(time()?, || Ok(raw::map(&self.session, &fds, size)?.undo()?))?
            }
            "fetch-for" => {
                let handles = from_hex(word(2)?)?;
                let (client, request) = Client::of_broker(handles.first().ok_or("no handle")?)?;
                rate(time()?, || client.fetch(&request).map(drop))?
            }
            "raw-fetch-for" => {
                let client = Client::connect(word(2)?)?;
                rate(time()?, || client.get(0).map(drop))?
            }
            what => return Err(format!("{what} is no order").into()),
        };
        Ok(answer.to_string())
    }

    fn base(&self) -> Result<u64> {
        Ok(self.buffer.as_ref().ok_or("no memory")?.device_ptr())
    }
}

/// Does it again and again for this time; how often a second.
fn rate(time: Duration, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    // What is done once only.
    work()?;
    let (start, mut done) = (Instant::now(), 0_u32);
    loop {
        work()?;
        done += 1;
        let took = start.elapsed();
        if took >= time {
            return Ok(f64::from(done) / took.as_secs_f64());
        }
    }
}
