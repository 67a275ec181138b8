//! What the owner of memory does: allocates, writes, exports, revokes, frees.

use crate::model::{Buffer, Export, Form, PIECE, REGION};
use crate::play::{Done, Play, b, deviation, pattern, words};
use crate::rules::memory;
use crate::step::{Kind, Registered};
use gpuipc_core::{GpuIpcMemHandle, HandleType, RegisteredMemoryRef};
use gpuipc_tests::{from_hex, handle_of};

/// Buffers of one process at a time.
const MOST_BUFFERS: usize = 5;

/// A range of a region.
const fn range(start: usize, len: usize) -> (usize, usize) {
    let start = start % REGION;
    (start, 1 + len % (REGION - start))
}

impl Play<'_> {
    pub(crate) fn alloc(&mut self, seat: usize, kind: Kind, longer: bool, second: bool) -> Done {
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
                let line = format!("alloc {} {len} {}", memory(kind), i32::from(second));
                self.say(life, &line);
                line
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
            device: match beside {
                Some(other) => self.model.buffers[other].device,
                // Host memory is no GPU's.
                None => i32::from(second && kind != Kind::HostNuma),
            },
            pool: beside.map_or(number, |other| self.model.buffers[other].pool),
            is_freed: false,
            bytes: Vec::new(),
        });
        // New memory may hold anything.
        self.put(number, 1000 + number as u64)
    }

    pub(crate) fn write(&mut self, buffer: usize, seed: u64) -> Done {
        let life = self.model.buffers[buffer].life;
        self.say(life, &format!("write {} with {seed}", b(buffer)));
        self.put(buffer, seed)
    }

    pub(crate) fn put(&mut self, buffer: usize, seed: u64) -> Done {
        let Buffer { life, id, at, .. } = self.model.buffers[buffer];
        self.ok(life, &format!("put buffer {id} {at} {REGION} {seed}"))?;
        self.model.buffers[buffer].bytes = pattern(seed, REGION);
        Ok(())
    }

    pub(crate) fn export(
        &mut self,
        buffer: usize,
        (start, len): (usize, usize),
        asked: &[HandleType],
        on_demand: bool,
    ) -> Done {
        let (start, len) = range(start, len);
        let Buffer { life, id, at, .. } = self.model.buffers[buffer];
        let from = at + start;
        let options = words(asked) + if on_demand { " on-demand" } else { "" };
        let range = format!("[{from}..{})", from + len);
        self.say(life, &format!("export {} {range}{options}", b(buffer)));
        let answer = self.ask(life, &format!("export {id} {from} {len}{options}"));
        self.model.lives[life].has_ipc = true;
        if self.model.types_of(buffer, asked).is_empty() {
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
            return deviation("an export", answer);
        };
        self.exported(buffer, (start, len), asked, (id, None, handles))
    }

    /// The same as registered memory.
    pub(crate) fn register(
        &mut self,
        buffer: usize,
        (start, len): (usize, usize),
        how: Registered,
    ) -> Done {
        let (start, len) = range(start, len);
        let Buffer {
            life, address, at, ..
        } = self.model.buffers[buffer];
        let from = at + start;
        self.say(
            life,
            &format!("register {} [{from}..{}) {how:?}", b(buffer), from + len),
        );
        let transports = match how {
            Registered::Alone => "-",
            Registered::WithTransport => "1:aa",
        };
        let ptr = address + from as u64;
        let answer = self.ask(life, &format!("register {ptr} {len} {transports}"));
        self.model.lives[life].has_ipc = true;
        let found = answer.strip_prefix("ok ").and_then(|rest| {
            let (id, hex) = rest.split_once(' ')?;
            let bytes = from_hex(hex)?;
            let handles = RegisteredMemoryRef::decode(&bytes)
                .ok()?
                .handles()
                .collect();
            let hex = hex.to_owned();
            Some((id.parse().ok()?, Some(Form { hex, transports }), handles))
        });
        match found {
            Some(found) => self.exported(buffer, (start, len), &[], found),
            None => deviation("registered memory", answer),
        }
    }

    /// Notes an export, and looks at its handles.
    fn exported(
        &mut self,
        buffer: usize,
        (start, len): (usize, usize),
        asked: &[HandleType],
        (id, registered, handles): (u32, Option<Form>, Vec<GpuIpcMemHandle>),
    ) -> Done {
        let number = self.model.exports.len();
        self.result(&format!(" -> O{}", number + 1));
        let types = self.model.types_of(buffer, asked);
        let allocation_exports = self.model.export(buffer, (start, len), asked);
        let pieces = allocation_exports.len();
        self.model.exports.push(Export {
            id,
            registered,
            buffer,
            start,
            len,
            types,
            allocation_exports,
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

    pub(crate) fn drop_export(&mut self, export: usize) -> Done {
        let life = self.model.life_of_export(export);
        self.say(life, &format!("drop O{}", export + 1));
        let Export { id, registered, .. } = &self.model.exports[export];
        let what = match registered {
            Some(_) => "registered",
            None => "export",
        };
        let line = format!("drop {what} {id}");
        self.ok(life, &line)?;
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
}
