//! What expires in some places, as a value: the fate of each set, and of the log.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use windlass_engine::media::{BackupType, SetId, saturated};
use windlass_engine::{EngineError, SetEntry, SetList, SetState};
use windlass_postgres::Lsn;
use windlass_repository::retention::{self, KeptSets, Member, Rule};

use super::ExpireRequest;
use super::away::Away;
use super::logs::{DatabaseLogs, LogExpiry};
use super::needs::{self, Unclear, Withheld};
use super::steps::{self, GRACE_DEFAULT, Step, base_of, lingers};
use crate::error::OperationError;
use crate::info::base_faults;
use crate::moments::zone;
use crate::places::{self, Identity, Named, by_database};

/// How far a set may lie in the future: the clocks of two hosts differ a little.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(5);

/// What expires in some places.
#[derive(Debug, Default)]
pub struct ExpirePlan {
    /// The databases, each with its sets.
    pub databases: Vec<DatabasePlan>,
    /// Sets that do not say their database, and why. They stay.
    pub unknown: Vec<(SetId, Fate)>,
    /// Sets whose removal an earlier run has begun. They go, whatever the rules say.
    pub begun: Vec<SetId>,
    /// How long sets are hidden before they are removed.
    pub grace: SignedDuration,
}

/// What expires of a database.
#[derive(Debug)]
pub struct DatabasePlan {
    /// The database.
    pub of: Identity,
    /// Its sets, the oldest first.
    pub sets: Vec<PlannedSet>,
    /// The logs of which something goes.
    pub logs: Vec<LogExpiry>,
    /// What would go, and stays because nobody knows whether another set needs it.
    pub withheld: Withheld,
    /// A set that was begun in the future. Then nothing goes.
    pub future: Option<(SetId, i64)>,
}

/// A set, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSet {
    /// The set.
    pub id: SetId,
    /// Its type.
    pub backup_type: BackupType,
    /// When it was begun, in nanoseconds since 1970 UTC.
    pub begun_nanos: i64,
    /// Bytes of its stripes.
    pub bytes: u64,
    /// What becomes of it.
    pub fate: Fate,
    /// What is done now with a set that goes.
    pub step: Option<Step>,
    /// Since when it is hidden, in nanoseconds since 1970 UTC.
    pub hidden_nanos: Option<i64>,
    /// How many sets a restore of it needs besides.
    pub(super) depth: usize,
}

/// What becomes of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes.
    Goes,
    /// It stays, for these reasons.
    Stays(BTreeSet<Rule>),
    /// It cannot be restored as it is, so no rule counts it. It stays until somebody looks.
    Faulty(String),
    /// Its backup is under way or was cut off: the next backup deals with it.
    Unfinished,
}

impl ExpirePlan {
    /// The sets that go.
    pub fn gone(&self) -> impl Iterator<Item = &PlannedSet> {
        let sets = self.databases.iter().flat_map(|one| &one.sets);
        sets.filter(|set| set.fate == Fate::Goes)
    }

    /// The hidden sets that are to be shown again.
    pub fn shown_again(&self) -> impl Iterator<Item = &PlannedSet> {
        let sets = self.databases.iter().flat_map(|one| &one.sets);
        sets.filter(|set| set.hidden_nanos.is_some() && is_shown_again(&set.fate))
    }
}

/// Makes plans of the same places, again and again.
pub(super) struct Planner<'a> {
    pub(super) named: &'a Named,
    request: &'a ExpireRequest,
    now: i64,
    /// What the first look found out: which sets there were, and why some cannot be restored. A
    /// second look would wait for sets that are reserved.
    first: Option<FirstLook>,
    /// The sets that somebody reads.
    pub(super) in_use: BTreeSet<SetId>,
    /// The sets that could not be removed, and why.
    pub(super) failed: BTreeMap<SetId, EngineError>,
    /// The sets that lie elsewhere.
    away: Away,
}

/// The plan for a database, as long as only its own sets count.
struct Draft<'a> {
    of: Identity,
    sets: Vec<&'a SetEntry>,
    /// Those that can be restored.
    sound: Vec<&'a SetEntry>,
    logs: DatabaseLogs,
    kept: KeptSets,
    /// Sets that the rules would keep with their log if they could be restored.
    unclear: Vec<Unclear>,
    withheld: Withheld,
    future: Option<(SetId, i64)>,
}

