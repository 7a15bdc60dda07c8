//! Sets with parity: whatever is lost or damaged of up to K devices is rebuilt, and written anew.

use std::fs;
use std::path::{Path, PathBuf};

use windlass_engine::media::Codec;
use windlass_engine::{
    Cancel, Device, EngineError, Files, METADATA_LIMIT_DEFAULT, Mends, OpenSet, RepairedSet,
    Survey, clean_up, list_sets, partial_path, repair_set,
};
use windlass_testkit::sets::flip;

use crate::spread::in_turn;
use crate::support::*;

/// A set with parity, each device in a directory of its own.
pub struct Fixture {
    pub dir: tempfile::TempDir,
    tree: Tree,
    pub devices: Vec<PathBuf>,
    pub content: Vec<Vec<u8>>,
}

/// How a device is lost.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// Its file is gone.
    Missing,
    /// Its beginning, its end and every tenth page are noise.
    Noise,
    /// It ends in its middle.
    Short,
}

impl Fixture {
    pub fn new(devices: usize, parities: u16, codec: Codec) -> Self {
        Self::made(devices, parities, codec, |devices| devices)
    }

    /// A set with frames on each stripe: left to themselves, one writer might take them all.
    pub fn spread(devices: usize, parities: u16, codec: Codec) -> Self {
        let stripes = devices - usize::from(parities);
        Self::made(devices, parities, codec, |mut devices| {
            let parity = devices.split_off(stripes);
            in_turn(devices).into_iter().chain(parity).collect()
        })
    }

    fn made(
        devices: usize,
        parities: u16,
        codec: Codec,
        wrap: impl FnOnce(Vec<Box<dyn Device>>) -> Vec<Box<dyn Device>>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tree = mixed_tree(devices as u64 * 7 + u64::from(parities));
        let setup = Setup {
            parities,
            ..Setup::small(devices, codec)
        };
        make_set_on(&tree, &setup, wrap(file_devices(dir.path(), &setup)));
        let devices = stripe_paths(dir.path(), &setup);
        let content = devices.iter().map(|path| fs::read(path).unwrap()).collect();
        Self {
            dir,
            tree,
            devices,
            content,
        }
    }

    /// Makes every device what it was.
    pub fn whole(&self) -> &Self {
        for (path, content) in self.devices.iter().zip(&self.content) {
            write(path, content);
        }
        self
    }

    pub fn lose(&self, device: usize, loss: Loss) {
        let (path, content) = (&self.devices[device], &self.content[device]);
        match loss {
            Loss::Missing => fs::remove_file(path).unwrap(),
            Loss::Short => write(path, &content[..content.len() / 2]),
            Loss::Noise => {
                let mut random = Random::new(device as u64);
                let mut bytes = content.clone();
                let pages = bytes.len() / 512;
                for page in (0..pages).filter(|page| page % 10 == 0 || *page == pages - 1) {
                    bytes[page * 512..][..512].copy_from_slice(&random.noise(512));
                }
                write(path, &bytes);
            }
        }
    }

    pub fn open(&self) -> Result<OpenSet, EngineError> {
        OpenSet::open(&[self.dir.path().to_owned()], METADATA_LIMIT_DEFAULT)
    }

    /// Restores the set, and says what parity made up for.
    pub fn restored(&self) -> Mends {
        let into = tempfile::tempdir().unwrap();
        let set = self.open().unwrap();
        bring_back(&set, &into.path().join("restored")).unwrap();
        assert_same(&self.tree, &into.path().join("restored"));
        set.mends().unwrap()
    }

    pub fn repaired(&self) -> RepairedSet {
        repair(self.dir.path()).unwrap()
    }
}

/// Repairs the set in a directory.
pub fn repair(dir: &Path) -> Result<RepairedSet, EngineError> {
    let limits = (METADATA_LIMIT_DEFAULT, &Cancel::new());
    repair_set(&Files, (&[dir.to_owned()], &[]), limits, &mut |_, _| {})
}

/// Every choice of up to `most` of `count` devices.
fn choices(count: usize, most: usize) -> Vec<Vec<usize>> {
    let all =
        (1usize..1 << count).map(|bits| (0..count).filter(|it| bits >> it & 1 != 0).collect());
    all.filter(|choice: &Vec<usize>| choice.len() <= most)
        .collect()
}

#[test]
fn a_whole_set_with_parity_is_restored_and_nothing_is_mended() {
    for codec in [Codec::None, Codec::Zstd(1)] {
        let set = Fixture::new(4, 1, codec);
        let mends = set.restored();
        assert!(mends.is_empty(), "{mends:?}");
        assert_eq!(mends.parities, 1);
    }
}

