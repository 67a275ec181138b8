//! Streams. Work on one is done when its call returns; what is left of streams
//! is who may use them, and captures.

use crate::Answer;
use crate::args::Out;
use crate::capture::Capture;
use crate::state::{State, state};
use gpuipc_sys::{CuResult, CuStream, STREAM_NON_BLOCKING};

/// One stream that was created.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The device of the context it was created in.
    pub(crate) device: usize,
    /// Whether it and the legacy default stream wait for each other.
    pub(crate) is_blocking: bool,
    /// A capture that runs on it.
    pub(crate) capture: Option<Capture>,
}

/// `cuStreamCreate`.
pub(crate) fn stream_create(stream: Out<CuStream>, flags: u32) -> Answer {
    stream.check()?;
    let mut state = state();
    let device = state.current_device()?;
    if flags & !STREAM_NON_BLOCKING != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    let handle = state.next_handle() as usize;
    let made = Stream {
        device,
        is_blocking: flags & STREAM_NON_BLOCKING == 0,
        capture: None,
    };
    state.streams.insert(handle, made);
    stream.put(CuStream(handle))
}

/// `cuStreamDestroy_v2`. A capture on it ends without a graph.
pub(crate) fn stream_destroy(stream: CuStream) -> Answer {
    let found = state().streams.remove(&stream.0);
    found.map(|_| ()).ok_or(CuResult::INVALID_HANDLE)
}

/// `cuStreamSynchronize`: nothing is left to wait for. No capture can see it.
pub(crate) fn stream_synchronize(stream: CuStream) -> Answer {
    let mut state = state();
    state.enqueue(stream)?;
    state.unseen_by_captures()
}

impl State {
    /// The same for the legacy default stream: a capture on a stream that waits for it
    /// is invalid from then on, in whatever mode (seen on an H200, driver 580).
    pub(crate) fn enqueue_on_legacy(&mut self) -> Answer<usize> {
        let device = self.current_device()?;
        if self.invalidate(|stream| stream.device == device && stream.is_blocking) {
            return Err(CuResult::STREAM_CAPTURE_IMPLICIT);
        }
        Ok(device)
    }

    /// Ends the captures of these streams without a graph; whether there was one.
    pub(crate) fn invalidate(&mut self, which: impl Fn(&Stream) -> bool) -> bool {
        let mut found = false;
        for stream in self.streams.values_mut() {
            if stream.capture.is_some() && which(stream) {
                found = true;
                if let Some(capture) = &mut stream.capture {
                    capture.invalid = true;
                }
            }
        }
        found
    }

    /// The device on which a stream's work runs now. Work on a stream that is
    /// captured would have to become part of a graph, which is not played: the
    /// capture is invalid from then on.
    pub(crate) fn enqueue(&mut self, stream: CuStream) -> Answer<usize> {
        match stream {
            CuStream::DEFAULT | CuStream::LEGACY => return self.enqueue_on_legacy(),
            CuStream::PER_THREAD => return self.current_device(),
            _ => {}
        }
        let found = self.streams.get_mut(&stream.0);
        let found = found.ok_or(CuResult::INVALID_HANDLE)?;
        if let Some(capture) = &mut found.capture {
            capture.invalid = true;
            return Err(CuResult::STREAM_CAPTURE_UNSUPPORTED);
        }
        Ok(found.device)
    }
}
