//! Stream captures: which calls they forbid, and their end. The graphs stay
//! empty.

use crate::Answer;
use crate::args::Out;
use crate::state::{State, state};
use crate::stream::Stream;
use core::cell::Cell;
use gpuipc_sys::{CuGraph, CuResult, CuStream, capture_mode, capture_status};
use std::thread::ThreadId;

/// A capture that runs.
#[derive(Debug)]
pub(crate) struct Capture {
    mode: u32,
    thread: ThreadId,
    /// Something happened that it could not see.
    pub(crate) invalid: bool,
}

thread_local! {
    static MODE: Cell<u32> = const { Cell::new(capture_mode::GLOBAL) };
}

fn known(mode: u32) -> Answer {
    if mode <= capture_mode::RELAXED {
        Ok(())
    } else {
        Err(CuResult::INVALID_VALUE)
    }
}

/// `cuThreadExchangeStreamCaptureMode`.
pub(crate) fn thread_exchange_stream_capture_mode(mode: Out<u32>) -> Answer {
    let new = mode.as_read().get()?;
    known(new)?;
    mode.put(MODE.replace(new))
}

/// `cuStreamBeginCapture_v2`: on a stream that was created; the default ones
/// cannot be captured.
pub(crate) fn stream_begin_capture(stream: CuStream, mode: u32) -> Answer {
    known(mode)?;
    let mut state = state();
    if matches!(stream, CuStream::DEFAULT | CuStream::LEGACY) {
        return Err(CuResult::STREAM_CAPTURE_UNSUPPORTED);
    }
    let found = state.streams.get_mut(&stream.0);
    let found = found.ok_or(CuResult::INVALID_HANDLE)?;
    if found.capture.is_some() {
        return Err(CuResult::ILLEGAL_STATE);
    }
    found.capture = Some(Capture {
        mode,
        thread: std::thread::current().id(),
        invalid: false,
    });
    Ok(())
}

/// `cuStreamEndCapture`: an invalid one gives no graph.
pub(crate) fn stream_end_capture(stream: CuStream, graph: Out<CuGraph>) -> Answer {
    graph.check()?;
    let mut state = state();
    let found = state.streams.get_mut(&stream.0);
    let found = found.ok_or(CuResult::INVALID_HANDLE)?;
    let capture = found.capture.as_ref().ok_or(CuResult::ILLEGAL_STATE)?;
    let here = capture.thread == std::thread::current().id();
    if !here && capture.mode != capture_mode::RELAXED {
        return Err(CuResult::STREAM_CAPTURE_WRONG_THREAD);
    }
    let invalid = capture.invalid;
    found.capture = None;
    if invalid {
        graph.put(CuGraph(0))?;
        return Err(CuResult::STREAM_CAPTURE_INVALIDATED);
    }
    let handle = state.next_handle() as usize;
    state.graphs.insert(handle);
    graph.put(CuGraph(handle))
}

/// `cuStreamIsCapturing`.
pub(crate) fn stream_is_capturing(stream: CuStream, status: Out<u32>) -> Answer {
    status.check()?;
    let state = state();
    if matches!(
        stream,
        CuStream::DEFAULT | CuStream::LEGACY | CuStream::PER_THREAD
    ) {
        let device = state.current_device()?;
        // Unlike any work there, the question harms no capture.
        let is_waited_for =
            |other: &Stream| other.device == device && other.is_blocking && other.capture.is_some();
        if stream != CuStream::PER_THREAD && state.streams.values().any(is_waited_for) {
            return Err(CuResult::STREAM_CAPTURE_IMPLICIT);
        }
        return status.put(capture_status::NONE);
    }
    let found = state.streams.get(&stream.0);
    let found = found.ok_or(CuResult::INVALID_HANDLE)?;
    status.put(match &found.capture {
        None => capture_status::NONE,
        Some(capture) if capture.invalid => capture_status::INVALIDATED,
        Some(_) => capture_status::ACTIVE,
    })
}

/// `cuGraphDestroy`.
pub(crate) fn graph_destroy(graph: CuGraph) -> Answer {
    if state().graphs.remove(&graph.0) {
        Ok(())
    } else {
        Err(CuResult::INVALID_VALUE)
    }
}

impl State {
    /// Refuses a call that no capture can see, such as `cuMemAlloc`, where one
    /// forbids it, and invalidates those captures (seen on an H200, driver 580;
    /// the rule is that of `cuThreadExchangeStreamCaptureMode`).
    pub(crate) fn unseen_by_captures(&mut self) -> Answer {
        let (mode, thread) = (MODE.get(), std::thread::current().id());
        let forbids = |capture: &Capture| match mode {
            capture_mode::RELAXED => false,
            _ if capture.thread == thread => capture.mode != capture_mode::RELAXED,
            capture_mode::GLOBAL => capture.mode == capture_mode::GLOBAL,
            _ => false,
        };
        let refused = self.invalidate(|stream| stream.capture.as_ref().is_some_and(forbids));
        if refused {
            Err(CuResult::STREAM_CAPTURE_UNSUPPORTED)
        } else {
            Ok(())
        }
    }
}
