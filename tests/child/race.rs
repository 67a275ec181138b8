//! Both sides of a race for a descriptor's number: an exporter that exports and
//! revokes all the time, and an importer that takes what it can.
#![allow(unsafe_code)]

use crate::{NotOk, TestChild, pattern, same, word};
use gpuipc::{Buffer, Driver, Error, ExportOptions, GpuIpcMemHandle, ImportOptions, Memory};
use std::time::{Duration, Instant};

type Words<'a, 'b> = &'a mut std::str::SplitWhitespace<'b>;

/// Puts the newest handle into a file, whole at any moment.
pub(crate) fn publish(file: &str, handle: &GpuIpcMemHandle) -> Result<(), NotOk> {
    let temporary = format!("{file}.new");
    std::fs::write(&temporary, handle.encode()).map_err(|_| NotOk::from("write"))?;
    std::fs::rename(&temporary, file).map_err(|_| NotOk::from("rename"))
}

/// Whether the other side has seen enough.
pub(crate) fn is_over(file: &str) -> bool {
    std::path::Path::new(&format!("{file}.end")).exists()
}

/// How long an importer goes on: for its time, and until it has seen each outcome often
/// enough. How fast that comes the machine says, so there is a lot of time for it.
pub(crate) struct Chase {
    end: Instant,
    least: u64,
}

impl Chase {
    const PATIENCE: Duration = Duration::from_secs(120);

    pub(crate) fn of(words: Words<'_, '_>) -> Result<Self, NotOk> {
        Ok(Self {
            end: Instant::now() + Duration::from_millis(word(words)?),
            least: word(words)?,
        })
    }

    pub(crate) fn goes_on(&self, right: u64, refused: u64) -> bool {
        let now = Instant::now();
        now < self.end || right.min(refused) < self.least && now < self.end + Self::PATIENCE
    }
}

/// Exports a buffer, revokes it, puts another allocation's descriptor at the
/// same number, and so on; now and then it forks.
pub(crate) fn churn(child: &mut TestChild, words: Words<'_, '_>) -> Result<String, NotOk> {
    let file: String = word(words)?;
    let (ptr, len) = {
        let buffer = child.buffer(words)?;
        (buffer.device_ptr(), buffer.len())
    };
    let decoy = child.buffer(words)?.device_ptr();
    let ipc = child.ipc()?;
    let mut rounds = 0_u64;
    while !is_over(&file) {
        // SAFETY: the child's buffer, which lives as long as the command runs.
        let exported = unsafe { ipc.export(ptr, len, &ExportOptions::default()) }?;
        publish(&file, &exported.handles()[0])?;
        std::thread::sleep(Duration::from_micros(rounds % 7 * 40));
        if rounds.is_multiple_of(50) {
            fork_for_a_moment();
        }
        drop(exported);
        // Its descriptor takes the lowest free number: the one just closed.
        let handle = retain(child.driver, decoy)?;
        // SAFETY: the reference is held until below.
        let fd = unsafe { child.driver.mem_export_fd(handle) }.map_err(Error::from)?;
        std::thread::sleep(Duration::from_micros(rounds % 5 * 40));
        drop(fd);
        // SAFETY: of `retain`, released once.
        unsafe { child.driver.mem_release(handle) }.map_err(Error::from)?;
        rounds += 1;
    }
    Ok(rounds.to_string())
}

/// A reference to a buffer's allocation.
fn retain(driver: Driver, ptr: u64) -> Result<u64, NotOk> {
    // SAFETY: the buffer is not freed meanwhile.
    let handle = unsafe { driver.mem_retain(ptr) };
    Ok(handle.map_err(Error::from)?)
}

/// A child that lives for two milliseconds with whatever it inherited.
fn fork_for_a_moment() {
    // SAFETY: the child only sleeps and ends by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        std::thread::sleep(Duration::from_millis(2));
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(0) };
    }
    if pid > 0 {
        // Reaped while the race goes on.
        std::thread::spawn(move || {
            let mut status = 0;
            // SAFETY: waits for the child made above; the status is a local.
            unsafe { libc::waitpid(pid, &mut status, 0) }
        });
    }
}

