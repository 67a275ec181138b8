//! Another process that does what it is told, a line at a time.

use crate::driver::*;
use crate::pool_calls::*;
use gpuipc_sys::{
    CuIpcMemHandle, CuMemFabricHandle, CuMemPool, CuMemPoolPtrExportData, CuResult, CuUuid,
    location,
};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

const CHILD: &str = "GPUIPC_EMULATED_TEST_CHILD";

pub(crate) struct TestChild {
    child: Child,
    socket: BufReader<UnixStream>,
}

impl TestChild {
    /// A process with its driver in use on its device 0.
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(settings: &[(&str, &str)]) -> Self {
        Self::started(Command::new(own_path()), settings).expect("cuInit")
    }

    /// A process behind a program such as `unshare`, or what `cuInit` answers
    /// there.
    pub(crate) fn through(program: &[&str]) -> Answer<Self> {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(own_path());
        Self::started(command, &[])
    }

    fn started(mut command: Command, settings: &[(&str, &str)]) -> Answer<Self> {
        let (own, other) = UnixStream::pair().expect("sockets");
        let child = command
            .args(["child::serve", "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .envs(settings.iter().copied())
            .stdin(OwnedFd::from(other))
            .stdout(Stdio::null())
            .spawn()
            .expect("the program runs");
        let mut child = Self {
            child,
            socket: BufReader::new(own),
        };
        let line = child.line();
        let code = line
            .trim()
            .strip_prefix("init ")
            .expect("a greeting")
            .parse()
            .expect("a code");
        ok(CuResult(code)).map(|()| child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A command's answer: a number, or the code of a failure.
    pub(crate) fn ask(&mut self, command: &str) -> Answer<u64> {
        writeln!(self.socket.get_mut(), "{command}").expect("the child lives");
        let answer = self.line();
        match answer.trim().split_once(' ') {
            Some(("ok", value)) => Ok(value.parse().expect("a number")),
            Some(("err", code)) => Err(CuResult(code.parse().expect("a code"))),
            _ => panic!("{command}: {answer:?}"),
        }
    }

    /// A handle that the child exports.
    pub(crate) fn ask_bytes(&mut self, command: &str) -> [u8; 64] {
        writeln!(self.socket.get_mut(), "{command}").expect("the child lives");
        from_hex(self.line().trim())
    }

    pub(crate) fn open(&mut self, handle: CuIpcMemHandle) -> Answer<u64> {
        self.ask(&format!("open {} 1", hex(&handle.reserved)))
    }

    pub(crate) fn read(&mut self, ptr: u64) -> Answer<u64> {
        self.ask(&format!("read {ptr}"))
    }

    /// Imports a descriptor of this process and maps it.
    pub(crate) fn map_fd(&mut self, fd: i32, bytes: usize, flags: u32) -> Answer<u64> {
        let handle = self.import_fd(fd)?;
        self.ask(&format!("map {handle} {bytes} {flags}"))
    }

    pub(crate) fn import_fd(&mut self, fd: i32) -> Answer<u64> {
        self.ask(&format!("import {} {fd}", std::process::id()))
    }

    pub(crate) fn import_fabric(&mut self, handle: CuMemFabricHandle) -> Answer<u64> {
        self.ask(&format!("fabric {}", hex(&handle.data)))
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a signal");
        self.child.wait().expect("its end");
    }

    /// Lets it kill itself, where `kill` would only reach the program in front
    /// of it.
    pub(crate) fn die(mut self) {
        writeln!(self.socket.get_mut(), "die").expect("the child lives");
        assert_eq!(self.line(), "", "the end of the stream");
    }

    /// Lets it end by itself.
    pub(crate) fn end(mut self) {
        writeln!(self.socket.get_mut(), "end").expect("the child lives");
        assert!(self.child.wait().expect("its end").success());
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.socket.read_line(&mut line).expect("the child answers");
        line
    }
}

impl Drop for TestChild {
    fn drop(&mut self) {
        // Already gone in the good case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn own_path() -> std::path::PathBuf {
    std::env::current_exe().expect("own path")
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("strings grow");
        text
    })
}

fn from_hex(text: &str) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hexadecimal");
    }
    bytes
}

/// The child's side; as a test of its own it does nothing.
#[test]
fn serve() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    // SAFETY: descriptor 0 is the socket that `TestChild::with` gave; nothing else
    // here reads standard input.
    let socket = unsafe { <UnixStream as std::os::fd::FromRawFd>::from_raw_fd(0) };
    let mut out = socket.try_clone().expect("a second descriptor");
    let code = cu!(init(0));
    writeln!(out, "init {}", code.0).expect("the other side");
    if ok(code).is_err() {
        return;
    }
    use_device(0);
    for line in BufReader::new(socket).lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "end" => return,
            // SAFETY: a signal to this very process.
            "die" => assert_eq!(unsafe { libc::raise(libc::SIGKILL) }, 0),
            _ => {}
        }
        writeln!(out, "{}", obey(&words)).expect("the other side");
    }
}

