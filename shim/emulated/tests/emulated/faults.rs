//! Calls that fail on purpose.

use crate::driver::*;
use crate::scene;
use gpuipc_emulated::{counters, faults};
use gpuipc_sys::CuResult;

const SIZE: usize = 2 * MIB;

scene!(the_nth_use_fails_and_has_no_effect, || {
    start_on(0);
    let before = counters::read();
    let used = faults::calls("cuMemCreate");
    faults::fail("cuMemCreate", 2, CuResult::NOT_SUPPORTED, 2);
    let wish = prop(1, 0, 1);
    let first = create(SIZE, wish).expect("the first works");
    assert_eq!(create(SIZE, wish), Err(CuResult::NOT_SUPPORTED));
    assert_eq!(create(SIZE, wish), Err(CuResult::NOT_SUPPORTED));
    let fourth = create(SIZE, wish).expect("the fourth works");
    assert_eq!(faults::calls("cuMemCreate"), used + 4);
    faults::fail("cuMemCreate", 1, CuResult::UNKNOWN, 1);
    faults::clear();
    let last = create(SIZE, wish).expect("no rule is left");
    for handle in [first, fourth, last] {
        release(handle).expect("release");
    }
    assert_eq!(counters::read(), before);
});

scene!(
    rules_of_the_environment,
    [(
        "GPUIPC_EMULATED_FAIL",
        "cuMemAlloc_v2@2=2,cuMemSetAccess@*=999"
    )],
    || {
        start_on(0);
        assert!(alloc(4096).is_ok());
        assert_eq!(alloc(4096), Err(CuResult::OUT_OF_MEMORY));
        assert!(alloc(4096).is_ok());
        for _ in 0..3 {
            assert_eq!(map_for(create_fd(SIZE), SIZE, 0, 3), Err(CuResult::UNKNOWN));
        }
    }
);

scene!(
    even_init_fails,
    [("GPUIPC_EMULATED_FAIL", "cuInit@1=802")],
    || {
        assert_eq!(cu!(init(0)), CuResult::SYSTEM_NOT_READY);
        assert_eq!(cu!(init(0)), CuResult::SUCCESS);
    }
);
