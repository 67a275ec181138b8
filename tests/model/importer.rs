//! What an importer does, and what it must see.

use crate::model::{Buffer, Export, Form, Mapping, PIECE, Reservation, Room, Seen, Wrong};
use crate::play::{Deviation, Done, Play, b, deviation, m, pattern, words};
use crate::rules::Expected;
use crate::step::{Kind, Options};
use gpuipc_tests::{sum_of, to_hex};

/// Mappings of one process at a time.
const MOST_MAPPINGS: usize = 12;

impl Play<'_> {
    pub(crate) fn import(&mut self, seat: usize, export: usize, options: &Options) -> Done {
        let life = self.model.seats[seat];
        let there = |mapping: &&Mapping| mapping.life == life && !mapping.is_dropped;
        if self.model.mappings.iter().filter(there).count() >= MOST_MAPPINGS {
            return Ok(());
        }
        let mut asked = words(&options.types);
        asked.push_str(if options.live { " live" } else { "" });
        asked.push_str(if options.read_only { " read-only" } else { "" });
        asked.push_str(if options.host { " host" } else { "" });
        if let Some(device) = options.device {
            asked.push_str(&format!(" device={device}"));
        }
        if options.more {
            let own = self.model.buffers[self.model.exports[export].buffer].device;
            asked.push_str(&format!(" more={}", 1 - options.first(own)));
        }
        let room = self.room(life, export, options);
        if let Some((place, Room { offset, .. })) = room {
            asked.push_str(&format!(" place={}+{offset}", self.model.places[place].id));
        }
        self.say(life, &format!("import O{}{asked}", export + 1));
        let room = room.map(|(_, room)| room);
        let expected = self.model.import(life, export, options, room);
        if options.ask {
            let is_certain = room.is_none() && self.model.exports[export].handles.len() == 1;
            self.feasibility(life, export, &asked, &expected, is_certain)?;
        }
        let line = match &self.model.exports[export].registered {
            Some(Form { hex, .. }) => format!("deserialize {hex}{asked}"),
            None => format!("import {}{asked}", self.hex(export)),
        };
        let answer = self.ask(life, &line);
        self.model.lives[life].has_ipc = true;
        self.ground.counts.imports += 1;
        let (seen, used) = match expected {
            Expected::Refused(told) => {
                self.ground.counts.refused += 1;
                if let Some(Form { transports, .. }) = self.model.exports[export].registered
                    && transports != "-"
                {
                    return self.left_to(transports, life, &told, &answer);
                }
                let status = answer.split(' ').nth(1).unwrap_or_default();
                return if answer.starts_with("err ") && told.contains(&status) {
                    self.result(&format!(" -> {status}"));
                    Ok(())
                } else {
                    deviation(format!("refused: {}", told.join(" or ")), answer)
                };
            }
            Expected::Own => (Seen::Own, "SameProcess"),
            Expected::Found(mapped) => (Seen::By(mapped), self.model.mapped[mapped].used.name()),
            Expected::New(mapped) => {
                let used = mapped.used.name();
                self.model.mapped.push(mapped);
                (Seen::By(self.model.mapped.len() - 1), used)
            }
        };
        self.mapped(life, export, (seen, used), &answer)
    }

    /// What no type leads to is its transport's, and says why.
    fn left_to(&mut self, transports: &str, life: usize, told: &[&str], answer: &str) -> Done {
        let all: Vec<&str> = answer.split(' ').collect();
        match all.as_slice() {
            ["ok", id, "-", "-", found, why] if *found == transports && told.contains(why) => {
                self.result(&format!(" -> left to a transport: {why}"));
                self.ok(life, &format!("drop registered {id}")).map(drop)
            }
            _ => deviation(
                format!("left to {transports}: {}", told.join(" or ")),
                answer,
            ),
        }
    }

    /// An export's handles.
    pub(crate) fn hex(&self, export: usize) -> String {
        let handles = self.model.exports[export].handles.iter();
        let hex: Vec<String> = handles.map(|handle| to_hex(&handle.encode())).collect();
        hex.join(",")
    }

    /// Compares what an import gave, and notes it.
    pub(crate) fn mapped(
        &mut self,
        life: usize,
        export: usize,
        (seen, used): (Seen, &str),
        answer: &str,
    ) -> Done {
        let Export {
            len, start, buffer, ..
        } = self.model.exports[export];
        let at = self.model.buffers[buffer].at + start;
        let liveness = self.model.liveness(export, seen == Seen::Own);
        let form = self.model.exports[export].registered.as_ref();
        let wanted = match (form, seen) {
            (None, _) => format!("mapped by {used}, {liveness}, {len} bytes"),
            // A bare pointer.
            (Some(form), Seen::Own) => format!("own, transports {}, no error", form.transports),
            (Some(form), Seen::By(_)) => {
                format!("{used}, transports {}, no error", form.transports)
            }
        };
        let all: Vec<&str> = answer.split(' ').collect();
        let (id, ptr, came) = match (form, all.as_slice()) {
            (None, ["ok", id, ptr, by, says, bytes, _]) => {
                (id, ptr, format!("mapped by {by}, {says}, {bytes} bytes"))
            }
            (Some(_), ["ok", id, ptr, by, found, "-"]) => {
                (id, ptr, format!("{by}, transports {found}, no error"))
            }
            _ => return deviation(wanted, answer),
        };
        let (Ok(id), Ok(ptr)) = (id.parse(), ptr.parse::<u64>()) else {
            return deviation(wanted, answer);
        };
        if came != wanted {
            return deviation(wanted, came);
        }
        let piece = match self.model.buffers[buffer].kind {
            Kind::Segments => at / PIECE * PIECE,
            _ => 0,
        };
        let base = ptr - (at - piece) as u64;
        let others = self.model.mappings.iter();
        let mut shared = others
            .filter(|other| !other.is_dropped && seen != Seen::Own && other.seen == seen)
            .map(|other| other.base);
        let own = self.model.buffers[buffer].address + piece as u64;
        let known = shared.next().or((seen == Seen::Own).then_some(own));
        if known.is_some_and(|known| known != base) {
            return deviation(format!("the allocation at {known:x?}"), format!("{base:x}"));
        }
        if let Seen::By(mapped) = seen {
            let size = self.model.mapped_size(export);
            let is_vmm = self.model.buffers[buffer].is_vmm();
            let reservations = &mut self.model.reservations;
            let mapped = &mut self.model.mapped[mapped];
            mapped.uses += 1;
            match mapped.room {
                Some(room) => {
                    let wanted = reservations[room.reservation].base + room.offset as u64;
                    if base != wanted {
                        return deviation(format!("it is at {wanted:x}"), format!("{base:x}"));
                    }
                }
                None if is_vmm => {
                    reservations.push(Reservation { base, size });
                    mapped.room = Some(Room {
                        reservation: reservations.len() - 1,
                        offset: 0,
                        size,
                    });
                }
                None => {}
            }
        }
        let number = self.model.mappings.len();
        self.result(&format!(" -> M{} by {used}", number + 1));
        self.model.mappings.push(Mapping {
            life,
            id,
            export,
            seen,
            address: ptr,
            base,
            is_dropped: false,
        });
        if self.model.is_promised(number) {
            self.compare(number)?;
        }
        Ok(())
    }

    pub(crate) fn read(&mut self, mapping: usize) -> Done {
        if !self.model.is_promised(mapping) {
            return Ok(());
        }
        self.say(
            self.model.mappings[mapping].life,
            &format!("read {}", m(mapping)),
        );
        self.compare(mapping)
    }

    /// Reads all bytes of a mapping that shows what the model says.
    pub(crate) fn compare(&mut self, mapping: usize) -> Done {
        let Mapping {
            life, id, export, ..
        } = self.model.mappings[mapping];
        let Export {
            start, len, buffer, ..
        } = self.model.exports[export];
        let bytes = self.model.buffers[buffer].bytes[start..start + len].to_vec();
        let what = self.held_as(mapping);
        self.same(life, &format!("{what} {id} 0"), &bytes)
            .map_err(|different| in_what(different, &m(mapping)))
    }

    /// Reads the region of a buffer.
    pub(crate) fn compare_buffer(&mut self, buffer: usize) -> Done {
        let Buffer { life, id, at, .. } = self.model.buffers[buffer];
        let bytes = self.model.buffers[buffer].bytes.clone();
        self.same(life, &format!("buffer {id} {at}"), &bytes)
            .map_err(|different| in_what(different, &b(buffer)))
    }

    pub(crate) fn same(&mut self, life: usize, what: &str, bytes: &[u8]) -> Done {
        let len = bytes.len();
        let sum = self.ok(life, &format!("sum {what} {len}"))?;
        if sum == sum_of(bytes).to_string() {
            return Ok(());
        }
        let hex = self.ok(life, &format!("bytes {what} {len}"))?;
        let came = gpuipc_tests::from_hex(&hex).unwrap_or_default();
        let wrong: Vec<usize> = (0..len)
            .filter(|at| came.get(*at) != bytes.get(*at))
            .collect();
        match wrong.first() {
            Some(first) => deviation(
                format!("byte {first} of {len} is {:#04x}", bytes[*first]),
                format!("{:#04x?}; {} bytes differ", came.get(*first), wrong.len()),
            ),
            None => deviation("the same bytes twice", "others the first time"),
        }
    }

    pub(crate) fn write_through(&mut self, mapping: usize, seed: u64) -> Done {
        if !self.model.is_promised(mapping) {
            return Ok(());
        }
        let Mapping {
            life, id, export, ..
        } = self.model.mappings[mapping];
        let Export {
            start, len, buffer, ..
        } = self.model.exports[export];
        self.say(life, &format!("write {} with {seed}", m(mapping)));
        let what = self.held_as(mapping);
        let answer = self.ask(life, &format!("put {what} {id} 0 {len} {seed}"));
        if !self.model.may_write(mapping) {
            // A driver does not refuse to copy into host memory: it ends the process.
            let told = match self.model.buffers[buffer].kind {
                Kind::HostNuma => "INVALID_ARGUMENT",
                _ => "DRIVER_CALL",
            };
            return if answer.split(' ').nth(1) == Some(told) {
                Ok(())
            } else {
                deviation(format!("{told}, since it is for reading only"), answer)
            };
        }
        if answer != "ok" {
            return deviation("it is written", answer);
        }
        if self.model.wrong != Some(Wrong::WritesStayPrivate) {
            let region = &mut self.model.buffers[buffer].bytes[start..start + len];
            region.copy_from_slice(&pattern(seed, len));
        }
        Ok(())
    }

    pub(crate) fn export_mapping(&mut self, mapping: usize) -> Done {
        let Mapping {
            life,
            export,
            seen,
            address,
            ..
        } = self.model.mappings[mapping];
        if seen == Seen::Own {
            return Ok(());
        }
        self.say(life, &format!("export {}", m(mapping)));
        let len = self.model.exports[export].len;
        let answer = self.ask(life, &format!("export-raw {address} {len}"));
        self.model.lives[life].has_ipc = true;
        match answer.split(' ').nth(1) {
            Some("NOT_EXPORTABLE") => Ok(()),
            _ => deviation("NOT_EXPORTABLE: it is another process's", answer),
        }
    }

    pub(crate) fn drop_mapping(&mut self, mapping: usize) -> Done {
        let Mapping { life, id, .. } = self.model.mappings[mapping];
        self.say(life, &format!("drop {}", m(mapping)));
        let what = self.held_as(mapping);
        self.ok(life, &format!("drop {what} {id}"))?;
        self.model.drop_mapping(mapping);
        Ok(())
    }

    /// The child's word for what holds a mapping.
    fn held_as(&self, mapping: usize) -> &'static str {
        let export = self.model.mappings[mapping].export;
        match self.model.exports[export].registered {
            Some(_) => "registered",
            None => "mapping",
        }
    }
}

fn in_what(deviation: Deviation, what: &str) -> Deviation {
    Deviation {
        expected: format!("in {what}, {}", deviation.expected),
        ..deviation
    }
}
