//! Files with parity that do not belong together: of another state of the set, with other groups,
//! twice, or forged. What proves itself is used, and nothing is mixed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use windlass_engine::media::{
    Codec, GroupBlock, GroupDirectory, ParityEnd, ParityHeader, SEAL_BYTES, fitted,
};
use windlass_engine::{
    EngineError, Files, Lies, METADATA_LIMIT_DEFAULT, OpenSet, PlaceFile, ReadAt, Storage,
    list_sets,
};
use windlass_testkit::sets::flip;

use crate::parity::{Fixture, Loss, repair};
use crate::support::*;

/// A file with parity, taken apart.
struct Parity {
    bytes: Vec<u8>,
    header: ParityHeader,
    end: ParityEnd,
    directory: GroupDirectory,
    /// Where the directory lies.
    place: std::ops::Range<usize>,
}

fn at(offset: u64, bytes: u64) -> std::ops::Range<usize> {
    fitted(offset)..fitted(offset + bytes)
}

impl Parity {
    fn of(bytes: &[u8]) -> Self {
        let length = ParityHeader::encoded_bytes(&bytes[..64]).unwrap() as usize;
        let header = ParityHeader::decode(&bytes[..length]).unwrap();
        let record = &bytes[bytes.len() - SEAL_BYTES..];
        let end = ParityEnd::decode(record, bytes.len() as u64, &header).unwrap();
        let place = at(end.directory_offset, end.directory_bytes);
        let directory = &bytes[place.clone()];
        let directory = GroupDirectory::decode(directory, &header, 1 << 20).unwrap();
        Self {
            bytes: bytes.to_vec(),
            header,
            end,
            directory,
            place,
        }
    }

    fn block(&self, number: usize) -> GroupBlock {
        let entry = &self.directory.entries[number];
        let bytes = &self.bytes[at(entry.offset, entry.bytes.into())];
        GroupBlock::decode(bytes, entry.offset, &self.header).unwrap()
    }

    /// Puts a block into the file, as long as it was, and its hash into the directory.
    fn put(&mut self, number: usize, block: &GroupBlock) {
        let entry = &mut self.directory.entries[number];
        let encoded = block.encode(&self.header).unwrap();
        self.bytes[at(entry.offset, entry.bytes.into())].copy_from_slice(&encoded);
        entry.hash = *blake3::hash(&encoded).as_bytes();
    }

    /// The file with every checksum made right.
    fn signed(mut self) -> Vec<u8> {
        let directory = self.directory.encode(&self.header);
        self.bytes[self.place].copy_from_slice(&directory);
        self.end.directory_hash = *blake3::hash(&directory).as_bytes();
        let end = self.end.encode();
        let from = self.bytes.len() - end.len();
        self.bytes[from..].copy_from_slice(&end);
        self.bytes
    }

    /// The file with damage in each parity.
    fn with_damaged_sums(mut self) -> Vec<u8> {
        for number in 0..self.directory.entries.len() {
            for group in self.block(number).groups {
                self.bytes[fitted::<usize, _>(group.offset)] ^= 1;
            }
        }
        self.bytes
    }
}

/// A set of which the first parity has the groups that the backup made, and the second others: all
/// parity was lost and computed anew, and one disk came back.
fn with_two_groupings() -> Fixture {
    let set = Fixture::new(5, 2, Codec::Zstd(1));
    set.lose(3, Loss::Missing);
    set.lose(4, Loss::Missing);
    assert_eq!(set.repaired().repaired.len(), 2);
    let anew = fs::read(&set.devices[4]).unwrap();
    assert!(anew != set.content[4], "its groups are others");
    write(&set.devices[3], &set.content[3]);
    set
}

