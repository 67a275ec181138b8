//! The other process of a test: reads commands from stdin, a line each, and
//! answers each with a line: `ok ...` or `err STATUS ATTEMPTS TEXT`.
//!
//! | command | answer |
//! |---|---|
//! | `alloc MEMORY LEN [DEVICE]` | `ok BUFFER ADDRESS` |
//! | `fill BUFFER SEED`, `check BUFFER SEED OFFSET LEN` | `ok`, or `wrong INDEX` |
//! | `export BUFFER OFFSET LEN [types=TYPE,..] [on-demand]`, `export-raw ADDRESS LEN OPTIONS..` | `ok EXPORT HANDLE[,HANDLE..]` |
//! | `put WHAT ID OFFSET LEN SEED`, `sum WHAT ID OFFSET LEN`, `bytes WHAT ID OFFSET LEN` | of a part of a `buffer` or `mapping`: `ok` after writing the pattern, `ok SUM` of its bytes, `ok HEX` |
//! | `alloc-beside BUFFER LEN` | as `alloc`: from the same pool |
//! | `export-odd KIND` | as `export`, of memory of a kind that the library does not allocate: see `odd.rs` |
//! | `alloc-odd KIND SEED` | `ok ADDRESS` of such memory, which begins with the pattern |
//! | `threads COUNT ROUNDS SEED[/SEED..] HANDLE[/HANDLE..] OPTIONS..` | `ok`: imports, reads and drops on threads at once; of several handles each thread has one |
//! | `at-once THREADS ROUNDS SEED HANDLE[/HANDLE..] OPTIONS..` | `ok LEAST MOST`: in each round all threads import, read and drop at once; addresses of a round |
//! | `import-each HANDLE:OPTION ..` | `ok STATUS:MILLISECONDS ..`: each on a thread of its own, the first one a little earlier |
//! | `lock FILE` | `ok`: the file stays open, and this process has a POSIX lock on it |
//! | `chase-at-once THREADS FILE SEED MILLISECONDS LEAST` | `ok RIGHT REFUSED`: as `chase`, on threads, of what stands in FILE; only an export that was revoked may refuse |
//! | `device-of MAPPING`, `access MAPPING DEVICE`, `access-at ADDRESS DEVICE`, `uuids` | `ok` and the device, the driver's access flags, the UUIDs of the devices |
//! | `register ADDRESS LEN TRANSPORTS`, `deserialize HEX OPTIONS..`, `read-registered ID SEED OFFSET` | see `register.rs` |
//! | `keep-connections`, `close-idle` | `ok`: connections to brokers stay after imports from now on; are closed |
//! | `import-trusting-all HANDLE OPTIONS..` | `ok MAPPING ADDRESS`: by another `Ipc`, which trusts whoever has the token |
//! | `keepalive-ipc` | `ok`: from now on with a keepalive descriptor |
//! | `reserve SIZE` | `ok PLACE ADDRESS SIZE` |
//! | `unmap MAPPING` | `ok PLACE ADDRESS SIZE` of what it lay in |
//! | `cpu-read MAPPING SEED`, `cpu-write MAPPING SEED` | as `read` and `write`, by the CPU through the mapping |
//! | `can-import HANDLE[,HANDLE..] OPTIONS..` | `ok TYPE/FEASIBILITY,..` |
//! | `import HANDLE[,HANDLE..] OPTIONS..` | `ok MAPPING ADDRESS USED LIVENESS LEN ATTEMPTS` |
//! | `read MAPPING SEED OFFSET [STEP]` (its bytes, or every STEP-th, as OFFSET.. of the pattern), `write MAPPING SEED` | `ok`, or `wrong INDEX` |
//! | `drop buffer\|export\|mapping ID`, `drop-on-thread MAPPING`, `drop-ipc` | `ok` |
//! | `leave EXPORT` | `ok`: it lives until its memory is gone |
//! | `free BUFFER` (keeps nothing: the address is stale then) | `ok` |
//! | `fail SYMBOL NTH CODE TIMES`, `no-faults`, `calls SYMBOL` | `ok` |
//! | `at SYMBOL NTH kill\|stop PID` | `ok`: before the NTH next use of the driver call that process is killed, or stopped |
//! | `calls-all` | `ok SYMBOL=USES ..` of every driver call that was used |
//! | `capture here\|thread FLAGS MODE`, `capture-end`, `synchronize` | `ok` once a stream of device 0 captures, in this thread or one of its own; `ok CODE` of its end, of `cuCtxSynchronize` |
//! | `context none\|DEVICE`, `current` | `ok` |
//! | `nofile SOFT`, `fsize SOFT`, `fill-fds`, `free-fds` | `ok` |
//! | `fork` | `ok` and what the child saw |
//! | `room COUNT` | `ok`: fills the table but for so many descriptors |
//! | `log [panics]`, `log-lines` | keeps warnings, or panics at every line of the broker's thread; `ok` and the warnings |
//! | `close-sockets [replace]`, `closed-are-mine` | `ok COUNT`: closes the library's sockets and pipes; `ok` and whether what replaced them is still there, in a child too |
//! | `replace NUMBER` | `ok`: /dev/zero comes under this number of the library's |
//! | `close-stderr`, `link-of NUMBER` | `ok` and what is under a number |
//! | `open`, `chdir FOLDER`, `umask MASK` | `ok` |
//! | `fork-stay` | `ok PID`: a child that neither execs nor ends by itself |
//! | `churn FILE BUFFER DECOY` | `ok ROUNDS`, once there is a file FILE.end, after exporting BUFFER again and again, with DECOY's descriptor at the same number in between |
//! | `churn-by-exec FILE SEED` | `ready`, then `ok ROUNDS` once there is a file FILE.end, from the last of many programs: each exports memory, and execs the next |
//! | `fleeting FILE SEED` | `ok ROUNDS`, once there is a file FILE.end, after exporting new memory again and again, unmapped as soon as its export has ended |
//! | `chase FILE SEED MILLISECONDS LEAST` | `ok RIGHT REFUSED`: imports of what stands in FILE, for so long and until LEAST of each were seen |
//! | `refuse NAME+NAME.. ERRNO` | `ok NAMES`: a seccomp filter on system calls, for good; NAMES are those that this machine has |
//! | `refuse-pidfd ERRNO` | `ok`: the same on `pidfd_getfd` |
//! | `stop` | `ok`, and then the process stops (SIGSTOP) |
//! | `debug` | `ok` and the Debug text of everything |
//! | `hold FILE` | `ok NUMBER DEVICE INODE` of the file, which stays open |
//! | `export-by-other-ipc FOLDER BUFFER LEN` | `ok EXPORT HANDLE` |
//! | `alarms`, `count-alarms` | `ok`: a signal every millisecond; `ok COUNT` |
//! | `spawn-sleep` | `ok PID` of a program that waits |
//! | `exec` | `ready`: this program anew in the same process |
//! | `exit-with-everything` | `ok`, and the process ends with all objects in a static |
//! | `guard`, `stop-guard` | `ok`: a thread that opens files; `ok FILES` that it lost |
//! | `mc-..` | what it does to a multicast object is in `multicast.rs` |
//! | `state` | `ok` and one line that is the same when nothing leaked |
//! | `held` | the same without opening a file: descriptors are only counted |

