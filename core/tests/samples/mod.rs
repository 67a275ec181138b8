//! One valid handle of each kind, and registered memories, with values that are easy to see in a dump.

use gpuipc_core::{
    ClusterUuid, DeviceUuid, Endpoint, GpuIpcMemHandle, HandleFields, HostId, ProcessId,
    RegisteredFields, SharedRange, TablePlace, Ticket, Token, TransportInfo, registered_len,
};

/// A sample, and the name of its golden file.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) fields: HandleFields,
}

pub(crate) const TOKEN: Token = Token::new([0x5a; 16]);

pub(crate) const TICKET: Ticket = Ticket {
    endpoint: Endpoint([0xe0; 16]),
    token: TOKEN,
    fd: None,
    table: None,
};

/// What all samples share: 2 MiB at 64 KiB of an allocation of 16 MiB. No type yet.
pub(crate) fn plain() -> HandleFields {
    HandleFields {
        base_size: 16 << 20,
        offset_from_base: 64 << 10,
        length: 2 << 20,
        allocation_id: 0x1122_3344_5566_7788,
        range: SharedRange {
            id: 7,
            length: 2 << 20,
            offset: 0,
            segment_index: 0,
            segment_count: 1,
        },
        device_uuid: DeviceUuid([0xd0; 16]),
        process_id: ProcessId([0xc0; 16]),
        host_id: HostId([0xb0; 16]),
        pid: 4242,
        pid_namespace: 0xf000_0001,
        net_namespace: 0xf000_0002,
        ..HandleFields::default()
    }
}

/// Numbers that count up, so that a moved byte is seen.
pub(crate) fn counting(first: u8) -> [u8; 64] {
    let mut next = first;
    [(); 64].map(|()| {
        let byte = next;
        next = next.wrapping_add(1);
        byte
    })
}

pub(crate) fn legacy() -> HandleFields {
    HandleFields {
        runtime_ipc: Some(counting(0)),
        ticket: Some(TICKET),
        ..plain()
    }
}

pub(crate) fn fd() -> HandleFields {
    HandleFields {
        ticket: Some(Ticket {
            fd: Some(37),
            ..TICKET
        }),
        posix_fd: true,
        ..plain()
    }
}

pub(crate) fn fd_and_table() -> HandleFields {
    HandleFields {
        ticket: Some(Ticket {
            fd: Some(37),
            table: Some(TablePlace {
                fd: 41,
                slot: 2,
                device: 26,
                inode: 0x0102_0304_0506,
            }),
            ..TICKET
        }),
        ..fd()
    }
}

pub(crate) fn fd_and_fabric() -> HandleFields {
    HandleFields {
        fabric: Some(counting(0x80)),
        fabric_clique: 3,
        fabric_cluster: ClusterUuid([0xa0; 16]),
        ..fd()
    }
}

pub(crate) fn pool() -> HandleFields {
    HandleFields {
        pool_pointer: Some(counting(0x40)),
        pool_id: 9,
        ..fd()
    }
}

pub(crate) fn host_numa() -> HandleFields {
    HandleFields {
        numa_node: Some(1),
        device_uuid: DeviceUuid([0; 16]),
        ..fd()
    }
}

pub(crate) fn multicast() -> HandleFields {
    HandleFields {
        multicast: true,
        num_devices: 8,
        ..fd_and_fabric()
    }
}

pub(crate) fn segment() -> HandleFields {
    HandleFields {
        range: SharedRange {
            id: 7,
            length: 7 << 20,
            offset: 4 << 20,
            segment_index: 1,
            segment_count: 3,
        },
        ..fd()
    }
}

/// All of them.
pub(crate) fn all() -> [Sample; 8] {
    [
        Sample {
            name: "legacy",
            about: "handle: cuMemAlloc memory, RuntimeIpc, with a ticket that has no descriptor",
            fields: legacy(),
        },
        Sample {
            name: "fd",
            about: "handle: VMM memory, PosixFd",
            fields: fd(),
        },
        Sample {
            name: "fd-ledger",
            about: "handle: VMM memory, PosixFd, the descriptor proven by a ledger",
            fields: fd_and_table(),
        },
        Sample {
            name: "fd-fabric",
            about: "handle: VMM memory, PosixFd and Fabric",
            fields: fd_and_fabric(),
        },
        Sample {
            name: "pool",
            about: "handle: memory of a pool, the pool's PosixFd and the pointer's bytes",
            fields: pool(),
        },
        Sample {
            name: "host-numa",
            about: "handle: pinned host memory on NUMA node 1, PosixFd",
            fields: host_numa(),
        },
        Sample {
            name: "multicast",
            about: "handle: multicast object of 8 devices, PosixFd and Fabric",
            fields: multicast(),
        },
        Sample {
            name: "segment",
            about: "handle: the second of three segments of a window, VMM memory, PosixFd",
            fields: segment(),
        },
    ]
}

/// A registered memory, and the name of its golden file.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) fields: RegisteredFields,
    pub(crate) transports: Vec<TransportInfo>,
    pub(crate) handles: Vec<GpuIpcMemHandle>,
}

impl Registered {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let length = registered_len(self.transports.len(), self.handles.len()).unwrap();
        let mut bytes = vec![0; length];
        let written = self
            .fields
            .encode(&self.transports, &self.handles, &mut bytes);
        assert_eq!(written, Ok(length));
        bytes
    }
}

/// 7 MiB of the process that the handles are from.
pub(crate) fn registered_fields() -> RegisteredFields {
    RegisteredFields {
        pointer: 0x7f00_1020_3000,
        len: 7 << 20,
        process_id: ProcessId([0xc0; 16]),
        host_id: HostId([0xb0; 16]),
        pid: 4242,
        pid_namespace: 0xf000_0001,
    }
}

/// Handles of a range of 7 MiB: segments of 4, 2 and 1 MiB.
pub(crate) fn three_segments() -> Vec<GpuIpcMemHandle> {
    let parts = [(0, 0_u64, 4_u64), (1, 4, 2), (2, 6, 1)];
    let handles = parts.map(|(segment_index, offset, length)| {
        let fields = HandleFields {
            length: length << 20,
            range: SharedRange {
                id: 7,
                length: 7 << 20,
                offset: offset << 20,
                segment_index,
                segment_count: 3,
            },
            ..fd()
        };
        GpuIpcMemHandle::new(&fields).unwrap()
    });
    handles.into()
}

/// Three segments and two transports.
pub(crate) fn registered() -> Registered {
    Registered {
        name: "registered-segments",
        about: "registered memory: two transports, the three segments of 7 MiB",
        fields: registered_fields(),
        transports: vec![
            TransportInfo::new(1, &counting(0x10)[..12]).unwrap(),
            TransportInfo::new(0x0102_0304, &counting(0x80)).unwrap(),
        ],
        handles: three_segments(),
    }
}

/// All of them.
pub(crate) fn all_registered() -> [Registered; 3] {
    [
        Registered {
            name: "registered-handle",
            about: "registered memory: no transport, one handle",
            fields: RegisteredFields {
                len: 2 << 20,
                ..registered_fields()
            },
            transports: Vec::new(),
            handles: vec![GpuIpcMemHandle::new(&fd_and_fabric()).unwrap()],
        },
        registered(),
        Registered {
            name: "registered-transport",
            about: "registered memory: one transport, no handle",
            transports: vec![TransportInfo::new(7, &[0xab]).unwrap()],
            handles: Vec::new(),
            ..registered()
        },
    ]
}
