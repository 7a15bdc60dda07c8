//! Models of the three stages and what each does with the pool; all else about them is left out.

use std::sync::Arc;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::buffer::{Buffer, Pool, Role};
use crate::each_schedule;
use crate::queue::Queue;

const BUFFER_BYTES: usize = 4096;

/// How many there are of each, within the limits of a run's plan.
#[derive(Clone, Copy)]
struct Shape {
    buffers: usize,
    readers: usize,
    compressors: usize,
    writers: usize,
    units: usize,
    /// Whether a full buffer is turned into another one, or goes to a device as it is.
    compress: bool,
}

impl Shape {
    fn draw() -> Self {
        let mut random = thread_rng();
        let buffers = random.gen_range(2..7);
        Self {
            buffers,
            readers: random.gen_range(1..3),
            compressors: random.gen_range(1..=buffers / 2),
            writers: random.gen_range(1..3),
            units: random.gen_range(1..9),
            compress: random.gen_bool(0.8),
        }
    }

    fn pool(&self) -> Arc<Pool> {
        let outputs = if self.compress { self.compressors } else { 0 };
        Pool::new(self.buffers, outputs, BUFFER_BYTES).unwrap()
    }
}

/// A reader. It has several reads in flight, and while it has any, it does not wait for another
/// buffer.
fn read(pool: &Arc<Pool>, full: &Queue<Buffer>, units: usize) {
    let mut flying: Vec<Buffer> = Vec::new();
    for _ in 0..units {
        let mut buffer = pool.try_take(Role::Input);
        while buffer.is_none() && !flying.is_empty() {
            full.send(flying.remove(0));
            buffer = pool.try_take(Role::Input);
        }
        let Some(buffer) = buffer.or_else(|| pool.take(Role::Input)) else {
            break;
        };
        flying.push(buffer);
    }
    flying.into_iter().for_each(|buffer| full.send(buffer));
    full.done();
}

/// A compressor. It keeps an output that is not full yet, even while it waits for input.
fn compress(pool: &Arc<Pool>, full: &Queue<Buffer>, chunks: &Queue<Buffer>, shape: Shape) {
    let mut output: Option<Buffer> = None;
    while let Some(input) = full.receive() {
        if !shape.compress {
            chunks.send(input);
            continue;
        }
        if output.is_none() {
            output = pool
                .try_take(Role::Output)
                .or_else(|| pool.take(Role::Output));
        }
        if output.is_none() {
            break;
        }
        drop(input);
        if thread_rng().gen_bool(0.5) {
            output
                .take()
                .into_iter()
                .for_each(|chunk| chunks.send(chunk));
        }
    }
    output.into_iter().for_each(|chunk| chunks.send(chunk));
    chunks.done();
}

/// A writer. It gives back each buffer that it has written.
fn write(chunks: &Queue<Buffer>) {
    while let Some(chunk) = chunks.receive() {
        drop(chunk);
    }
}

/// Runs the three stages of a backup to their end. `failure` runs at the same time.
fn run(shape: Shape, pool: &Arc<Pool>, failure: impl FnOnce(&Queue<Buffer>, &Queue<Buffer>)) {
    let full = Queue::new(shape.readers);
    let chunks = Queue::new(shape.compressors);
    let mut threads = Vec::new();
    for _ in 0..shape.readers {
        let (pool, full) = (Arc::clone(pool), full.clone());
        threads.push(thread::spawn(move || read(&pool, &full, shape.units)));
    }
    for _ in 0..shape.compressors {
        let (pool, full, chunks) = (Arc::clone(pool), full.clone(), chunks.clone());
        threads.push(thread::spawn(move || {
            compress(&pool, &full, &chunks, shape)
        }));
    }
    for _ in 0..shape.writers {
        let chunks = chunks.clone();
        threads.push(thread::spawn(move || write(&chunks)));
    }
    failure(&full, &chunks);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

fn assert_all_are_back(pool: &Arc<Pool>, inputs_max: usize) {
    let mut held: Vec<Buffer> = Vec::new();
    held.extend(std::iter::from_fn(|| pool.try_take(Role::Input)));
    assert_eq!(held.len(), inputs_max, "as many inputs as at the start");
    held.extend(std::iter::from_fn(|| pool.try_take(Role::Output)));
    assert_eq!(held.len(), pool.count(), "each buffer is back, once");
}

#[test]
fn a_run_ends_and_each_buffer_is_back() {
    each_schedule(|| {
        let shape = Shape::draw();
        let pool = shape.pool();
        run(shape, &pool, |_, _| ());
        assert_all_are_back(&pool, pool.inputs_max());
    });
}

/// A pool that shrinks must not give up the last buffer that a compressor could have.
#[test]
fn a_run_ends_while_its_pool_grows_and_shrinks() {
    each_schedule(|| {
        let shape = Shape::draw();
        let outputs = if shape.compress { shape.compressors } else { 0 };
        let (count, most) = (shape.buffers, 3 * shape.buffers);
        let pool = Pool::growing(count, most, outputs, BUFFER_BYTES).unwrap();
        run(shape, &pool, |_, _| {
            for _ in 0..4 {
                let wanted = thread_rng().gen_range(1..=most + 1);
                let is = pool.resize(wanted);
                assert!(is <= most && is <= pool.count());
            }
        });
        assert_eq!(pool.resize(count), count);
        assert_all_are_back(&pool, pool.inputs_max());
        assert_eq!(pool.count(), count);
    });
}

#[test]
fn a_run_that_fails_ends_wherever_its_threads_wait() {
    each_schedule(|| {
        let shape = Shape::draw();
        let pool = shape.pool();
        run(shape, &pool, |full, chunks| {
            pool.close();
            full.stop();
            chunks.stop();
        });
        assert!(pool.try_take(Role::Output).is_none(), "closed for good");
    });
}

/// The first pool kept buffers free for compressors instead of counting inputs. When every output
/// was half full, its readers starved (docs/decisions/0005). So readers must never wait for more
/// buffers than the other stages give back.
#[test]
fn readers_go_on_while_every_compressor_holds_an_output() {
    each_schedule(|| {
        let shape = Shape::draw();
        let pool = Pool::new(shape.buffers, shape.compressors, BUFFER_BYTES).unwrap();
        let held: Vec<_> = (0..shape.compressors)
            .map(|_| pool.take(Role::Output).unwrap())
            .collect();
        let readers: Vec<_> = (0..=shape.readers)
            .map(|_| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || {
                    (0..shape.units).for_each(|_| drop(pool.take(Role::Input).unwrap()));
                })
            })
            .collect();
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
        drop(held);
        assert_all_are_back(&pool, pool.inputs_max());
    });
}
