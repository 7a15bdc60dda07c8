//! Reads ahead of programs that read in sequence, so that all cores decode frames.
//!
//! The kernel reads ahead, too: by 128 KiB, about one frame, in an ordinary user's mount, and by
//! more in root's (`kernel_ahead`).
//!
//! Invariants
//! - The number of streams and the distance ahead are limited. If the queue is full, the next
//!   request is dropped.
//! - A wrong guess wastes some decoding. It never changes an answer.
//! - If there are as many streams as cores, each stream has its own core, and decoding ahead would
//!   only move frames from one core to another. So it stops; asking the system to read goes on.
//! - A frame that its reader has asked for in the meantime is not decoded ahead any more, because
//!   the reader decodes it itself and it would be decoded twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use windlass_image::{NodeNo, View};

use crate::counters::Counters;

/// How far to read ahead of a stream.
const AHEAD_BYTES: u64 = 1024 * 1024;
/// One thread reads so much at a time: about one frame.
const PIECE_BYTES: u64 = 128 * 1024;
/// How many streams are followed at once. A new one replaces the one whose last read is oldest.
const STREAMS_MAX: usize = 16;
/// How far a read may lie from the expected place and still belong to the stream: requests of the
/// kernel overtake each other.
const REACH_BYTES: u64 = 512 * 1024;
/// How many reads in sequence make a stream.
const READS_MIN: u32 = 3;
/// If this many other reads pass without a read of a stream, the stream has ended or its reader is
/// busy with something else.
const RECENT_READS: u64 = 16;

/// Reads ahead of the readers, with threads of its own.
pub(crate) struct ReadAhead {
    view: Arc<dyn View>,
    queue: Option<Sender<Piece>>,
    streams: Arc<Mutex<Streams>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    stream: u64,
    node: NodeNo,
    offset: u64,
}

#[derive(Debug)]
struct Stream {
    /// Unique: no other stream ever has the same.
    id: u64,
    node: NodeNo,
    /// Where the next read is expected.
    next: u64,
    /// Pieces have been ordered up to here.
    ahead: u64,
    reads: u32,
    /// When the stream was last read, on a clock that counts reads.
    used: u64,
}

#[derive(Debug, Default)]
struct Streams {
    streams: Vec<Stream>,
    clock: u64,
}

impl ReadAhead {
    /// Starts `threads` threads.
    pub(crate) fn start(
        view: &Arc<dyn View>,
        threads: usize,
        counters: &Arc<Counters>,
    ) -> std::io::Result<Self> {
        let (queue, pieces) = bounded::<Piece>(STREAMS_MAX * 4);
        let streams = Arc::<Mutex<Streams>>::default();
        let start = |index| {
            let (view, pieces, counters) = (Arc::clone(view), pieces.clone(), Arc::clone(counters));
            let streams = Arc::clone(&streams);
            std::thread::Builder::new()
                .name(format!("read-ahead-{index}"))
                .spawn(move || work(&*view, &pieces, &streams, &counters))
        };
        let threads = (0..threads).map(start).collect::<Result<_, _>>()?;
        Ok(Self {
            view: Arc::clone(view),
            queue: Some(queue),
            streams,
            threads,
        })
    }

    /// Takes note of a read, and orders what its stream will want next.
    pub(crate) fn note(&self, node: NodeNo, offset: u64, bytes: u64) {
        if let Some(next) = self.order(node, offset, bytes) {
            self.view.will_need(node, next);
        }
    }

    /// A file was closed, so nobody continues to read it.
    pub(crate) fn forget(&self, node: NodeNo) {
        lock(&self.streams).forget(node);
    }

    /// Orders what the stream will want. Returns where its next read is expected.
    fn order(&self, node: NodeNo, offset: u64, bytes: u64) -> Option<u64> {
        let mut streams = lock(&self.streams);
        let has_free_core = streams.recent() < self.threads.len();
        let stream = streams.follow(node, offset, bytes)?;
        if !has_free_core {
            return Some(stream.next);
        }
        let until = stream.next + AHEAD_BYTES;
        let mut at = stream.ahead.max(stream.next).next_multiple_of(PIECE_BYTES);
        while at < until {
            let queue = self.queue.as_ref();
            let piece = Piece {
                stream: stream.id,
                node,
                offset: at,
            };
            let sent = queue.is_some_and(|queue| queue.try_send(piece).is_ok());
            if !sent {
                break;
            }
            at += PIECE_BYTES;
        }
        stream.ahead = at;
        Some(stream.next)
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended as well.
            thread.join().unwrap_or_default();
        }
    }
}

fn lock(streams: &Mutex<Streams>) -> MutexGuard<'_, Streams> {
    streams.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(view: &dyn View, pieces: &Receiver<Piece>, streams: &Mutex<Streams>, counters: &Counters) {
    for piece in pieces {
        if !lock(streams).awaits(&piece) {
            continue;
        }
        counters.read_ahead.add(1);
        view.prefetch(piece.node, piece.offset, PIECE_BYTES);
    }
}

