//! RegisteredMemory: `register ADDRESS LEN TRANSPORTS` is answered `ok ID HEX`,
//! `deserialize HEX OPTIONS..` with `ok ID DATA USED TRANSPORTS ERROR`. Transports are
//! `KIND:HEX` with commas, or `-`; DATA is an address or `-`; USED is a type, `own`, or
//! `-`; ERROR is the status of what was left to a transport, or `-`.
#![allow(unsafe_code)]

use crate::{NotOk, TestChild, pattern, same, word};
use gpuipc::core::TransportInfo;
use gpuipc::{ExportOptions, RegisteredMemory, Used};
use gpuipc_tests::{from_hex, to_hex};
use std::str::SplitWhitespace;

pub(crate) fn register(
    child: &mut TestChild,
    words: &mut SplitWhitespace<'_>,
) -> Result<String, NotOk> {
    let (ptr, len) = (word(words)?, word(words)?);
    let transports: String = word(words)?;
    let mut infos = Vec::new();
    for transport in transports.split(',').filter(|word| *word != "-") {
        let (kind, hex) = transport.split_once(':').ok_or("KIND:HEX")?;
        let kind = kind.parse().map_err(|_| NotOk::from("KIND:HEX"))?;
        let bytes = from_hex(hex).ok_or("KIND:HEX")?;
        let info = TransportInfo::new(kind, &bytes);
        infos.push(info.map_err(|_| NotOk::from("no transport"))?);
    }
    let options = ExportOptions::default();
    // SAFETY: as in `TestChild::export`.
    let memory = unsafe { child.ipc()?.register(ptr, len, &infos, &options) }?;
    let hex = to_hex(&memory.serialize()?);
    let id = keep(child, memory);
    Ok(format!("{id} {hex}"))
}

pub(crate) fn deserialize(
    child: &mut TestChild,
    words: &mut SplitWhitespace<'_>,
) -> Result<String, NotOk> {
    let hex: String = word(words)?;
    let bytes = from_hex(&hex).ok_or("no hex digits")?;
    let options = child.options(words)?;
    let ipc = child.ipc()?;
    let memory = ipc.deserialize(&bytes, &options);
    ipc.close_idle_connections();
    let memory = memory?;
    let data = memory.data().map_or("-".to_owned(), |ptr| ptr.to_string());
    let used = match memory.mapping().map(gpuipc::GpuIpcMem::type_used) {
        Some(Used::Type(handle_type)) => handle_type.name(),
        Some(Used::SameProcess) => "SameProcess",
        None if memory.data().is_some() => "own",
        None => "-",
    };
    let transports: Vec<String> = memory
        .transports()
        .iter()
        .map(|info| format!("{}:{}", info.kind(), to_hex(info.bytes())))
        .collect();
    let transports = match transports.join(",") {
        none if none.is_empty() => "-".to_owned(),
        some => some,
    };
    let error = memory
        .gpu_error()
        .map_or("-", |error| error.status().name());
    let answer = format!("{data} {used} {transports} {error}");
    let id = keep(child, memory);
    Ok(format!("{id} {answer}"))
}

/// `read-registered ID SEED OFFSET`: through the mapping.
pub(crate) fn read(child: &TestChild, words: &mut SplitWhitespace<'_>) -> Result<String, NotOk> {
    let id: u32 = word(words)?;
    let mapping = child.registered_mapping(id)?;
    let mut bytes = vec![0; mapping.len()];
    mapping.read(0, &mut bytes)?;
    same(&bytes, &pattern(word(words)?, word(words)?, bytes.len()))
}

fn keep(child: &mut TestChild, memory: RegisteredMemory) -> u32 {
    let id = child.id();
    child.registered.insert(id, memory);
    id
}