mod at_once;
mod bytes;
mod capture;
mod context;
mod cpu;
mod disturb;
mod exporting;
mod foreign;
mod importing;
mod leave;
mod life;
mod middle;
mod multicast;
mod odd;
mod race;
mod refuse;
mod register;
mod state;

use exporting::export_options;
use gpuipc::sys::DriverTable;
use gpuipc::{Buffer, Driver, Error, ExportOptions, Exported, GpuIpcMem, GpuIpcMemHandle};
use gpuipc::{ImportOptions, Ipc, Memory, RegisteredMemory, Reservation};
use gpuipc_emulated::faults;
use gpuipc_tests::{pattern_byte, to_hex};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

struct TestChild {
    driver: Driver,
    ipc: Option<Ipc>,
    buffers: BTreeMap<u32, Buffer>,
    exports: BTreeMap<u32, Exported>,
    mappings: BTreeMap<u32, GpuIpcMem>,
    places: BTreeMap<u32, Arc<Reservation>>,
    registered: BTreeMap<u32, RegisteredMemory>,
    ballast: Vec<OwnedFd>,
    /// Numbers that the library had and that were closed below it.
    closed: Vec<i32>,
    /// To brokers, after an import; else they are closed, so that what is left
    /// open is a leak.
    keeps_connections: bool,
    capture: Option<capture::Capture>,
    multicast: multicast::Objects,
    next: u32,
}

