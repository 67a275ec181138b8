//! How the exporting process (the demo, the doctor) and its importing one
//! speak: over pipes, with a deadline for every wait.
//!
//! A frame is its length (four bytes, little-endian) and that many bytes. An
//! empty frame says "still working".

use crate::output::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Nobody sends a longer frame: there is room for the handles of a range of
/// 128 GiB in pieces of 2 MiB.
const LONGEST: usize = 32 << 20;
/// A pipe that is ready takes this many bytes at once.
const PIECE: usize = 4096;

/// The two pipes between exporter and importer.
#[derive(Debug)]
pub(crate) struct Channel {
    from: OwnedFd,
    to: OwnedFd,
    /// How long the other side may be silent.
    silence: Duration,
    /// When this side last said something.
    spoke: Option<Instant>,
}

impl Channel {
    pub(crate) const fn new(from: OwnedFd, to: OwnedFd, silence: Duration) -> Self {
        Self {
            from,
            to,
            silence,
            spoke: None,
        }
    }

    /// This process's stdin and stdout.
    pub(crate) fn of_this_process(silence: Duration) -> Result<Self, Failure> {
        let own = |fd: std::io::Result<OwnedFd>| {
            fd.map_err(|error| {
                Failure::text(format!("no channel to the exporting process: {error}"))
            })
        };
        let from = own(std::io::stdin().as_fd().try_clone_to_owned())?;
        let to = own(std::io::stdout().as_fd().try_clone_to_owned())?;
        Ok(Self::new(from, to, silence))
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, body: &[u8]) -> Result<(), Failure> {
        let length = u32::try_from(body.len())
            .ok()
            .filter(|_| body.len() <= LONGEST)
            .ok_or_else(|| Failure::Importer("a message is too long".to_owned()))?;
        let mut frame = length.to_le_bytes().to_vec();
        frame.extend_from_slice(body);
        let deadline = Instant::now() + self.silence;
        let mut left = frame.as_slice();
        while !left.is_empty() {
            wait(&self.to, PollFlags::OUT, deadline, self.silence)?;
            match rustix::io::write(&self.to, &left[..left.len().min(PIECE)]) {
                Ok(written) => left = &left[written..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::PIPE) => return Err(Failure::Importer("the pipe is closed".to_owned())),
                Err(errno) => return Err(Failure::Importer(format!("write to the pipe: {errno}"))),
            }
        }
        self.spoke = Some(Instant::now());
        Ok(())
    }

    /// Lets the other side know that this one is at work, as often as it needs to know.
    pub(crate) fn still_working(&mut self) -> Result<(), Failure> {
        let due = self
            .spoke
            .is_none_or(|spoke| spoke.elapsed() >= self.silence / 4);
        if due { self.send(&[]) } else { Ok(()) }
    }

    /// Waits for the next frame that says something; `None` when the other side
    /// has closed its end.
    pub(crate) fn receive(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            let deadline = Instant::now() + self.silence;
            let mut length = [0; 4];
            if !self.read_all(&mut length, deadline)? {
                return Ok(None);
            }
            let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
            if length > LONGEST {
                return Err(Failure::Importer(format!("a message of {length} bytes")));
            }
            let mut body = vec![0; length];
            if length == 0 {
                continue;
            }
            if !self.read_all(&mut body, deadline)? {
                return Err(Failure::Importer("a message without its end".to_owned()));
            }
            return Ok(Some(body));
        }
    }

    /// Fills `bytes`; false if there was not even the first one.
    fn read_all(&self, bytes: &mut [u8], deadline: Instant) -> Result<bool, Failure> {
        let mut filled = 0;
        while filled < bytes.len() {
            wait(&self.from, PollFlags::IN, deadline, self.silence)?;
            match rustix::io::read(&self.from, &mut bytes[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(Failure::Importer("a message without its end".to_owned())),
                Ok(got) => filled += got,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => {
                    return Err(Failure::Importer(format!("read from the pipe: {errno}")));
                }
            }
        }
        Ok(true)
    }
}

/// Waits until the pipe is ready (or closed, which the next call finds out).
fn wait(
    pipe: &OwnedFd,
    event: PollFlags,
    deadline: Instant,
    silence: Duration,
) -> Result<(), Failure> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(pipe, event)], Some(&timeout)) {
            Ok(0) if left.is_zero() => {
                return Err(Failure::Importer(format!(
                    "no sign of life for {} ms (--timeout-ms allows more)",
                    silence.as_millis()
                )));
            }
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(Failure::Importer(format!("poll: {errno}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(silence: Duration) -> (Channel, Channel) {
        let (here_from, there_to) = std::io::pipe().expect("a pipe");
        let (there_from, here_to) = std::io::pipe().expect("a pipe");
        (
            Channel::new(here_from.into(), here_to.into(), silence),
            Channel::new(there_from.into(), there_to.into(), silence),
        )
    }

    #[test]
    fn a_frame_arrives_whole_and_signs_of_life_are_none() {
        let (mut here, mut there) = pair(Duration::from_secs(60));
        let sender = std::thread::spawn(move || {
            there.still_working().expect("there is room");
            there.send(&[7; 100_000]).expect("it is read");
            there.send(b"next").expect("there is room");
        });
        let frame = here.receive().expect("it was sent").expect("it is open");
        assert_eq!(frame, [7; 100_000]);
        let frame = here.receive().expect("it was sent").expect("it is open");
        assert_eq!(frame, b"next");
        sender.join().expect("it does not panic");
    }

    #[test]
    fn a_closed_pipe_is_no_failure_but_half_a_message_is() {
        let (mut here, there) = pair(Duration::from_secs(60));
        drop(there);
        assert!(matches!(here.receive(), Ok(None)));
        let (mut here, there) = pair(Duration::from_secs(60));
        rustix::io::write(&there.to, &[9, 0, 0, 0, 1]).expect("there is room");
        drop(there);
        assert!(here.receive().is_err());
    }

    #[test]
    fn silence_and_nonsense_end_the_wait() {
        let (mut here, there) = pair(Duration::from_millis(20));
        let silent = here.receive().expect_err("nobody speaks");
        assert!(silent.to_string().contains("no sign of life for 20 ms"));
        rustix::io::write(&there.to, &[0xff; 4]).expect("there is room");
        assert!(here.receive().is_err());
    }

    #[test]
    fn a_reader_that_never_reads_does_not_block_the_writer_for_ever() {
        let (mut here, _there) = pair(Duration::from_millis(20));
        let body = vec![0; LONGEST];
        assert!(here.send(&body).is_err());
    }
}