fn obey(words: &[&str]) -> String {
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let answer = match words[0] {
        "open" => ipc_open(
            CuIpcMemHandle {
                reserved: from_hex(words[1]),
            },
            number(2) as u32,
        ),
        "close" => ipc_close(number(1)).map(|()| 0),
        "read" => read(number(1)).map(u64::from),
        "write" => write(number(1), number(2) as u32).map(|()| 0),
        "alloc" => alloc(number(1) as usize),
        "free" => free(number(1)).map(|()| 0),
        "device" => Ok(use_device(number(1) as i32).0 as u64),
        "attribute" => attribute(number(1), number(2) as u32),
        "location" => properties(number(1)).map(|prop| prop.location.id as i64 as u64),
        "import" => import_fd(others_file(words).as_raw_fd()),
        "pool" => import_pool(others_file(words).as_raw_fd()).map(|pool| pool.0 as u64),
        "pool-pointer" => import_pointer(
            CuMemPool(number(1) as usize),
            CuMemPoolPtrExportData {
                reserved: from_hex(words[2]),
            },
        ),
        "pool-alloc" => alloc_from(CuMemPool(number(1) as usize), number(2) as usize),
        "pool-destroy" => destroy_pool(CuMemPool(number(1) as usize)).map(|()| 0),
        "pools" => Ok(gpuipc_emulated::counters::read().imported_pools),
        "devices" => {
            let mut count = 0;
            ok(cu!(device_get_count(&mut count))).map(|()| count as u64)
        }
        "uuid-byte" => {
            let mut uuid = CuUuid::default();
            let code = cu!(device_get_uuid_v2(&mut uuid, number(1) as i32));
            ok(code).map(|()| u64::from(uuid.bytes[0]))
        }
        "fabric" => import_fabric(CuMemFabricHandle {
            data: from_hex(words[1]),
        }),
        "map" => map_for(number(1), number(2) as usize, 0, number(3) as u32),
        "access" => set_access(
            number(1),
            number(2) as usize,
            location::DEVICE,
            0,
            number(3) as u32,
        )
        .map(|()| 0),
        "create" => create(
            number(1) as usize,
            prop(location::DEVICE, 0, number(2) as u32),
        ),
        "export" => export_fd(number(1)).map(|fd| fd as u64),
        "handle" => return hex(&ipc_handle(number(1)).expect("a handle").reserved),
        "export-fabric" => return hex(&export_fabric(number(1)).expect("a handle").data),
        "fork" => Ok(fork_that_sleeps()),
        other => panic!("unknown command {other}"),
    };
    match answer {
        Ok(value) => format!("ok {value}"),
        Err(code) => format!("err {}", code.0),
    }
}

/// A descriptor of another process, its own words being process and number.
fn others_file(words: &[&str]) -> std::fs::File {
    let path = format!("/proc/{}/fd/{}", words[1], words[2]);
    let mut options = std::fs::OpenOptions::new();
    let opened = options.read(true).write(true).open(path);
    opened.expect("the other's descriptor")
}

/// A child that outlives its parent by a while.
fn fork_that_sleeps() -> u64 {
    // SAFETY: the child calls only `sleep` and `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: async-signal-safe.
        unsafe { libc::sleep(5) };
        // SAFETY: async-signal-safe.
        unsafe { libc::_exit(0) };
    }
    pid as u64
}