/// An answer that is no success: already a whole line.
struct NotOk(String);

impl From<Error> for NotOk {
    fn from(error: Error) -> Self {
        let attempts = attempts(error.attempts());
        Self(format!(
            "err {} {attempts} {}",
            error.status().name(),
            error.to_string().replace('\n', " | ")
        ))
    }
}

impl From<&str> for NotOk {
    fn from(text: &str) -> Self {
        Self(format!("bad-command {text}"))
    }
}

fn attempts(attempts: &[gpuipc::Attempt]) -> String {
    let words: Vec<String> = attempts
        .iter()
        .map(|attempt| {
            let step = attempt.step.name().replace(' ', "-");
            format!("{}/{step}/{:?}", attempt.handle_type, attempt.reason)
        })
        .collect();
    if words.is_empty() {
        "-".to_owned()
    } else {
        words.join(",")
    }
}

fn main() {
    life::register_exit_handler();
    let driver = driver();
    // What the driver opens for good is there before the first `state`. Its
    // failure shows with the first command that needs it.
    let _ = driver.init();
    drop(refuse::place());
    let mut child = TestChild {
        driver,
        ipc: None,
        buffers: BTreeMap::new(),
        exports: BTreeMap::new(),
        mappings: BTreeMap::new(),
        places: BTreeMap::new(),
        registered: BTreeMap::new(),
        ballast: Vec::new(),
        closed: Vec::new(),
        keeps_connections: false,
        capture: None,
        multicast: multicast::Objects::default(),
        next: 1,
    };
    if let Some(rounds) = race::go_on(&mut child) {
        say(&format!("ok {rounds}"));
    }
    say("ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if line == "exit-with-everything" {
            say("ok");
            life::exit_with_everything(child);
        }
        let answer = match child.run(&line) {
            Ok(rest) if rest.is_empty() => "ok".to_owned(),
            Ok(rest) => format!("ok {rest}"),
            Err(NotOk(line)) => line,
        };
        say(&answer);
    }
}

fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let told = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    if told.is_err() {
        // The test has gone away.
        std::process::exit(1);
    }
}

/// The emulated driver's table; with `GPUIPC_TEST_DRIVER=cuda` the machine's
/// own, so that the same tests run on a real GPU. Faults can be set on either.
#[allow(unsafe_code)]
fn table() -> &'static DriverTable {
    static TABLE: LazyLock<&'static DriverTable> = LazyLock::new(|| {
        if std::env::var_os("GPUIPC_TEST_DRIVER").is_none_or(|driver| driver != "cuda") {
            return gpuipc_emulated::table();
        }
        // SAFETY: this is the CUDA driver, by the name that it has everywhere.
        let table = unsafe { gpuipc::sys::load(gpuipc::sys::DEFAULT_LIBRARY.as_ref()) };
        faults::wrap(Box::leak(Box::new(table.expect("a CUDA driver"))))
    });
    &TABLE
}

#[allow(unsafe_code)]
fn driver() -> Driver {
    // SAFETY: both drivers' entries follow CUDA's contract: the real one by
    // definition, the emulated one because it is made for it, and a fault only
    // returns a code in place of a call.
    unsafe { Driver::from_table(table()) }
}

/// The next word as whatever is wanted.
fn word<T: std::str::FromStr>(words: &mut std::str::SplitWhitespace<'_>) -> Result<T, NotOk> {
    words
        .next()
        .ok_or("a word is missing")?
        .parse()
        .map_err(|_| NotOk::from("a word is of the wrong kind"))
}

