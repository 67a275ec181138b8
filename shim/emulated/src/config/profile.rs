//! Ready-made machines.

/// Each profile's name and settings. What one leaves out is as on an H200.
pub(super) const PROFILES: &[(&str, &[(&str, &str)])] = &[
    ("h200", &[]),
    ("h200-imex", &[("imex", "A")]),
    // A virtual GPU, or WSL2: cuMemAlloc memory and its legacy handles only.
    (
        "no-vmm",
        &[(
            "attributes",
            "102=0, 103=0, 110=0, 119=0, 124=0, 128=0, 132=0, 141=0",
        )],
    ),
    // Parts of a GPU (MIG), or confidential computing.
    ("no-peer", &[("peer", "none"), ("attributes", "132=0")]),
    (
        "driver-11.4",
        &[("driver_version", "11040"), ("attributes", "119=1")],
    ),
];
