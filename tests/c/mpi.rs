//! MPI programs: the example, and the members of a multicast object.

use crate::compiler::NATIVE_LIBRARIES;
use crate::examples::{ffi, succeeded};
use crate::programs::{Folders, emulated, exists, output_in_time};
use crate::{include, libraries, skip, sources};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes an MPI program of one source. `None` without MPI.
fn mpi_program(source: &Path, folders: &Folders) -> Option<PathBuf> {
    if !exists("mpicc") || !exists("mpirun") {
        skip("OpenMPI (mpicc, mpirun) not installed");
        return None;
    }
    let name = source.file_stem().expect("a source has a name");
    let program = folders.made.join(name);
    let made = Command::new("mpicc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(include())
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg(libraries().join("libgpuipc.a"))
        .args(NATIVE_LIBRARIES)
        .output();
    succeeded(&made.expect("mpicc was found"));
    Some(program)
}

/// `mpirun` on this machine alone, on the emulated driver.
fn mpirun(folders: &Folders) -> Command {
    let mut command = Command::new("mpirun");
    emulated(&mut command, folders);
    command
        .arg("--oversubscribe")
        // What mpirun asks of root, and what it must not look for here.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_plm_rsh_agent", "false")
        .env("OMPI_MCA_btl", "self,tcp");
    command
}

/// Four ranks with a GPU each; what they wrote.
fn four_members(arguments: &[&str]) -> Option<String> {
    let folders = Folders::new();
    let program = mpi_program(&sources().join("multicast_mpi.c"), &folders)?;
    let mut command = mpirun(&folders);
    command
        .args(["-n", "4"])
        .arg(&program)
        .args(arguments)
        .env("GPUIPC_EMULATED_GPUS", "4");
    Some(succeeded(&output_in_time(&mut command)))
}

#[test]
fn four_mpi_ranks_are_members_of_a_multicast_object() {
    let Some(text) = four_members(&[]) else {
        return;
    };
    for rank in 0..4 {
        let line = format!("rank {rank} wrote and read");
        assert!(text.contains(&line), "no \"{line}\" in\n{text}");
    }
}

/// Rank 0 made the object.
#[test]
fn an_mpi_rank_that_stays_away_is_named_by_all_others_within_the_deadline() {
    for away in [3, 0] {
        let Some(text) = four_members(&["away", &away.to_string()]) else {
            return;
        };
        for rank in (0..4).filter(|rank| *rank != away) {
            let line = format!("rank {rank} did without rank {away}");
            assert!(text.contains(&line), "no \"{line}\" in\n{text}");
        }
    }
}

/// A program that runs its arguments as on another host: with another boot id.
/// `None` where that needs a right that this process lacks.
fn other_host(folder: &Path) -> Option<PathBuf> {
    let boot_id = folder.join("boot_id");
    std::fs::write(&boot_id, "00000000-1111-2222-3333-444444444444\n").expect("a file");
    let script = folder.join("other-host");
    let text = format!(
        "#!/bin/sh\nexec unshare --mount sh -c 'mount --bind {} /proc/sys/kernel/random/boot_id && \
         exec \"$@\"' sh \"$@\"\n",
        boot_id.display()
    );
    std::fs::write(&script, text).expect("a file");
    let mut sh = Command::new("sh");
    let seen = sh
        .arg(&script)
        .args(["cat", "/proc/sys/kernel/random/boot_id"])
        .output();
    let works = seen.is_ok_and(|output| output.stdout.starts_with(b"00000000-1111"));
    works.then_some(script)
}

#[test]
fn four_mpi_ranks_on_two_hosts_map_each_others_memory() {
    let folders = Folders::new();
    let source = ffi().join("examples/allgather_mpi.c");
    let Some(program) = mpi_program(&source, &folders) else {
        return;
    };
    let Some(other_host) = other_host(&folders.made) else {
        return skip("another boot id needs a mount namespace (root)");
    };
    let mut command = mpirun(&folders);
    command
        .args(["-n", "2"])
        .arg(&program)
        .args([":", "-n", "2", "sh"])
        .arg(&other_host)
        .arg(&program)
        .env("GPUIPC_EMULATED_PROFILE", "h200-imex");
    let text = succeeded(&output_in_time(&mut command));
    for rank in 0..4 {
        for other in (0..4).filter(|other| *other != rank) {
            let by = if rank / 2 == other / 2 {
                "PosixFd"
            } else {
                "Fabric"
            };
            let line = format!("rank {rank} mapped rank {other} by {by}");
            assert!(text.contains(&line), "no \"{line}\" in\n{text}");
        }
    }
}
