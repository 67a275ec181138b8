//! A script played: each step done by its process, and its answer compared with
//! what the model says.

use crate::ground::Ground;
use crate::model::{Buffer, Export, Mapping, Model, PIECE, REGION, Seen, Wrong};
use crate::rules::{Expected, memory};
use crate::step::{Case, Kind, Options, PROCESSES, Step};
use gpuipc_core::{GpuIpcMemHandle, HandleType};
use gpuipc_tests::{handle_of, pattern_byte, sum_of, to_hex};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Buffers and mappings of one process at a time.
const MOST_BUFFERS: usize = 5;
const MOST_MAPPINGS: usize = 12;

/// What was expected, and what came in its place.
#[derive(Debug)]
pub(crate) struct Deviation {
    pub(crate) expected: String,
    pub(crate) came: String,
}

type Done = Result<(), Deviation>;

pub(crate) fn deviation<T>(
    expected: impl Into<String>,
    came: impl Into<String>,
) -> Result<T, Deviation> {
    Err(Deviation {
        expected: expected.into(),
        came: came.into(),
    })
}

/// A script under way.
pub(crate) struct Play<'a> {
    pub(crate) ground: &'a mut Ground,
    pub(crate) model: Model,
    /// What was done, a line each.
    pub(crate) script: Vec<String>,
    /// Forked processes that stay.
    children: Vec<i32>,
}

/// Plays a script on `ground`; the text of an error is the whole script, what was
/// expected of its last line, and what came.
pub(crate) fn play(ground: &mut Ground, case: &Case, wrong: Option<Wrong>) -> Result<(), String> {
    ground.begin();
    let mut play = Play {
        ground,
        model: Model::new(wrong),
        script: Vec::new(),
        children: Vec::new(),
    };
    let done = catch_unwind(AssertUnwindSafe(|| play.all(case)));
    play.end_children();
    let (script, told) = (
        play.script.join("\n  "),
        match done {
            Ok(Ok(())) => {
                ground.counts.cases += 1;
                return Ok(());
            }
            Ok(Err(Deviation { expected, came })) => {
                format!("expected: {expected}\n    came: {came}")
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>();
                format!("panicked: {}", text.map_or("?", String::as_str))
            }
        },
    );
    ground.forget();
    Err(format!("\n  {script}\n{told}\n"))
}