#[test]
fn parities_of_different_groups_are_never_used_together() {
    let set = with_two_groupings();
    let stripes: Vec<_> = set.content[..3].to_vec();
    // Each is right for itself: one stripe is rebuilt by either.
    let sound = fs::read(&set.devices[3]).unwrap();
    for damaged in [false, true] {
        let first = match damaged {
            true => Parity::of(&sound).with_damaged_sums(),
            false => sound.clone(),
        };
        write(&set.devices[3], &first);
        for (stripe, content) in stripes.iter().enumerate() {
            fs::remove_file(&set.devices[stripe]).unwrap();
            let mends = set.restored();
            let lost: Vec<_> = mends.lost.iter().map(|it| it.number).collect();
            assert_eq!(lost, [stripe as u16 + 1, 5], "{mends:?}");
            assert!(mends.lost[1].fault.contains("groups"), "{mends:?}");
            write(&set.devices[stripe], content);
        }
    }
    write(&set.devices[3], &sound);
    // Two stripes are not, and that is said: not that a checksum is wrong.
    fs::remove_file(&set.devices[0]).unwrap();
    fs::remove_file(&set.devices[1]).unwrap();
    let refused = set.open().map(drop);
    assert!(
        matches!(refused, Err(EngineError::BeyondParity { .. })),
        "{refused:?}"
    );
    write(&set.devices[0], &stripes[0]);
    write(&set.devices[1], &stripes[1]);
    // A repair makes them parities of the same groups again.
    let repaired = set.repaired().repaired;
    assert_eq!(repaired.len(), 1, "{repaired:?}");
    assert!(fs::read(&set.devices[4]).unwrap() == set.content[4]);
    assert!(set.restored().is_empty());
}

/// A list tells the groupings apart as whoever opens the set does.
#[test]
fn a_list_says_which_parity_does_not_go_with_the_others() {
    let listed = |set: &Fixture| {
        let places = [set.dir.path().to_owned()];
        let list = list_sets(&Files, &places, METADATA_LIMIT_DEFAULT).unwrap();
        let [one] = list.sets.as_slice() else {
            panic!("{:?}", list.sets)
        };
        (one.state.name(), one.parity.lost)
    };
    let set = with_two_groupings();
    assert_eq!(listed(&set), ("sealed", 1));
    fs::remove_file(&set.devices[0]).unwrap();
    assert_eq!(listed(&set), ("sealed", 1));
    fs::remove_file(&set.devices[1]).unwrap();
    assert_eq!(listed(&set), ("incomplete", 1));
    set.whole();
    assert_eq!(listed(&set), ("sealed", 0));
    for parities in [1, 2] {
        let set = Fixture::new(4, parities, Codec::Zstd(1));
        let mut stale = Parity::of(&set.content[3]);
        stale.end.set_root[7] ^= 1;
        write(&set.devices[3], &stale.signed());
        assert_eq!(listed(&set), ("sealed", 1), "{parities}");
        let numbers: Vec<_> = set.repaired().repaired.iter().map(|it| it.number).collect();
        assert_eq!(numbers, [4], "{parities}");
        assert_eq!(listed(&set), ("sealed", 0), "{parities}");
    }
}

/// The groups of the one cannot be read, and those of the other say what is damaged.
#[test]
fn a_stripe_is_repaired_by_the_groups_that_can_be_read() {
    let set = with_two_groupings();
    let first = Parity::of(&set.content[3]);
    let offset = fitted::<usize, _>(first.directory.entries[0].offset);
    let mut damaged = first.bytes.clone();
    damaged[offset + 80] ^= 1;
    for stripe in 0..3 {
        write(&set.devices[3], &damaged);
        let middle = set.content[stripe].len() as u64 / 2;
        flip(&set.devices[stripe], middle);
        let numbers: Vec<_> = set.repaired().repaired.iter().map(|it| it.number).collect();
        assert_eq!(numbers, [stripe as u16 + 1, 4, 5]);
        assert!(fs::read(&set.devices[stripe]).unwrap() == set.content[stripe]);
        assert!(set.restored().is_empty());
    }
}

#[test]
fn parity_of_another_state_of_the_set_does_not_outvote_the_set() {
    for (copy, parities) in [(false, 2), (true, 1), (true, 2)] {
        let set = Fixture::new(4, parities, Codec::Zstd(1));
        let first = 4 - usize::from(parities);
        let mut stale = Parity::of(&set.content[first]);
        stale.end.set_root[7] ^= 1;
        // In the place of the right one, or beside it with a name that comes first.
        let place = match copy {
            true => set.dir.path().join("a-copy.windlass"),
            false => set.devices[first].clone(),
        };
        write(&place, &stale.signed());
        let mends = set.restored();
        assert_eq!(mends.lost.len(), usize::from(!copy), "{mends:?}");
        for stripe in 0..first {
            fs::remove_file(&set.devices[stripe]).unwrap();
            let mends = set.restored();
            let lost: Vec<_> = mends.lost.iter().map(|it| it.number).collect();
            let mut expected = vec![stripe as u16 + 1];
            expected.extend((!copy).then_some(first as u16 + 1));
            assert_eq!(lost, expected, "{copy}");
            write(&set.devices[stripe], &set.content[stripe]);
        }
        set.repaired();
        assert!(fs::read(&set.devices[first]).unwrap() == set.content[first]);
    }
}