impl TestChild {
    fn run(&mut self, line: &str) -> Result<String, NotOk> {
        let mut words = line.split_whitespace();
        let words = &mut words;
        let command: String = word(words)?;
        match command.as_str() {
            "alloc" => {
                let name: String = word(words)?;
                let memory = Memory::ALL
                    .into_iter()
                    .find(|memory| memory.name() == name)
                    .ok_or("no such memory")?;
                let len = word(words)?;
                let device = words.next().map_or(Ok(0), str::parse);
                let device = device.map_err(|_| NotOk::from("no such device"))?;
                let buffer = Buffer::new(self.driver, device, memory, len)?;
                let ptr = buffer.device_ptr();
                let id = self.id();
                self.buffers.insert(id, buffer);
                Ok(format!("{id} {ptr}"))
            }
            "alloc-beside" => {
                let beside = self.buffer(words)?.beside(word(words)?)?;
                let ptr = beside.device_ptr();
                let id = self.id();
                self.buffers.insert(id, beside);
                Ok(format!("{id} {ptr}"))
            }
            "export-odd" => {
                let kind: String = word(words)?;
                let ptr = self.in_context(|driver| odd::allocate(driver, &kind))?;
                self.export(ptr, odd::LEN, &ExportOptions::default())
            }
            "alloc-odd" => {
                let kind: String = word(words)?;
                let bytes = pattern(word(words)?, 0, odd::FILLED);
                let ptr = self.in_context(|driver| {
                    let ptr = odd::allocate(driver, &kind)?;
                    odd::fill(driver, ptr, &bytes)?;
                    Ok(ptr)
                })?;
                Ok(ptr.to_string())
            }
            "threads" => {
                let (count, rounds) = (word(words)?, word(words)?);
                let (seeds, all): (String, String) = (word(words)?, word(words)?);
                let options: Vec<&str> = words.collect();
                let mut what = Vec::new();
                for (seed, handles) in seeds.split('/').zip(all.split('/')) {
                    let line = format!("{handles} {}", options.join(" "));
                    let (handles, options) = self.what_to_import(&mut line.split_whitespace())?;
                    let seed = seed.parse().map_err(|_| NotOk::from("a seed"))?;
                    what.push((handles, options, seed));
                }
                let ipc = self.ipc()?;
                let done = threads(&ipc, &what, count, rounds);
                ipc.close_idle_connections();
                done
            }
            "import-each" => at_once::each(self, words),
            "lock" => {
                let path: String = word(words)?;
                let file = std::fs::File::options().write(true).open(path);
                let file = file.map_err(|_| NotOk::from("open"))?;
                let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
                rustix::fs::fcntl_lock(&file, exclusive).map_err(|_| NotOk::from("lock"))?;
                self.ballast.push(file.into());
                Ok(String::new())
            }
            "register" => register::register(self, words),
            "deserialize" => register::deserialize(self, words),
            "read-registered" => register::read(self, words),
            "device-of" => Ok(self.mapping(words)?.device().to_string()),
            "access" | "access-at" => {
                let ptr = match command.as_str() {
                    "access" => self.mapping(words)?.device_ptr(),
                    _ => word(words)?,
                };
                let location = gpuipc::sys::CuMemLocation {
                    kind: gpuipc::sys::location::DEVICE,
                    id: word(words)?,
                };
                let access = self.driver.mem_access(ptr, location);
                Ok(access.map_err(Error::from)?.to_string())
            }
            "capture" => capture::begin(self, words),
            "synchronize" => Ok(capture::synchronize()?.to_string()),
            "capture-end" => capture::end(self),
            "uuids" => {
                let count = self.driver.device_count().map_err(Error::from)?;
                let uuids: Result<Vec<_>, _> = (0..count)
                    .map(|ordinal| {
                        let uuid = gpuipc::device_uuid(self.driver, ordinal)?;
                        Ok(uuid.to_string())
                    })
                    .collect();
                Ok(uuids.map_err(Error::Driver)?.join(" "))
            }
            "fill" => {
                let (buffer, seed) = (self.buffer(words)?, word(words)?);
                buffer.write(0, &pattern(seed, 0, buffer.len()))?;
                Ok(String::new())
            }
            "check" => {
                let buffer = self.buffer(words)?;
                let (seed, offset, len): (u64, usize, usize) =
                    (word(words)?, word(words)?, word(words)?);
                let mut bytes = vec![0; len];
                buffer.read(offset, &mut bytes)?;
                same(&bytes, &pattern(seed, offset, len))
            }
            "export" => {
                let base = self.buffer(words)?.device_ptr();
                let (offset, len): (u64, usize) = (word(words)?, word(words)?);
                let options = export_options(words)?;
                self.export(base + offset, len, &options)
            }
            "export-raw" => {
                let (ptr, len) = (word(words)?, word(words)?);
                let options = export_options(words)?;
                self.export(ptr, len, &options)
            }
            "export-host" => {
                let host = [0_u8; 64];
                let ptr = host.as_ptr().addr() as u64;
                self.export(ptr, host.len(), &ExportOptions::default())
            }
            "import" => self.import(words),
            "read" => {
                let mapping = self.mapping(words)?;
                let (seed, offset): (u64, u64) = (word(words)?, word(words)?);
                let step = match words.next() {
                    Some(step) => step.parse().map_err(|_| NotOk::from("step"))?,
                    None => 1,
                };
                let mut bytes = vec![0; mapping.len()];
                mapping.read(0, &mut bytes)?;
                let wrong = (0..bytes.len())
                    .step_by(step)
                    .find(|at| bytes[*at] != pattern_byte(seed, offset + *at as u64));
                match wrong {
                    None => Ok(String::new()),
                    Some(index) => Err(NotOk(format!("wrong {index}"))),
                }
            }
            "write" => {
                let mapping = self.mapping(words)?;
                mapping.write(0, &pattern(word(words)?, 0, mapping.len()))?;
                Ok(String::new())
            }
            "put" => bytes::put(self, words),
            "sum" => bytes::sum(self, words),
            "bytes" => bytes::bytes(self, words),
            "free" => {
                let id: u32 = word(words)?;
                drop(self.buffers.remove(&id).ok_or("no such buffer")?);
                Ok(String::new())
            }
            "drop" => {
                let what: String = word(words)?;
                let id: u32 = word(words)?;
                let found = match what.as_str() {
                    "buffer" => self.buffers.remove(&id).is_some(),
                    "export" => self.exports.remove(&id).is_some(),
                    "mapping" => self.mappings.remove(&id).is_some(),
                    "place" => self.places.remove(&id).is_some(),
                    "registered" => self.registered.remove(&id).is_some(),
                    _ => false,
                };
                if found {
                    Ok(String::new())
                } else {
                    Err("nothing to drop".into())
                }
            }
            "leave" => leave::leave(self, word(words)?),
            "drop-on-thread" => {
                let id: u32 = word(words)?;
                let mapping = self.mappings.remove(&id).ok_or("no such mapping")?;
                std::thread::spawn(move || drop(mapping))
                    .join()
                    .map_err(|_| NotOk::from("the drop panicked"))?;
                Ok(String::new())
            }
            "reserve" => {
                let place = Reservation::new(self.driver, word(words)?)?;
                Ok(self.keep_place(place))
            }
            "unmap" => {
                let id: u32 = word(words)?;
                let mapping = self.mappings.remove(&id).ok_or("no such mapping")?;
                let place = mapping.unmap().ok_or("it has no place")?;
                Ok(self.keep_place(place))
            }
            "cpu-read" => cpu::read(self.mapping(words)?, word(words)?),
            "cpu-write" => cpu::write(self.mapping(words)?, word(words)?),
            "can-import" => self.can_import(words),
            "import-trusting-all" => {
                let (handles, options) = self.what_to_import(words)?;
                let trust = gpuipc::IpcOptions::default().trust(gpuipc::Trust::TokenAlone);
                let mem = Ipc::with_options(self.driver, &trust)?.import(&handles, &options)?;
                let (id, ptr) = (self.id(), mem.device_ptr());
                self.mappings.insert(id, mem);
                Ok(format!("{id} {ptr}"))
            }
            "keepalive-ipc" => {
                let options = gpuipc::IpcOptions::default().keepalive_descriptor(true);
                self.ipc = Some(Ipc::with_options(self.driver, &options)?);
                Ok(String::new())
            }
            "drop-ipc" => {
                self.ipc = None;
                Ok(String::new())
            }
            "fail" => {
                let symbol: String = word(words)?;
                let (nth, code, times) = (word(words)?, word(words)?, word(words)?);
                faults::fail(&symbol, nth, gpuipc::sys::CuResult(code), times);
                Ok(String::new())
            }
            "at" => {
                let symbol: String = word(words)?;
                let nth = word(words)?;
                let what: String = word(words)?;
                middle::at(&symbol, nth, &what, word(words)?)?;
                Ok(String::new())
            }
            "no-faults" => {
                faults::clear();
                Ok(String::new())
            }
            "calls" => {
                let symbol: String = word(words)?;
                Ok(faults::calls(&symbol).to_string())
            }
            "calls-all" => {
                let used: Vec<String> = gpuipc::sys::CALLS
                    .iter()
                    .map(|call| (call.symbol, faults::calls(call.symbol)))
                    .filter(|(_, uses)| *uses > 0)
                    .map(|(symbol, uses)| format!("{symbol}={uses}"))
                    .collect();
                Ok(used.join(" "))
            }
            "context" => {
                let which: String = word(words)?;
                self.set_context(&which)
            }
            "current" => {
                let current = self.driver.current_context().map_err(Error::from)?;
                let device = current
                    .map(|_| self.driver.current_device())
                    .transpose()
                    .map_err(Error::from)?;
                Ok(format!("{current:?}{device:?}"))
            }
            "nofile" | "fsize" => {
                use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
                let resource = match command.as_str() {
                    "nofile" => Resource::Nofile,
                    _ => Resource::Fsize,
                };
                let maximum = getrlimit(resource).maximum;
                let limit = Rlimit {
                    current: Some(word(words)?),
                    maximum,
                };
                let changed = gpuipc_emulated::change_limit(|| setrlimit(resource, limit));
                changed.map_err(|_| NotOk::from("setrlimit"))?;
                Ok(String::new())
            }
            "fill-fds" => {
                self.fill_fds();
                Ok(String::new())
            }
            "room" => {
                self.fill_fds();
                let left = self.ballast.len().saturating_sub(word(words)?);
                self.ballast.truncate(left);
                Ok(String::new())
            }
            "free-fds" => {
                self.ballast.clear();
                Ok(String::new())
            }
            "log" => Ok(disturb::log(words.next() == Some("panics"))),
            "log-lines" => Ok(disturb::log_lines()),
            "close-sockets" => {
                let numbers = disturb::close_all(words.next() == Some("replace"))?;
                let count = numbers.len();
                self.closed.extend(numbers);
                Ok(count.to_string())
            }
            "replace" => {
                let number = word(words)?;
                disturb::replace(number)?;
                self.closed.push(number);
                Ok(String::new())
            }
            "closed-are-mine" => Ok(disturb::are_there(&self.closed).to_string()),
            "close-stderr" => {
                disturb::close_stderr();
                Ok(String::new())
            }
            "link-of" => Ok(disturb::link_of(word(words)?)),
            "open" => self.ipc().map(|_| String::new()),
            "chdir" => {
                let folder: String = word(words)?;
                std::env::set_current_dir(folder).map_err(|_| NotOk::from("chdir"))?;
                Ok(String::new())
            }
            "umask" => {
                rustix::process::umask(rustix::fs::Mode::from(word::<u32>(words)?));
                Ok(String::new())
            }
            "fork" => Ok(self.fork()),
            "fork-stay" => Ok(fork_stay()),
            "at-once" => at_once::rounds(self, words),
            "chase-at-once" => at_once::chase(self, words),
            "churn" => race::churn(self, words),
            "chase" => race::chase(self, words),
            "fleeting" => foreign::fleeting(self, words),
            "churn-by-exec" => Err(race::churn_by_exec(words)?),
            "refuse" => {
                let names: String = word(words)?;
                refuse::refuse(&names, word(words)?)
            }
            "refuse-pidfd" => {
                refuse::refuse("pidfd_getfd", word(words)?)?;
                Ok(String::new())
            }
            "stop" => {
                std::thread::spawn(|| {
                    std::thread::sleep(Duration::from_millis(50));
                    let _ = rustix::process::kill_process(
                        rustix::process::getpid(),
                        rustix::process::Signal::STOP,
                    );
                });
                Ok(String::new())
            }
            "debug" => {
                let (ipc, exports, mappings) = (&self.ipc, &self.exports, &self.mappings);
                Ok(format!("{ipc:?} {exports:?} {mappings:?}").replace('\n', " "))
            }
            "hold" => {
                use std::os::fd::AsRawFd;
                use std::os::unix::fs::MetadataExt;
                let path: String = word(words)?;
                let file = std::fs::File::open(path).map_err(|_| NotOk::from("open"))?;
                let meta = file.metadata().map_err(|_| NotOk::from("stat"))?;
                let number = file.as_raw_fd();
                self.ballast.push(file.into());
                Ok(format!("{number} {} {}", meta.dev(), meta.ino()))
            }
            "export-by-other-ipc" => {
                let folder: String = word(words)?;
                let options = gpuipc::IpcOptions::default().socket_dir(folder);
                let ipc = Ipc::with_options(self.driver, &options)?;
                let (buffer, options) = (self.buffer(words)?, ExportOptions::default());
                let exported = buffer.export(&ipc, 0, word(words)?, &options)?;
                let hex = to_hex(&exported.handles()[0].encode());
                let id = self.id();
                self.exports.insert(id, exported);
                Ok(format!("{id} {hex}"))
            }
            "alarms" => life::start_alarms().map(|()| String::new()),
            "count-alarms" => Ok(life::alarms().to_string()),
            "spawn-sleep" => life::spawn_sleep().map(|pid| pid.to_string()),
            "exec" => Err(life::exec()),
            "guard" => {
                life::start_guard();
                Ok(String::new())
            }
            "stop-guard" => life::stop_guard().map(|lost| lost.to_string()),
            command if command.starts_with("mc-") => multicast::run(self, command, words),
            "keep-connections" => {
                self.keeps_connections = true;
                Ok(String::new())
            }
            "close-idle" => {
                self.ipc()?.close_idle_connections();
                Ok(String::new())
            }
            "state" => Ok(state::state()),
            "held" => Ok(state::held()),
            _ => Err("no such command".into()),
        }
    }

