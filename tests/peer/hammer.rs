//! Offers and imports at random, against other processes that do the same on
//! the same GPU.
//!
//! A handle travels as a file in a folder: the owner's pid, the seed of the
//! pattern that the memory holds, and the handle. The owner removes the file
//! before it withdraws the offer, so an importer that finds it still there
//! afterwards knows that what failed should have worked.

use crate::{NotOk, attempts, pattern, same, word};
use gpuipc::{Buffer, Driver, Error, ExportOptions, Exported, GpuIpcMem, GpuIpcMemHandle};
use gpuipc::{HandleType, ImportOptions, Ipc, Memory, Used};
use gpuipc_tests::{from_hex, to_hex};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The window that is shared; the allocation around it is larger.
const WINDOW: usize = 4096;
const OFFSETS: [usize; 3] = [0, 4096, 1 << 20];
const ALLOCATION: usize = 2 << 20;
const MOST_OFFERS: usize = 6;
const MOST_MAPPINGS: usize = 8;

/// Does random things for a time, gives everything back, and says how much was
/// done.
pub(crate) fn hammer(
    driver: Driver,
    words: &mut std::str::SplitWhitespace<'_>,
) -> Result<String, NotOk> {
    let folder: PathBuf = word(words)?;
    let seed: u64 = word(words)?;
    let end = Instant::now() + Duration::from_millis(word(words)?);
    let mut hammer = Hammer {
        driver,
        ipc: Ipc::new(driver)?,
        folder,
        random: seed | 1,
        offers: Vec::new(),
        mappings: Vec::new(),
        next: 0,
        done: Done::default(),
    };
    while Instant::now() < end {
        hammer.step()?;
    }
    while !hammer.offers.is_empty() {
        hammer.withdraw()?;
    }
    hammer.mappings.clear();
    let Done {
        exported,
        imported,
        verified,
        gone,
    } = hammer.done;
    Ok(format!("{exported} {imported} {verified} {gone}"))
}

#[derive(Default)]
struct Done {
    exported: u64,
    imported: u64,
    verified: u64,
    /// Imports and reads of what had been withdrawn meanwhile.
    gone: u64,
}

struct Hammer {
    driver: Driver,
    ipc: Ipc,
    folder: PathBuf,
    random: u64,
    offers: Vec<Offer>,
    mappings: Vec<Mapping>,
    next: u32,
    done: Done,
}

/// In the order in which it goes: the file, the offer, the memory.
struct Offer {
    file: PathBuf,
    exported: Exported,
    buffer: Buffer,
}

struct Mapping {
    mem: GpuIpcMem,
    file: PathBuf,
    seed: u64,
}

impl Hammer {
    /// Below `end`.
    fn dice(&mut self, end: usize) -> usize {
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize % end
    }

    fn step(&mut self) -> Result<(), NotOk> {
        match self.dice(8) {
            0 | 1 if self.offers.len() < MOST_OFFERS => self.offer(),
            0 | 1 => self.withdraw(),
            2..=4 if self.mappings.len() < MOST_MAPPINGS => self.import(),
            5 | 6 => self.verify(),
            _ if !self.mappings.is_empty() => {
                let index = self.dice(self.mappings.len());
                self.mappings.swap_remove(index);
                Ok(())
            }
            _ => self.import(),
        }
    }

    fn offer(&mut self) -> Result<(), NotOk> {
        let memory = Memory::ALL[self.dice(Memory::ALL.len())];
        let offset = OFFSETS[self.dice(OFFSETS.len())];
        let seed = self.random;
        let buffer = Buffer::new(self.driver, 0, memory, ALLOCATION)?;
        buffer.write(offset, &pattern(seed, 0, WINDOW))?;
        let exported = buffer.export(&self.ipc, offset, WINDOW, &ExportOptions::default())?;
        let pid = std::process::id();
        let text = format!("{pid} {seed} {}", to_hex(&exported.handles()[0].encode()));
        let file = self.folder.join(format!("{pid}-{}", self.next));
        let temporary = self.folder.join(format!(".{pid}"));
        self.next += 1;
        std::fs::write(&temporary, text).map_err(|_| NotOk::from("write"))?;
        std::fs::rename(&temporary, &file).map_err(|_| NotOk::from("rename"))?;
        self.offers.push(Offer {
            file,
            exported,
            buffer,
        });
        self.done.exported += 1;
        Ok(())
    }

