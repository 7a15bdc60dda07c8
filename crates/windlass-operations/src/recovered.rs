//! A cluster at a moment, as an image: its set is recovered up to there by a private server, which
//! then ends in order.
//!
//!   set, log --server on an overlay--> recovered --shut down--> the overlay's files: an image
//!
//! Invariants
//! - The set and the log are only read. What recovery writes goes to the scratch directory, and is
//!   removed with the image.
//! - Nothing is shown before the server has reached the moment.

use std::sync::Arc;

use windlass_engine::media::Facts;
use windlass_engine::{Cancel, OpenSet};
use windlass_image::{EditedImage, Image, View, ViewImage};
use windlass_postgres::source_view;

use crate::caller::Caller;
use crate::error::OperationError;
use crate::held::Held;
use crate::opened::{OpenSettings, Opened, ToOpen};
use crate::places::{self, LocatedSet, SetRequest};
use crate::recovery::{self, Plan, RecoveryError, RecoveryPlan, RecoveryRequest};
use crate::scratch::Scratch;

/// A moment in the log of a cluster.
#[derive(Clone, Debug)]
pub struct MomentRequest {
    /// The moment, and where the log is.
    pub recovery: RecoveryRequest,
    /// How the private server is run.
    pub settings: OpenSettings,
}

/// The set that goes on to a moment.
pub(crate) struct ChosenMoment {
    pub(crate) found: LocatedSet,
    pub(crate) set: Arc<OpenSet>,
    pub(crate) plan: RecoveryPlan,
}

/// A cluster at a moment. Its files are there as long as this is.
pub(crate) struct RecoveredImage {
    /// Its files, as a set has them.
    pub(crate) image: Arc<dyn Image>,
    /// What the set says about the cluster.
    pub(crate) facts: Facts,
    /// The set, to say which one to use instead if damage of it is found later.
    pub(crate) found: Option<LocatedSet>,
    /// What people call it.
    pub(crate) title: String,
    _scratch: Scratch,
}

impl ChosenMoment {
    /// Finds the set, and makes sure that it gets to the moment. Nothing is written yet.
    pub(crate) fn find(
        caller: &Caller,
        sets: &SetRequest,
        moment: &RecoveryRequest,
    ) -> Result<Self, OperationError> {
        let newest = places::open(&caller.quiet(), sets)?;
        if Held::of(newest.description())? != Held::Postgres {
            return Err(RecoveryError::NotACluster.into());
        }
        let (found, set, plan) = recovery::choose_point(caller, sets, moment)?;
        let Some(Plan::Cluster(plan)) = plan else {
            return Err(RecoveryError::NotACluster.into());
        };
        recovery::check_inside(&set, moment, &plan)?;
        Ok(Self {
            found,
            set: Arc::new(set),
            plan,
        })
    }

    /// The set, to be opened at the moment.
    pub(crate) fn to_open(&self, settings: &OpenSettings) -> Result<ToOpen, OperationError> {
        let what = ToOpen::set(&self.set, settings.cache_bytes)?;
        Ok(what.recovering(self.plan.recovery.clone()))
    }

    /// Recovers it. Fails if damage of the set was found on the way.
    pub(crate) fn recover(
        self,
        caller: &Caller,
        settings: &OpenSettings,
        cancel: &Cancel,
    ) -> Result<RecoveredImage, OperationError> {
        let recovered = self.at_rest(caller, settings, cancel);
        let (image, scratch) = recovered.map_err(|error| self.found.advised(error))?;
        let description = self.set.description();
        Ok(RecoveredImage {
            image,
            facts: description.facts.clone(),
            title: format!("set {} at {}", self.set.set_id(), self.plan.recovery.point),
            found: Some(self.found),
            _scratch: scratch,
        })
    }

    fn at_rest(
        &self,
        caller: &Caller,
        settings: &OpenSettings,
        cancel: &Cancel,
    ) -> Result<(Arc<dyn Image>, Scratch), OperationError> {
        let what = self.to_open(settings)?;
        let opened = Opened::open(&caller.observer, &what, settings, cancel)?;
        let rest = opened.settle(cancel)?;
        if rest.is_damaged {
            let set = self.set.set_id().to_string();
            let error = RecoveryError::Damaged { set };
            return Err(OperationError::OfDamage(Box::new(error.into())));
        }
        let view = ViewImage::open(rest.overlay as Arc<dyn View>)?;
        let files = source_view(view.files(), &self.set.description().files);
        let image = EditedImage::new(Arc::new(view), files, Vec::new());
        Ok((Arc::new(image), rest.scratch))
    }
}
