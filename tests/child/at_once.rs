//! Many threads of this process that import the same memory at the same time.

use crate::race::Chase;
use crate::{NotOk, TestChild, pattern, same, word};
use core::sync::atomic::{AtomicU64, Ordering};
use gpuipc::{Error, GpuIpcMem, GpuIpcMemHandle, ImportOptions, Ipc};
use std::collections::BTreeSet;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

type Words<'a, 'b> = &'a mut std::str::SplitWhitespace<'b>;

/// In each round all threads import at once, hold what they have until the last
/// one has read, and drop at once. The answer: at how many different addresses an
/// allocation lay in a round, least and most.
pub(crate) fn rounds(child: &mut TestChild, words: Words<'_, '_>) -> Result<String, NotOk> {
    let (threads, rounds, seed): (usize, usize, u64) = (word(words)?, word(words)?, word(words)?);
    let all: String = word(words)?;
    let options: Vec<&str> = words.collect();
    let mut ranges = Vec::new();
    for handles in all.split('/') {
        let line = format!("{handles} {}", options.join(" "));
        ranges.push(child.what_to_import(&mut line.split_whitespace())?);
    }
    let ipc = child.ipc()?;
    let barrier = Barrier::new(threads);
    let bases = Mutex::new(vec![BTreeSet::new(); rounds]);
    let work = |(handles, options): &(Vec<GpuIpcMemHandle>, ImportOptions)| {
        // Whatever went wrong: who leaves the rounds leaves the others waiting.
        let mut wrong = None;
        for round in 0..rounds {
            barrier.wait();
            let mem = import_and_read(&ipc, handles, options, seed);
            if let Ok(mem) = &mem {
                let base = mem.device_ptr() - handles[0].offset_from_base();
                let mut bases = bases.lock().unwrap_or_else(PoisonError::into_inner);
                bases[round].insert(base);
            }
            barrier.wait();
            if let Err(not_ok) = mem {
                wrong.get_or_insert(not_ok);
            }
        }
        wrong.map_or(Ok(()), Err)
    };
    on_threads(threads, |index| work(&ranges[index % ranges.len()]))?;
    ipc.close_idle_connections();
    let bases = bases.lock().unwrap_or_else(PoisonError::into_inner);
    let counts = || bases.iter().map(BTreeSet::len);
    let (least, most) = (counts().min(), counts().max());
    Ok(format!("{} {}", least.unwrap_or(0), most.unwrap_or(0)))
}

/// Imports each `HANDLE:OPTION` on a thread of its own, the first one a little before the
/// others. The answer: `STATUS:MILLISECONDS` of each.
pub(crate) fn each(child: &mut TestChild, words: Words<'_, '_>) -> Result<String, NotOk> {
    let ipc = child.ipc()?;
    let import = &|(handles, options): (Vec<GpuIpcMemHandle>, ImportOptions)| {
        let start = Instant::now();
        let status = match ipc.import(&handles, &options) {
            Ok(_) => "OK",
            Err(error) => error.status().name(),
        };
        format!("{status}:{}", start.elapsed().as_millis())
    };
    let answers = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for part in words {
            let line = part.replace(':', " ");
            let what = child.what_to_import(&mut line.split_whitespace())?;
            threads.push(scope.spawn(move || import(what)));
            if threads.len() == 1 {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        let join = |thread: std::thread::ScopedJoinHandle<'_, String>| {
            let ended = thread.join();
            ended.map_err(|_| NotOk::from("a thread panicked"))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()
    });
    ipc.close_idle_connections();
    Ok(answers?.join(" "))
}

/// The range's bytes are the pattern from its place in the allocation on.
fn import_and_read(
    ipc: &Ipc,
    handles: &[GpuIpcMemHandle],
    options: &ImportOptions,
    seed: u64,
) -> Result<GpuIpcMem, NotOk> {
    let mem = ipc.import(handles, options)?;
    let mut bytes = vec![0; mem.len().min(4096)];
    mem.read(0, &mut bytes)?;
    let offset = usize::try_from(handles[0].offset_from_base()).map_err(|_| "an offset")?;
    same(&bytes, &pattern(seed, offset, bytes.len()))?;
    Ok(mem)
}

/// All threads import what stands in a file, again and again; the answer: how many
/// imports were right, and how many were refused since the export was revoked.
/// Another refusal, or another byte, is an error.
pub(crate) fn chase(child: &mut TestChild, words: Words<'_, '_>) -> Result<String, NotOk> {
    let threads: usize = word(words)?;
    let (file, seed): (String, u64) = (word(words)?, word(words)?);
    let chase = Chase::of(words)?;
    let ipc = child.ipc()?;
    let (right, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let work = || {
        while chase.goes_on(count(&right), count(&refused)) {
            let Ok(bytes) = std::fs::read(&file) else {
                continue;
            };
            let handle = GpuIpcMemHandle::decode(&bytes).map_err(Error::from)?;
            match import_and_read(&ipc, &[handle], &ImportOptions::default(), seed) {
                Ok(_) => right.fetch_add(1, Ordering::Relaxed),
                Err(NotOk(line)) if line.starts_with("err EXPORT_REVOKED ") => {
                    refused.fetch_add(1, Ordering::Relaxed)
                }
                Err(wrong) => return Err(wrong),
            };
        }
        Ok(())
    };
    on_threads(threads, |_| work())?;
    ipc.close_idle_connections();
    Ok(format!("{} {}", count(&right), count(&refused)))
}

fn on_threads(count: usize, work: impl Fn(usize) -> Result<(), NotOk> + Sync) -> Result<(), NotOk> {
    let work = &work;
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..count)
            .map(|index| scope.spawn(move || work(index)))
            .collect();
        // All of them end before one's error is told.
        let ended: Vec<_> = all.into_iter().map(|thread| thread.join()).collect();
        ended
            .into_iter()
            .try_for_each(|ended| ended.map_err(|_| NotOk::from("a thread panicked"))?)
    })
}
