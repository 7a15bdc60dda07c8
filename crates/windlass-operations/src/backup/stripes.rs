//! The stripes of a backup: what they take of the buffers, where each is written, and in which
//! mirrors the sealed ones are, too.

use windlass_engine::media::SetId;
use windlass_engine::{BackupOptions, BufferPlan, Device, FileDeviceOptions, Outputs};

use super::mirror::{self, Mirrored};
use super::outcome::stripes;
use super::{Job, Sealed};
use crate::database::plain_name;
use crate::devices::{self, StripeNames};
use crate::error::OperationError;
use crate::notice::MoreMemory;
use crate::objects::Objects;
use crate::warnings::{MIRROR_FAILED, MIRROR_LACKS_BASE};

impl Job<'_> {
    /// The buffers. Only parts of uploads depend on the size of the database.
    pub(super) fn plan(
        &self,
        volumes: usize,
        bytes: impl FnOnce() -> Result<u64, OperationError>,
    ) -> Result<BufferPlan, OperationError> {
        let asked = &self.request.settings.buffers;
        let in_bucket = self.devices.iter().any(|one| one.in_bucket().is_some());
        let in_bucket = in_bucket || mirror::is_any_in_bucket(&self.request.mirrors);
        let bytes = if in_bucket { bytes()? } else { 0 };
        let objects = Objects::new(&self.devices, bytes, self.cancel)?;
        let asked = objects.gathering(&self.devices, asked);
        // The buffers are for data. Parity has its own.
        let data = self.devices.len() - usize::from(self.request.parities);
        let plan = asked.plan(data, volumes)?;
        self.objects.get_or_init(|| objects);
        Ok(plan)
    }

    /// What the run needs besides the buffers.
    pub(super) fn more_memory(&self, options: &BackupOptions) -> MoreMemory {
        let bytes = self.objects.get().map_or(0, Objects::database_bytes);
        MoreMemory {
            pages_bytes: options.pages_bytes(),
            parity_bytes: options.parity_bytes(),
            mirror_bytes: mirror::memory_bytes(&self.request.mirrors, bytes, self.cancel),
        }
    }

    /// Opens the devices of a new set, which is named after the database and its moment.
    pub(super) fn create(
        &self,
        plan: &BufferPlan,
        (database, set_id, begun): (&str, SetId, jiff::Timestamp),
        outputs: &Outputs,
    ) -> Result<Vec<Box<dyn Device>>, OperationError> {
        let names = StripeNames {
            database: plain_name(database),
            time: begun.strftime("%Y%m%dT%H%M%SZ").to_string(),
            set_id,
            count: self.devices.len(),
        };
        let options = FileDeviceOptions {
            alignment: plan.alignment,
            depth: plan.write_depth_max(),
            direct: !self.request.buffered,
            ring: self.request.settings.ring,
            overwrite: self.request.overwrite,
            ..FileDeviceOptions::default()
        };
        let of_files = || Objects::none(self.cancel);
        let objects = self.objects.get().cloned().unwrap_or_else(of_files);
        devices::create(&self.devices, &names, options, (outputs, &objects))
    }

    /// Copies the set to its mirrors. One that fails is a warning: the set is there.
    pub(super) fn mirror(&self, sealed: &mut Sealed) -> Vec<Mirrored> {
        let stripes = stripes(&sealed.report);
        let mut mirrors = Vec::new();
        for request in self.request.mirrors.iter().filter(|_| !stripes.is_empty()) {
            let mirrored = mirror::copy(request, (&stripes, sealed.base), self.cancel);
            let name = &mirrored.name;
            if let Some(fault) = &mirrored.fault {
                let text = format!("the mirror {name} does not have this set: {fault}");
                sealed.warnings.add(MIRROR_FAILED, text);
            }
            if mirrored.lacks_base {
                let text = format!(
                    "the mirror {name} lacks a set on which this one builds, so nothing can be \
                     restored from it there; a full backup mends that"
                );
                sealed.warnings.add(MIRROR_LACKS_BASE, text);
            }
            mirrors.push(mirrored);
        }
        mirrors
    }
}