struct FirstLook {
    seen: BTreeSet<SetId>,
    faults: BTreeMap<SetId, String>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(named: &'a Named, request: &'a ExpireRequest, away: Away) -> Self {
        let now = request.now.unwrap_or_else(Timestamp::now).as_nanosecond();
        Self {
            named,
            request,
            now: saturated(now),
            first: None,
            in_use: BTreeSet::new(),
            failed: BTreeMap::new(),
            away,
        }
    }

    /// What expires now.
    pub(super) fn plan(&mut self) -> Result<ExpirePlan, OperationError> {
        let list = self.list()?;
        self.plan_of(&list)
    }

    /// The sets of the places, hidden ones among them.
    pub(super) fn list(&self) -> Result<SetList, OperationError> {
        let mut list = places::list(&self.named.paths)?;
        let hidden = std::mem::take(&mut list.hidden);
        list.sets.extend(hidden);
        list.sets.sort_by_key(|set| (set.begun_nanos, set.set_id.0));
        Ok(list)
    }

    /// How long sets are hidden.
    fn grace(&self) -> SignedDuration {
        self.request.grace.unwrap_or(GRACE_DEFAULT)
    }

    /// What expires of these sets.
    pub(super) fn plan_of(&mut self, list: &SetList) -> Result<ExpirePlan, OperationError> {
        let faults = self.faults(list);
        let sets = self.named.sets(&list.sets, list.unknown.is_empty())?;
        let mut plan = ExpirePlan {
            begun: list.removals.iter().map(|one| one.set_id).collect(),
            grace: self.grace(),
            ..ExpirePlan::default()
        };
        let nameless = sets.iter().filter(|set| Identity::of(set).is_none());
        let fates = nameless.map(|set| (set.set_id, fate(set, &KeptSets::new(), &faults)));
        plan.unknown.extend(fates);
        let databases = by_database(sets.into_iter());
        let mut drafts = Vec::with_capacity(databases.len());
        for (of, sets) in databases {
            drafts.push(self.draft(of, sets, &faults)?);
        }
        self.keep_bases_of_away(&mut drafts);
        keep_what_others_need(list, &mut drafts);
        for draft in drafts {
            plan.databases
                .push(draft.planned(list, &faults, self.grace())?);
        }
        let going = plan.gone().map(|set| set.id).collect();
        let steps = steps::decide(list, &going, plan.grace);
        for set in plan.databases.iter_mut().flat_map(|one| &mut one.sets) {
            set.step = steps.get(&set.id).copied();
        }
        Ok(plan)
    }

