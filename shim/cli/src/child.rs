//! The importing process as the exporting one sees it: started, asked, and in
//! every case ended and reaped.

use crate::case::Usage;
use crate::message::{Answer, Request};
use crate::output::Failure;
use crate::wire::Channel;
use gpuipc::GpuIpcMemHandle;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the process may take to end by itself, and to die when killed.
const TIME_TO_END: Duration = Duration::from_secs(10);
/// Between two looks at whether it has ended.
const PAUSE: Duration = Duration::from_millis(5);

/// A running importer.
#[derive(Debug)]
pub(crate) struct Importer {
    child: Child,
    /// Dropped first of all at the end: the importer ends when its stdin does.
    channel: Option<Channel>,
}

impl Importer {
    /// Starts `command` and waits until it says that it is ready.
    pub(crate) fn start(command: &mut Command, silence: Duration) -> Result<Self, Failure> {
        let not_started = |reason: String| {
            Failure::Importer(format!("the importing process cannot be started: {reason}"))
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| not_started(error.to_string()))?;
        let pipes = child.stdout.take().zip(child.stdin.take());
        let channel = pipes.map(|(from, to)| Channel::new(from.into(), to.into(), silence));
        let mut importer = Self { child, channel };
        match importer.answer()?.error {
            None => Ok(importer),
            Some(error) => Err(not_started(error)),
        }
    }

    /// Has the memory behind a range's handles imported, verified and used.
    pub(crate) fn import(
        &mut self,
        usage: Usage,
        handles: &[GpuIpcMemHandle],
    ) -> Result<Answer, Failure> {
        let body = Request::encode(usage, handles);
        self.speak(|channel| channel.send(&body))?;
        self.answer()
    }

    /// Its next message.
    fn receive(&mut self) -> Result<Vec<u8>, Failure> {
        self.speak(|channel| {
            channel
                .receive()?
                .ok_or_else(|| Failure::Importer("it closed the pipe".to_owned()))
        })
    }

    /// Lets it know that this process is at work.
    pub(crate) fn still_working(&mut self) -> Result<(), Failure> {
        self.speak(Channel::still_working)
    }

    /// Ends it: it must end by itself, without a failure.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        self.channel = None;
        match self.wait() {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Failure::Importer(format!(
                "the importing process ended badly: {status}"
            ))),
            None => Err(Failure::Importer(
                "the importing process does not end; it was killed".to_owned(),
            )),
        }
    }

    fn answer(&mut self) -> Result<Answer, Failure> {
        let body = self.receive()?;
        self.speak(|_| {
            Answer::decode(&body)
                .ok_or_else(|| Failure::Importer("it answers what no importer would".to_owned()))
        })
    }

    /// Uses the channel; if that fails, says what became of the process.
    fn speak<T>(
        &mut self,
        speak: impl FnOnce(&mut Channel) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Some(channel) = &mut self.channel else {
            return Err(Failure::Importer(
                "the importing process was ended".to_owned(),
            ));
        };
        speak(channel).map_err(|failure| {
            // Its end closes the pipe a moment before its status is there.
            let ended = Instant::now() + Duration::from_millis(500);
            let status = loop {
                match self.child.try_wait() {
                    Ok(None) if Instant::now() < ended => std::thread::sleep(PAUSE),
                    status => break status.ok().flatten(),
                }
            };
            let fate = status.map_or_else(
                || self.kill().to_owned(),
                |status| format!("it has ended ({status})"),
            );
            self.channel = None;
            Failure::Importer(format!("the importing process failed: {failure}; {fate}"))
        })
    }

    /// Kills and reaps it.
    fn kill(&mut self) -> &'static str {
        // Fails only for a process that was reaped already.
        let _ = self.child.kill();
        if self.wait().is_some() {
            "it was killed"
        } else {
            "it was killed, but the kernel does not end it (a driver call that hangs?)"
        }
    }

    fn wait(&mut self) -> Option<std::process::ExitStatus> {
        let deadline = Instant::now() + TIME_TO_END;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                status => return status.ok().flatten(),
            }
        }
    }
}

impl Drop for Importer {
    fn drop(&mut self) {
        self.channel = None;
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process};

    #[test]
    fn a_hung_importer_is_killed_and_reaped() {
        let mut command = Command::new("sh");
        command.args(["-c", "exec sleep 1000"]);
        let started = Importer::start(&mut command, Duration::from_millis(50));
        let text = started.expect_err("sleep says nothing").to_string();
        assert!(text.contains("no sign of life for 50 ms"), "{text}");
        assert!(text.contains("it was killed"), "{text}");
    }

    #[test]
    fn a_dead_importer_is_named_with_its_status() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 7"]);
        let text = Importer::start(&mut command, Duration::from_secs(60))
            .expect_err("nobody answers")
            .to_string();
        assert!(text.contains("exit status: 7"), "{text}");
    }

    #[test]
    fn one_that_says_nonsense_does_not_stay() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo hello, this is no frame; exec sleep 1000"]);
        let text = Importer::start(&mut command, Duration::from_secs(60))
            .expect_err("nonsense")
            .to_string();
        assert!(text.contains("it was killed"), "{text}");
    }

    #[test]
    fn dropping_it_ends_the_process() {
        let child = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("sleep is everywhere");
        let pid = Pid::from_child(&child);
        drop(Importer {
            child,
            channel: None,
        });
        assert_eq!(test_kill_process(pid), Err(Errno::SRCH));
    }
}
