//! Bytes of a stripe that wait until they are a part.
//!
//!   transfer, well filled ------------------------> [piece][piece] --part--> upload
//!   transfer, badly filled --> [filling] --full-----^
//!
//! A transfer that fills its buffer well becomes a piece without being copied. One that does not
//! stays a buffer, and what comes next fills it.
//!
//! Invariants
//! - Bytes stay in order.
//! - Each buffer that waits here is three quarters full, except the last one. So no more of the
//!   pool is held than the run has planned for parts, and no memory is taken beside the pool but
//!   for blocks that never were in it.

use std::collections::VecDeque;

use bytes::Bytes;
use windlass_engine::Buffer;
use windlass_engine::media::fitted;

/// A buffer of the pool as the bytes of a request.
struct Lent(Buffer);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// What was gathered.
#[derive(Default)]
pub(crate) struct Gathered {
    pieces: VecDeque<Bytes>,
    /// The bytes of the pieces.
    bytes: u64,
    /// A buffer behind them that is not well filled yet.
    filling: Option<Buffer>,
}

impl Gathered {
    /// Adds a transfer.
    pub(crate) fn add(&mut self, mut buffer: Buffer) {
        if let Some(filling) = &mut self.filling {
            let moved = fill(filling, &buffer);
            let left = buffer.len() - moved;
            buffer.copy_within(moved.., 0);
            buffer.set_len(left);
        }
        if self.filling.as_ref().is_some_and(is_well_filled) {
            self.close();
        }
        // If some of it is left, the buffer before it is full.
        match buffer.is_empty() {
            true => {}
            false if is_well_filled(&buffer) => self.push(Bytes::from_owner(Lent(buffer))),
            false => self.filling = Some(buffer),
        }
    }

    /// Adds a block that is in no buffer.
    pub(crate) fn append(&mut self, block: &[u8]) {
        let filled = match &mut self.filling {
            Some(filling) => fill(filling, block),
            None => 0,
        };
        if self.filling.as_ref().is_some_and(is_well_filled) {
            self.close();
        }
        if filled < block.len() {
            self.push(Bytes::copy_from_slice(&block[filled..]));
        }
    }

    /// Adds nothing to the last buffer any more.
    pub(crate) fn close(&mut self) {
        if let Some(buffer) = self.filling.take() {
            self.push(Bytes::from_owner(Lent(buffer)));
        }
    }

    /// How many bytes can be taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes so many bytes from the front, or as many as there are.
    pub(crate) fn take(&mut self, bytes: u64) -> Vec<Bytes> {
        let mut left = bytes.min(self.bytes);
        self.bytes -= left;
        let mut part = Vec::new();
        while left > 0 {
            let Some(mut first) = self.pieces.pop_front() else {
                break;
            };
            if first.len() as u64 > left {
                part.push(first.split_to(fitted(left)));
                self.pieces.push_front(first);
                break;
            }
            left -= first.len() as u64;
            part.push(first);
        }
        part
    }

    fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len() as u64;
        self.pieces.push_back(piece);
    }
}

/// Copies bytes behind those of a buffer, as far as there is room. Returns how many.
fn fill(buffer: &mut Buffer, bytes: &[u8]) -> usize {
    let from = buffer.len();
    let count = bytes.len().min(buffer.capacity() - from);
    buffer.space()[from..from + count].copy_from_slice(&bytes[..count]);
    buffer.set_len(from + count);
    count
}

/// A buffer that is mostly empty would keep the pool from those that fill theirs.
fn is_well_filled(buffer: &Buffer) -> bool {
    buffer.len() >= buffer.capacity() / 4 * 3
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_engine::{Pool, Role};

    use super::*;

    /// Bytes of a buffer.
    const BUFFER: usize = 4096;
    /// Bytes of a part, which ends within a buffer.
    const PART: u64 = 10 * 4096 + 77;
    /// How many parts are on their way.
    const IN_FLIGHT: usize = 4;

    /// The next bytes of a sequence in which none are like others near them.
    fn content(from: u64, bytes: usize) -> Vec<u8> {
        let numbers = from..from + bytes as u64;
        let byte = |at: u64| at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()[0];
        numbers.map(byte).collect()
    }

    fn transfer(pool: &Arc<Pool>, from: u64, bytes: usize) -> Buffer {
        let mut buffer = pool.try_take(Role::Output).unwrap();
        buffer.space()[..bytes].copy_from_slice(&content(from, bytes));
        buffer.set_len(bytes);
        buffer
    }

    /// Gathers transfers of these lengths, over and over, with a block now and then.
    fn gather(lengths: &[usize], has_blocks: bool) {
        // Each part has this many buffers if they are three quarters full.
        let planned = (PART * (IN_FLIGHT as u64 + 1)).div_ceil(BUFFER as u64 / 4 * 3);
        let pool = Pool::new(1000, 1, BUFFER).unwrap();
        let mut gathered = Gathered::default();
        let (mut parts, mut sent) = (VecDeque::new(), 0);
        let mut added = 0;
        let mut check = |part: &[Bytes]| {
            for piece in part {
                assert!(piece[..] == content(sent, piece.len())[..], "at {sent}");
                sent += piece.len() as u64;
            }
        };
        for (number, length) in lengths.iter().cycle().take(2000).enumerate() {
            if has_blocks && number % 300 == 5 {
                gathered.append(&content(added, 2 * BUFFER));
                added += 2 * BUFFER as u64;
            }
            gathered.add(transfer(&pool, added, *length));
            added += *length as u64;
            while gathered.bytes() >= PART {
                let part = gathered.take(PART);
                check(&part);
                parts.push_back(part);
                if parts.len() > IN_FLIGHT {
                    parts.pop_front();
                }
            }
            let held = (pool.count() - pool.occupancy().free) as u64;
            assert!(held <= planned + 2, "{held} of {planned}: {lengths:?}");
            // Nothing of it is anywhere else.
            let waiting = parts.len() as u64 * PART + gathered.bytes();
            assert!(
                has_blocks || waiting <= held * BUFFER as u64,
                "{waiting} in {held}: {lengths:?}"
            );
        }
        gathered.close();
        let rest = gathered.take(u64::MAX);
        check(&rest);
        assert_eq!((sent, gathered.bytes()), (added, 0));
        drop((parts, rest));
        assert_eq!(pool.occupancy().free, pool.count());
    }

    #[test]
    fn transfers_of_any_lengths_hold_no_more_of_the_pool_than_parts_have() {
        for has_blocks in [false, true] {
            gather(&[BUFFER], has_blocks);
            gather(&[BUFFER / 4 * 3], has_blocks);
            gather(&[BUFFER / 4 * 3 - 1], has_blocks);
            gather(&[1, BUFFER, 2], has_blocks);
            gather(&[17], has_blocks);
            let all = [2049, 100, 4096, 3000, 3071, 3072, 1, 1, 1, 4000, 2500];
            gather(&all, has_blocks);
        }
    }

    #[test]
    fn a_transfer_that_fills_its_buffer_is_not_copied() {
        let pool = Pool::new(4, 1, BUFFER).unwrap();
        let mut gathered = Gathered::default();
        let buffer = transfer(&pool, 0, BUFFER);
        let at = buffer.as_ptr();
        gathered.add(buffer);
        let part = gathered.take(PART);
        assert_eq!((part.len(), part[0].as_ptr()), (1, at));
    }
}
