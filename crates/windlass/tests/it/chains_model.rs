//! Random mixes of everything that makes and removes sets and log of a SQLite database: full,
//! incremental and differential sets, copies of the log, merges and expiry, between commits. A
//! model says on what each set builds, which sets expire, and what each set and moment restores to.
//!
//! WINDLASS_TEST_SEED draws the mix; in `scripts/soak` it is longer.

use std::collections::{BTreeMap, BTreeSet};

use windlass_testkit::counted::is_soak;
use windlass_testkit::sqlite::{Random, Shell};

use crate::receive_sqlite::Receiving;
use crate::support::*;

const STEPS: u32 = 20;
const STEPS_IN_SOAK: u32 = 40;

/// When something was made: the number of the step. What merges a set stands right behind it.
type Order = (u32, u32);

/// A set as the model knows it.
#[derive(Clone)]
struct Made {
    id: String,
    base: Option<String>,
    /// How many transactions the database had.
    number: u64,
    is_merged: bool,
}

/// A moment up to which the log was copied.
struct Moment {
    order: Order,
    time: String,
    number: u64,
}

struct Mix {
    receiving: Receiving,
    /// Keeps SQLite from emptying the log.
    shell: Shell,
    random: Random,
    seed: u64,
    step: u32,
    number: u64,
    sets: BTreeMap<Order, Made>,
    moments: Vec<Moment>,
}

impl Mix {
    fn new(seed: u64) -> Self {
        let receiving = Receiving::new();
        let mut mix = Self {
            shell: receiving.place.ledger.shell(),
            receiving,
            random: Random(seed),
            seed,
            step: 0,
            number: 20,
            sets: BTreeMap::new(),
            moments: Vec::new(),
        };
        mix.shell.run("PRAGMA wal_autocheckpoint=0;");
        mix.commit(1);
        // The log begins, and no set leads into it yet.
        assert_eq!(mix.receiving.back_up("log").0, 3);
        mix.back_up("full");
        mix
    }

    fn commit(&mut self, count: u32) {
        for _ in 0..count {
            self.number += 1;
            let sql = self.receiving.place.ledger.transaction(self.number);
            self.shell.run(&sql);
        }
    }

    /// The newest set, of all or of the full ones.
    fn newest(&self, full_only: bool) -> Option<String> {
        let mut sets = self.sets.values().rev();
        let found = sets.find(|set| !full_only || set.base.is_none());
        found.map(|set| set.id.clone())
    }

    fn back_up(&mut self, kind: &str) {
        let base = match kind {
            "full" => None,
            kind => self.newest(kind == "diff"),
        };
        let (code, document) = self.receiving.back_up(kind);
        let case = self.case(kind);
        assert_eq!((code, &document["type"]), (0, &kind.into()), "{case}");
        assert_eq!(document["base"].as_str(), base.as_deref(), "{case}");
        let made = Made {
            id: document["set_id"].as_str().unwrap().to_owned(),
            base,
            number: self.number,
            is_merged: false,
        };
        self.sets.insert((self.step, 0), made);
    }

    fn copy_log(&mut self) {
        self.commit(1);
        let (code, document) = self.receiving.back_up("log");
        assert_eq!(code, 0, "{}: {document}", self.case("log"));
        let timelines = self.receiving.timelines();
        assert_eq!(timelines.len(), 1, "{}: {timelines:?}", self.case("log"));
        self.moments.push(Moment {
            order: (self.step, 0),
            time: timelines[0]["end_time"].as_str().unwrap().to_owned(),
            number: self.number,
        });
    }

    /// One set of a chain that was not merged yet.
    fn merge(&mut self) {
        let chains = self.sets.iter();
        let chains = chains.filter(|(_, set)| set.base.is_some() && !set.is_merged);
        let chains: Vec<Order> = chains.map(|(order, _)| *order).collect();
        let Some(order) = self.draw(&chains) else {
            return;
        };
        let of = self.sets.get_mut(&order).unwrap();
        of.is_merged = true;
        let (id, number) = (of.id.clone(), of.number);
        let sets = self.receiving.place.arg("sets");
        let (code, document) = json(&["merge", &sets, "--set", &id, "--to", &sets]);
        assert_eq!(code, 0, "{}: {document}", self.case("merge"));
        let made = Made {
            id: document["set_id"].as_str().unwrap().to_owned(),
            base: None,
            number,
            is_merged: true,
        };
        self.sets.insert((order.0, 1), made);
    }

