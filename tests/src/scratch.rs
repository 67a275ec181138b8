//! A folder of a test's own, removed at its end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh folder that every user may enter and write to, as the emulated GPU's is.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes the folder.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let base = if Path::new("/dev/shm").is_dir() {
            PathBuf::from("/dev/shm")
        } else {
            std::env::temp_dir()
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("gpuipc-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for the test");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o1777)).expect("its mode");
        Self { path }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A copy of a program that every user may run, wherever the program itself lies.
#[derive(Debug)]
pub struct ForEveryone {
    folder: PathBuf,
}

impl ForEveryone {
    /// Copies `program`, which ends with success when its standard input does, to a
    /// place from which the user `uid` can run it; says why the test is skipped where
    /// there is none.
    #[must_use]
    pub fn copy(program: &str, uid: u32) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            crate::skip("only root can start processes of other users");
            return None;
        }
        let places = [
            PathBuf::from("/dev/shm"),
            std::env::temp_dir(),
            "/tmp".into(),
        ];
        let copy = places
            .iter()
            .find_map(|place| Self::at(place, program, uid));
        if copy.is_none() {
            let why = format!("user {uid} can run no program in any of {places:?}");
            crate::skip(&why);
        }
        copy
    }

    fn at(place: &Path, program: &str, uid: u32) -> Option<Self> {
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::process::CommandExt;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gpuipc-everyone-{}-{number}", std::process::id());
        let copy = Self {
            folder: place.join(name),
        };
        std::fs::create_dir(&copy.folder).ok()?;
        std::fs::copy(program, copy.program()).ok()?;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&copy.folder, mode.clone()).ok()?;
        std::fs::set_permissions(copy.program(), mode).ok()?;
        let mut command = std::process::Command::new(copy.program());
        command.uid(uid).gid(uid).current_dir("/");
        // No input, and its output is nobody's.
        let runs = command.output().is_ok_and(|output| output.status.success());
        runs.then_some(copy)
    }

    /// Its path.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.folder.join("program")
    }
}

impl Drop for ForEveryone {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind either.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