#[test]
fn any_devices_up_to_as_many_as_have_parity_are_rebuilt_and_written_anew() {
    for (devices, parities) in [(3, 1), (5, 1), (5, 2)] {
        let set = Fixture::new(devices, parities, Codec::Zstd(1));
        for (number, lost) in choices(devices, usize::from(parities)).iter().enumerate() {
            let loss = [Loss::Missing, Loss::Noise, Loss::Short][number % 3];
            let case = format!("{devices} devices, {parities} parities, {lost:?} {loss:?}");
            set.whole();
            lost.iter().for_each(|device| set.lose(*device, loss));
            let mends = set.restored();
            let found: Vec<_> = mends
                .lost
                .iter()
                .map(|it| usize::from(it.number) - 1)
                .collect();
            assert_eq!(&found, lost, "{case}");
            let repaired = set.repaired();
            let written: Vec<_> = repaired
                .repaired
                .iter()
                .map(|it| usize::from(it.number) - 1)
                .collect();
            assert_eq!(&written, lost, "{case}");
            for (path, content) in set.devices.iter().zip(&set.content) {
                let is_parity = !path.ends_with(set.devices[0].file_name().unwrap());
                let same = &fs::read(path).unwrap() == content;
                // If all parity is lost, its groups may be others than before.
                assert!(
                    same || is_parity && lost.len() == usize::from(parities),
                    "{case}: {path:?}"
                );
            }
            assert!(set.restored().is_empty(), "{case}");
        }
    }
}

#[test]
fn parity_that_was_all_lost_and_written_anew_rebuilds_every_device() {
    let set = Fixture::new(5, 2, Codec::Lz4);
    set.lose(3, Loss::Missing);
    set.lose(4, Loss::Noise);
    assert_eq!(set.repaired().repaired.len(), 2);
    for lost in choices(3, 2) {
        let kept: Vec<_> = lost
            .iter()
            .map(|it| fs::read(&set.devices[*it]).unwrap())
            .collect();
        lost.iter()
            .for_each(|it| fs::remove_file(&set.devices[*it]).unwrap());
        assert_eq!(set.restored().lost.len(), lost.len());
        lost.iter()
            .zip(&kept)
            .for_each(|(it, bytes)| write(&set.devices[*it], bytes));
    }
}

#[test]
fn one_device_more_is_refused_and_all_lost_ones_are_named() {
    for (devices, parities) in [(3, 1), (4, 2), (5, 2)] {
        let set = Fixture::new(devices, parities, Codec::Zstd(1));
        let lost: Vec<_> = (0..=usize::from(parities)).collect();
        lost.iter()
            .for_each(|device| set.lose(*device, Loss::Missing));
        match set.open() {
            Err(EngineError::BeyondParity {
                parities: can,
                lost: named,
                ..
            }) => {
                assert_eq!(can, parities);
                let paths = lost
                    .iter()
                    .map(|it| set.devices[*it].to_string_lossy().into_owned());
                assert_eq!(named, paths.collect::<Vec<_>>());
            }
            other => panic!("{other:?}"),
        }
        let refused = repair(set.dir.path());
        assert!(
            matches!(refused, Err(EngineError::BeyondParity { .. })),
            "{refused:?}"
        );
        let left = set.devices.iter().filter(|path| path.exists()).count();
        assert_eq!(left, devices - lost.len(), "nothing was written");
    }
}

#[test]
fn a_flipped_byte_anywhere_is_rebuilt_listed_and_written_anew() {
    let set = Fixture::new(3, 1, Codec::Zstd(1));
    for (device, content) in set.content.iter().enumerate() {
        let length = content.len() as u64;
        let step = (length / 7).max(1) | 1;
        let ends = [
            0,
            57,
            70,
            511,
            512,
            1024,
            length - 1,
            length - 400,
            length - 512,
            length - 700,
        ];
        for offset in ends.into_iter().chain((0..length).step_by(step as usize)) {
            set.whole();
            flip(&set.devices[device], offset);
            let case = format!("device {device} at {offset} of {length}");
            let (mends, damage) = set.verified();
            assert_eq!(damage, 0, "{case}");
            assert!(!mends.is_empty(), "{case}");
            let numbers = mends
                .lost
                .iter()
                .map(|it| it.number)
                .chain(mends.parts.iter().map(|it| it.number));
            assert!(
                numbers.into_iter().all(|it| usize::from(it) == device + 1),
                "{case}: {mends:?}"
            );
            let repaired = set.repaired();
            assert_eq!(repaired.repaired.len(), 1, "{case}");
            assert!(set.restored().is_empty(), "{case}");
            if device < 2 {
                assert_eq!(&fs::read(&set.devices[device]).unwrap(), content, "{case}");
            }
        }
    }
}

