//! Locks and threads of the pieces that a model checker tries: std's, or with
//! `--cfg gpuipc_shuttle` those of the crate shuttle, which decides who goes next
//! at each of them. See `model_check`.

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
