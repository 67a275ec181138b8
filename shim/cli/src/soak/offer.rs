//! What one worker tells the others: a file for each window on offer.

use super::ground::Ground;
use super::notice::Who;
use gpuipc::{DecodeError, GpuIpcMemHandle, HANDLE_BYTES, Memory};
use std::io;
use std::path::PathBuf;

/// How a window is sent.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Handles(Vec<GpuIpcMemHandle>),
    /// The wire form of a `RegisteredMemory`.
    Registered(Vec<u8>),
}

/// A window on offer, as importers know it.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) who: Who,
    /// Of the allocation.
    pub(super) group: String,
    /// Of the window in it.
    pub(super) window: u32,
    pub(super) memory: Memory,
    /// Of the pattern that the window holds: no two windows have the same.
    pub(super) seed: u64,
    pub(super) len: usize,
    pub(super) body: Body,
}

impl Offer {
    /// The file's name.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.group, self.window)
    }

    pub(super) fn path(&self, ground: &Ground) -> PathBuf {
        ground.offers().join(self.name())
    }

    /// Whether it is on offer still.
    pub(super) fn stands(&self, ground: &Ground) -> bool {
        self.path(ground).exists()
    }

    /// Whether its owner has not freed the memory.
    pub(super) fn is_allocated(&self, ground: &Ground) -> bool {
        ground.buffers().join(&self.group).exists()
    }

    /// Whether its owner has let go of all of the allocation, whole.
    pub(super) fn is_over(&self, ground: &Ground) -> bool {
        !self.stands(ground) && !ground.memory().join(&self.group).exists()
    }

    /// Lets others see it.
    pub(super) fn publish(&self, ground: &Ground) -> io::Result<()> {
        let hidden = ground.offers().join(format!(".{}", self.name()));
        let written = std::fs::write(&hidden, self.encode())
            .and_then(|()| std::fs::rename(&hidden, self.path(ground)));
        if written.is_err() {
            // It may not even be there.
            let _ = std::fs::remove_file(&hidden);
        }
        written
    }

    fn encode(&self) -> Vec<u8> {
        let (form, bytes) = match &self.body {
            Body::Handles(handles) => (
                "handles",
                handles.iter().flat_map(GpuIpcMemHandle::encode).collect(),
            ),
            Body::Registered(bytes) => ("registered", bytes.clone()),
        };
        let Self {
            who,
            group,
            window,
            memory,
            seed,
            len,
            ..
        } = self;
        let mut text =
            format!("{who} {group} {window} {memory} {seed} {len} {form}\n").into_bytes();
        text.extend(bytes);
        text
    }

    /// Reads a file's contents.
    pub(super) fn decode(text: &[u8]) -> Option<Self> {
        let end = text.iter().position(|byte| *byte == b'\n')?;
        let (line, bytes) = (core::str::from_utf8(&text[..end]).ok()?, &text[end + 1..]);
        let words: Vec<&str> = line.split(' ').collect();
        let &[who, group, window, memory, seed, len, form] = words.as_slice() else {
            return None;
        };
        let handles = || -> Result<Vec<GpuIpcMemHandle>, DecodeError> {
            bytes
                .chunks(HANDLE_BYTES)
                .map(GpuIpcMemHandle::decode)
                .collect()
        };
        Some(Self {
            who: who.parse().ok()?,
            group: group.to_owned(),
            window: window.parse().ok()?,
            memory: Memory::from_name(memory)?,
            seed: seed.parse().ok()?,
            len: len.parse().ok()?,
            body: match form {
                "handles" => Body::Handles(handles().ok()?),
                "registered" => Body::Registered(bytes.to_vec()),
                _ => return None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_arrives_as_it_was_sent() {
        let offer = Offer {
            who: Who {
                worker: 2,
                incarnation: 5,
            },
            group: "2.5-1.7".to_owned(),
            window: 3,
            memory: Memory::Segments,
            seed: u64::MAX,
            len: 4097,
            body: Body::Registered(b"bytes\nand more".to_vec()),
        };
        let bytes = offer.encode();
        let there = Offer::decode(&bytes).expect("it is one");
        assert_eq!(there.encode(), bytes);
        assert_eq!((there.who, there.seed), (offer.who, offer.seed));
        assert!(Offer::decode(b"2.5 x 3 segments 1 2 handles\nno handle").is_none());
        assert!(Offer::decode(b"no line").is_none());
    }
}