impl Fixture {
    /// What parity made up for, and how much damage is left, after everything was read.
    fn verified(&self) -> (Mends, u64) {
        let places = [self.dir.path().to_owned()];
        let survey = Survey::of(&Files, &places, METADATA_LIMIT_DEFAULT).unwrap();
        let options = lean_options().fit(survey.set()).unwrap();
        let found = windlass_engine::verify(&survey, &options, &Default::default(), &Cancel::new())
            .unwrap();
        (found.mends.unwrap(), found.damage.damage_count)
    }
}

#[test]
fn a_file_with_parity_alone_leads_to_its_set() {
    let set = Fixture::new(3, 2, Codec::Zstd(1));
    set.lose(0, Loss::Missing);
    set.lose(1, Loss::Missing);
    let open = OpenSet::open(&[set.devices[2].clone()], METADATA_LIMIT_DEFAULT).unwrap();
    let into = tempfile::tempdir().unwrap();
    bring_back(&open, &into.path().join("restored")).unwrap();
    assert_same(&set.tree, &into.path().join("restored"));
    // A stripe that is gone leads there, too, as long as something is beside it.
    let open = OpenSet::open(&[set.devices[0].clone()], METADATA_LIMIT_DEFAULT);
    assert!(open.is_ok(), "{open:?}");
}

#[test]
fn a_list_shows_a_set_as_sealed_as_long_as_parity_makes_up_for_what_is_lost() {
    let set = Fixture::new(4, 1, Codec::Zstd(1));
    let listed = || {
        let list = list_sets(&Files, &[set.dir.path().to_owned()], METADATA_LIMIT_DEFAULT).unwrap();
        assert!(list.unknown.is_empty(), "{:?}", list.unknown);
        let [one] = list.sets.as_slice() else {
            panic!("{:?}", list.sets)
        };
        (
            one.state.name(),
            one.parity.mended.is_some(),
            one.about.is_some(),
            one.parity.files.len(),
        )
    };
    assert_eq!(listed(), ("sealed", false, true, 1));
    for device in 0..3 {
        for loss in [Loss::Missing, Loss::Noise] {
            set.whole();
            set.lose(device, loss);
            assert_eq!(listed(), ("sealed", true, true, 1), "{device} {loss:?}");
        }
    }
    set.lose(3, Loss::Missing);
    assert_eq!(listed().0, "damaged");
    // A repair that was cut off left a stripe without a seal: the set is not unfinished for that.
    set.whole();
    let cut = &set.content[1][..set.content[1].len() / 2];
    write(&partial_path(&set.devices[1]), cut);
    fs::remove_file(&set.devices[1]).unwrap();
    assert_eq!(listed(), ("sealed", true, true, 1));
    assert_eq!(set.restored().lost.len(), 1);
}

#[test]
fn what_a_run_left_of_parity_is_cleaned_up() {
    let set = Fixture::new(3, 1, Codec::Zstd(1));
    let partials: Vec<_> = set.devices.iter().map(|path| partial_path(path)).collect();
    let hide = || {
        set.devices
            .iter()
            .zip(&partials)
            .for_each(|(own, partial)| rename(own, partial))
    };
    let there = |paths: &[PathBuf]| paths.iter().filter(|path| path.exists()).count();
    // Everything is sealed: it gets its names.
    hide();
    clean_up(set.dir.path()).unwrap();
    assert_eq!((there(&set.devices), there(&partials)), (3, 0));
    assert!(set.restored().is_empty());
    // The stripes have no seals: nothing stays, in whichever order the directory is read.
    hide();
    for partial in &partials[..2] {
        let length = fs::metadata(partial).unwrap().len();
        fs::File::options()
            .write(true)
            .open(partial)
            .unwrap()
            .set_len(length - 512)
            .unwrap();
    }
    clean_up(set.dir.path()).unwrap();
    assert_eq!((there(&set.devices), there(&partials)), (0, 0));
    // Parity without an end, of a set that is complete: a repair was cut off.
    set.whole();
    rename(&set.devices[2], &partials[2]);
    write(&partials[2], &set.content[2][..set.content[2].len() - 512]);
    clean_up(set.dir.path()).unwrap();
    assert_eq!((there(&set.devices), there(&partials)), (2, 1));
    assert_eq!(set.repaired().repaired.len(), 1);
    assert_eq!((there(&set.devices), there(&partials)), (3, 0));
    assert!(set.restored().is_empty());
}

#[test]
fn a_set_without_parity_is_not_repaired() {
    let dir = tempfile::tempdir().unwrap();
    make_set(&mixed_tree(3), dir.path(), &Setup::small(2, Codec::Zstd(1)));
    let refused = repair(dir.path());
    assert!(
        matches!(refused, Err(EngineError::NoParity { .. })),
        "{refused:?}"
    );
}
