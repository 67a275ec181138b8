//! What a child imports, and how.

use crate::{NotOk, TestChild, attempts, word};
use gpuipc::core::DeviceUuid;
use gpuipc::{
    Access, DeviceId, Error, Feasible, GpuIpcMemHandle, HandleType, ImportOptions, Reservation,
    Used,
};
use gpuipc_tests::from_hex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

impl TestChild {
    pub(crate) fn keep_place(&mut self, place: Arc<Reservation>) -> String {
        let id = self.id();
        let answer = format!("{id} {} {}", place.base(), place.size());
        self.places.insert(id, place);
        answer
    }

    /// `PLACE+OFFSET`.
    pub(crate) fn place(
        &self,
        options: ImportOptions,
        value: &str,
    ) -> Result<ImportOptions, NotOk> {
        let (id, offset) = value.split_once('+').ok_or("place is PLACE+OFFSET")?;
        let number = |_| NotOk::from("place is PLACE+OFFSET");
        let place = self.places.get(&id.parse().map_err(number)?);
        let offset = offset.parse().map_err(number)?;
        Ok(options.place(place.ok_or("no such place")?, offset))
    }

    pub(crate) fn what_to_import(
        &self,
        words: &mut std::str::SplitWhitespace<'_>,
    ) -> Result<(Vec<GpuIpcMemHandle>, ImportOptions), NotOk> {
        let hex: String = word(words)?;
        let mut handles = Vec::new();
        for hex in hex.split(',') {
            let bytes = from_hex(hex).ok_or("no hex digits")?;
            handles.push(GpuIpcMemHandle::decode(&bytes).map_err(Error::from)?);
        }
        Ok((handles, self.options(words)?))
    }

    pub(crate) fn options(
        &self,
        words: &mut std::str::SplitWhitespace<'_>,
    ) -> Result<ImportOptions, NotOk> {
        let mut options = ImportOptions::default();
        for option in words {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            options = match name {
                "types" => options.types(&types_of(value)?),
                "timeout" => options.timeout(Duration::from_millis(
                    value.parse().map_err(|_| NotOk::from("timeout"))?,
                )),
                "device" => options.device(device_of(value)?),
                "more" => {
                    let more: Result<Vec<_>, _> = value.split(',').map(device_of).collect();
                    options.access_devices(&more?)
                }
                "host" => options.host_access(true),
                "place" => self.place(options, value)?,
                "read-only" => options.access(Access::ReadOnly),
                "live" => options.require_live(true),
                "cancelled" => options.cancel(Arc::new(AtomicBool::new(true))),
                "cancel" => {
                    let after = value.parse().map_err(|_| NotOk::from("cancel"))?;
                    let flag = Arc::new(AtomicBool::new(false));
                    let set = Arc::clone(&flag);
                    std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(after));
                        set.store(true, Ordering::Relaxed);
                    });
                    options.cancel(flag)
                }
                _ => return Err("no such option".into()),
            };
        }
        Ok(options)
    }

    pub(crate) fn can_import(
        &mut self,
        words: &mut std::str::SplitWhitespace<'_>,
    ) -> Result<String, NotOk> {
        let (handles, options) = self.what_to_import(words)?;
        let ipc = self.ipc()?;
        let feasibility = ipc.can_import(&handles, &options);
        if !self.keeps_connections {
            ipc.close_idle_connections();
        }
        if let Some(problem) = feasibility.problem {
            return Err(problem.into());
        }
        let answers = feasibility
            .types
            .iter()
            .map(|(handle_type, feasible)| match feasible {
                Feasible::No(attempt) => format!("No:{}", attempts(core::slice::from_ref(attempt))),
                feasible => format!("{handle_type}/{feasible:?}"),
            });
        let answers: Vec<String> = answers.collect();
        Ok(format!("{} {}", feasibility.is_own, answers.join(",")))
    }

    pub(crate) fn import(
        &mut self,
        words: &mut std::str::SplitWhitespace<'_>,
    ) -> Result<String, NotOk> {
        let (handles, options) = self.what_to_import(words)?;
        let ipc = self.ipc()?;
        let imported = ipc.import(&handles, &options);
        if !self.keeps_connections {
            ipc.close_idle_connections();
        }
        let mem = imported?;
        let used = match mem.type_used() {
            Used::Type(handle_type) => handle_type.name(),
            Used::SameProcess => "SameProcess",
        };
        let id = self.id();
        let answer = format!(
            "{id} {} {used} {:?} {} {}",
            mem.device_ptr(),
            mem.liveness(),
            mem.len(),
            attempts(mem.attempts())
        );
        self.mappings.insert(id, mem);
        Ok(answer)
    }
}

/// A device by its ordinal, or by its UUID as 32 hex digits.
pub(crate) fn device_of(word: &str) -> Result<DeviceId, NotOk> {
    if let Ok(ordinal) = word.parse::<i32>() {
        return Ok(ordinal.into());
    }
    let bytes = from_hex(word).and_then(|bytes| bytes.try_into().ok());
    let uuid = bytes.map(|bytes| DeviceId::from(DeviceUuid(bytes)));
    uuid.ok_or("no device".into())
}

pub(crate) fn types_of(names: &str) -> Result<Vec<HandleType>, NotOk> {
    let types: Option<_> = names.split(',').map(HandleType::from_name).collect();
    types.ok_or("no such type".into())
}
