//! The end of a script: everybody sees the right bytes once more, everything is
//! given back in whatever order, and nothing is left.

use crate::play::{Deviation, Play, deviation};
use crate::step::PROCESSES;

/// What is to be given back.
enum Held {
    Buffer(usize),
    Export(usize),
    Mapping(usize),
    Place(usize),
}

impl Play<'_> {
    pub(crate) fn end(&mut self, order: u64) -> Result<(), Deviation> {
        self.script.push("at the end:".to_owned());
        self.compare_all()?;
        for held in self.held(order) {
            match held {
                Held::Buffer(buffer) => self.free(buffer)?,
                Held::Export(export) => self.drop_export(export)?,
                Held::Mapping(mapping) => self.drop_mapping(mapping)?,
                Held::Place(place) => self.drop_place(place)?,
            }
        }
        for seat in 0..PROCESSES {
            self.drop_ipc(seat)?;
        }
        self.end_children();
        for seat in 0..PROCESSES {
            if let Some((before, now)) = self.ground.left_over(seat) {
                self.say(self.model.seats[seat], "has what it had at the start");
                return deviation(before, now);
            }
        }
        Ok(())
    }

    fn compare_all(&mut self) -> Result<(), Deviation> {
        for buffer in 0..self.model.buffers.len() {
            if !self.model.buffers[buffer].is_freed {
                self.compare_buffer(buffer)?;
            }
        }
        for mapping in 0..self.model.mappings.len() {
            if !self.model.mappings[mapping].is_dropped && self.model.is_promised(mapping) {
                self.compare(mapping)?;
            }
        }
        Ok(())
    }

    /// All that there is, in an order of this number.
    fn held(&self, order: u64) -> Vec<Held> {
        let model = &self.model;
        let buffers = (0..model.buffers.len())
            .filter(|at| !model.buffers[*at].is_freed)
            .map(Held::Buffer);
        let exports = (0..model.exports.len())
            .filter(|at| !model.exports[*at].is_dropped)
            .map(Held::Export);
        let mappings = (0..model.mappings.len())
            .filter(|at| !model.mappings[*at].is_dropped)
            .map(Held::Mapping);
        let places = model.places_there(|_| true).into_iter().map(Held::Place);
        let mut all: Vec<Held> = buffers
            .chain(exports)
            .chain(mappings)
            .chain(places)
            .collect();
        let mut random = order;
        for at in (1..all.len()).rev() {
            // Knuth's generator; its high bits.
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            all.swap(at, (random >> 33) as usize % (at + 1));
        }
        all
    }
}
