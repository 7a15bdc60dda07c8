//! A database at a moment, as an image.
//!
//!   cluster   set, log --server on an overlay--> recovered --shut down--> the overlay's files
//!   SQLite    set, log --pages of its transactions--> the overlay's file
//!
//! Invariants
//! - The set and the log are only read. What recovery writes goes to the scratch directory, and is
//!   removed with the image.
//! - Nothing is shown before the database is at the moment.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use windlass_engine::media::Facts;
use windlass_engine::{Cancel, OpenSet};
use windlass_image::{
    Change, EditedImage, Image, NodeNo, Overlay, SetImage, SetImageOptions, View, ViewImage,
};
use windlass_postgres::{DatabaseFacts, RecoveryPoint, source_view};
use windlass_repository::LogPlace;

use crate::caller::Caller;
use crate::error::OperationError;
use crate::opened::{OpenSettings, Opened, ToOpen};
use crate::places::{LocatedSet, SetRequest};
use crate::recovery::{
    self, FilePlan, Plan, RecoveryError, RecoveryPlan, RecoveryRequest, bytes_of,
};
use crate::scratch::Scratch;
use crate::stored::log_at;

/// A moment in the log of a database.
#[derive(Clone, Debug)]
pub struct MomentRequest {
    /// The moment, and where the log is.
    pub recovery: RecoveryRequest,
    /// How the private server of a cluster is run, and where the scratch directory is.
    pub settings: OpenSettings,
}

/// The set that goes on to a moment.
pub(crate) struct ChosenMoment {
    pub(crate) found: LocatedSet,
    pub(crate) set: Arc<OpenSet>,
    pub(crate) plan: Plan,
}

/// A database at a moment. Its files are there as long as this is.
pub(crate) struct RecoveredImage {
    /// Its files, as a set has them.
    pub(crate) image: Arc<dyn Image>,
    /// What the set says about the database.
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
        let (found, set, plan) = recovery::choose_point(caller, sets, moment)?;
        found.watch(&set);
        // Only the end of a set needs no plan, and that is no moment.
        let plan = plan.ok_or(RecoveryError::NoMoment)?;
        if let Plan::Cluster(plan) = &plan {
            recovery::check_inside(&set, moment, plan)?;
        }
        Ok(Self {
            found,
            set: Arc::new(set),
            plan,
        })
    }

    /// What people call it.
    pub(crate) fn title(&self) -> String {
        format!("set {} at {}", self.set.set_id(), self.point())
    }

    /// The moment.
    pub(crate) fn point(&self) -> &RecoveryPoint {
        match &self.plan {
            Plan::Cluster(plan) => &plan.recovery.point,
            Plan::File(plan) => &plan.point,
        }
    }

    /// The log that leads there.
    pub(crate) fn log(&self) -> LogPlace {
        match &self.plan {
            Plan::File(plan) => plan.log().clone(),
            Plan::Cluster(plan) => {
                let facts = DatabaseFacts::of_set(&self.set.description().facts.database);
                let system = facts
                    .ok()
                    .and_then(|facts| facts.system_identifier.parse().ok());
                LogPlace::new(&log_at(&plan.place), system.unwrap_or_default())
            }
        }
    }

    /// The database, to be opened at the moment. What is returned beside it must live as long.
    pub(crate) fn to_open(
        &self,
        caller: &Caller,
        settings: &OpenSettings,
        cancel: &Cancel,
    ) -> Result<(ToOpen, Option<Scratch>), OperationError> {
        let of_set = ToOpen::set(&self.set, settings.cache_bytes)?;
        match &self.plan {
            Plan::Cluster(plan) => Ok((of_set.recovering(plan.recovery.clone()), None)),
            Plan::File(plan) => {
                let (image, facts, scratch) = self.replayed(plan, caller, settings, cancel)?;
                let what = of_set.replaced(image, facts, &plan.point.to_string());
                Ok((what, Some(scratch)))
            }
        }
    }

    /// Recovers it. Fails if damage of the set was found on the way.
    pub(crate) fn recover(
        self,
        caller: &Caller,
        settings: &OpenSettings,
        cancel: &Cancel,
    ) -> Result<RecoveredImage, OperationError> {
        let recovered = match &self.plan {
            Plan::Cluster(plan) => self.at_rest(plan, caller, settings, cancel),
            Plan::File(plan) => self.replayed(plan, caller, settings, cancel),
        };
        let (image, facts, scratch) = recovered.map_err(|error| self.found.advised(error))?;
        Ok(RecoveredImage {
            image,
            facts,
            title: self.title(),
            found: Some(self.found),
            _scratch: scratch,
        })
    }

    /// The files that a private server leaves, which recovers up to the moment.
    fn at_rest(
        &self,
        plan: &RecoveryPlan,
        caller: &Caller,
        settings: &OpenSettings,
        cancel: &Cancel,
    ) -> Result<Recovered, OperationError> {
        let what = ToOpen::set(&self.set, settings.cache_bytes)?;
        let what = what.recovering(plan.recovery.clone());
        let opened = Opened::open(&caller.observer, &what, settings, cancel)?;
        let rest = opened.settle(cancel)?;
        if rest.is_damaged {
            let set = self.set.set_id().to_string();
            let error = RecoveryError::Damaged { set };
            return Err(OperationError::OfDamage(Box::new(error.into())));
        }
        let description = self.set.description();
        let view = ViewImage::open(rest.overlay as Arc<dyn View>)?;
        let files = source_view(view.files(), &description.files);
        let image = EditedImage::new(Arc::new(view), files, Vec::new());
        Ok((Arc::new(image), description.facts.clone(), rest.scratch))
    }

    /// The file of a SQLite database, with the pages of its transactions over that of the set.
    fn replayed(
        &self,
        plan: &FilePlan,
        caller: &Caller,
        settings: &OpenSettings,
        cancel: &Cancel,
    ) -> Result<Recovered, OperationError> {
        let mut facts = self.set.description().facts.clone();
        let shown = windlass_sqlite::shown(&facts, &self.set.description().files)?;
        let options = SetImageOptions {
            frame_cache_bytes: settings.cache_bytes,
            ..SetImageOptions::default()
        };
        let image = Arc::new(SetImage::open(Arc::clone(&self.set), &options)?);
        let scratch = Scratch::create(&caller.observer, settings.scratch.as_deref(), None, None)?;
        let overlay = Overlay::create_once(image, &scratch.overlay())?;
        let file = overlay.lookup(NodeNo::ROOT, shown.name.as_os_str().as_bytes())?;
        let last = plan.pages(cancel, |at, page| Ok(overlay.write(file.node, at, page)?))?;
        if let Some(last) = last {
            let bytes = Some(bytes_of(&last));
            let cut = Change {
                bytes,
                ..Change::default()
            };
            overlay.change(file.node, &cut)?;
            facts.database["page_bytes"] = last.page_bytes.into();
            facts.database["page_count"] = last.page_count.into();
            facts.database["bytes"] = bytes.into();
        }
        let view = ViewImage::open(Arc::new(overlay) as Arc<dyn View>)?;
        Ok((Arc::new(view), facts, scratch))
    }
}

/// An image, what is known about its database, and where it is.
type Recovered = (Arc<dyn Image>, Facts, Scratch);
