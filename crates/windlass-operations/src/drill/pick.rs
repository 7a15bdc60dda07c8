//! Which moment a drill opens.

use std::sync::Arc;

use windlass_engine::{Cancel, OpenSet, SetState};

use super::{DrillError, DrillRequest};
use crate::caller::Caller;
use crate::error::OperationError;
use crate::opened::{OpenSettings, ToOpen};
use crate::places::{self, LocatedSet, Named, Which};
use crate::recovered::ChosenMoment;
use crate::recovery;
use crate::scratch::Scratch;

/// What a drill opens.
pub(super) enum Picked {
    /// A set.
    Set(LocatedSet, Arc<OpenSet>),
    /// A moment in the log behind a set.
    Moment(Box<ChosenMoment>),
}

impl Picked {
    /// What to open. What is returned beside it must live as long.
    pub(super) fn to_open(
        &self,
        caller: &Caller,
        settings: &OpenSettings,
        cancel: &Cancel,
    ) -> Result<(ToOpen, Option<Scratch>), OperationError> {
        match self {
            Self::Set(_, set) => Ok((ToOpen::set(set, settings.cache_bytes)?, None)),
            Self::Moment(chosen) => chosen.to_open(caller, settings, cancel),
        }
    }

    /// The set.
    pub(super) fn set(&self) -> &OpenSet {
        match self {
            Self::Set(_, set) => set,
            Self::Moment(chosen) => &chosen.set,
        }
    }

    /// What is opened, in words.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Set(_, set) => format!("set {}", set.set_id()),
            Self::Moment(chosen) => {
                format!(
                    "set {} with its log up to {}",
                    chosen.set.set_id(),
                    chosen.point()
                )
            }
        }
    }

    /// An error, with what to use instead.
    pub(super) fn advised(&self, error: OperationError) -> OperationError {
        let found = match self {
            Self::Set(found, _) => found,
            Self::Moment(chosen) => &chosen.found,
        };
        found.advised(error)
    }
}

/// The newest moment, the one that was asked for, or a set that is drawn.
pub(super) fn pick(caller: &Caller, request: &DrillRequest) -> Result<Picked, OperationError> {
    let mut sets = request.set.clone();
    if let Some(seed) = request.seed {
        sets.choice.which = Some(drawn(caller, request, seed)?);
    }
    let (found, set, plan) = recovery::choose(caller, &sets, Some(&request.moment))?;
    let set = Arc::new(set);
    Ok(match plan {
        Some(plan) => Picked::Moment(Box::new(ChosenMoment { found, set, plan })),
        None => Picked::Set(found, set),
    })
}

/// One of the sealed sets. The same seed draws the same one, as long as the sets are the same.
fn drawn(caller: &Caller, request: &DrillRequest, seed: u64) -> Result<Which, OperationError> {
    let named = Named::new(&caller.quiet(), &request.set)?;
    if named.choice.which.is_some() || !named.are_directories() {
        return Err(DrillError::Chosen.into());
    }
    named.check_one()?;
    let list = places::list(&named.paths)?;
    let sets = named.sets(&list.sets, list.unknown.is_empty())?;
    let sealed: Vec<_> = sets
        .into_iter()
        .filter(|set| matches!(set.state, SetState::Sealed))
        .collect();
    let places = named.places();
    let count = sealed.len() as u64;
    let index = mixed(seed).checked_rem(count);
    let set = index.and_then(|index| sealed.get(usize::try_from(index).ok()?));
    let set = set.ok_or(DrillError::NothingToDraw { places })?;
    Ok(Which::Id(set.set_id.to_string()))
}

/// A number in which each bit depends on each bit of the seed (the last step of SplitMix64).
fn mixed(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
