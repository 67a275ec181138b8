//! The processes that play, kept from script to script while nothing is left in
//! them.

use crate::step::PROCESSES;
use gpuipc_tests::{Scratch, TestChild};
use std::time::{Duration, Instant};

/// What was done, for the last line.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) cases: u64,
    pub(crate) steps: u64,
    pub(crate) imports: u64,
    pub(crate) refused: u64,
    pub(crate) kills: u64,
    pub(crate) forks: u64,
}

/// A process, and its state before it did anything.
pub(crate) struct Seat {
    pub(crate) child: TestChild,
    at_start: String,
}

/// A GPU and the processes that use it.
pub(crate) struct Ground {
    scratch: Scratch,
    seats: Vec<Seat>,
    /// Lines for each process before a script: faults.
    pub(crate) setup: Vec<String>,
    /// How long a process may take until it has given everything back.
    pub(crate) patience: Duration,
    pub(crate) counts: Counts,
}

impl Ground {
    pub(crate) fn new(setup: &[&str]) -> Self {
        Self {
            scratch: Scratch::new(),
            seats: Vec::new(),
            setup: setup.iter().map(|&line| line.to_owned()).collect(),
            patience: Duration::from_secs(10),
            counts: Counts::default(),
        }
    }

    fn start(&self, seat: usize) -> Seat {
        let mut child = TestChild::start(env!("CARGO_BIN_EXE_child"), &self.scratch);
        if keeps_connections(seat) {
            child.ok("keep-connections");
        }
        let at_start = child.ok("state");
        for line in &self.setup {
            child.ok(line);
        }
        Seat { child, at_start }
    }

    /// All processes, new ones after a script that failed.
    pub(crate) fn begin(&mut self) {
        for seat in self.seats.len()..PROCESSES {
            self.seats.push(self.start(seat));
        }
        let setup = self.setup.clone();
        for seat in &mut self.seats {
            seat.child.ok("no-faults");
            for line in &setup {
                seat.child.ok(line);
            }
        }
    }

    /// Nobody is trusted to be as at the start.
    pub(crate) fn forget(&mut self) {
        self.seats.clear();
    }

    pub(crate) fn child(&mut self, seat: usize) -> &mut TestChild {
        &mut self.seats[seat].child
    }

    /// `kill -9`, and another process in its place.
    pub(crate) fn replace(&mut self, seat: usize) {
        self.seats[seat].child.kill();
        self.seats[seat] = self.start(seat);
    }

    /// What a process has not given back, if that does not happen: its state before
    /// and now.
    pub(crate) fn left_over(&mut self, seat: usize) -> Option<(String, String)> {
        let Seat { child, at_start } = &mut self.seats[seat];
        let start = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            let now = child.ok("state");
            if now == *at_start {
                return None;
            }
            if start.elapsed() > self.patience {
                return Some((at_start.clone(), now));
            }
            // A broker notices a little later that a client left.
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(20));
        }
    }
}

/// Half of the processes keep their connections to brokers, the others make new ones.
pub(crate) const fn keeps_connections(seat: usize) -> bool {
    seat.is_multiple_of(2)
}
