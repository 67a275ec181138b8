//! Only the emulated driver runs it without being asked to.

use crate::{Group, LEN, refused};

#[test]
fn a_driver_that_is_not_known_to_be_emulated_is_never_called() {
    let mut group = Group::with(2, &[("GPUIPC_EMULATED_MISSING", "gpuipcEmulatedDriver")]);
    // A handle that this driver's process could have got from elsewhere.
    let mut other = Group::new(2);
    let (_created, handle) = other.create(LEN);
    for line in [format!("mc-create {LEN} 2"), format!("mc-import {handle}")] {
        let refused = refused(&group.members[0].ask(&line));
        assert_eq!(refused.status, "MULTICAST_UNAVAILABLE");
        assert!(
            refused.text.contains("experimental_multicast"),
            "{}",
            refused.text
        );
    }
    let calls = group.members[0].ok("calls-all");
    assert!(
        !calls.contains("cuMulticast") && !calls.contains("Import"),
        "{calls}"
    );
}

#[test]
fn a_caller_may_allow_it() {
    let mut group = Group::with(2, &[("GPUIPC_EMULATED_MISSING", "gpuipcEmulatedDriver")]);
    group.all_ok(|_| "mc-opt-in".to_owned());
    let buffers = group.buffers(LEN);
    let (_created, handle) = group.create(LEN);
    group.ready(&handle, &buffers);
}

#[test]
fn the_emulated_driver_is_known_also_when_it_is_loaded() {
    let binary = std::env::current_exe().expect("a test binary has a path");
    let folder = binary.parent().expect("a folder");
    let library = folder.join("libgpuipc_emulated.so");
    let path = library.to_str().expect("a path of text");
    let mut group = Group::with(1, &[("GPUIPC_LIBCUDA", path)]);
    assert_eq!(group.members[0].ok("mc-loaded"), "true");
}
