//! What a child exports, and how.
#![allow(unsafe_code)]

use crate::importing::types_of;
use crate::{NotOk, TestChild};
use gpuipc::ExportOptions;
use gpuipc_tests::to_hex;

impl TestChild {
    pub(crate) fn export(
        &mut self,
        ptr: u64,
        len: usize,
        options: &ExportOptions,
    ) -> Result<String, NotOk> {
        // SAFETY: the tests free and unmap memory when no other command runs.
        let exported = unsafe { self.ipc()?.export(ptr, len, options) }?;
        let hex: Vec<String> = exported
            .handles()
            .iter()
            .map(|handle| to_hex(&handle.encode()))
            .collect();
        let hex = hex.join(",");
        let id = self.id();
        self.exports.insert(id, exported);
        Ok(format!("{id} {hex}"))
    }
}

/// `types=TYPE,..` and `on-demand`.
pub(crate) fn export_options(
    words: &mut std::str::SplitWhitespace<'_>,
) -> Result<ExportOptions, NotOk> {
    let mut options = ExportOptions::default();
    for word in words {
        options = match word.strip_prefix("types=") {
            Some(types) => options.types(&types_of(types)?),
            None if word == "on-demand" => options.fd_on_demand(true),
            None => return Err("no such option".into()),
        };
    }
    Ok(options)
}
