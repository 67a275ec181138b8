//! [`Ipc`] and what it holds: the driver, the identity of this process, the settings,
//! the broker, and the connections to other brokers.

use crate::error::Error;
use crate::fd::broker::started::Started;
use crate::fd::broker::{Broker, Exports, IdleConnections};
use crate::gpu::driver::Driver;
use crate::gpu::keepalive::Keepalive;
use crate::options::{IpcOptions, Settings};
use crate::process::identity::Identity;
use std::path::PathBuf;
use std::sync::Arc;

/// Exports and imports GPU memory through one driver. Cheap to clone; clones
/// share the broker. May be used from any thread.
#[derive(Clone, Debug)]
pub struct Ipc {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    driver: Driver,
    identity: Identity,
    settings: Settings,
    /// Started by the first export.
    broker: Started<Broker>,
    /// Makes exports cheap, if the options ask for it.
    _keepalive: Option<Keepalive>,
    /// To other processes' brokers.
    kept: IdleConnections,
}

impl Ipc {
    /// Initializes the driver (`cuInit`) and reads the environment
    /// (`GPUIPC_TYPES`, `GPUIPC_TIMEOUT_MS`, `GPUIPC_SOCKET_DIR`,
    /// `GPUIPC_TRUST`, `GPUIPC_HOST_ID`), but not in a program with more rights than
    /// its caller. Creates no context and starts no thread.
    ///
    /// # Errors
    /// [`Error::Driver`] if `cuInit` fails, [`Error::Setting`] for an
    /// environment variable that says nothing sensible, [`Error::Forked`] in a
    /// process forked from one that had used the library, [`Error::Os`] if the
    /// kernel gives no random bytes.
    pub fn new(driver: Driver) -> Result<Self, Error> {
        Self::with_options(driver, &IpcOptions::default())
    }

    /// As [`Ipc::new`], with options that go before the environment.
    ///
    /// # Errors
    /// As [`Ipc::new`].
    pub fn with_options(driver: Driver, options: &IpcOptions) -> Result<Self, Error> {
        let identity = Identity::read()?;
        let mut settings = options.over(Settings::from_environment()?);
        // Whatever folder the process goes to later.
        let absolute = |folder: PathBuf| std::path::absolute(&folder).unwrap_or(folder);
        settings.socket_dir = settings.socket_dir.map(absolute);
        driver.init()?;
        let keepalive = settings
            .keepalive_descriptor
            .then(|| Keepalive::make(driver));
        let keepalive = keepalive.and_then(|made| {
            made.inspect_err(|error| {
                log::info!(target: "gpuipc::gpu", "no keepalive descriptor, exports cost what they cost: {error}");
            })
            .ok()
        });
        Ok(Self {
            inner: Arc::new(Inner {
                driver,
                _keepalive: keepalive,
                identity,
                settings,
                broker: Started::default(),
                kept: IdleConnections::default(),
            }),
        })
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> Driver {
        self.inner.driver
    }

    /// Closes the connections to other processes' brokers that are kept for the
    /// next import: at most eight, two descriptors each. The next import connects anew.
    pub fn close_idle_connections(&self) {
        self.inner.kept.clear();
    }

    pub(crate) fn kept_connections(&self) -> &IdleConnections {
        &self.inner.kept
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The broker, if an export has started it and it serves.
    pub(crate) fn running_broker(&self) -> Option<Arc<Broker>> {
        let broker = self.inner.broker.running()?;
        let is_whole = broker.is_whole(false);
        broker.tell();
        is_whole.then_some(broker)
    }

    /// The broker, started if it is not there yet or serves no more; then it answers for
    /// `exports`.
    pub(crate) fn broker_for(&self, exports: impl Exports + 'static) -> Result<Arc<Broker>, Error> {
        let start = || Broker::start(Box::new(exports), &self.inner.settings);
        let is_whole = |broker: &Broker| broker.is_whole(true);
        let broker = self.inner.broker.or_start(is_whole, start)?;
        broker.tell();
        Ok(broker)
    }
}