    /// Keeps what sets in places that were not named build on.
    fn keep_bases_of_away(&mut self, drafts: &mut [Draft<'_>]) {
        let going: BTreeSet<SetId> = drafts.iter().flat_map(Draft::going).collect();
        let needed = self.away.needed(&going);
        for draft in drafts {
            let own: BTreeSet<SetId> = draft.going().collect();
            for (base, above) in needed.iter().filter(|(base, _)| own.contains(base)) {
                draft.withheld.because_of(std::slice::from_ref(above));
                draft.withheld.sets.insert(*base);
                needs::keep(&mut draft.kept, std::iter::once(*base), Rule::Base);
            }
        }
    }

    /// Why sets cannot be restored although their stripes are there.
    fn faults(&mut self, list: &SetList) -> BTreeMap<SetId, String> {
        let first = self.first.get_or_insert_with(|| {
            let faults = base_faults(&list.sets, &self.named.paths).into_iter();
            FirstLook {
                seen: list.sets.iter().map(|set| set.set_id).collect(),
                faults: faults
                    .map(|(set, fault)| (set, fault.to_string()))
                    .collect(),
            }
        });
        let there: BTreeSet<_> = list.sets.iter().map(|set| set.set_id).collect();
        let mut faults = first.faults.clone();
        for set in list
            .sets
            .iter()
            .filter(|set| !first.seen.contains(&set.set_id))
        {
            let base = base_of(set);
            if base.is_some_and(|base| !there.contains(&base) || faults.contains_key(&base)) {
                faults.insert(set.set_id, "it was made just now".to_owned());
            }
        }
        faults
    }

    fn draft<'s>(
        &self,
        of: Identity,
        sets: Vec<&'s SetEntry>,
        faults: &BTreeMap<SetId, String>,
    ) -> Result<Draft<'s>, OperationError> {
        let is_sound = |set: &&&SetEntry| {
            matches!(set.state, SetState::Sealed) && !faults.contains_key(&set.set_id)
        };
        let sound: Vec<_> = sets.iter().filter(is_sound).copied().collect();
        let limit = self.now.saturating_add(nanos(CLOCKS_DIFFER));
        let future = sound.iter().find(|set| set.begun_nanos > limit);
        let future = future.map(|set| (set.set_id, set.begun_nanos));
        let logs = DatabaseLogs::of(&self.named.paths, &of, &sound)?;
        let members: Vec<_> = sound.iter().map(|set| self.member(set, &logs)).collect();
        let kept = match future {
            Some(_) => sound
                .iter()
                .map(|set| (set.set_id, BTreeSet::new()))
                .collect(),
            None => retention::kept(&self.request.policy, &members, self.now, &zone()),
        };
        Ok(Draft {
            unclear: self.unclear(&sets, members, &logs, faults),
            withheld: Withheld::default(),
            of,
            sets,
            sound,
            logs,
            kept,
            future,
        })
    }

    /// The sets that cannot be restored as they are, and that the rules would keep with their log
    /// otherwise. `members` are the others.
    fn unclear(
        &self,
        sets: &[&SetEntry],
        mut members: Vec<Member>,
        logs: &DatabaseLogs,
        faults: &BTreeMap<SetId, String>,
    ) -> Vec<Unclear> {
        let unclear = sets.iter().filter_map(|set| {
            let fault = faults.get(&set.set_id);
            Some((*set, Unclear::of(set, fault)?))
        });
        let (entries, mut unclear): (Vec<_>, Vec<_>) = unclear.unzip();
        members.extend(entries.iter().map(|set| self.member(set, logs)));
        let whole = retention::kept(&self.request.policy, &members, self.now, &zone());
        unclear.retain(|set| {
            let rules = whole.get(&set.set);
            rules.is_some_and(|rules| rules.iter().any(|rule| rule.keeps_log()))
        });
        unclear
    }

    fn member(&self, set: &SetEntry, logs: &DatabaseLogs) -> Member {
        let mut always = BTreeSet::new();
        always.extend((!set.holds.is_empty()).then_some(Rule::Held));
        let cannot_go = |set: &SetId| self.in_use.contains(set) || self.failed.contains_key(set);
        always.extend(cannot_go(&set.set_id).then_some(Rule::InUse));
        always.extend(logs.leads_to_newest(set.set_id).then_some(Rule::Timeline));
        let facts = set.about.as_ref().map(|about| &about.database);
        let word = |key: &str| {
            facts
                .and_then(|facts| facts[key].as_str())
                .unwrap_or_default()
        };
        let finished = set.about.as_ref().map_or("", |about| &about.finished);
        let time = |text: &str| text.parse::<Timestamp>().ok();
        let ended = time(word("stop_time")).or_else(|| time(finished));
        let ended = ended.and_then(|time| i64::try_from(time.as_nanosecond()).ok());
        Member {
            id: set.set_id,
            base: base_of(set),
            is_full: base_of(set).is_none(),
            begun_nanos: set.begun_nanos,
            ended_nanos: ended.unwrap_or(set.begun_nanos),
            origin: (
                word("restored").to_owned(),
                Lsn::parse(word("stop_lsn")).unwrap_or(Lsn(0)),
            ),
            always,
        }
    }
}

