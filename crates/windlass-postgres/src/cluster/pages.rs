//! How the pages of a cluster's relations are laid out. It only reads catalogs.

use super::Cluster;
use crate::control::Control;
use crate::error::PostgresError;
use crate::layouts::{Catalogs, PageLayouts, PageRelation, Place, page_relations};
use crate::listing::Listing;
use crate::relations::files::CatalogForm;
use crate::scan::scan;

impl Cluster {
    /// The relations whose pages can be taken apart, the largest first.
    pub fn page_relations(&self) -> Result<Vec<PageRelation>, PostgresError> {
        self.with_catalogs(page_relations)
    }

    /// How the pages of the relations are laid out, by their files.
    pub fn page_layouts(&self) -> Result<PageLayouts, PostgresError> {
        self.with_catalogs(PageLayouts::read)
    }

    fn with_catalogs<T>(
        &self,
        read: impl FnOnce(&Catalogs<'_>, &Listing) -> T,
    ) -> Result<T, PostgresError> {
        let rules = self.scan_rules();
        let control = Control::read(&self.facts.data_directory)?;
        let form = CatalogForm::of(self.facts.major(), &control);
        let catalogs = Catalogs {
            place: Place::Directory(&rules.root),
            version_directory: &rules.version_directory,
            form: &form,
        };
        Ok(read(&catalogs, &scan(&rules)?.listing))
    }
}