impl Play<'_> {
    fn all(&mut self, case: &Case) -> Done {
        for step in &case.steps {
            self.step(step)?;
        }
        self.end(case.order)
    }

    fn step(&mut self, step: &Step) -> Done {
        self.ground.counts.steps += 1;
        match step {
            Step::Alloc {
                process,
                kind,
                longer,
            } => self.alloc(process % PROCESSES, *kind, *longer),
            Step::Write { buffer, seed } => match self.buffer(*buffer) {
                Some(buffer) => self.write(buffer, *seed),
                None => Ok(()),
            },
            Step::Export {
                buffer,
                start,
                len,
                types,
                on_demand,
            } => match self.buffer(*buffer) {
                Some(buffer) => self.export(buffer, (*start, *len), types, *on_demand),
                None => Ok(()),
            },
            Step::Import {
                process,
                offer,
                options,
            } => match newest(self.model.exports.len(), *offer) {
                Some(export) => self.import(process % PROCESSES, export, options),
                None => Ok(()),
            },
            Step::Read { mapping } => match self.mapping(*mapping) {
                Some(mapping) => self.read(mapping),
                None => Ok(()),
            },
            Step::WriteThrough { mapping, seed } => match self.mapping(*mapping) {
                Some(mapping) => self.write_through(mapping, *seed),
                None => Ok(()),
            },
            Step::DropMapping { mapping } => match self.mapping(*mapping) {
                Some(mapping) => self.drop_mapping(mapping),
                None => Ok(()),
            },
            Step::DropOffer { offer } => {
                let is_live = |export: &usize| !self.model.exports[*export].is_dropped;
                let live: Vec<_> = (0..self.model.exports.len()).filter(is_live).collect();
                match newest(live.len(), *offer) {
                    Some(at) => self.drop_offer(live[at]),
                    None => Ok(()),
                }
            }
            Step::Free { buffer } => match self.buffer(*buffer) {
                Some(buffer) => self.free(buffer),
                None => Ok(()),
            },
            Step::DropIpc { process } => self.drop_ipc(process % PROCESSES),
            Step::CloseIdle { process } => self.close_idle(process % PROCESSES),
            Step::Fork { process, stays } => self.fork(process % PROCESSES, *stays),
            Step::Kill { process } => self.kill(process % PROCESSES),
        }
    }

    /// The nth newest buffer that is there.
    fn buffer(&self, nth: usize) -> Option<usize> {
        let is_there = |at: &usize| !self.model.buffers[*at].is_freed;
        let there: Vec<_> = (0..self.model.buffers.len()).filter(is_there).collect();
        Some(there[newest(there.len(), nth)?])
    }

    /// The nth newest mapping that is there.
    fn mapping(&self, nth: usize) -> Option<usize> {
        let is_there = |at: &usize| !self.model.mappings[*at].is_dropped;
        let there: Vec<_> = (0..self.model.mappings.len()).filter(is_there).collect();
        Some(there[newest(there.len(), nth)?])
    }

    pub(crate) fn say(&mut self, life: usize, line: &str) {
        let seat = self.model.lives[life].seat;
        self.script.push(format!("P{}: {line}", seat + 1));
    }

    /// Adds to the last line.
    fn result(&mut self, text: &str) {
        if let Some(line) = self.script.last_mut() {
            line.push_str(text);
        }
    }

    fn ask(&mut self, life: usize, line: &str) -> String {
        let seat = self.model.lives[life].seat;
        self.ground.peer(seat).ask(line)
    }

    /// The rest of an answer that must begin with `ok`.
    pub(crate) fn ok(&mut self, life: usize, line: &str) -> Result<String, Deviation> {
        let answer = self.ask(life, line);
        match answer.strip_prefix("ok") {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => deviation("it works", answer),
        }
    }

    fn alloc(&mut self, seat: usize, kind: Kind, longer: bool) -> Done {
        let life = self.model.seats[seat];
        if self.model.of_life(life, |_| true).len() >= MOST_BUFFERS {
            return Ok(());
        }
        let (at, mut len) = match kind {
            Kind::Segments => (PIECE - REGION / 2, 2 * PIECE),
            Kind::Large => (1 << 20, (1 << 20) + REGION),
            _ => (777, 777 + REGION),
        };
        if longer {
            len += if kind == Kind::Segments {
                PIECE
            } else {
                70_001
            };
        }
        let pooled = self.model.of_life(life, Buffer::is_pooled);
        let beside = pooled.last().filter(|_| kind == Kind::Beside).copied();
        let number = self.model.buffers.len();
        let line = match beside {
            Some(other) => {
                self.say(life, &format!("alloc {len} in the pool of {}", b(other)));
                format!("alloc-beside {} {len}", self.model.buffers[other].id)
            }
            None => {
                self.say(life, &format!("alloc {} {len}", memory(kind)));
                format!("alloc {} {len}", memory(kind))
            }
        };
        let answer = self.ok(life, &line)?;
        let mut words = answer.split(' ').map_while(|word| word.parse().ok());
        let (Some(id), Some(address)) = (words.next(), words.next()) else {
            return deviation("a number and an address", answer);
        };
        let Ok(id) = u32::try_from(id) else {
            return deviation("a number", answer);
        };
        self.result(&format!(" -> {}", b(number)));
        self.model.buffers.push(Buffer {
            life,
            kind,
            id,
            address,
            len,
            at,
            pool: beside.map_or(number, |other| self.model.buffers[other].pool),
            is_freed: false,
            bytes: Vec::new(),
        });
        // New memory may hold anything.
        self.put(number, 1000 + number as u64)
    }

    fn write(&mut self, buffer: usize, seed: u64) -> Done {
        let life = self.model.buffers[buffer].life;
        self.say(life, &format!("write {} with {seed}", b(buffer)));
        self.put(buffer, seed)
    }

    fn put(&mut self, buffer: usize, seed: u64) -> Done {
        let Buffer { life, id, at, .. } = self.model.buffers[buffer];
        self.ok(life, &format!("put buffer {id} {at} {REGION} {seed}"))?;
        self.model.buffers[buffer].bytes = pattern(seed, REGION);
        Ok(())
    }

    fn export(
        &mut self,
        buffer: usize,
        (start, len): (usize, usize),
        asked: &[HandleType],
        on_demand: bool,
    ) -> Done {
        let start = start % REGION;
        let len = 1 + len % (REGION - start);
        let Buffer { life, id, at, .. } = self.model.buffers[buffer];
        let from = at + start;
        let options = words(asked) + if on_demand { " on-demand" } else { "" };
        let window = format!("[{from}..{})", from + len);
        self.say(life, &format!("export {} {window}{options}", b(buffer)));
        let answer = self.ask(life, &format!("export {id} {from} {len}{options}"));
        self.model.lives[life].has_ipc = true;
        let types = self.model.types_of(buffer, asked);
        if types.is_empty() {
            return match answer.split(' ').nth(1) {
                Some("NOT_EXPORTABLE") => Ok(()),
                _ => deviation("NOT_EXPORTABLE", answer),
            };
        }
        let found = answer.strip_prefix("ok ").and_then(|rest| {
            let (id, hex) = rest.split_once(' ')?;
            let handles: Vec<GpuIpcMemHandle> = hex.split(',').map(handle_of).collect();
            Some((id.parse().ok()?, handles))
        });
        let Some((id, handles)) = found else {
            return deviation("an offer", answer);
        };
        let number = self.model.exports.len();
        self.result(&format!(" -> O{}", number + 1));
        let offerings = self.model.offer(buffer, (start, len), asked);
        let pieces = offerings.len();
        self.model.exports.push(Export {
            id,
            buffer,
            start,
            len,
            types,
            offerings,
            is_dropped: false,
            handles,
        });
        let export = &self.model.exports[number];
        let has: Vec<&str> = export.handles[0]
            .types()
            .types()
            .iter()
            .map(|has| has.name())
            .collect();
        let wanted: Vec<&str> = HandleType::ALL
            .iter()
            .filter(|wanted| export.types.contains(wanted))
            .map(|wanted| wanted.name())
            .collect();
        if (export.handles.len(), &has) != (pieces, &wanted) {
            let came = format!("{} handles with {has:?}", export.handles.len());
            return deviation(format!("{pieces} handles with {wanted:?}"), came);
        }
        Ok(())
    }

    fn import(&mut self, seat: usize, export: usize, options: &Options) -> Done {
        let life = self.model.seats[seat];
        let there = |mapping: &&Mapping| mapping.life == life && !mapping.is_dropped;
        if self.model.mappings.iter().filter(there).count() >= MOST_MAPPINGS {
            return Ok(());
        }
        let mut asked = words(&options.types);
        asked.push_str(if options.live { " live" } else { "" });
        asked.push_str(if options.read_only { " read-only" } else { "" });
        self.say(life, &format!("import O{}{asked}", export + 1));
        let expected = self.model.import(life, export, options);
        let handles = self.model.exports[export].handles.iter();
        let hex: Vec<String> = handles.map(|handle| to_hex(&handle.encode())).collect();
        let answer = self.ask(life, &format!("import {}{asked}", hex.join(",")));
        self.model.lives[life].has_ipc = true;
        self.ground.counts.imports += 1;
        let (seen, used) = match expected {
            Expected::Refused(told) => {
                self.ground.counts.refused += 1;
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

    /// Compares what an import gave, and notes it.
    fn mapped(
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
        let wanted = format!("mapped by {used}, {liveness}, {len} bytes");
        let all: Vec<&str> = answer.split(' ').collect();
        let ["ok", id, ptr, by, says, bytes, _] = all.as_slice() else {
            return deviation(wanted, answer);
        };
        let (Ok(id), Ok(ptr)) = (id.parse(), ptr.parse::<u64>()) else {
            return deviation(wanted, answer);
        };
        let came = format!("mapped by {by}, {says}, {bytes} bytes");
        if came != wanted {
            return deviation(wanted, came);
        }
        let piece = match self.model.buffers[buffer].kind {
            Kind::Segments => at / PIECE * PIECE,
            _ => 0,
        };
        let base = ptr - (at - piece) as u64;
        let others = self.model.mappings.iter();
        let shared = others
            .filter(|other| !other.is_dropped && seen != Seen::Own && other.seen == seen)
            .map(|other| other.base);
        let own = self.model.buffers[buffer].address + piece as u64;
        let known = shared.last().or((seen == Seen::Own).then_some(own));
        if known.is_some_and(|known| known != base) {
            return deviation(format!("the allocation at {known:x?}"), format!("{base:x}"));
        }
        let number = self.model.mappings.len();
        self.result(&format!(" -> M{} by {used}", number + 1));
        if let Seen::By(mapped) = seen {
            self.model.mapped[mapped].uses += 1;
        }
        self.model.mappings.push(Mapping {
            life,
            id,
            export,
            seen,
            base,
            is_dropped: false,
        });
        if self.model.is_promised(number) {
            self.compare(number)?;
        }
        Ok(())
    }

    fn read(&mut self, mapping: usize) -> Done {
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
        self.same(life, &format!("mapping {id} 0"), &bytes)
            .map_err(|different| in_what(different, &m(mapping)))
    }

    /// Reads the region of a buffer.
    pub(crate) fn compare_buffer(&mut self, buffer: usize) -> Done {
        let Buffer { life, id, at, .. } = self.model.buffers[buffer];
        let bytes = self.model.buffers[buffer].bytes.clone();
        self.same(life, &format!("buffer {id} {at}"), &bytes)
            .map_err(|different| in_what(different, &b(buffer)))
    }

    fn same(&mut self, life: usize, what: &str, bytes: &[u8]) -> Done {
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

    fn write_through(&mut self, mapping: usize, seed: u64) -> Done {
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
        let answer = self.ask(life, &format!("put mapping {id} 0 {len} {seed}"));
        if !self.model.may_write(mapping) {
            return if answer.starts_with("err DRIVER_CALL ") {
                Ok(())
            } else {
                deviation("DRIVER_CALL, since it is for reading only", answer)
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

    pub(crate) fn drop_mapping(&mut self, mapping: usize) -> Done {
        let Mapping { life, id, .. } = self.model.mappings[mapping];
        self.say(life, &format!("drop {}", m(mapping)));
        self.ok(life, &format!("drop mapping {id}"))?;
        self.model.drop_mapping(mapping);
        Ok(())
    }

    pub(crate) fn drop_offer(&mut self, export: usize) -> Done {
        let life = self.model.life_of_export(export);
        self.say(life, &format!("drop O{}", export + 1));
        self.ok(
            life,
            &format!("drop offer {}", self.model.exports[export].id),
        )?;
        self.model.drop_export(export);
        Ok(())
    }

    pub(crate) fn free(&mut self, buffer: usize) -> Done {
        let Buffer { life, id, .. } = self.model.buffers[buffer];
        self.say(life, &format!("free {}", b(buffer)));
        self.ok(life, &format!("free {id}"))?;
        self.model.buffers[buffer].is_freed = true;
        Ok(())
    }

    pub(crate) fn drop_ipc(&mut self, seat: usize) -> Done {
        let life = self.model.seats[seat];
        self.say(life, "drop its Ipc");
        self.ok(life, "drop-ipc")?;
        self.model.drop_ipc(life);
        Ok(())
    }

    fn close_idle(&mut self, seat: usize) -> Done {
        let life = self.model.seats[seat];
        self.say(life, "close idle connections");
        self.ok(life, "close-idle")?;
        self.model.lives[life].has_ipc = true;
        Ok(())
    }

    /// A child that tries everything and ends, or one that only stays.
    fn fork(&mut self, seat: usize, stays: bool) -> Done {
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

    fn kill(&mut self, seat: usize) -> Done {
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

/// The index of the nth newest of so many.
fn newest(count: usize, nth: usize) -> Option<usize> {
    Some(count.checked_sub(1)? - nth % count)
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| pattern_byte(seed, at)).collect()
}

fn in_what(deviation: Deviation, what: &str) -> Deviation {
    Deviation {
        expected: format!("in {what}, {}", deviation.expected),
        ..deviation
    }
}

/// `types=` as an option of the peer, if there are some.
fn words(types: &[HandleType]) -> String {
    let names: Vec<&str> = types.iter().map(|handle_type| handle_type.name()).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" types={}", names.join(","))
    }
}

fn b(buffer: usize) -> String {
    format!("B{}", buffer + 1)
}

fn m(mapping: usize) -> String {
    format!("M{}", mapping + 1)
}
