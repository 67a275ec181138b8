//! Programs in C, linked as their authors would, on the emulated driver.

use crate::compiler::{Compiler, Language, Library};
use crate::{libraries, skip, sources};
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The exit status of a program in which valgrind found something.
const FOUND: &str = "99";

/// Two folders of one test's own, removed with all that is in them.
pub(crate) struct Folders {
    /// What the emulated driver and the brokers work in.
    machine: PathBuf,
    /// Where the program is made.
    pub(crate) made: PathBuf,
}

impl Folders {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gpuipc-c-{}-{number}", std::process::id());
        // In memory where there is such a place; a short path, since a socket's is
        // limited. Programs are not made there: it need not allow to execute them.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let folders = Self {
            machine: parent.join(&name),
            made: Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name),
        };
        for folder in [folders.gpu(), folders.sockets(), folders.made.clone()] {
            std::fs::create_dir_all(folder).expect("the folder can be made");
        }
        folders
    }

    fn gpu(&self) -> PathBuf {
        self.machine.join("gpu")
    }

    fn sockets(&self) -> PathBuf {
        self.machine.join("sockets")
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        for folder in [&self.machine, &self.made] {
            if let Err(error) = std::fs::remove_dir_all(folder) {
                eprintln!("{} stays: {error}", folder.display());
            }
        }
    }
}

/// gcc's and clang's checks of addresses, leaks and undefined behaviour.
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// What a program runs with on the emulated driver: nothing of the caller's.
pub(crate) fn emulated(command: &mut Command, folders: &Folders) {
    command
        .env("GPUIPC_LIBCUDA", libraries().join("libgpuipc_emulated.so"))
        .env("GPUIPC_EMULATED_DIR", folders.gpu())
        .env("GPUIPC_SOCKET_DIR", folders.sockets())
        .env("GPUIPC_LOG", "off")
        .env_remove("GPUIPC_TYPES")
        .env_remove("GPUIPC_TIMEOUT_MS")
        .env_remove("GPUIPC_TRUST")
        .env_remove("CUDA_VISIBLE_DEVICES")
        // Cargo's, which would find the shared library instead of the program's own path.
        .env_remove("LD_LIBRARY_PATH")
        .stdin(Stdio::null());
}

/// Compiles `source` and runs it with `arguments`. `None`: what it takes is not
/// installed.
fn output(
    source: &str,
    library: Library,
    arguments: &[&str],
    under: Under,
    variables: &[(&str, &str)],
) -> Option<Output> {
    let language = match source.ends_with(".cpp") {
        true => Language::Cpp,
        false => Language::C,
    };
    let Some(compiler) = Compiler::find(language) else {
        skip(language.missing());
        return None;
    };
    if !compiler.takes(under.flags()) {
        skip(&format!("the compiler does not take {:?}", under.flags()));
        return None;
    }
    if matches!(under, Under::Valgrind) && !exists("valgrind") {
        skip("valgrind not installed");
        return None;
    }
    let folders = Folders::new();
    let program = compiler.program(
        &sources().join(source),
        library,
        &folders.made,
        under.flags(),
    );
    let mut command = under.command(&program);
    emulated(&mut command, &folders);
    command.args(arguments).envs(variables.iter().copied());
    if matches!(under, Under::Valgrind | Under::Sanitizers) {
        // They need address space of their own.
        command.env("UNDER_A_TOOL", "1");
    }
    Some(output_in_time(&mut command))
}

/// More than any program takes, under valgrind on a busy machine, too.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs a program to its end, which must come in time.
pub(crate) fn output_in_time(command: &mut Command) -> Output {
    output_within(command, PATIENCE)
        .unwrap_or_else(|killed| panic!("{command:?} hung for {PATIENCE:?}: {killed:?}"))
}

/// Runs a program to its end. One that takes longer is killed with all that it started;
/// then what it had written is the error.
fn output_within(command: &mut Command, time: Duration) -> Result<Output, Output> {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.process_group(0).spawn();
    let child = child.expect("the program can be started");
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (ended, end) = channel();
    std::thread::spawn(move || ended.send(child.wait_with_output()));
    let written = |output: std::io::Result<Output>| output.expect("its output can be read");
    match end.recv_timeout(time) {
        Ok(output) => Ok(written(output)),
        Err(_) => {
            // Who still writes to its pipes is in its group, which so has its number.
            let _ = kill_process_group(group.expect("a pid"), Signal::KILL);
            Err(written(end.recv().expect("the thread waits for it")))
        }
    }
}

#[test]
fn a_program_that_hangs_is_killed_with_all_that_it_started() {
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1000 & sleep 1000"]);
    let killed = output_within(&mut command, Duration::from_secs(1));
    assert_eq!(
        killed.map_err(|output| output.status.signal()),
        Err(Some(9))
    );
}

/// What a program runs under.
#[derive(Clone, Copy)]
enum Under {
    Nothing,
    Valgrind,
    /// What gcc and clang build into the program; Rust's code is as it was.
    Sanitizers,
    /// Made with the compiler's link-time optimization.
    Lto,
}