    /// The newest full sets stay, all that was made since the oldest of them, and what that needs.
    fn expire(&mut self) {
        let count = 1 + self.random.below(3);
        let full = self.sets.iter().rev().filter(|(_, set)| set.base.is_none());
        let full: Vec<Order> = full.map(|(order, _)| *order).take(count as usize).collect();
        let mut expected = BTreeSet::new();
        if full.len() == count as usize {
            let since = full[full.len() - 1];
            let bases: BTreeMap<_, _> =
                self.sets.values().map(|set| (&set.id, &set.base)).collect();
            let mut needed: BTreeSet<String> = BTreeSet::new();
            for set in self.sets.range(since..).map(|(_, set)| set) {
                let mut way = Some(&set.id);
                while let Some(id) = way {
                    needed.insert(id.clone());
                    way = bases[id].as_ref();
                }
            }
            let gone = self.sets.values().filter(|set| !needed.contains(&set.id));
            expected.extend(gone.map(|set| set.id.clone()));
            self.sets.retain(|_, set| needed.contains(&set.id));
            self.moments.retain(|moment| moment.order > since);
        }
        let sets = self.receiving.place.arg("sets");
        let count = count.to_string();
        let (code, done) = json(&["expire", &sets, "--keep-full", &count]);
        let removed = done["removed"].as_array().unwrap().iter();
        let removed: BTreeSet<_> = removed.map(|id| id.as_str().unwrap().to_owned()).collect();
        let case = self.case("expire");
        assert_eq!((code, removed), (0, expected), "{case} {count}: {done}");
    }

    fn draw<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let count = u32::try_from(of.len()).unwrap();
        let drawn = (count > 0).then(|| self.random.below(count) as usize);
        drawn.map(|at| of[at].clone())
    }

    fn case(&self, what: &str) -> String {
        format!("seed {}, step {}: {what}", self.seed, self.step)
    }

    /// Restores a set as it is.
    fn check_set(&self, set: &Made) {
        let found = self.receiving.restored(&["--set", &set.id]);
        assert_eq!(found, Ok(set.number), "{}", self.case(&set.id));
    }

    fn check_moment(&self, time: &str, number: u64) {
        let found = self.receiving.restored(&["--target-time", time]);
        assert_eq!(found, Ok(number), "{}", self.case(time));
    }

    fn step(&mut self) {
        self.step += 1;
        let commits = self.random.below(3);
        self.commit(commits);
        match self.random.below(12) {
            0 => self.back_up("full"),
            1..=3 => self.back_up("incr"),
            4 | 5 => self.back_up("diff"),
            6..=8 => self.copy_log(),
            9 | 10 => self.merge(),
            _ => self.expire(),
        }
        let sets: Vec<Made> = self.sets.values().cloned().collect();
        let set = self.draw(&sets).unwrap();
        self.check_set(&set);
        let moments = self.moments.iter();
        let moments: Vec<_> = moments.map(|one| (one.time.clone(), one.number)).collect();
        if let Some((time, number)) = self.draw(&moments) {
            self.check_moment(&time, number);
        }
    }
}

#[test]
fn any_mix_of_sets_log_merges_and_expiry_equals_the_model() {
    let seed = std::env::var("WINDLASS_TEST_SEED").unwrap_or_default();
    let mut mix = Mix::new(seed.parse().unwrap_or(1));
    let steps = if is_soak() { STEPS_IN_SOAK } else { STEPS };
    (0..steps).for_each(|_| mix.step());
    // Whatever was drawn, the log leads from a set to now, and something expires.
    mix.step += 1;
    mix.back_up("full");
    mix.copy_log();
    mix.expire();
    for set in mix.sets.values() {
        mix.check_set(set);
    }
    for moment in &mix.moments {
        mix.check_moment(&moment.time, moment.number);
    }
    let verified = windlass(&["verify", &mix.receiving.place.arg("sets")]);
    let code = verified.status.code();
    assert_ne!(code, Some(4), "{}", text(&verified));
    assert_ne!(code, Some(1), "{}", text(&verified));
}
