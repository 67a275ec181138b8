//! The folder in which the workers meet: the emulated GPU, the brokers' names, the
//! handles on offer, and what each may know of the others.

use super::notice::{Notices, Who};
use crate::output::Failure;
use std::path::{Path, PathBuf};

/// Room that the emulated GPU may need.
const ROOM: u64 = 2 << 30;

/// The folder.
#[derive(Clone, Debug)]
pub(super) struct Ground(pub(super) PathBuf);

impl Ground {
    /// Makes a new one, in memory if there is room.
    pub(super) fn new() -> Result<Self, Failure> {
        let shm = Path::new("/dev/shm");
        let room = rustix::fs::statvfs(shm).map_or(0, |shm| shm.f_bavail * shm.f_frsize);
        let parent = if room > ROOM {
            shm.to_owned()
        } else {
            std::env::temp_dir()
        };
        let ground = Self(parent.join(format!("gpuipc-soak-{}", std::process::id())));
        for folder in [
            &ground.0,
            &ground.gpu(),
            &ground.sockets(),
            &ground.offers(),
            &ground.memory(),
            &ground.buffers(),
            &ground.notices().0,
        ] {
            std::fs::create_dir(folder).map_err(|error| {
                Failure::text(format!("{} cannot be made: {error}", folder.display()))
            })?;
        }
        Ok(ground)
    }

    /// Plays the emulated GPU.
    pub(super) fn gpu(&self) -> PathBuf {
        self.0.join("gpu")
    }

    /// The brokers' names.
    pub(super) fn sockets(&self) -> PathBuf {
        self.0.join("sockets")
    }

    /// A file for each window on offer; gone before the offer is.
    pub(super) fn offers(&self) -> PathBuf {
        self.0.join("offers")
    }

    /// A file for each allocation; gone after all of it is.
    pub(super) fn memory(&self) -> PathBuf {
        self.0.join("memory")
    }

    /// A file for each allocation; gone before its owner frees it, which may be
    /// while it is on offer.
    pub(super) fn buffers(&self) -> PathBuf {
        self.0.join("buffers")
    }

    /// What is being done to whom.
    pub(super) fn notices(&self) -> Notices {
        Notices(self.0.join("notices"))
    }

    /// Removes what a dead worker had left in the folders of this command.
    pub(super) fn bury(&self, who: Who) {
        let prefix = format!("{who}-");
        for folder in [self.offers(), self.buffers(), self.memory()] {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                if name.trim_start_matches('.').starts_with(&prefix) {
                    // Nobody else removes it.
                    let _ = std::fs::remove_file(entry.path());
                }
            }
        }
    }

    /// Removes all of it.
    pub(super) fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Every file below a folder, by its path from there.
pub(super) fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let below = files(&entry.path());
            found.extend(below.iter().map(|file| format!("{name}/{file}")));
        } else {
            found.push(name);
        }
    }
    found
}
