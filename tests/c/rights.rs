//! A program with more rights than its caller reads no variable of its caller's.

use crate::compiler::{Compiler, Language, Library};
use crate::{skip, sources};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Another user, who has nothing.
const CALLER: u32 = 2000;

/// A folder that every user can enter, where setuid counts as far as the machine has one.
struct Open(PathBuf);

impl Open {
    fn new() -> Self {
        let name = format!("gpuipc-rights-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a new folder");
        set_mode(&path, 0o755);
        Self(path)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn a_setuid_program_obeys_no_variable_of_its_caller() {
    let Some(compiler) = Compiler::find(Language::C) else {
        return skip(Language::C.missing());
    };
    if !rustix::process::geteuid().is_root() {
        return skip("only root can make a setuid program for another user");
    }
    let folder = Open::new();
    let program = compiler.program(&sources().join("rights.c"), Library::Static, &folder.0, &[]);
    let mark = compiler.plugin(&sources().join("mark.c"), &folder.0, &[]);
    set_mode(&mark, 0o755);
    let run = |mode, variable: &str, value: &str| {
        set_mode(&program, mode);
        let mut command = Command::new(&program);
        command
            .env_clear()
            .env(variable, value)
            .uid(CALLER)
            .gid(CALLER)
            .current_dir("/");
        let output = command.output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let mark = mark.to_str().expect("a plain path");
    let Ok(plain) = run(0o755, "GPUIPC_LIBCUDA", mark) else {
        return skip("programs in the folder for temporary files do not start");
    };
    // What an ordinary program does: it obeys.
    assert!(plain.contains("secure 0, effective uid 2000"), "{plain}");
    assert!(plain.contains("loaded by effective uid 2000"), "{plain}");
    let loud = run(0o755, "GPUIPC_LOG", "loud").expect("it started before");
    assert!(
        loud.contains("INVALID_SETTING") && loud.contains("GPUIPC_LOG"),
        "{loud}"
    );

    let secure = run(0o4755, "GPUIPC_LIBCUDA", mark).expect("it started before");
    if !secure.contains("effective uid 0") {
        return skip("setuid means nothing in the folder for temporary files");
    }
    assert!(secure.contains("secure 1"), "{secure}");
    assert!(
        !secure.contains("loaded by") && !secure.contains("mark"),
        "{secure}"
    );
    for (variable, value) in [
        ("GPUIPC_LOG", "loud"),
        ("GPUIPC_TRUST", "loud"),
        ("GPUIPC_HOST_ID", "00000000000000000000000000000000"),
    ] {
        let answer = run(0o4755, variable, value).expect("it started before");
        assert!(!answer.contains(variable), "{answer}");
    }
}
