//! What an importer does with addresses: takes them, has memory mapped there, and keeps
//! them when it unmaps.

use crate::model::{Mapping, PIECE, Place, Reservation, Room, Seen};
use crate::play::{Done, Play, deviation, m, newest};
use crate::step::Options;

/// Places of one process that it reserves.
const MOST_PLACES: usize = 3;

impl Play<'_> {
    /// Where it is to be mapped, if the process has a place, and in which one that is.
    pub(crate) fn room(
        &self,
        life: usize,
        export: usize,
        options: &Options,
    ) -> Option<(usize, Room)> {
        let (place, granule) = options.place?;
        let there = self.model.places_there(|place| place.life == life);
        let place = there[newest(there.len(), place)?];
        let room = Room {
            reservation: self.model.places[place].reservation,
            offset: granule * PIECE,
            size: self.model.mapped_size(export),
        };
        Some((place, room))
    }

    /// Drops a mapping; whoever was the last to use it keeps its addresses.
    pub(crate) fn unmap(&mut self, mapping: usize) -> Done {
        let Mapping {
            life,
            id,
            export,
            seen,
            ..
        } = self.model.mappings[mapping];
        if self.model.exports[export].registered.is_some() {
            return Ok(());
        }
        self.say(life, &format!("unmap {}", m(mapping)));
        let answer = self.ask(life, &format!("unmap {id}"));
        self.model.drop_mapping(mapping);
        let room = match seen {
            Seen::By(mapped) if self.model.mapped[mapped].uses == 0 => {
                self.model.mapped[mapped].room
            }
            _ => None,
        };
        match room {
            Some(room) => self.keep_place(life, room.reservation, &answer),
            None if answer.ends_with("it has no place") => Ok(()),
            None => deviation("it has no place", answer),
        }
    }

    pub(crate) fn reserve(&mut self, seat: usize) -> Done {
        let life = self.model.seats[seat];
        let there = self.model.places_there(|place| place.life == life);
        if there.len() >= MOST_PLACES {
            return Ok(());
        }
        let size = 4 * PIECE;
        self.say(life, &format!("reserve {size}"));
        let answer = self.ask(life, &format!("reserve {size}"));
        let base = answer.split(' ').nth(2).and_then(|word| word.parse().ok());
        let Some(base) = base else {
            return deviation("a place", answer);
        };
        self.model.reservations.push(Reservation { base, size });
        self.keep_place(life, self.model.reservations.len() - 1, &answer)
    }

    fn keep_place(&mut self, life: usize, reservation: usize, answer: &str) -> Done {
        let Reservation { base, size } = self.model.reservations[reservation];
        let all: Vec<u64> = answer
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        let [id, at, bytes] = all.as_slice() else {
            return deviation("a place", answer);
        };
        if (*at, *bytes) != (base, size as u64) {
            return deviation(format!("{size} bytes at {base}"), answer);
        }
        self.model.places.push(Place {
            life,
            id: u32::try_from(*id).unwrap_or(u32::MAX),
            reservation,
            is_dropped: false,
        });
        self.result(&format!(" -> place {id}"));
        Ok(())
    }

    pub(crate) fn drop_place(&mut self, place: usize) -> Done {
        let Place { life, id, .. } = self.model.places[place];
        self.say(life, &format!("drop place {id}"));
        self.ok(life, &format!("drop place {id}"))?;
        self.model.places[place].is_dropped = true;
        Ok(())
    }
}
