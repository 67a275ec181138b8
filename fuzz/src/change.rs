//! Small changes that keep a format's shape: bytes stay where they are, numbers become numbers near
//! which comparisons and sums change sides. libFuzzer's own mutations mostly move everything.

/// SplitMix64: numbers that look random, the same ones for the same start.
#[derive(Clone, Copy, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next number, below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    fn edge(&mut self) -> u64 {
        let edges = [
            0,
            1,
            2,
            0x7f,
            0xff,
            0x7fff,
            0xffff,
            0x7fff_ffff,
            0xffff_ffff,
            1 << 63,
            u64::MAX - 1,
            u64::MAX,
        ];
        edges[self.below(edges.len())]
    }

    /// Changes a bit, a byte, or a number of 1, 2, 4 or 8 bytes at a place where one may lie.
    pub fn change(&mut self, bytes: &mut [u8]) {
        if bytes.is_empty() {
            return;
        }
        let at = self.below(bytes.len());
        match self.below(8) {
            0..3 => bytes[at] ^= 1 << self.below(8),
            3..5 => bytes[at] = self.number().to_le_bytes()[0],
            kind => {
                let size = 1 << self.below(4);
                let number = if kind == 5 {
                    self.edge()
                } else {
                    // Another number of these bytes, or its neighbour.
                    let other = self.below(bytes.len()) / size * size;
                    let delta = [0, 1, u64::MAX][self.below(3)];
                    read(bytes, other, size).wrapping_add(delta)
                };
                write(bytes, at / size * size, size, number);
            }
        }
    }

    /// Makes one to four changes.
    pub fn change_some(&mut self, bytes: &mut [u8]) {
        for _ in 0..=self.below(4) {
            self.change(bytes);
        }
    }
}

/// The bytes behind the end are zeros.
fn read(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut number = [0; 8];
    for (to, from) in number.iter_mut().zip(bytes[at..].iter().take(size)) {
        *to = *from;
    }
    u64::from_le_bytes(number)
}

/// Nothing is written behind the end.
fn write(bytes: &mut [u8], at: usize, size: usize, number: u64) {
    for (to, from) in bytes[at..].iter_mut().zip(&number.to_le_bytes()[..size]) {
        *to = *from;
    }
}