impl Streams {
    /// True while the stream of this piece is followed and has not reached the piece yet.
    fn awaits(&self, piece: &Piece) -> bool {
        let stream = self.streams.iter().find(|stream| stream.id == piece.stream);
        stream.is_some_and(|stream| stream.next <= piece.offset)
    }

    fn forget(&mut self, node: NodeNo) {
        self.streams.retain(|stream| stream.node != node);
    }

    /// How many streams are being read at present.
    fn recent(&self) -> usize {
        let is_recent =
            |stream: &&Stream| stream.reads >= READS_MIN && self.clock - stream.used < RECENT_READS;
        self.streams.iter().filter(is_recent).count()
    }

    /// The stream that a read belongs to, once the stream is long enough.
    fn follow(&mut self, node: NodeNo, offset: u64, bytes: u64) -> Option<&mut Stream> {
        self.clock += 1;
        let used = self.clock;
        let end = offset + bytes;
        let near =
            |stream: &Stream| stream.node == node && stream.next.abs_diff(offset) <= REACH_BYTES;
        let known = self.streams.iter().position(near);
        let at = known.unwrap_or_else(|| self.room());
        let Some(_) = known else {
            // A program that reads the beginning of a file in one large piece wants the rest, too.
            let reads = if offset == 0 && bytes >= PIECE_BYTES / 2 {
                READS_MIN - 1
            } else {
                1
            };
            let ahead = 0;
            let stream = Stream {
                id: used,
                node,
                next: end,
                ahead,
                reads,
                used,
            };
            match self.streams.get_mut(at) {
                Some(old) => *old = stream,
                None => self.streams.push(stream),
            }
            return None;
        };
        let stream = &mut self.streams[at];
        stream.used = used;
        // Reading the same bytes again is no progress.
        if end <= stream.next {
            return None;
        }
        stream.next = end;
        stream.reads = stream.reads.saturating_add(1);
        (stream.reads >= READS_MIN).then_some(stream)
    }

    /// The place for a new stream.
    fn room(&self) -> usize {
        if self.streams.len() < STREAMS_MAX {
            return self.streams.len();
        }
        let oldest = self
            .streams
            .iter()
            .enumerate()
            .min_by_key(|(_, stream)| stream.used);
        oldest.map_or(0, |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_in_sequence_become_a_stream_and_reads_apart_do_not() {
        let mut streams = Streams::default();
        let node = NodeNo(7);
        for index in 0..2 {
            assert!(streams.follow(node, index * 8192, 8192).is_none());
        }
        assert!(streams.follow(node, 2 * 8192, 8192).is_some());
        for index in 1..100 {
            assert!(
                streams
                    .follow(NodeNo(8), index * (100 << 20), 8192)
                    .is_none()
            );
        }
        assert_eq!(streams.streams.len(), STREAMS_MAX);
    }

    #[test]
    fn what_a_reader_has_asked_for_is_not_read_ahead() {
        let mut streams = Streams::default();
        let node = NodeNo(7);
        for index in 0..3 {
            streams.follow(node, index * 8192, 8192);
        }
        let piece = |stream, offset| Piece {
            stream,
            node,
            offset,
        };
        let id = streams.streams[0].id;
        assert!(!streams.awaits(&piece(id, 0)));
        assert!(!streams.awaits(&piece(id, 2 * 8192)));
        assert!(streams.awaits(&piece(id, 3 * 8192)));
        assert!(!streams.awaits(&piece(id + 1, 3 * 8192)));
    }

    #[test]
    fn a_stream_counts_until_it_is_closed_or_left_alone() {
        let mut streams = Streams::default();
        let nodes = [NodeNo(7), NodeNo(8), NodeNo(9)];
        let mut offset = 0;
        let mut read = |streams: &mut Streams, nodes: &[NodeNo]| {
            for node in nodes {
                streams.follow(*node, offset, 8192);
            }
            offset += 8192;
        };
        read(&mut streams, &nodes);
        assert_eq!(streams.recent(), 0);
        for _ in 0..10 {
            read(&mut streams, &nodes);
        }
        assert_eq!(streams.recent(), 3);
        streams.forget(nodes[2]);
        assert_eq!(streams.recent(), 2);
        for _ in 0..RECENT_READS {
            read(&mut streams, &nodes[..1]);
        }
        assert_eq!(streams.recent(), 1);
    }

    #[test]
    fn the_beginning_of_a_file_taken_at_once_is_followed_soon() {
        let mut streams = Streams::default();
        assert!(streams.follow(NodeNo(7), 0, 131_072).is_none());
        assert!(streams.follow(NodeNo(7), 131_072, 131_072).is_some());
    }

    #[test]
    fn two_streams_of_one_file_are_told_apart() {
        let mut streams = Streams::default();
        let node = NodeNo(7);
        let mut followed = [0, 0];
        for step in 0..50 {
            for (index, base) in [0, 500 << 20].into_iter().enumerate() {
                followed[index] +=
                    u32::from(streams.follow(node, base + step * 8192, 8192).is_some());
            }
        }
        assert_eq!(followed, [48, 48]);
    }
}