impl Draft<'_> {
    fn going(&self) -> impl Iterator<Item = SetId> {
        let sound = self.sound.iter().map(|set| set.set_id);
        sound.filter(|set| !self.kept.contains_key(set))
    }

    fn planned(
        mut self,
        list: &SetList,
        faults: &BTreeMap<SetId, String>,
        grace: SignedDuration,
    ) -> Result<DatabasePlan, OperationError> {
        let going = |set: &&&SetEntry| !self.kept.contains_key(&set.set_id);
        let lingering = self.sound.iter().filter(going);
        let lingering: Vec<_> = lingering
            .filter(|set| lingers(set, grace))
            .copied()
            .collect();
        let mut logs = match self.future {
            Some(_) => Vec::new(),
            None => self.logs.expiring(&self.sound, &self.kept, &lingering)?,
        };
        let unclear = Unclear::among(list).into_iter().map(|(_, set)| set);
        let unclear: Vec<_> = unclear.chain(self.unclear).collect();
        if !logs.is_empty() && !unclear.is_empty() {
            self.withheld.logs = std::mem::take(&mut logs);
            self.withheld.because_of(&unclear);
        }
        let depths = depths(&self.sets);
        let planned = |set: &&SetEntry| PlannedSet {
            id: set.set_id,
            backup_type: set
                .about
                .as_ref()
                .map_or(BackupType::Full, |about| about.backup_type),
            begun_nanos: set.begun_nanos,
            bytes: set.bytes(),
            fate: fate(set, &self.kept, faults),
            step: None,
            hidden_nanos: set.hidden.iter().map(|mark| mark.modified_nanos).max(),
            depth: depths.get(&set.set_id).copied().unwrap_or(0),
        };
        Ok(DatabasePlan {
            sets: self.sets.iter().map(planned).collect(),
            of: self.of,
            logs,
            withheld: self.withheld,
            future: self.future,
        })
    }
}

/// Keeps what sets of other databases, and sets that cannot be read or restored, need.
fn keep_what_others_need(list: &SetList, drafts: &mut [Draft<'_>]) {
    let mut going: BTreeSet<SetId> = drafts.iter().flat_map(Draft::going).collect();
    let needed = needs::bases_of_what_stays(list, &mut going);
    let unclear = Unclear::among(list).into_iter();
    let unclear = unclear.filter(|(set, _)| set.may_have_base);
    let unclear: Vec<_> = unclear.map(|(_, set)| set).collect();
    for draft in drafts {
        let (bases, others): (Vec<_>, Vec<_>) = draft.going().partition(|set| needed.contains(set));
        needs::keep(&mut draft.kept, bases.into_iter(), Rule::Base);
        if !unclear.is_empty() && !others.is_empty() {
            draft.withheld.because_of(&unclear);
            draft.withheld.sets.extend(&others);
            needs::keep(&mut draft.kept, others.into_iter(), Rule::Unclear);
        }
    }
}

fn fate(set: &SetEntry, kept: &KeptSets, faults: &BTreeMap<SetId, String>) -> Fate {
    if matches!(set.state, SetState::Unfinished) {
        return Fate::Unfinished;
    }
    let own = set.state.fault().map(ToString::to_string);
    if let Some(fault) = own.or_else(|| faults.get(&set.set_id).cloned()) {
        return Fate::Faulty(fault);
    }
    match kept.get(&set.set_id) {
        Some(rules) => Fate::Stays(rules.clone()),
        None => Fate::Goes,
    }
}

/// How many sets are below each one.
fn depths(sets: &[&SetEntry]) -> BTreeMap<SetId, usize> {
    let bases: BTreeMap<_, _> = sets.iter().map(|set| (set.set_id, base_of(set))).collect();
    let mut depths: BTreeMap<SetId, usize> = BTreeMap::new();
    for set in sets {
        let mut way = vec![set.set_id];
        // A chain without an end is none. It can have no more sets than there are.
        while let Some(base) = way
            .last()
            .and_then(|last| bases.get(last).copied().flatten())
        {
            if depths.contains_key(&base) || !bases.contains_key(&base) || way.len() > sets.len() {
                break;
            }
            way.push(base);
        }
        for one in way.into_iter().rev() {
            let below = bases[&one].and_then(|base| depths.get(&base));
            let depth = below.map_or(0, |depth| depth + 1);
            depths.entry(one).or_insert(depth);
        }
    }
    depths
}

/// Whether a hidden set is to be shown again: the rules keep it, or it cannot be restored, which
/// somebody should see. What only an unread set may need stays hidden.
fn is_shown_again(fate: &Fate) -> bool {
    match fate {
        Fate::Stays(rules) => rules.iter().any(|rule| *rule != Rule::Unclear),
        Fate::Faulty(_) => true,
        Fate::Goes | Fate::Unfinished => false,
    }
}

fn nanos(time: SignedDuration) -> i64 {
    saturated(time.as_nanos())
}