impl Under {
    const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Nothing | Self::Valgrind => &[],
            Self::Sanitizers => &SANITIZERS,
            Self::Lto => &["-flto", "-O2"],
        }
    }

    fn command(self, program: &Path) -> Command {
        match self {
            Self::Nothing | Self::Sanitizers | Self::Lto => Command::new(program),
            Self::Valgrind => {
                let mut command = Command::new("valgrind");
                command
                    .args(["--quiet", "--leak-check=full"])
                    // Rust's hash tables point into the middle of their memory,
                    // which counts as possibly lost.
                    .arg("--show-leak-kinds=definite")
                    .arg("--errors-for-leak-kinds=definite")
                    .arg(format!("--error-exitcode={FOUND}"))
                    .arg(program);
                command
            }
        }
    }
}

/// Compiles `source` and runs it; it must succeed, and write nothing to stderr.
fn run(source: &str, library: Library, arguments: &[&str], under: Under) {
    run_with(source, library, arguments, under, &[]);
}

/// The same with variables.
fn run_with(
    source: &str,
    library: Library,
    arguments: &[&str],
    under: Under,
    variables: &[(&str, &str)],
) {
    let Some(output) = output(source, library, arguments, under, variables) else {
        return;
    };
    // A quiet valgrind writes nothing but what it found, in a child, too.
    let told = without_unknown_call(&String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && told.is_empty(),
        "{source} {arguments:?}: {}\n{}{told}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
    );
}

/// What is left of a text without valgrind's lines about the system calls that it does
/// not know, `pidfd_open` and `pidfd_getfd`: it returns ENOSYS for them, and the broker
/// is asked.
fn without_unknown_call(text: &str) -> String {
    const UNKNOWN: [&str; 6] = [
        "WARNING: unhandled amd64-linux syscall: 434",
        "WARNING: unhandled amd64-linux syscall: 438",
        "You may be able to write your own handler.",
        "Read the file README_MISSING_SYSCALL_OR_IOCTL.",
        "Nevertheless we consider this a bug.  Please report",
        "it at http://valgrind.org/support/bug_reports.html.",
    ];
    if !UNKNOWN[..2].iter().any(|call| text.contains(call)) {
        return text.to_owned();
    }
    let is_of_it =
        |line: &str| line.starts_with("--") && UNKNOWN.iter().any(|end| line.ends_with(end));
    let is_kept = |line: &&str| !is_of_it(line);
    text.lines().filter(is_kept).collect::<Vec<_>>().join("\n")
}

