//! The world of the models: a source of a few blocks, a store, processes that can die.

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;

use crate::hook::{
    Ahead, Busy, Cause, Fault, FileKey, FileLink, FileRecord, Found, Memory, Moved, Process,
    Reading, Snapshot, System, Waiter, claim, copy_ahead, drain, find, first_needed, grace, merge,
    needs_grave, needs_pin, pause, preserve, publish, release, resume, settle_ahead, unlink,
};
use crate::map::Slot;
use crate::store::SlotEntry;

pub const BLOCKS: u32 = 2;
pub const FILE: FileKey = FileKey {
    device: 7,
    inode: 4711,
};
const SLOTS: usize = 16;
const INDEX_RECORDS: u32 = 2;
const SNAPSHOT_AREA: usize = 32;
const SNAPSHOTS: usize = 4;
const JOURNAL_AREA: usize = 64;
/// What a freed slot holds: nobody may ever read it.
pub const FREED: u32 = u32::MAX;

pub struct World {
    words: Vec<AtomicU32>,
    pub source: Vec<AtomicU32>,
    pub store: Vec<AtomicU32>,
    /// Which slots were written, and which of them outlive a power cut.
    written: Vec<AtomicU32>,
    durable: Vec<AtomicU32>,
    /// Process numbers below this are dead if their bit is set.
    pub dead: AtomicU32,
    /// Dead threads end when this is set.
    pub over: AtomicU32,
    /// The store takes no more pages.
    pub full: AtomicU32,
    /// How long the file is, for those who make it longer.
    pub length: AtomicU32,
    /// Whether the file has its name, and whether it has one in the graveyard.
    pub name: AtomicU32,
    pub grave: AtomicU32,
    /// How often the loss of snapshots was told.
    pub told: AtomicU32,
}

/// A process of the model, or the controller.
pub struct Actor {
    pub world: Arc<World>,
    pub pid: u32,
    /// Gives a wait up after so many turns.
    pub patience: u32,
    /// Dies at this call of the system, counted from 1; 0 for never.
    pub dies_at: u32,
    calls: u32,
    page: u32,
}

impl World {
    pub fn new() -> Arc<Self> {
        let area = usize::try_from(crate::hook::AREA_BYTES_AT / 4).unwrap();
        let numbers = |count: usize| (0..count).map(|_| AtomicU32::new(0)).collect();
        let world = Self {
            words: numbers(area + SNAPSHOTS * SNAPSHOT_AREA + JOURNAL_AREA),
            source: (0..BLOCKS)
                .map(|block| AtomicU32::new(100 + block))
                .collect(),
            store: numbers(SLOTS),
            written: numbers(SLOTS),
            durable: numbers(SLOTS),
            dead: AtomicU32::new(0),
            over: AtomicU32::new(0),
            full: AtomicU32::new(0),
            told: AtomicU32::new(0),
            length: AtomicU32::new(0),
            name: AtomicU32::new(1),
            grave: AtomicU32::new(0),
        };
        world.memory().format(8192);
        Arc::new(world)
    }

    pub fn memory(&self) -> Memory<'_> {
        Memory::new(&self.words).unwrap()
    }

    /// No durable snapshot has its page of a block in a slot that a power cut would take.
    fn assert_durable(&self, block: u64) {
        let memory = self.memory();
        let each = (0..SNAPSHOTS).filter_map(|at| Snapshot::at(memory, u32::try_from(at).unwrap()));
        for number in each.filter(Snapshot::is_durable).map(|it| it.number()) {
            if let Found::Slot(slot) = find(memory, number, FILE, block) {
                let durable = self.durable[slot as usize].load(Ordering::SeqCst);
                assert_eq!(durable, 1, "block {block} of {number}");
            }
        }
    }

    /// The words for a journal.
    pub fn journal_at(&self) -> u64 {
        crate::hook::AREA_BYTES_AT / 4 + (SNAPSHOTS * SNAPSHOT_AREA) as u64
    }

    pub fn word(&self, at: u64) -> u32 {
        self.words[usize::try_from(at).unwrap()].load(Ordering::SeqCst)
    }

    pub fn set_word(&self, at: u64, value: u32) {
        self.words[usize::try_from(at).unwrap()].store(value, Ordering::SeqCst);
    }

    /// A file without a name is gone, and its inode becomes that of another file.
    fn free_if_nameless(&self) {
        let load = |name: &AtomicU32| name.load(Ordering::SeqCst);
        if load(&self.name) == 0 && load(&self.grave) == 0 {
            for page in &self.source {
                page.store(FREED, Ordering::SeqCst);
            }
        }
    }

    pub fn source_now(&self) -> Vec<u32> {
        let load = |page: &AtomicU32| page.load(Ordering::SeqCst);
        self.source.iter().map(load).collect()
    }
}