#[test]
fn forged_numbers_of_a_file_with_parity_are_an_error_or_do_no_harm() {
    let set = Fixture::new(3, 1, Codec::Zstd(1));
    let numbers = [0, 1, 511, 1 << 20, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    fs::remove_file(&set.devices[0]).unwrap();
    let mut random = Random::new(11);
    for case in 0..600u64 {
        let mut forged = Parity::of(&set.content[2]);
        let number = numbers[random.below(numbers.len() as u64) as usize];
        forge(&mut forged, case % 16, number, &mut random);
        write(&set.devices[2], &forged.signed());
        let opened = set.open();
        if let Ok(open) = opened {
            let into = tempfile::tempdir().unwrap();
            if let Err(error) = bring_back(&open, &into.path().join("into")) {
                assert!(error.is_damage(), "{case}: {error}");
            }
        }
        // Nothing is written anew from numbers that are wrong.
        if let Ok(done) = repair(set.dir.path()) {
            for device in done.repaired.iter().filter(|it| !it.is_parity) {
                let own = fs::read(&device.location).unwrap();
                assert!(own == set.content[usize::from(device.number) - 1], "{case}");
            }
            fs::remove_file(&set.devices[0]).unwrap();
        }
    }
}

/// Changes one number of a file. Those of blocks are signed, too.
fn forge(parity: &mut Parity, field: u64, number: u64, random: &mut Random) {
    let narrow = number as u32;
    let mut block = parity.block(0);
    let group = random.below(block.groups.len() as u64) as usize;
    let member = random.below(block.members.len() as u64) as usize;
    let entry = &mut parity.directory.entries[0];
    match field {
        0 => entry.offset = number,
        1 => entry.bytes = narrow,
        2 => entry.groups = narrow,
        3 => entry.first_group = number,
        4 => entry.region_offset = number,
        5 => entry.starts[0] = number,
        6 => parity.directory.stripe_bytes[0] = number,
        7 => parity.end.groups = number,
        8 => parity.end.directory_offset = number,
        9 => parity.end.directory_bytes = number,
        10 => block.region_offset = number,
        11 => block.groups[group].offset = number,
        12 => block.groups[group].bytes = narrow,
        13 => block.members[member].offset = number,
        14 => block.members[member].bytes = narrow,
        _ => block.first_group = number,
    }
    if field >= 10 {
        parity.put(0, &block);
    }
}

/// Files, and how many of them were opened.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl Storage for Counting {
    fn look(&self, location: &Path) -> io::Result<Lies> {
        Files.look(location)
    }

    fn open(&self, location: &Path) -> io::Result<Arc<dyn ReadAt>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Files.open(location)
    }

    fn list(&self, place: &Path, each: &mut dyn FnMut(PlaceFile)) -> Result<(), EngineError> {
        Files.list(place, each)
    }
}

#[test]
fn a_set_without_parity_that_cannot_be_opened_costs_no_look_at_other_sets() {
    let dir = tempfile::tempdir().unwrap();
    let tree = mixed_tree(1);
    let made = make_set(&tree, dir.path(), &Setup::small(1, Codec::Zstd(1)));
    let content = fs::read(&made[0]).unwrap();
    let name = |number: usize| format!("shop-20261121T0815{number:02}Z-1f0c9a{number:02}.1of1");
    let path = |number: usize| dir.path().join(name(number) + ".windlass");
    (0..60).for_each(|number| write(&path(number), &content));
    let own: PathBuf = path(7);
    let length = content.len();
    // Its header says that it has no parity, or nothing says what it is.
    let (mut unsealed, mut noise) = (content.clone(), content.clone());
    unsealed[length - SEAL_BYTES..].fill(7);
    noise[..1024].fill(7);
    noise[length - SEAL_BYTES..].fill(7);
    for damaged in [unsealed, noise] {
        write(&own, &damaged);
        let counting = Counting::default();
        let opened = OpenSet::open_in(
            &counting,
            std::slice::from_ref(&own),
            METADATA_LIMIT_DEFAULT,
        );
        assert!(opened.is_err());
        let opened = counting.0.load(Ordering::Relaxed);
        assert!(opened < 20, "{opened} files were opened");
    }
}