    fn fill_fds(&mut self) {
        while let Ok(file) = std::fs::File::open("/dev/null") {
            self.ballast.push(file.into());
        }
    }

    fn id(&mut self) -> u32 {
        let id = self.next;
        self.next += 1;
        id
    }

    fn ipc(&mut self) -> Result<Ipc, NotOk> {
        match &self.ipc {
            Some(ipc) => Ok(ipc.clone()),
            None => Ok(self.ipc.insert(Ipc::new(self.driver)?).clone()),
        }
    }

    fn buffer(&self, words: &mut std::str::SplitWhitespace<'_>) -> Result<&Buffer, NotOk> {
        self.buffer_of(word(words)?)
    }

    fn buffer_of(&self, id: u32) -> Result<&Buffer, NotOk> {
        self.buffers.get(&id).ok_or("no such buffer".into())
    }

    fn mapping(&self, words: &mut std::str::SplitWhitespace<'_>) -> Result<&GpuIpcMem, NotOk> {
        self.mapping_of(word(words)?)
    }

    fn mapping_of(&self, id: u32) -> Result<&GpuIpcMem, NotOk> {
        self.mappings.get(&id).ok_or("no such mapping".into())
    }

    /// The mapping of another process's registered memory.
    fn registered_mapping(&self, id: u32) -> Result<&GpuIpcMem, NotOk> {
        let memory = self.registered.get(&id).ok_or("no such memory")?;
        memory.mapping().ok_or("not mapped".into())
    }

