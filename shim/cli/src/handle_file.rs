//! Handles in files: written so that a reader sees all of one or none, read
//! without trust.

use crate::output::Failure;
use gpuipc::{GpuIpcMemHandle, HANDLE_BYTES};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// More handles than this are in no file: so many bytes are read, no more.
const MOST_HANDLES: usize = 1 << 16;

/// Handles on disk, removed on drop.
#[derive(Debug)]
pub(crate) struct HandleFile {
    path: PathBuf,
    /// Device and inode: what is removed is what was written.
    identity: (u64, u64),
}

impl HandleFile {
    /// Writes the handles for this user only, under another name first.
    pub(crate) fn write(path: &Path, handles: &[GpuIpcMemHandle]) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::text(format!("{} cannot be written: {error}", path.display()))
        };
        let name = path
            .file_name()
            .ok_or_else(|| failed(std::io::ErrorKind::IsADirectory.into()))?;
        let unnamed = format!(".{}.{}.new", name.to_string_lossy(), std::process::id());
        let unnamed = path.with_file_name(unnamed);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unnamed)
            .map_err(failed)?;
        let written = write_all(&mut file, handles)
            .and_then(|()| std::fs::rename(&unnamed, path))
            .and_then(|()| file.metadata());
        let metadata = written.map_err(|error| {
            // What is left of it would hold a secret.
            let _ = std::fs::remove_file(&unnamed);
            failed(error)
        })?;
        Ok(Self {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
        })
    }
}

fn write_all(file: &mut File, handles: &[GpuIpcMemHandle]) -> std::io::Result<()> {
    let bytes: Vec<u8> = handles.iter().flat_map(GpuIpcMemHandle::encode).collect();
    file.write_all(&bytes)
}

impl Drop for HandleFile {
    fn drop(&mut self) {
        let own = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if own && let Err(error) = std::fs::remove_file(&self.path) {
            log::warn!(target: "gpuipc::cli", "{} cannot be removed: {error}", self.path.display());
        }
    }
}

/// Reads the handles in all files, `-` for stdin.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<GpuIpcMemHandle>, Failure> {
    let mut handles = Vec::new();
    for path in paths {
        handles.extend(read(path)?);
    }
    Ok(handles)
}

/// Reads the handles in a file: one, or one a segment.
fn read(path: &Path) -> Result<Vec<GpuIpcMemHandle>, Failure> {
    let from_stdin = path == Path::new("-");
    let name = if from_stdin {
        "stdin".into()
    } else {
        path.to_string_lossy()
    };
    let most = MOST_HANDLES * HANDLE_BYTES;
    let mut bytes = Vec::new();
    let read = |source: &mut dyn Read, bytes: &mut Vec<u8>| {
        source.take(most as u64 + 1).read_to_end(bytes)
    };
    let got = if from_stdin {
        read(&mut std::io::stdin(), &mut bytes)
    } else {
        File::open(path).and_then(|mut file| read(&mut file, &mut bytes))
    };
    got.map_err(|error| Failure::text(format!("{name} cannot be read: {error}")))?;
    if bytes.len() > most {
        return Err(Failure::text(format!(
            "{name} is longer than {MOST_HANDLES} handles: it is no handle"
        )));
    }
    decode(&bytes).map_err(|error| Failure::text(format!("{name}: {error}")))
}

fn decode(bytes: &[u8]) -> Result<Vec<GpuIpcMemHandle>, gpuipc::DecodeError> {
    let several = bytes.chunks_exact(HANDLE_BYTES);
    if bytes.is_empty() || !several.remainder().is_empty() {
        // The length is wrong, and the error says so.
        return GpuIpcMemHandle::decode(bytes).map(|handle| vec![handle]);
    }
    several.map(GpuIpcMemHandle::decode).collect()
}