/// What one program leaves to the next: file, seed, rounds so far.
const BATON: &str = "GPUIPC_TEST_CHURN";

/// Starts the chain of programs.
pub(crate) fn churn_by_exec(words: Words<'_, '_>) -> Result<NotOk, NotOk> {
    let (file, seed): (String, u64) = (word(words)?, word(words)?);
    Ok(pass_on(&format!("{file} {seed} 0")))
}

fn pass_on(baton: &str) -> NotOk {
    use std::os::unix::process::CommandExt;
    let error = std::process::Command::new("/proc/self/exe")
        .env(BATON, baton)
        .exec();
    NotOk::from(format!("exec: {error}").as_str())
}

/// At the start of a program: its part of the race, if it is in one. The last
/// one gives the number of rounds; the others end in the next.
pub(crate) fn go_on(child: &mut TestChild) -> Option<u64> {
    let baton = std::env::var(BATON).ok()?;
    let mut words = baton.split_whitespace();
    let file = words.next()?;
    let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    let [seed, rounds] = numbers.as_slice() else {
        return None;
    };
    if is_over(file) {
        return Some(*rounds);
    }
    let exported = export_beside_a_decoy(child, file, *seed, *rounds);
    let next = format!("{file} {seed} {}", rounds + 1);
    // The descriptors close with the exec; the next program's take their numbers.
    let NotOk(why) = match exported {
        Ok(_kept) => pass_on(&next),
        Err(not_ok) => not_ok,
    };
    panic!("{why}");
}

/// Everything stays as it is until the exec. Every second program has the decoy
/// where the others have the memory that is exported.
fn export_beside_a_decoy(
    child: &mut TestChild,
    file: &str,
    seed: u64,
    rounds: u64,
) -> Result<Vec<Box<dyn std::any::Any>>, NotOk> {
    const LEN: usize = 2 << 20;
    let ipc = child.ipc()?;
    let buffer = Buffer::new(child.driver, 0, Memory::VmmFd, LEN)?;
    buffer.write(0, &pattern(seed, 0, 4096))?;
    let decoy = Buffer::new(child.driver, 0, Memory::VmmFd, LEN)?;
    decoy.write(0, &pattern(seed + 1, 0, 4096))?;
    let decoy_handle = retain(child.driver, decoy.device_ptr())?;
    let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
    if rounds.is_multiple_of(2) {
        // SAFETY: never released: the process is killed.
        let fd = unsafe { child.driver.mem_export_fd(decoy_handle) };
        kept.push(Box::new(fd.map_err(Error::from)?));
    }
    let exported = buffer.export(&ipc, 0, LEN, &ExportOptions::default())?;
    publish(file, &exported.handles()[0])?;
    std::thread::sleep(Duration::from_micros(rounds % 9 * 500));
    kept.extend([
        Box::new(exported) as Box<dyn std::any::Any>,
        Box::new(decoy),
        Box::new(buffer),
    ]);
    Ok(kept)
}

/// Imports the newest handle again and again; what is mapped must be the
/// pattern with this seed.
pub(crate) fn chase(child: &mut TestChild, words: Words<'_, '_>) -> Result<String, NotOk> {
    let (file, seed): (String, u64) = (word(words)?, word(words)?);
    let chase = Chase::of(words)?;
    let ipc = child.ipc()?;
    let (mut right, mut refused) = (0_u64, 0_u64);
    while chase.goes_on(right, refused) {
        let Ok(bytes) = std::fs::read(&file) else {
            continue;
        };
        let handle = GpuIpcMemHandle::decode(&bytes).map_err(Error::from)?;
        match ipc.import(&[handle], &ImportOptions::default()) {
            Ok(mem) => {
                let mut start = [0; 64];
                mem.read(0, &mut start)?;
                same(&start, &pattern(seed, 0, start.len()))?;
                right += 1;
            }
            Err(_) => refused += 1,
        }
    }
    Ok(format!("{right} {refused}"))
}
