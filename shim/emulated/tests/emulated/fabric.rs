//! Fabric handles.

use crate::child::TestChild;
use crate::driver::*;
use crate::scene;
use crate::scene::names;
use gpuipc_emulated::counters;
use gpuipc_sys::{CuMemFabricHandle, CuResult, handle_type, location};

const SIZE: usize = 4 * MIB;
const BOTH: u32 = handle_type::FABRIC | handle_type::POSIX_FILE_DESCRIPTOR;
const REFUSED: CuResult = CuResult::NOT_SUPPORTED;

scene!(without_imex_creating_is_not_permitted, || {
    start_on(0);
    let mut attribute = 0;
    assert_eq!(
        cu!(device_get_attribute(&mut attribute, 128, 0)),
        CuResult::SUCCESS
    );
    assert_eq!(attribute, 1, "only a trial tells");
    for types in [handle_type::FABRIC, BOTH] {
        assert_eq!(
            create(SIZE, prop(location::DEVICE, 0, types)),
            Err(CuResult::NOT_PERMITTED)
        );
    }
    assert_eq!(
        import_fabric(CuMemFabricHandle { data: [0; 64] }),
        Err(REFUSED)
    );
});

scene!(
    processes_of_one_domain_share,
    [("GPUIPC_EMULATED_IMEX", "rack 1")],
    || {
        start_on(0);
        let before = counters::read();
        let handle = create(SIZE, prop(location::DEVICE, 0, BOTH)).expect("memory");
        let ptr = map_for(handle, SIZE, 0, 3).expect("a mapping");
        write(ptr, 77).expect("a write");
        let bytes = export_fabric(handle).expect("a handle");
        assert_eq!(export_fabric(handle), Ok(bytes));
        assert!(export_fd(handle).map(close_fd).is_ok());
        let mut child = TestChild::new();
        let there = child.import_fabric(bytes).expect("import");
        let there = child
            .ask(&format!("map {there} {SIZE} 3"))
            .expect("a mapping");
        assert_eq!(child.read(there), Ok(77));
        let mut stranger = TestChild::with(&[("GPUIPC_EMULATED_IMEX", "rack 2")]);
        assert_eq!(stranger.import_fabric(bytes), Err(REFUSED));
        let mut outside = TestChild::with(&[("GPUIPC_EMULATED_IMEX", "none")]);
        assert_eq!(outside.import_fabric(bytes), Err(REFUSED));
        let mut bad = bytes;
        bad.data[20] ^= 1;
        assert_eq!(child.import_fabric(bad), Err(REFUSED));

        assert_eq!(release(handle), Ok(()));
        assert!(child.import_fabric(bytes).is_ok(), "the mapping keeps it");
        unmap_all(ptr, SIZE);
        assert_eq!(
            child.import_fabric(bytes),
            Err(REFUSED),
            "the bytes hold no reference"
        );
        assert_eq!(child.read(there), Ok(77), "an import does");
        assert_eq!(counters::read(), before);
    }
);

scene!(
    a_killed_exporters_memory_cannot_be_imported,
    [("GPUIPC_EMULATED_IMEX", "rack")],
    || {
        let mut exporter = TestChild::new();
        let handle = exporter.ask(&format!("create {SIZE} 8")).expect("memory");
        let bytes = CuMemFabricHandle {
            data: exporter.ask_bytes(&format!("export-fabric {handle}")),
        };
        exporter.kill();
        assert_eq!(names().len(), 2);
        start_on(0);
        assert_eq!(names().len(), 1, "swept: {:?}", names());
        assert_eq!(import_fabric(bytes), Err(REFUSED));
    }
);
