//! Streams, captures, and copies between any two addresses.

use crate::driver::*;
use crate::pool_calls::*;
use crate::scene;
use gpuipc_emulated::counters;
use gpuipc_sys::{CuGraph, CuResult, CuStream, capture_mode, capture_status};

fn begin(stream: CuStream, mode: u32) -> Answer {
    ok(cu!(stream_begin_capture(stream, mode)))
}

/// Ends a capture and throws its graph away.
fn end(stream: CuStream) -> Answer {
    let mut graph = CuGraph(99);
    let code = cu!(stream_end_capture(stream, &mut graph));
    if code == CuResult::SUCCESS {
        assert_eq!(cu!(graph_destroy(graph)), CuResult::SUCCESS);
    } else if code == CuResult::STREAM_CAPTURE_INVALIDATED {
        assert_eq!(graph, CuGraph(0), "no graph");
    }
    ok(code)
}

fn status(stream: CuStream) -> u32 {
    let mut status = 99;
    assert_eq!(
        cu!(stream_is_capturing(stream, &mut status)),
        CuResult::SUCCESS
    );
    status
}

fn exchange(mode: u32) -> u32 {
    let mut mode = mode;
    assert_eq!(
        cu!(thread_exchange_stream_capture_mode(&mut mode)),
        CuResult::SUCCESS
    );
    mode
}

/// What `cuMemAlloc` answers in this thread or another one, with its mode.
fn alloc_in(other_thread: bool, context: gpuipc_sys::CuContext, mode: u32) -> Answer {
    let act = move || {
        assert_eq!(cu!(ctx_set_current(context)), CuResult::SUCCESS);
        let before = exchange(mode);
        let answer = alloc(MIB).and_then(free);
        assert_eq!(exchange(before), mode);
        answer
    };
    if other_thread {
        std::thread::spawn(act).join().expect("the thread")
    } else {
        act()
    }
}

scene!(which_captures_forbid_an_allocation, || {
    use capture_mode::{GLOBAL, RELAXED, THREAD_LOCAL};
    assert_eq!(cu!(init(0)), CuResult::SUCCESS);
    let context = use_device(0);
    let before = counters::read();
    let stream = create_stream().expect("a stream");
    for (capture, other, thread, allowed) in [
        (GLOBAL, false, GLOBAL, false),
        (GLOBAL, false, RELAXED, true),
        (GLOBAL, true, GLOBAL, false),
        (GLOBAL, true, RELAXED, true),
        (GLOBAL, false, THREAD_LOCAL, false),
        (GLOBAL, true, THREAD_LOCAL, true),
        (THREAD_LOCAL, false, GLOBAL, false),
        (THREAD_LOCAL, true, GLOBAL, true),
        (RELAXED, false, GLOBAL, true),
        (RELAXED, true, GLOBAL, true),
    ] {
        begin(stream, capture).expect("a capture");
        assert_eq!(status(stream), capture_status::ACTIVE);
        let answer = alloc_in(other, context, thread);
        let (call, ends, now) = if allowed {
            (Ok(()), Ok(()), capture_status::ACTIVE)
        } else {
            (
                Err(CuResult::STREAM_CAPTURE_UNSUPPORTED),
                Err(CuResult::STREAM_CAPTURE_INVALIDATED),
                capture_status::INVALIDATED,
            )
        };
        let case = (capture, other, thread);
        assert_eq!(answer, call, "{case:?}");
        assert_eq!(status(stream), now, "{case:?}");
        assert_eq!(end(stream), ends, "{case:?}");
        assert_eq!(status(stream), capture_status::NONE, "{case:?}");
    }
    destroy_stream(stream).expect("destroy");
    assert_eq!(counters::read(), before);
});

scene!(sharing_disturbs_no_capture, || {
    start_on(0);
    let ptr = alloc(4 * MIB).expect("memory");
    let handle = create_fd(4 * MIB);
    let stream = create_stream().expect("a stream");
    begin(stream, capture_mode::GLOBAL).expect("a capture");
    buffer_id(ptr);
    range(ptr).expect("a range");
    ipc_handle(ptr).expect("a handle");
    let fd = export_fd(handle).expect("a descriptor");
    let imported = import_fd(fd).expect("a handle");
    let there = map_for(imported, 4 * MIB, 0, 3).expect("a mapping");
    unmap_all(there, 4 * MIB);
    release(imported).expect("release");
    assert_eq!(end(stream), Ok(()));
});

scene!(wrong_use_of_captures, || {
    start_on(0);
    let stream = create_stream().expect("a stream");
    assert_eq!(end(stream), Err(CuResult::ILLEGAL_STATE));
    assert_eq!(begin(stream, 3), Err(CuResult::INVALID_VALUE));
    assert_eq!(
        begin(CuStream::DEFAULT, 0),
        Err(CuResult::STREAM_CAPTURE_UNSUPPORTED)
    );
    begin(stream, capture_mode::THREAD_LOCAL).expect("a capture");
    assert_eq!(begin(stream, 0), Err(CuResult::ILLEGAL_STATE));
    let other = std::thread::spawn(move || end(stream))
        .join()
        .expect("the thread");
    assert_eq!(other, Err(CuResult::STREAM_CAPTURE_WRONG_THREAD));
    assert_eq!(
        cu!(stream_synchronize(stream)),
        CuResult::STREAM_CAPTURE_UNSUPPORTED
    );
    assert_eq!(end(stream), Err(CuResult::STREAM_CAPTURE_INVALIDATED));
    assert_eq!(cu!(stream_synchronize(stream)), CuResult::SUCCESS);
    destroy_stream(stream).expect("destroy");
    assert_eq!(destroy_stream(stream), Err(CuResult::INVALID_HANDLE));
    assert_eq!(cu!(stream_synchronize(stream)), CuResult::INVALID_HANDLE);
});

scene!(copies_between_any_two_addresses, || {
    start_on(0);
    const SIZE: usize = 3 * MIB + 4;
    let a = alloc(SIZE).expect("memory");
    let b = map_for(create_fd(4 * MIB), 4 * MIB, 0, 3).expect("a mapping");
    let from: Vec<u8> = (0..SIZE).map(|at| (at / 7) as u8).collect();
    let mut back = vec![0_u8; SIZE];
    assert_eq!(
        cu!(memcpy(a, from.as_ptr() as u64, SIZE)),
        CuResult::SUCCESS
    );
    let stream = create_stream().expect("a stream");
    assert_eq!(cu!(memcpy_async(b, a, SIZE, stream)), CuResult::SUCCESS);
    assert_eq!(cu!(stream_synchronize(stream)), CuResult::SUCCESS);
    assert_eq!(
        cu!(memcpy(back.as_mut_ptr() as u64, b, SIZE)),
        CuResult::SUCCESS
    );
    assert!(back == from);
    assert_eq!(
        cu!(memcpy(a, b, 4 * MIB)),
        CuResult::INVALID_VALUE,
        "too long for a"
    );
    assert_eq!(
        cu!(memcpy(a, 8, 16)),
        CuResult::INVALID_VALUE,
        "nothing lies there"
    );
});
