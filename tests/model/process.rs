//! What happens to whole processes.

use crate::play::{Done, Play, deviation};

impl Play<'_> {
    pub(crate) fn drop_ipc(&mut self, seat: usize) -> Done {
        let life = self.model.seats[seat];
        self.say(life, "drop its Ipc");
        self.ok(life, "drop-ipc")?;
        self.model.drop_ipc(life);
        Ok(())
    }

    pub(crate) fn close_idle(&mut self, seat: usize) -> Done {
        let life = self.model.seats[seat];
        self.say(life, "close idle connections");
        self.ok(life, "close-idle")?;
        self.model.lives[life].has_ipc = true;
        Ok(())
    }

    /// A child that tries everything and ends, or one that only stays.
    pub(crate) fn fork(&mut self, seat: usize, stays: bool) -> Done {
        let life = self.model.seats[seat];
        self.ground.counts.forks += 1;
        if stays {
            self.say(life, "fork a child that stays");
            let child = self.ok(life, "fork-stay")?;
            let Ok(child) = child.parse() else {
                return deviation("a pid", child);
            };
            self.children.push(child);
            return Ok(());
        }
        self.say(life, "fork a child that exports and drops everything");
        let answer = self.ok(life, "fork")?;
        let refused = if self.model.lives[life].has_ipc {
            "FORKED "
        } else {
            ""
        };
        let wanted = format!("{refused}dropped status=0");
        if answer == wanted {
            Ok(())
        } else {
            deviation(wanted, answer)
        }
    }

    pub(crate) fn kill(&mut self, seat: usize) -> Done {
        self.say(
            self.model.seats[seat],
            "is killed, another one takes its place",
        );
        self.ground.counts.kills += 1;
        self.ground.replace(seat);
        self.model.kill(seat);
        Ok(())
    }

    pub(crate) fn end_children(&mut self) {
        for child in self.children.drain(..) {
            if let Some(pid) = rustix::process::Pid::from_raw(child) {
                // It may have ended by itself.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}
