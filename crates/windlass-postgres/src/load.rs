//! The load of experiments: sessions that run transactions of five types until they are stopped.
//!
//!   fill --> tables of the laboratory --> Load::start --> sessions, a thread each --> counts
//!
//! | type | weight | what it does |
//! |---|---|---|
//! | order | heavy | changes five items of stock, and inserts an order |
//! | payment | heavy | changes an account and a branch, and inserts into the history |
//! | touch | light | changes one account |
//! | note | light | inserts into the history |
//! | look | none | reads 200 items of stock |
//!
//! Invariants
//! - The draws are seeded, so each session asks the same of the server every time.
//! - A statement that fails ends the load with the server's words; only deadlocks are tried again.

mod draw;
mod tables;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use postgres::error::SqlState;
use windlass_media::saturated;

use crate::error::{PostgresError, SqlContext};
use crate::own_cluster::{OwnCluster, OwnSession};
use draw::Draw;

pub use tables::{LoadTables, PAGES_OF_SCALE};

/// The number of types.
const TYPES: usize = Transaction::ALL.len();

/// A type of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// Changes five items of stock, and inserts an order.
    Order,
    /// Changes an account and a branch, and inserts into the history.
    Payment,
    /// Changes one account.
    Touch,
    /// Inserts into the history.
    Note,
    /// Reads 200 items of stock.
    Look,
}

impl Transaction {
    /// Every type.
    pub const ALL: [Self; 5] = [
        Self::Order,
        Self::Payment,
        Self::Touch,
        Self::Note,
        Self::Look,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Payment => "payment",
            Self::Touch => "touch",
            Self::Note => "note",
            Self::Look => "look",
        }
    }

    /// Its share of all transactions, in percent.
    fn share(self) -> u64 {
        match self {
            Self::Order | Self::Payment => 30,
            Self::Touch | Self::Note => 10,
            Self::Look => 20,
        }
    }
}

/// How many transactions of each type there were, and how long they took together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadCounts {
    counts: [u64; TYPES],
    nanos: [u64; TYPES],
}

impl LoadCounts {
    /// All transactions.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The mean time of a type in seconds, if there was one of it.
    pub fn mean_seconds(&self, of: Transaction) -> Option<f64> {
        let (count, nanos) = (self.counts[of as usize], self.nanos[of as usize]);
        #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
        let mean = nanos as f64 / 1e9 / count as f64;
        (count > 0).then_some(mean)
    }

    /// What came after `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = |one: &[u64; TYPES], other: &[u64; TYPES]| {
            std::array::from_fn(|index| one[index].saturating_sub(other[index]))
        };
        Self {
            counts: less(&self.counts, &before.counts),
            nanos: less(&self.nanos, &before.nanos),
        }
    }
}

/// What all sessions share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    counts: [AtomicU64; TYPES],
    nanos: [AtomicU64; TYPES],
    failed: Mutex<Option<PostgresError>>,
}

/// A running load; stopped when dropped.
pub struct Load {
    shared: Arc<Shared>,
    sessions: Vec<JoinHandle<()>>,
}

impl Load {
    /// Opens so many sessions and lets them work.
    pub fn start(
        cluster: &OwnCluster,
        tables: LoadTables,
        clients: usize,
    ) -> Result<Self, PostgresError> {
        Self::drawn(cluster, clients, |client| Draw::new(tables, client))
    }

    /// Opens so many sessions that do nothing but insert the time into the table `instant`.
    pub fn start_instants(cluster: &OwnCluster, clients: usize) -> Result<Self, PostgresError> {
        Self::drawn(cluster, clients, |_| Draw::instants())
    }

    fn drawn(
        cluster: &OwnCluster,
        clients: usize,
        draw: impl Fn(u64) -> Draw,
    ) -> Result<Self, PostgresError> {
        let shared = Arc::<Shared>::default();
        let mut load = Self {
            shared,
            sessions: Vec::new(),
        };
        for client in 0..clients {
            let session = OwnSession::at(cluster.socket())?;
            let shared = Arc::clone(&load.shared);
            let draw = draw(client as u64);
            let work = move || work(session, draw, &shared);
            load.sessions.push(std::thread::spawn(work));
        }
        Ok(load)
    }

    /// What was done so far.
    pub fn counts(&self) -> LoadCounts {
        let read = |of: &[AtomicU64; TYPES]| {
            std::array::from_fn(|index| of[index].load(Ordering::Relaxed))
        };
        LoadCounts {
            counts: read(&self.shared.counts),
            nanos: read(&self.shared.nanos),
        }
    }

    /// Fails if a session has failed.
    pub fn check(&self) -> Result<(), PostgresError> {
        let failed = &self.shared.failed;
        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take().map_or(Ok(()), Err)
    }

    /// Ends all sessions. Fails if one has failed.
    pub fn stop(mut self) -> Result<LoadCounts, PostgresError> {
        self.end();
        self.check()?;
        Ok(self.counts())
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for session in self.sessions.drain(..) {
            session.join().expect("a session of the load panicked");
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

fn work(mut session: OwnSession, mut draw: Draw, shared: &Shared) {
    while !shared.stop.load(Ordering::Relaxed) {
        let (kind, sql) = draw.transaction();
        let begun = Instant::now();
        match session.try_run(&sql) {
            Ok(()) => {
                let nanos: u64 = saturated(begun.elapsed().as_nanos());
                shared.nanos[kind as usize].fetch_add(nanos, Ordering::Relaxed);
                shared.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED) => {
                if let Err(error) = session.run("ROLLBACK") {
                    return fail(shared, error);
                }
            }
            Err(error) => {
                let failed = Err(error).doing("run a transaction of the load");
                return failed.unwrap_or_else(|error| fail(shared, error));
            }
        }
    }
}

fn fail(shared: &Shared, error: PostgresError) {
    let mut failed = shared.failed.lock().unwrap_or_else(PoisonError::into_inner);
    failed.get_or_insert(error);
}