    fn withdraw(&mut self) -> Result<(), NotOk> {
        let index = self.dice(self.offers.len());
        let Offer {
            file,
            exported,
            buffer,
        } = self.offers.swap_remove(index);
        std::fs::remove_file(file).map_err(|_| NotOk::from("remove"))?;
        // In either order: an offer keeps what it can keep.
        if self.dice(2) == 0 {
            drop(exported);
            drop(buffer);
        } else {
            drop(buffer);
            drop(exported);
        }
        Ok(())
    }

    fn import(&mut self) -> Result<(), NotOk> {
        let Some((file, text)) = self.somebody_elses_file() else {
            return Ok(());
        };
        let mut parts = text.split(' ');
        let (Some(pid), Some(seed), Some(hex)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("a file of another form".into());
        };
        let seed = seed.parse().map_err(|_| NotOk::from("a seed"))?;
        let bytes = from_hex(hex).ok_or("no hex digits")?;
        let handle = GpuIpcMemHandle::decode(&bytes).map_err(Error::from)?;
        let mut options = ImportOptions::default();
        // All types half of the time, else one that the handle has.
        let types = handle.types().types();
        if self.dice(2) == 0 && !types.is_empty() {
            let one: HandleType = types[self.dice(types.len())];
            options = options.types(&[one]);
        }
        match self.ipc.import(&[handle], &options) {
            Ok(mem) => {
                self.done.imported += 1;
                self.mappings.push(Mapping { mem, file, seed });
                let newest = self.mappings.len() - 1;
                self.verify_at(newest)
            }
            Err(error) => {
                if is_offered(&file, pid) {
                    return Err(NotOk(format!(
                        "failed {} {} on offer: {}",
                        error.status().name(),
                        attempts(error.attempts()),
                        error.to_string().replace('\n', " | ")
                    )));
                }
                self.done.gone += 1;
                Ok(())
            }
        }
    }

    fn somebody_elses_file(&mut self) -> Option<(PathBuf, String)> {
        let own = format!("{}-", std::process::id());
        let files: Vec<PathBuf> = std::fs::read_dir(&self.folder)
            .ok()?
            .flatten()
            .filter(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                !name.starts_with('.') && !name.starts_with(&own)
            })
            .map(|entry| entry.path())
            .collect();
        if files.is_empty() {
            return None;
        }
        let file = files[self.dice(files.len())].clone();
        let text = std::fs::read_to_string(&file).ok()?;
        Some((file, text))
    }

    fn verify(&mut self) -> Result<(), NotOk> {
        if self.mappings.is_empty() {
            return Ok(());
        }
        let index = self.dice(self.mappings.len());
        self.verify_at(index)
    }

    /// What holds a reference must have its bytes, whatever became of the
    /// offer; a legacy mapping only as long as the memory is on offer.
    fn verify_at(&mut self, index: usize) -> Result<(), NotOk> {
        let mapping = &self.mappings[index];
        let mut bytes = vec![0; mapping.mem.len()];
        let read = mapping.mem.read(0, &mut bytes).map_err(NotOk::from);
        let checked = read.and_then(|()| same(&bytes, &pattern(mapping.seed, 0, WINDOW)));
        let legacy = mapping.mem.type_used() == Used::Type(HandleType::RuntimeIpc);
        match checked {
            Ok(_) => self.done.verified += 1,
            Err(_) if legacy && !mapping.file.exists() => self.done.gone += 1,
            Err(NotOk(line)) => {
                let used = mapping.mem.type_used();
                return Err(NotOk(format!("failed {line} in memory by {used}")));
            }
        }
        Ok(())
    }
}

/// Whether the offer in a file stands: the file is there, and its owner lives.
fn is_offered(file: &Path, pid: &str) -> bool {
    if !file.exists() {
        return false;
    }
    let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
    let lives = || pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok());
    // A process that was killed is there for a moment after its sockets are gone.
    let end = Instant::now() + Duration::from_secs(2);
    while lives() {
        if Instant::now() > end {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}
