//! What sharing costs on the emulated driver, against regressions:
//! `cargo bench -p gpuipc-cli`. How it compares with a driver's own calls says
//! `gpuipc bench`.
#![allow(clippy::unwrap_used, missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use gpuipc::{Buffer, Driver, ExportOptions, GpuIpcMemHandle, ImportOptions, Ipc, Memory};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BYTES: usize = 64 << 20;

/// A folder that plays the machine, and a process that holds memory in it.
struct Exporter {
    dir: PathBuf,
    child: Child,
    handle: GpuIpcMemHandle,
}

impl Exporter {
    fn start(dir: PathBuf) -> Self {
        let out = dir.join("handle");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuipc"));
        command
            .args(["export", "--driver=emulated", "--memory=vmm-fd"])
            .arg(format!("--size={BYTES}"))
            .arg("--out")
            .arg(&out)
            .stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let handle = loop {
            let bytes = std::fs::read(&out).unwrap_or_default();
            if let Ok(handle) = GpuIpcMemHandle::decode(&bytes) {
                break handle;
            }
            assert!(Instant::now() < deadline, "no handle comes");
            std::thread::sleep(Duration::from_millis(10));
        };
        Self { dir, child, handle }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // It may have ended; the folder may be in use for a moment.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The emulated driver in a folder of this process's own.
#[allow(unsafe_code)]
fn machine() -> (Ipc, PathBuf) {
    let name = format!("gpuipc-sharing-{}", std::process::id());
    let shm = PathBuf::from("/dev/shm");
    let parent = if shm.is_dir() {
        shm
    } else {
        std::env::temp_dir()
    };
    let dir = parent.join(name);
    std::fs::create_dir_all(&dir).unwrap();
    // SAFETY: a bench has one thread when it begins.
    unsafe { std::env::set_var("GPUIPC_EMULATED_DIR", &dir) };
    // SAFETY: the emulated driver's table follows CUDA's contract.
    let driver = unsafe { Driver::from_table(gpuipc_emulated::table()) };
    (Ipc::new(driver).unwrap(), dir)
}

fn sharing(criterion: &mut Criterion) {
    let (ipc, dir) = machine();
    let buffer = Buffer::new(ipc.driver(), 0, Memory::VmmFd, BYTES).unwrap();
    let options = ExportOptions::default();
    let export = || buffer.export(&ipc, 0, BYTES, &options).unwrap();
    let first = export();
    criterion.bench_function("export again", |bencher| bencher.iter(export));
    drop(first);
    criterion.bench_function("export and drop", |bencher| bencher.iter(export));

    let exporter = Exporter::start(dir);
    let handles = core::slice::from_ref(&exporter.handle);
    let options = ImportOptions::default().device(0);
    let import = || ipc.import(handles, &options).unwrap();
    criterion.bench_function("import and unmap", |bencher| bencher.iter(import));
    let _first = import();
    criterion.bench_function("import a cached window", |bencher| bencher.iter(import));
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = sharing
}
criterion_main!(benches);