    /// Forks; the child uses and drops everything that it inherited.
    #[allow(unsafe_code)]
    fn fork(&mut self) -> String {
        let (mut from_child, to_parent) = std::io::pipe().expect("a pipe");
        // SAFETY: the child runs only this crate's code below and ends by
        // _exit; the threads that it lacks (the broker's) hold no lock that it
        // needs, which is part of what is tested.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let mut said = String::new();
            let ipc = self.ipc.take();
            // Whatever a logger may format works in a child, too.
            let _ = write!(
                String::new(),
                "{ipc:?} {:?} {:?}",
                self.exports,
                self.mappings
            );
            if let Some(ipc) = &ipc {
                // SAFETY: refused before anything is looked at: this is a forked child.
                let export = unsafe { ipc.export(4096, 1, &ExportOptions::default()) }.map(drop);
                let _ = write!(
                    said,
                    "{}",
                    export
                        .err()
                        .map_or("exported".into(), |e| e.status().name().to_owned())
                );
            }
            let is_forked = |answer: Result<(), Error>| matches!(answer, Err(Error::Forked));
            let all_forked = self
                .mappings
                .values()
                .all(|mem| is_forked(mem.read(0, &mut [0])) && is_forked(mem.write(0, &[0])))
                && self.buffers.values().all(|buffer| {
                    is_forked(buffer.read(0, &mut [0]))
                        && is_forked(buffer.write(0, &[0]))
                        && is_forked(buffer.beside(1).map(drop))
                });
            if !all_forked {
                said.push_str(" copied");
            }
            self.mappings.clear();
            self.multicast = multicast::Objects::default();
            self.exports.clear();
            self.buffers.clear();
            drop(ipc);
            said.push_str(" dropped");
            let mut to_parent = to_parent;
            let _ = to_parent.write_all(said.as_bytes());
            // SAFETY: ends this process at once, without running the parent's
            // exit handlers.
            unsafe { libc::_exit(0) };
        }
        drop(to_parent);
        let mut said = String::new();
        let _ = std::io::Read::read_to_string(&mut from_child, &mut said);
        let mut status = 0;
        // SAFETY: waits for the child made above; the status is a local.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        format!("{said} status={status}")
    }
}

