//! A test in a process of its own, with a directory of its own.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

const SCENE: &str = "GPUIPC_EMULATED_TEST_SCENE";

/// Runs `body` in a fresh process with `settings`; `name` is the test's path.
pub(crate) fn scene(name: &str, settings: &[(&str, &str)], body: impl FnOnce()) {
    let name = name.split_once("::").map_or(name, |(_, rest)| rest);
    if std::env::var(SCENE).as_deref() == Ok(name) {
        return body();
    }
    let dir = Dir::new();
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(SCENE, name)
        .env("GPUIPC_EMULATED_DIR", &dir.0)
        .env_remove("CUDA_VISIBLE_DEVICES")
        .envs(settings.iter().copied())
        .output()
        .expect("own program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // Past the test harness, which would keep it to itself.
    for skip in text(&output.stderr)
        .lines()
        .filter(|line| line.starts_with("SKIPPED"))
    {
        writeln!(std::io::stderr(), "{name}: {skip}").expect("standard error");
    }
    assert!(
        output.status.success(),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    assert!(
        text(&output.stdout).contains("1 passed"),
        "the test {name} did not run in its process"
    );
}

/// The path of the test around it.
#[macro_export]
macro_rules! scene {
    ($name:ident, $body:expr) => {
        $crate::scene!($name, [], $body);
    };
    ($name:ident, $settings:expr, $body:expr) => {
        #[test]
        fn $name() {
            let settings: &[(&str, &str)] = &$settings;
            $crate::scene::scene(
                concat!(module_path!(), "::", stringify!($name)),
                settings,
                $body,
            );
        }
    };
}

/// A directory for the memory of processes that belong together.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let base = if std::path::Path::new("/dev/shm").is_dir() {
            "/dev/shm"
        } else {
            "/tmp"
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(PathBuf::from(format!(
            "{base}/gpuipc-emulated-test-{}-{number}",
            std::process::id()
        )))
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // A test that failed before its first call has no directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The names in the directory of this scene.
pub(crate) fn names() -> Vec<String> {
    let dir = std::env::var("GPUIPC_EMULATED_DIR").expect("a scene's process");
    let mut names = Vec::new();
    let mut folders = vec![PathBuf::from(dir)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the directory").flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            } else {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    names.sort();
    names
}
