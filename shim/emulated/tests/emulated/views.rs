//! Importers that see another machine: other namespaces, another user.

use crate::child::TestChild;
use crate::driver::*;
use crate::scene;
use gpuipc_sys::{CuResult, access};
use std::process::Command;

const SIZE: usize = 4 * MIB;

/// Whether `program` can run this test's own program here.
fn can_run(program: &[&str]) -> bool {
    let own = std::env::current_exe().expect("own path");
    let mut command = Command::new(program[0]);
    let ran = command
        .args(&program[1..])
        .arg("test")
        .arg("-x")
        .arg(own)
        .status();
    let can = ran.is_ok_and(|status| status.success());
    if !can {
        eprintln!("SKIPPED: {program:?} does not work here");
    }
    can
}

scene!(importers_in_other_namespaces_and_of_other_users, || {
    start_on(0);
    let ptr = alloc(SIZE).expect("memory");
    write(ptr, 0xabcd).expect("a write");
    let legacy = ipc_handle(ptr).expect("a handle");
    let handle = create_fd(SIZE);
    let mapped = map_for(handle, SIZE, 0, access::READ_WRITE).expect("a mapping");
    write(mapped, 0x7777).expect("a write");
    let fd = export_fd(handle).expect("a descriptor");
    let programs: [&[&str]; 6] = [
        &["unshare", "--ipc", "--net", "--mount"],
        &["unshare", "--pid", "--fork", "--mount-proc"],
        &["unshare", "--user", "--map-root-user"],
        &["unshare", "--user"],
        &[
            "unshare",
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
        ],
        &[
            "setpriv",
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
        ],
    ];
    for program in programs.into_iter().filter(|program| can_run(program)) {
        let mut child = TestChild::through(program).expect("cuInit");
        let there = child
            .open(legacy)
            .unwrap_or_else(|code| panic!("{program:?}: legacy open: {code}"));
        assert_eq!(child.read(there), Ok(0xabcd), "{program:?}");
        let ptr = child.ask(&format!("alloc {SIZE}")).expect("memory");
        let back = gpuipc_sys::CuIpcMemHandle {
            reserved: child.ask_bytes(&format!("handle {ptr}")),
        };
        let there = ipc_open(back, 1);
        assert!(there.is_ok(), "{program:?}: the other way round");
        assert_eq!(there.and_then(ipc_close), Ok(()));
        if !program.contains(&"--mount-proc")
            && !program.contains(&"--user")
            && program[0] != "setpriv"
        {
            let there = child.map_fd(fd, SIZE, access::READ).expect("a mapping");
            assert_eq!(child.read(there), Ok(0x7777), "{program:?}");
        }
        child.die();
        assert_eq!(
            ipc_open(back, 1),
            Err(CuResult::INVALID_HANDLE),
            "{program:?}"
        );
    }
});

scene!(a_pid_namespace_without_its_proc, || {
    let program = ["unshare", "--pid", "--fork"];
    if can_run(&program) {
        assert_eq!(
            TestChild::through(&program).err(),
            Some(CuResult::OPERATING_SYSTEM)
        );
    }
});