/// Forks a child that keeps what it inherited until it is killed with its
/// parent's test.
#[allow(unsafe_code)]
fn fork_stay() -> String {
    // SAFETY: the child only sleeps, and ends by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // Not for ever: a test that fails leaves no process behind.
        std::thread::sleep(Duration::from_secs(120));
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(0) };
    }
    pid.to_string()
}

/// Imports, reads and drops on many threads at once, each one of these.
fn threads(
    ipc: &Ipc,
    what: &[(Vec<GpuIpcMemHandle>, ImportOptions, u64)],
    count: usize,
    rounds: usize,
) -> Result<String, NotOk> {
    let round = |(handles, options, seed): &(Vec<GpuIpcMemHandle>, ImportOptions, u64)| {
        let mem = ipc.import(handles, options)?;
        let mut bytes = vec![0; mem.len().min(4096)];
        mem.read(0, &mut bytes)?;
        same(&bytes, &pattern(*seed, 0, bytes.len()))
    };
    let work = |what| (0..rounds).try_for_each(|_| round(what).map(drop));
    std::thread::scope(|scope| {
        let all: Vec<_> = what
            .iter()
            .cycle()
            .take(count)
            .map(|what| scope.spawn(move || work(what)))
            .collect();
        all.into_iter().try_for_each(|thread| {
            let ended = thread.join();
            ended.map_err(|_| NotOk::from("a thread panicked"))?
        })
    })?;
    Ok(String::new())
}

fn pattern(seed: u64, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = pattern_byte(seed, (offset + at) as u64);
    }
    bytes
}

fn same(bytes: &[u8], wanted: &[u8]) -> Result<String, NotOk> {
    match bytes
        .iter()
        .zip(wanted)
        .position(|(got, wanted)| got != wanted)
    {
        None => Ok(String::new()),
        Some(index) => Err(NotOk(format!("wrong {index}"))),
    }
}
