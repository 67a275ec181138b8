//! Which GPUs this process's devices reach, and how many at most.

use crate::Answer;
use crate::config::config;
use crate::header::Place;
use crate::piece::Origin;
use crate::state::{State, machine_number};
use gpuipc_sys::{CuMemLocation, CuResult, location};
use std::collections::BTreeSet;

impl State {
    /// Whether devices may reach memory of the machine's GPUs, each pair a
    /// device and a GPU: there is a way between them, and not more of them at
    /// the same time than the settings allow.
    pub(crate) fn check_reach(&self, wanted: &[(usize, u32)]) -> Answer {
        let mut other = Vec::new();
        for (device, machine) in wanted {
            let own = machine_number(*device)?;
            if !config().reaches(own, *machine) {
                return Err(CuResult::PEER_ACCESS_UNSUPPORTED);
            }
            if own != *machine {
                other.push((*device, *machine));
            }
        }
        for (device, _) in &other {
            let mut reached = self.reached(*device);
            let before = reached.len();
            let new = other.iter().filter(|(by, _)| by == device);
            reached.extend(new.map(|(_, machine)| *machine));
            if reached.len() > before && reached.len() > config().peer_limit {
                return Err(CuResult::TOO_MANY_PEERS);
            }
        }
        Ok(())
    }

    /// The other GPUs whose memory a device reaches now.
    fn reached(&self, device: usize) -> BTreeSet<u32> {
        let here = CuMemLocation {
            kind: location::DEVICE,
            id: i32::try_from(device).unwrap_or(-1),
        };
        let pieces = self.pieces.values().filter_map(|piece| {
            let Place::Gpu(machine) = piece.storage.header().place else {
                return None;
            };
            let reaches = match &piece.origin {
                Origin::Opened { device: opener, .. } => *opener == device,
                Origin::Mapped { access, .. } => access.of(here) != 0,
                _ => false,
            };
            reaches.then_some(machine)
        });
        let pools = self.pools.values().filter_map(|pool| match pool.place {
            Place::Gpu(machine) if pool.access.of(here) != 0 || pool.stand_in == Some(device) => {
                Some(machine)
            }
            _ => None,
        });
        let mut all: BTreeSet<u32> = pieces.chain(pools).collect();
        if let Ok(own) = machine_number(device) {
            all.remove(&own);
        }
        all
    }
}