pub(crate) fn exists(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[test]
fn two_c_processes_share_cuda_malloc_memory_static() {
    run("share.c", Library::Static, &["cuda-malloc"], Under::Nothing);
}

#[test]
fn two_c_processes_share_vmm_memory_static() {
    run("share.c", Library::Static, &["vmm-fd"], Under::Nothing);
}

#[test]
fn two_c_processes_share_cuda_malloc_memory_shared() {
    run("share.c", Library::Shared, &["cuda-malloc"], Under::Nothing);
}

#[test]
fn two_c_processes_share_vmm_memory_shared() {
    run("share.c", Library::Shared, &["vmm-fd"], Under::Nothing);
}

#[test]
fn two_c_processes_are_members_of_a_multicast_object() {
    run("multicast.c", Library::Static, &[], Under::Nothing);
}

#[test]
fn valgrind_finds_nothing_in_multicast() {
    run("multicast.c", Library::Static, &[], Under::Valgrind);
}

#[test]
fn two_copies_in_one_process_give_the_original_pointer() {
    let scratch = gpuipc_tests::Scratch::new();
    let library = libraries().join("libgpuipc.so");
    let copy = scratch.path().join("libgpuipc-too.so");
    std::fs::copy(&library, &copy).expect("a copy");
    let path = |path: &Path| path.to_str().expect("a plain path").to_owned();
    for memory in ["cuda-malloc", "vmm-fd"] {
        let arguments = [memory.to_owned(), path(&library), path(&copy)];
        let arguments = arguments.each_ref().map(String::as_str);
        run("two_copies.c", Library::Static, &arguments, Under::Nothing);
    }
}

#[test]
fn two_copies_in_one_process_import_the_same_legacy_handle() {
    let scratch = gpuipc_tests::Scratch::new();
    let library = libraries().join("libgpuipc.so");
    let copy = scratch.path().join("libgpuipc-too.so");
    std::fs::copy(&library, &copy).expect("a copy");
    let paths = [library, copy].map(|path| path.to_str().expect("a plain path").to_owned());
    let paths = paths.each_ref().map(String::as_str);
    run("two_importers.c", Library::Static, &paths, Under::Nothing);
}

#[test]
fn bad_input_gives_the_named_status() {
    run("bad_input.c", Library::Static, &[], Under::Nothing);
}

#[test]
fn exports_are_left_whole_and_registered_for_transports_alone() {
    for under in [Under::Nothing, Under::Valgrind, Under::Sanitizers] {
        run("exports.c", Library::Static, &[], under);
    }
}

#[test]
fn a_callback_calls_nothing_of_the_library() {
    for library in [Library::Static, Library::Shared] {
        run("callbacks.c", library, &[], Under::Nothing);
    }
}

#[test]
fn a_thread_that_ends_in_a_callback_stops_there() {
    run("leaving.cpp", Library::Static, &["exit"], Under::Nothing);
}

#[test]
fn an_exception_that_leaves_a_callback_ends_the_process() {
    let thrown = output(
        "leaving.cpp",
        Library::Static,
        &["throw"],
        Under::Nothing,
        &[],
    );
    let Some(output) = thrown else { return };
    assert_eq!(output.status.signal(), Some(6), "{output:?}");
}

#[test]
fn a_thread_that_is_cancelled_ends_after_its_call() {
    run("cancelled.c", Library::Static, &[], Under::Nothing);
}

#[test]
fn a_forked_child_can_use_nothing_that_needs_cuda() {
    run("forked.c", Library::Static, &[], Under::Nothing);
}

#[test]
fn the_tests_of_every_function_have_every_function() {
    let every = include_str!("every.h");
    for symbol in crate::symbols::all() {
        let called = format!("CALL({symbol},");
        let plain = format!("{symbol}(");
        assert!(
            every.contains(&called) || every.contains(&plain),
            "{symbol}"
        );
    }
}

#[test]
fn options_errors_in_numbers_cancelling_and_log_lines() {
    run("calls.c", Library::Static, &[], Under::Nothing);
}

#[test]
fn ways_that_failed_before_one_worked_are_told() {
    let faults = "cuMemExportToShareableHandle@4=801,cuMemImportFromShareableHandle@1=999";
    let variables = [
        ("GPUIPC_EMULATED_PROFILE", "h200-imex"),
        ("GPUIPC_EMULATED_FAIL", faults),
    ];
    for under in [Under::Nothing, Under::Sanitizers, Under::Valgrind] {
        run_with("attempts.c", Library::Static, &[], under, &variables);
    }
}

#[test]
fn places_devices_feasibilities_segments_and_registered_memory() {
    for library in [Library::Static, Library::Shared] {
        run("grown.c", library, &[], Under::Nothing);
    }
}

#[test]
fn valgrind_finds_nothing_in_places_feasibilities_and_registered_memory() {
    run("grown.c", Library::Static, &[], Under::Valgrind);
}

#[test]
fn sanitizers_find_nothing_in_places_feasibilities_and_registered_memory() {
    run("grown.c", Library::Static, &[], Under::Sanitizers);
}

#[test]
fn gpus_that_are_no_peers_are_named() {
    let variables = [("GPUIPC_EMULATED_PROFILE", "no-peer")];
    let arguments = ["without-peers"];
    run_with(
        "grown.c",
        Library::Static,
        &arguments,
        Under::Nothing,
        &variables,
    );
}

#[test]
fn valgrind_finds_nothing_in_options_errors_cancelling_and_log_lines() {
    run("calls.c", Library::Static, &[], Under::Valgrind);
}

#[test]
fn valgrind_finds_nothing_in_sharing_cuda_malloc_memory() {
    run(
        "share.c",
        Library::Static,
        &["cuda-malloc"],
        Under::Valgrind,
    );
}

#[test]
fn valgrind_finds_nothing_in_sharing_vmm_memory() {
    run("share.c", Library::Static, &["vmm-fd"], Under::Valgrind);
}

#[test]
fn valgrind_finds_nothing_in_bad_input() {
    run("bad_input.c", Library::Static, &[], Under::Valgrind);
}

#[test]
fn cpp_owners_share_move_and_give_back() {
    for library in [Library::Static, Library::Shared] {
        run("owners.cpp", library, &[], Under::Nothing);
    }
}

#[test]
fn valgrind_finds_nothing_in_cpp_owners() {
    run("owners.cpp", Library::Static, &[], Under::Valgrind);
}

#[test]
fn sanitizers_find_nothing_in_cpp_owners() {
    run("owners.cpp", Library::Static, &[], Under::Sanitizers);
}

#[test]
fn sanitizers_find_nothing_in_sharing() {
    for memory in ["cuda-malloc", "vmm-fd"] {
        run("share.c", Library::Static, &[memory], Under::Sanitizers);
    }
}

#[test]
fn sanitizers_find_nothing_in_bad_input() {
    run("bad_input.c", Library::Static, &[], Under::Sanitizers);
}

#[test]
fn sanitizers_find_nothing_in_options_errors_cancelling_and_log_lines() {
    run("calls.c", Library::Static, &[], Under::Sanitizers);
}

#[test]
fn a_program_with_link_time_optimization_shares() {
    run("share.c", Library::Static, &["vmm-fd"], Under::Lto);
}

#[test]
fn the_log_goes_to_stderr_where_gpuipc_log_asks_for_it() {
    let Some(output) = output(
        "share.c",
        Library::Static,
        &["vmm-fd"],
        Under::Nothing,
        &[("GPUIPC_LOG", "debug")],
    ) else {
        return;
    };
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let exported =
        |line: &str| line.starts_with("gpuipc::gpu[") && line.contains("DEBUG: exported");
    assert!(log.lines().any(exported), "{log}");
}