impl Actor {
    pub fn new(world: &Arc<World>, pid: u32) -> Self {
        Self {
            world: Arc::clone(world),
            pid,
            patience: u32::MAX,
            dies_at: 0,
            calls: 0,
            page: 0,
        }
    }

    /// A call of the system. A process that dies never comes back from it.
    fn calls(&mut self) {
        self.calls += 1;
        if self.calls == self.dies_at {
            self.world.dead.fetch_or(1 << self.pid, Ordering::SeqCst);
            while self.world.over.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
        }
    }

    /// A writer that writes these blocks, each with another number.
    pub fn writes(&mut self, process: &mut Process, blocks: &[u32]) {
        let world = Arc::clone(&self.world);
        let memory = world.memory();
        for (turn, block) in (0..).zip(blocks) {
            process.enter(memory, self);
            let number = u64::from(*block);
            if first_needed(memory, FILE, number..number + 1).is_some() {
                preserve(memory, process, FILE, number, self);
            }
            self.calls();
            let page = &world.source[*block as usize];
            if self.is_alive(self.pid) {
                world.assert_durable(number);
                page.store(self.pid * 1000 + turn, Ordering::SeqCst);
            }
            process.leave(memory);
        }
    }

    /// Copies blocks before anybody overwrites them, as the helper does it.
    pub fn copies_ahead(&mut self, process: &mut Process, blocks: &[u32]) {
        let world = Arc::clone(&self.world);
        let memory = world.memory();
        let mut copied: Vec<Ahead> = Vec::new();
        for block in blocks {
            process.enter(memory, self);
            copied.extend(copy_ahead(memory, process, (FILE, u64::from(*block)), self));
            process.leave(memory);
        }
        self.sync().unwrap();
        for page in &copied {
            process.enter(memory, self);
            settle_ahead(memory, page);
            process.leave(memory);
        }
    }

