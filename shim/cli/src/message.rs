//! What the exporting process and its importing one say to each other: a
//! [`Request`] for each range, and an [`Answer`] to each. One more answer, the
//! first, says that the importer is ready.

use crate::attempt::AttemptText;
use crate::case::Usage;
use gpuipc::{DecodeError, GpuIpcMemHandle, HANDLE_BYTES};
use serde_json::{Value, json};

/// What the exporter asks for. On the wire a byte for the usage, and all handles
/// of the range, 384 bytes each.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) usage: Usage,
    pub(crate) handles: Vec<GpuIpcMemHandle>,
}

impl Request {
    pub(crate) fn encode(usage: Usage, handles: &[GpuIpcMemHandle]) -> Vec<u8> {
        let mut bytes = vec![usage.code()];
        bytes.extend(handles.iter().flat_map(GpuIpcMemHandle::encode));
        bytes
    }

    /// Reads it, or says what is wrong with it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let (code, bytes) = bytes.split_first().ok_or("an empty request")?;
        let usage = Usage::of_code(*code).ok_or("a usage that nobody knows")?;
        let handles = bytes
            .chunks(HANDLE_BYTES)
            .map(GpuIpcMemHandle::decode)
            .collect::<Result<_, DecodeError>>()
            .map_err(|error| error.to_string())?;
        Ok(Self { usage, handles })
    }
}

/// What the importer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The type by which it mapped the memory.
    pub(crate) used: Option<String>,
    /// Bytes mapped.
    pub(crate) bytes: u64,
    /// How long the import took.
    pub(crate) import_us: Option<u64>,
    /// What failed before.
    pub(crate) attempts: Vec<AttemptText>,
    /// What went wrong, if the memory could not be mapped, verified and written.
    pub(crate) error: Option<String>,
}

impl Answer {
    /// That something went wrong.
    pub(crate) fn failed(error: impl Into<String>) -> Self {
        Self {
            error: Some(error.into()),
            ..Self::default()
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let attempts: Vec<Value> = self.attempts.iter().map(AttemptText::to_json).collect();
        let value = json!({
            "used": self.used,
            "bytes": self.bytes,
            "import_us": self.import_us,
            "attempts": attempts,
            "error": self.error,
        });
        value.to_string().into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let text = |name: &str| value.get(name)?.as_str().map(str::to_owned);
        let attempts = value.get("attempts")?.as_array()?;
        Some(Self {
            used: text("used"),
            bytes: value.get("bytes")?.as_u64()?,
            import_us: value.get("import_us")?.as_u64(),
            attempts: attempts
                .iter()
                .map(AttemptText::from_json)
                .collect::<Option<_>>()?,
            error: text("error"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Side;
    use gpuipc::core::{DeviceUuid, HandleFields, SharedRange};
    use gpuipc::{Attempt, Code, GpuPair, HandleType, Reason, Step};
    use std::time::Duration;

    #[test]
    fn a_request_arrives_as_it_was_sent() {
        let handle = |id| {
            let fields = HandleFields {
                base_size: 100,
                length: 100,
                allocation_id: id,
                range: SharedRange {
                    id: 1,
                    length: 100,
                    offset: 0,
                    segment_index: 0,
                    segment_count: 1,
                },
                fabric: Some([1; 64]),
                ..HandleFields::default()
            };
            GpuIpcMemHandle::new(&fields).expect("the fields keep the rules")
        };
        let handles = [handle(1), handle(2), handle(3)];
        for usage in Usage::ALL {
            let bytes = Request::encode(usage, &handles);
            let request = Request::decode(&bytes).expect("it is one");
            assert_eq!(request.usage, usage);
            assert_eq!(request.handles, handles);
            assert!(Request::decode(&bytes[..bytes.len() - 1]).is_err());
        }
        assert!(Request::decode(&[]).is_err());
        assert!(Request::decode(&[99]).is_err());
    }

    #[test]
    fn an_answer_arrives_as_it_was_sent() {
        let attempt = Attempt {
            handle_type: HandleType::PosixFd,
            step: Step::BrokerConnect,
            code: Code::Os(111),
            reason: Reason::BrokerUnreachable,
            segment: Some(3),
            gpu_pair: Some(GpuPair {
                from: DeviceUuid([1; 16]),
                to: DeviceUuid([2; 16]),
            }),
            elapsed: Duration::ZERO,
        };
        let plain = Attempt {
            segment: None,
            gpu_pair: None,
            ..attempt.clone()
        };
        let answer = Answer {
            used: Some("Fabric".to_owned()),
            bytes: 17,
            import_us: Some(3),
            attempts: AttemptText::all(Side::Import, &[attempt, plain]),
            error: Some("a \"quoted\"\nword".to_owned()),
        };
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
    }
}
