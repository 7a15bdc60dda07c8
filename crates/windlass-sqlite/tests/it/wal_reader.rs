//! The WAL reader alone: whatever is cut off or flipped, it finds a committed state, and the same
//! one that SQLite itself would recover.

use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;

use proptest::prelude::*;
use windlass_sqlite::{Checksum, FRAME_HEADER_BYTES, WAL_HEADER_BYTES, WalHeader, WalState, scan};
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec};

use crate::support::Room;

/// A database in WAL mode and its log, as a crash would leave them.
struct Fixture {
    ledger: CommitLedger,
    database: Vec<u8>,
    wal: Vec<u8>,
    header: WalHeader,
    /// Frame numbers of the commits, beginning with 0 for nothing committed.
    commits: Vec<u32>,
}

const TRANSACTIONS: u64 = 30;

fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let room = Room::new();
        let spec = LedgerSpec {
            page_bytes: 512,
            accounts: 40,
            seed: 31,
            ..LedgerSpec::default()
        };
        assert_eq!(spec.journal, Journal::Wal);
        let ledger = CommitLedger::create(&room.path("a.db"), spec);
        let mut shell = ledger.shell();
        shell.run("PRAGMA wal_autocheckpoint=0;");
        for number in 1..=TRANSACTIONS {
            shell.run(&ledger.transaction(number));
        }
        let [database, wal] =
            ["a.db", "a.db-wal"].map(|name| std::fs::read(room.path(name)).unwrap());
        shell.close();
        let header = WalHeader::decode(&wal).unwrap();
        let mut commits = vec![0];
        commits.extend(commit_frames(&wal, &header));
        assert_eq!(commits.len() as u64, TRANSACTIONS + 1);
        Fixture {
            ledger,
            database,
            wal,
            header,
            commits,
        }
    })
}

/// The frames that end a transaction, found only by their "size after commit" field.
fn commit_frames(wal: &[u8], header: &WalHeader) -> Vec<u32> {
    let frames = wal[WAL_HEADER_BYTES..].chunks_exact(header.frame_bytes());
    let numbered = (1..).zip(frames);
    numbered
        .filter(|(_, frame)| frame[4..8] != [0; 4])
        .map(|(number, _)| number)
        .collect()
}

impl Fixture {
    /// The number of the last commit whose frames all lie before `offset` of the log.
    fn expected(&self, offset: usize) -> u32 {
        let whole = offset.saturating_sub(WAL_HEADER_BYTES) / self.header.frame_bytes();
        let commits = self.commits.iter().rev();
        commits
            .copied()
            .find(|commit| *commit as usize <= whole)
            .unwrap_or(0)
    }

    /// The database file with the log's pages over it, cut to size.
    fn overlaid(&self, wal: &[u8], state: &WalState) -> Vec<u8> {
        let page_bytes = state.header.page_bytes as usize;
        let mut file = self.database.clone();
        if state.page_count != 0 {
            file.resize(state.page_count as usize * page_bytes, 0);
        }
        for entry in &state.frames {
            let frame = (entry.frame - 1) as usize * state.header.frame_bytes();
            let content = WAL_HEADER_BYTES + frame + FRAME_HEADER_BYTES;
            let page = (entry.page - 1) as usize * page_bytes;
            if let Some(into) = file.get_mut(page..page + page_bytes) {
                into.copy_from_slice(&wal[content..content + page_bytes]);
            }
        }
        file
    }

    /// Number of transactions in the database that our reader sees, and in the one that SQLite
    /// recovers.
    fn ours_and_theirs(&self, wal: &[u8]) -> (u64, u64) {
        let room = Room::new();
        let file = match scan(wal, u32::MAX).unwrap() {
            Some(state) => self.overlaid(wal, &state),
            None => self.database.clone(),
        };
        std::fs::write(room.path("ours.db"), file).unwrap();
        std::fs::write(room.path("theirs.db"), &self.database).unwrap();
        std::fs::write(room.path("theirs.db-wal"), wal).unwrap();
        let count = |path: &Path| self.ledger.check(path);
        (count(&room.path("ours.db")), count(&room.path("theirs.db")))
    }
}

#[test]
fn a_whole_log_gives_its_last_commit() {
    let fixture = fixture();
    let state = scan(fixture.wal.as_slice(), u32::MAX).unwrap().unwrap();
    assert_eq!(Some(&state.frame_count), fixture.commits.last());
    assert!(
        state.frames.is_sorted_by(|a, b| a.page < b.page),
        "one entry a page, in order"
    );
    assert_eq!(
        fixture.ours_and_theirs(&fixture.wal),
        (TRANSACTIONS, TRANSACTIONS)
    );
}

