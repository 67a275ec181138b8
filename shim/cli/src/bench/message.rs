//! What the measuring process and the others say to each other: a line of words,
//! and handles behind it.

use crate::output::Failure;
use gpuipc::{DecodeError, GpuIpcMemHandle, HANDLE_BYTES};

/// One message, either way.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Message {
    words: Vec<String>,
    pub(super) handles: Vec<GpuIpcMemHandle>,
}

impl Message {
    /// A message of these words.
    pub(super) fn new<W: ToString>(words: impl IntoIterator<Item = W>) -> Self {
        let clean = |word: W| word.to_string().replace(['\t', '\n'], " ");
        Self {
            words: words.into_iter().map(clean).collect(),
            handles: Vec::new(),
        }
    }

    /// With handles.
    pub(super) fn with(mut self, handles: Vec<GpuIpcMemHandle>) -> Self {
        self.handles = handles;
        self
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.words.join("\t").into_bytes();
        bytes.push(b'\n');
        bytes.extend(self.handles.iter().flat_map(GpuIpcMemHandle::encode));
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Failure> {
        let wrong = |what: &str| Failure::Peer(format!("a message that nobody knows: {what}"));
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(end.ok_or_else(|| wrong("no line"))?);
        let line = core::str::from_utf8(line).map_err(|_| wrong("no text"))?;
        let handles = rest.get(1..).unwrap_or_default().chunks(HANDLE_BYTES);
        let handles: Result<Vec<_>, DecodeError> = handles.map(GpuIpcMemHandle::decode).collect();
        Ok(Self {
            words: line.split('\t').map(str::to_owned).collect(),
            handles: handles.map_err(|error| wrong(&error.to_string()))?,
        })
    }

    /// Word `at`.
    pub(super) fn word(&self, at: usize) -> Result<&str, Failure> {
        let missing = || Failure::Peer("a message without its end".to_owned());
        self.words.get(at).map(String::as_str).ok_or_else(missing)
    }

    /// Word `at`, a number.
    pub(super) fn number<N: core::str::FromStr>(&self, at: usize) -> Result<N, Failure> {
        let word = self.word(at)?;
        let wrong = |_| Failure::Peer(format!("a message with {word:?} for a number"));
        word.parse().map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        let message = Message::new(["map", "17", "two words\nand a line"]);
        let there = Message::decode(&message.encode()).expect("it is one");
        assert_eq!(there, message);
        assert_eq!(there.number::<u64>(1).expect("a number"), 17);
        assert_eq!(there.word(2).expect("a word"), "two words and a line");
        assert!(there.word(3).is_err() && there.number::<u64>(0).is_err());
        assert!(Message::decode(b"no line's end").is_err());
        assert!(Message::decode(b"line\nno handle").is_err());
    }
}
