//! What a sandbox refuses costs what it gives and nothing else: memory is shared as long
//! as one way is left. `docs/sandboxes.md` has the same table in words.

mod host;
mod memory;
mod process;
mod refusals;
mod variables;
mod ways;

use std::process::Command;

/// The helper program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_child");

/// Whether the machine lets a program start under `unshare` with these arguments and run
/// a shell's `line`; says so where it does not.
fn can_unshare(arguments: &[&str], line: &str) -> bool {
    let mut command = Command::new("unshare");
    command.args(arguments).args(["sh", "-c", line]);
    let can = command.output().is_ok_and(|output| output.status.success());
    if !can {
        gpuipc_tests::skip(&format!(
            "unshare {arguments:?} and {line:?} are not possible here"
        ));
    }
    can
}

/// Makes of a child's command one that runs a shell's `line` first, unshared so.
fn after(command: &mut Command, arguments: &[&str], line: &str) {
    let run = format!("{line} && exec \"$0\"");
    command.args(arguments).args(["sh", "-c", &run, PROGRAM]);
}