#[test]
fn a_limit_in_mid_transaction_gives_the_commit_before() {
    let fixture = fixture();
    for window in fixture.commits.windows(2) {
        for limit in window[0]..window[1] {
            let state = scan(fixture.wal.as_slice(), limit).unwrap().unwrap();
            assert_eq!(state.frame_count, window[0], "limit {limit}");
            assert!(state.frames.iter().all(|entry| entry.frame <= window[0]));
        }
    }
}

#[test]
fn a_log_whose_checksums_are_big_endian_reads_alike() {
    let fixture = fixture();
    let wal = big_endian(&fixture.wal, &fixture.header);
    let ours = scan(wal.as_slice(), u32::MAX).unwrap().unwrap();
    let little = scan(fixture.wal.as_slice(), u32::MAX).unwrap().unwrap();
    assert_eq!(ours.frames, little.frames);
    assert_eq!(fixture.ours_and_theirs(&wal), (TRANSACTIONS, TRANSACTIONS));
}

/// The same log as a big-endian machine would have written it.
fn big_endian(wal: &[u8], header: &WalHeader) -> Vec<u8> {
    let mut wal = wal.to_vec();
    wal[3] |= 1;
    let mut checksum = Checksum::new(true).over(&wal[..24]);
    put_sums(&mut wal[24..32], checksum);
    for frame in wal[WAL_HEADER_BYTES..].chunks_exact_mut(header.frame_bytes()) {
        checksum = checksum
            .over(&frame[..8])
            .over(&frame[FRAME_HEADER_BYTES..]);
        put_sums(&mut frame[16..24], checksum);
    }
    wal
}

fn put_sums(into: &mut [u8], checksum: Checksum) {
    let (first, second) = into.split_at_mut(4);
    first.copy_from_slice(&checksum.sums[0].to_be_bytes());
    second.copy_from_slice(&checksum.sums[1].to_be_bytes());
}

#[test]
fn an_older_generation_behind_the_current_one_is_not_read() {
    let fixture = fixture();
    let cut = WAL_HEADER_BYTES + fixture.commits[5] as usize * fixture.header.frame_bytes();
    let mut wal = fixture.wal.clone();
    for frame in wal[cut..].chunks_exact_mut(fixture.header.frame_bytes()) {
        frame[8] ^= 1;
    }
    assert_eq!(fixture.ours_and_theirs(&wal), (5, 5));
}

#[test]
fn a_cut_anywhere_gives_the_last_commit_before_it() {
    let fixture = fixture();
    let frame_bytes = fixture.header.frame_bytes();
    let edges = (0..).map(|frame| WAL_HEADER_BYTES + frame * frame_bytes);
    let edges = edges.take_while(|edge| *edge <= fixture.wal.len());
    let around = |edge: usize| {
        [
            edge - 1,
            edge,
            edge + 1,
            edge + FRAME_HEADER_BYTES,
            edge + 100,
        ]
    };
    let cuts = (0..WAL_HEADER_BYTES).chain(edges.flat_map(around));
    for cut in cuts.filter(|cut| *cut <= fixture.wal.len()) {
        let found = scan(&fixture.wal[..cut], u32::MAX).unwrap();
        let found = found.map_or(0, |state| state.frame_count);
        assert_eq!(found, fixture.expected(cut), "cut at {cut}");
    }
}

#[test]
fn a_file_reads_like_its_bytes() {
    let fixture = fixture();
    let room = Room::new();
    std::fs::write(room.path("wal"), &fixture.wal).unwrap();
    let file = File::open(room.path("wal")).unwrap();
    assert_eq!(
        scan(&file, u32::MAX).unwrap(),
        scan(fixture.wal.as_slice(), u32::MAX).unwrap()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_flipped_bit_hides_itself_and_all_behind_it(bit in 0usize..1 << 30) {
        let fixture = fixture();
        let bit = bit % (fixture.wal.len() * 8);
        let mut wal = fixture.wal.clone();
        wal[bit / 8] ^= 1 << (bit % 8);
        let found = scan(wal.as_slice(), u32::MAX).unwrap().map_or(0, |state| state.frame_count);
        let expected = if bit / 8 < WAL_HEADER_BYTES { 0 } else { fixture.expected(bit / 8) };
        prop_assert_eq!(found, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn damage_gives_the_state_that_sqlite_recovers(
        cut in 0usize..1 << 30,
        flips in proptest::collection::vec(0usize..1 << 30, 0..3),
    ) {
        let fixture = fixture();
        let mut wal = fixture.wal.clone();
        for flip in flips {
            let bit = flip % (wal.len() * 8);
            wal[bit / 8] ^= 1 << (bit % 8);
        }
        wal.truncate(cut % (wal.len() + 1));
        let (ours, theirs) = fixture.ours_and_theirs(&wal);
        prop_assert_eq!(ours, theirs);
    }
}
