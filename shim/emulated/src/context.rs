//! Primary contexts and each thread's stack of current ones.

use crate::Answer;
use crate::args::Out;
use crate::state::{context_of, device_index, device_of, state};
use core::cell::Cell;
use gpuipc_sys::{CuContext, CuResult};

const DEEPEST: usize = 64;

/// Plain data, so that it is there even while a thread ends.
#[derive(Clone, Copy)]
struct Stack {
    contexts: [CuContext; DEEPEST],
    depth: usize,
}

thread_local! {
    static STACK: Cell<Stack> = const { Cell::new(Stack { contexts: [CuContext::NULL; DEEPEST], depth: 0 }) };
}

fn with_stack<T>(act: impl FnOnce(&mut Stack) -> T) -> T {
    STACK.with(|cell| {
        let mut stack = cell.get();
        let result = act(&mut stack);
        cell.set(stack);
        result
    })
}

impl Stack {
    fn top(&self) -> Option<CuContext> {
        self.depth
            .checked_sub(1)
            .and_then(|last| self.contexts.get(last))
            .copied()
    }

    fn push(&mut self, context: CuContext) -> Answer {
        let place = self
            .contexts
            .get_mut(self.depth)
            .ok_or(CuResult::OUT_OF_MEMORY)?;
        *place = context;
        self.depth += 1;
        Ok(())
    }

    fn pop(&mut self) -> Option<CuContext> {
        let top = self.top()?;
        self.depth -= 1;
        Some(top)
    }
}

/// This thread's current context.
pub(crate) fn current() -> Option<CuContext> {
    with_stack(|stack| stack.top())
}

/// The device of this thread's current context, also of one that is gone.
pub(crate) fn current_device() -> Answer<usize> {
    let context = current().ok_or(CuResult::INVALID_CONTEXT)?;
    device_of(context).ok_or(CuResult::INVALID_CONTEXT)
}

fn known(context: CuContext) -> Answer {
    device_of(context)
        .map(|_| ())
        .ok_or(CuResult::INVALID_CONTEXT)
}

/// `cuDevicePrimaryCtxRetain`.
pub(crate) fn primary_ctx_retain(context: Out<CuContext>, device: i32) -> Answer {
    context.check()?;
    let device = device_index(device)?;
    let mut state = state();
    *state
        .retained
        .get_mut(device)
        .ok_or(CuResult::INVALID_DEVICE)? += 1;
    context.put(context_of(device))
}

/// `cuDevicePrimaryCtxRelease_v2`. The last one destroys the context and frees
/// what was allocated and opened in it; VMM memory belongs to no context.
pub(crate) fn primary_ctx_release(device: i32) -> Answer {
    let device = device_index(device)?;
    let mut state = state();
    let count = state
        .retained
        .get_mut(device)
        .ok_or(CuResult::INVALID_DEVICE)?;
    *count = count.checked_sub(1).ok_or(CuResult::INVALID_CONTEXT)?;
    if *count == 0 {
        let lost = state
            .pieces
            .iter()
            .filter(|(_, piece)| piece.context_device() == Some(device));
        for start in lost.map(|(start, _)| *start).collect::<Vec<_>>() {
            state.remove_piece(start);
        }
    }
    Ok(())
}

/// `cuDevicePrimaryCtxGetState`.
pub(crate) fn primary_ctx_get_state(device: i32, flags: Out<u32>, active: Out<i32>) -> Answer {
    flags.check()?;
    active.check()?;
    let device = device_index(device)?;
    let is_active = state().retained.get(device).is_some_and(|count| *count > 0);
    flags.put(0)?;
    active.put(i32::from(is_active))
}

/// `cuCtxGetCurrent`.
pub(crate) fn ctx_get_current(context: Out<CuContext>) -> Answer {
    context.put(current().unwrap_or(CuContext::NULL))
}

/// `cuCtxSetCurrent`: replaces the top of the stack; null pops it.
pub(crate) fn ctx_set_current(context: CuContext) -> Answer {
    if context == CuContext::NULL {
        with_stack(Stack::pop);
        return Ok(());
    }
    known(context)?;
    with_stack(|stack| {
        stack.pop();
        stack.push(context)
    })
}

/// `cuCtxPushCurrent_v2`.
pub(crate) fn ctx_push_current(context: CuContext) -> Answer {
    if context == CuContext::NULL {
        return Err(CuResult::INVALID_VALUE);
    }
    known(context)?;
    with_stack(|stack| stack.push(context))
}

/// `cuCtxPopCurrent_v2`.
pub(crate) fn ctx_pop_current(context: Out<CuContext>) -> Answer {
    let top = with_stack(Stack::pop).ok_or(CuResult::INVALID_CONTEXT)?;
    context.put_if_wanted(top);
    Ok(())
}

/// `cuCtxGetDevice`: also of a context that is gone.
pub(crate) fn ctx_get_device(device: Out<i32>) -> Answer {
    device.check()?;
    let current = match state().current_device() {
        Err(CuResult::CONTEXT_IS_DESTROYED) => current_device()?,
        answer => answer?,
    };
    device.put(i32::try_from(current).map_err(|_| CuResult::UNKNOWN)?)
}

/// `cuCtxSynchronize`: every copy is done when its call returns.
pub(crate) fn ctx_synchronize() -> Answer {
    let mut state = state();
    let device = state.current_device()?;
    if state.invalidate(|stream| stream.device == device) {
        return Err(CuResult::STREAM_CAPTURE_UNSUPPORTED);
    }
    Ok(())
}
