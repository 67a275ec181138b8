//! Stream captures that run in a child while it does something else.
#![allow(unsafe_code)]

use crate::{NotOk, TestChild, table, word};
use gpuipc::sys::{CuGraph, CuResult, CuStream};
use std::sync::mpsc::{Receiver, Sender, channel};

/// A capture that runs, in a thread of its own or in the child's.
#[derive(Debug)]
pub(crate) enum Capture {
    Here(CuStream),
    Thread(Sender<()>, Receiver<CuResult>),
}

/// `here|thread FLAGS MODE`: a stream of device 0 with these flags begins a capture.
pub(crate) fn begin(
    child: &mut TestChild,
    words: &mut std::str::SplitWhitespace<'_>,
) -> Result<String, NotOk> {
    let (place, flags, mode): (String, u32, u32) = (word(words)?, word(words)?, word(words)?);
    child.set_context("0")?;
    let capture = if place == "here" {
        Capture::Here(started(flags, mode).map_err(|_| NotOk::from("no capture"))?)
    } else {
        let context = child
            .driver
            .current_context()
            .ok()
            .flatten()
            .ok_or("no context")?;
        let driver = child.driver;
        let (end, is_over) = channel();
        let (say, said) = channel();
        std::thread::spawn(move || {
            // SAFETY: the child never lets go of the context.
            let set = unsafe { driver.set_current_context(Some(context)) };
            let stream = set.ok().and_then(|()| started(flags, mode).ok());
            let began = if stream.is_some() {
                CuResult::SUCCESS
            } else {
                CuResult::UNKNOWN
            };
            let told = say.send(began);
            let ended = is_over.recv();
            if let (Ok(()), Ok(()), Some(stream)) = (told, ended, stream) {
                let _ = say.send(ended_with(stream));
            }
        });
        if said.recv() != Ok(CuResult::SUCCESS) {
            return Err("no capture".into());
        }
        Capture::Thread(end, said)
    };
    child.capture = Some(capture);
    Ok(String::new())
}

/// The code of `cuStreamEndCapture`.
pub(crate) fn end(child: &mut TestChild) -> Result<String, NotOk> {
    let code = match child.capture.take().ok_or("no capture")? {
        Capture::Here(stream) => ended_with(stream),
        Capture::Thread(end, said) => {
            end.send(())
                .map_err(|_| NotOk::from("the thread is gone"))?;
            said.recv().map_err(|_| NotOk::from("the thread is gone"))?
        }
    };
    child.set_context("none")?;
    // SAFETY: retained by `begin`; nothing of this command uses it any more.
    let released = unsafe { child.driver.primary_ctx_release(0) };
    released.map_err(gpuipc::Error::from)?;
    Ok(code.to_string())
}

fn started(flags: u32, mode: u32) -> Result<CuStream, CuResult> {
    let table = table();
    let (create, begin) = (table.stream_create, table.stream_begin_capture);
    let (create, begin) = create.zip(begin).ok_or(CuResult::NOT_FOUND)?;
    let mut stream = CuStream::DEFAULT;
    // SAFETY: cuStreamCreate, and a local.
    let code = unsafe { create(&mut stream, flags) };
    if code != CuResult::SUCCESS {
        return Err(code);
    }
    // SAFETY: cuStreamBeginCapture of the stream that was created just now.
    match unsafe { begin(stream, mode) } {
        CuResult::SUCCESS => Ok(stream),
        code => Err(code),
    }
}

fn ended_with(stream: CuStream) -> CuResult {
    let table = table();
    let (Some(end), Some(destroy)) = (table.stream_end_capture, table.graph_destroy) else {
        return CuResult::NOT_FOUND;
    };
    let mut graph = CuGraph(0);
    // SAFETY: the stream of `started`, and a local.
    let code = unsafe { end(stream, &mut graph) };
    if let Some(destroy) = table.stream_destroy {
        // SAFETY: the stream of `started`, destroyed once.
        unsafe { destroy(stream) };
    }
    if graph != CuGraph(0) {
        // SAFETY: the capture gave it just now.
        unsafe { destroy(graph) };
    }
    code
}

/// The code of `cuCtxSynchronize`.
pub(crate) fn synchronize() -> Result<CuResult, NotOk> {
    let synchronize = table().ctx_synchronize.ok_or("no such call")?;
    // SAFETY: cuCtxSynchronize takes nothing.
    Ok(unsafe { synchronize() })
}
