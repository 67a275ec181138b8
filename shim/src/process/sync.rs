//! Locks and threads of the code that the model checker runs: those of std, or with
//! `--cfg gpuipc_shuttle` those of the crate shuttle, which chooses the next thread at
//! each of them. See `model_check`.

#[cfg(not(all(test, gpuipc_shuttle)))]
pub(crate) use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel},
    sync::{Condvar, Mutex, MutexGuard, RwLock},
    thread::{Builder, JoinHandle, ThreadId, current},
};

#[cfg(all(test, gpuipc_shuttle))]
pub(crate) use shuttle::{
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel},
    sync::{Condvar, Mutex, MutexGuard, RwLock},
    thread::{Builder, JoinHandle, ThreadId, current},
};