    /// Builds a snapshot of the file; it is not published yet.
    fn build(&self, link: FileLink) -> crate::hook::Unpublished<'_> {
        let memory = self.world.memory();
        let built = claim(memory).unwrap();
        let area = usize::try_from(crate::hook::AREA_BYTES_AT / 4).unwrap();
        let at = (area + built.0.index() as usize * SNAPSHOT_AREA) as u64;
        let number = memory.take_number();
        built
            .0
            .prepare(number, (at, INDEX_RECORDS), (at + 16, BLOCKS));
        let record = FileRecord {
            key: FILE,
            first: 0,
            blocks: BLOCKS,
            link,
            is_watched: true,
        };
        built.0.add(&record).unwrap();
        built
    }

    /// Makes a durable snapshot, as [`Actor::creates`] makes another one.
    pub fn creates_durable(&mut self, token: u32) -> Option<(u32, Vec<u32>)> {
        self.makes(token, 1, FileLink::default())
    }

    /// Makes one that has no link to the file.
    pub fn creates_late(&mut self, token: u32) -> Option<(u32, Vec<u32>)> {
        self.makes(token, 0, FileLink::NONE)
    }

    /// Makes a snapshot of one moment. Returns its number and what it must show; `None` if somebody
    /// did not wait.
    pub fn creates(&mut self, token: u32) -> Option<(u32, Vec<u32>)> {
        self.makes(token, 0, FileLink::default())
    }

    fn makes(&mut self, token: u32, tag: u64, link: FileLink) -> Option<(u32, Vec<u32>)> {
        let world = Arc::clone(&self.world);
        let memory = world.memory();
        let patience = Self::new(&world, self.pid);
        let built = patience.build(link);
        built.0.set_tag(tag);
        if pause(memory, token, self).is_err() {
            return None;
        }
        let expected = world.source_now();
        let number = publish(memory, built).number();
        resume(memory, token).then_some((number, expected))
    }

    /// Drops a snapshot, as the controller does it.
    pub fn drops(&mut self, number: u32) {
        let world = Arc::clone(&self.world);
        let memory = world.memory();
        let snapshot = Snapshot::numbered(memory, number).unwrap();
        drain(&snapshot);
        self.waits(grace(memory, &mut Self::new(&world, self.pid)));
        let record = snapshot.find(FILE).unwrap();
        merge(memory, &snapshot, &record, |_| ());
        unlink(memory, &snapshot);
        self.waits(grace(memory, &mut Self::new(&world, self.pid)));
        self.waits(Reading::grace(memory, &mut Self::new(&world, self.pid)));
        merge(memory, &snapshot, &record, |moved| {
            if let Moved::Unneeded(slot) = moved {
                world.store[slot as usize].store(FREED, Ordering::SeqCst);
            }
        });
        let extents = snapshot.extents();
        for (at, words) in extents {
            for word in at..at + words {
                world.words[usize::try_from(word).unwrap()].store(0, Ordering::SeqCst);
            }
        }
        release(&snapshot);
        if !needs_grave(memory, FILE) {
            world.grave.store(0, Ordering::SeqCst);
            world.free_if_nameless();
        }
    }

    /// Removes the file, as the hook and the server do it.
    pub fn removes(&mut self, process: &mut Process) {
        let world = Arc::clone(&self.world);
        let memory = world.memory();
        process.enter(memory, self);
        if needs_pin(memory, FILE) {
            world.grave.store(1, Ordering::SeqCst);
        }
        self.calls();
        world.name.store(0, Ordering::SeqCst);
        world.free_if_nameless();
        process.leave(memory);
    }

    fn waits(&self, waited: Result<(), Busy>) {
        waited.unwrap();
    }

    /// Reads a block of a snapshot as an image does; `None` if it cannot be read any more.
    pub fn reads(&mut self, number: u32, block: u32) -> Option<u32> {
        let world = Arc::clone(&self.world);
        let memory = world.memory();
        let start = self.pid as usize;
        let place = Reading::begin(memory, self.pid, start, self).unwrap();
        let page = loop {
            match find(memory, number, FILE, u64::from(block)) {
                Found::Slot(slot) => {
                    break Some(world.store[slot as usize].load(Ordering::SeqCst));
                }
                Found::Nowhere => break None,
                Found::Source => {
                    let page = world.source[block as usize].load(Ordering::SeqCst);
                    match find(memory, number, FILE, u64::from(block)) {
                        Found::Source => break Some(page),
                        Found::Nowhere => break None,
                        Found::Slot(_) => {}
                    }
                }
            }
        };
        drop(place);
        page
    }

    /// Every block of a snapshot is as it was, or the snapshot says that it is lost.
    pub fn checks(&mut self, number: u32, expected: &[u32]) {
        for block in 0..BLOCKS {
            if let Some(page) = self.reads(number, block) {
                assert_eq!(page, expected[block as usize], "block {block} of {number}");
            }
        }
    }
}

impl Waiter for Actor {
    fn is_alive(&mut self, pid: u32) -> bool {
        self.world.dead.load(Ordering::SeqCst) & 1 << pid == 0
    }

    fn wait(&mut self, turn: u32) -> bool {
        thread::yield_now();
        turn < self.patience
    }
}

impl System for Actor {
    fn read(&mut self, block: u64) -> Result<u32, Fault> {
        self.calls();
        let block = usize::try_from(block).unwrap();
        self.page = self.world.source[block].load(Ordering::SeqCst);
        Ok(self.page)
    }

    fn write(&mut self, slot: Slot, entry: &SlotEntry) -> Result<(), Fault> {
        self.calls();
        assert_eq!(entry.page_crc, self.page);
        if self.world.full.load(Ordering::SeqCst) != 0 {
            return Err(Fault {
                cause: Cause::StoreFull,
                errno: 28,
            });
        }
        self.world.store[slot as usize].store(self.page, Ordering::SeqCst);
        self.world.written[slot as usize].store(1, Ordering::SeqCst);
        self.calls();
        Ok(())
    }

    /// Covers what anybody had written when it began.
    fn sync(&mut self) -> Result<(), Fault> {
        self.calls();
        let is_written = |slot: &usize| self.world.written[*slot].load(Ordering::SeqCst) != 0;
        let covered: Vec<_> = (0..SLOTS).filter(is_written).collect();
        self.calls();
        for slot in covered {
            self.world.durable[slot].store(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn forget(&mut self, _: u32) {}

    fn now(&mut self) -> Option<u32> {
        None
    }

    fn free_mib(&mut self) -> Option<u32> {
        None
    }

    fn tell_lost(&mut self, _: Cause) {
        self.world.told.fetch_add(1, Ordering::SeqCst);
    }
}
