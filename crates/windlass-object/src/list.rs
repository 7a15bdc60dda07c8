//! Lists of a bucket, page after page.
//!
//! Invariant: a server that gives a page again ends the list with an error. Nothing is collected
//! without end.

use std::collections::{BTreeSet, HashSet};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::ObjectMeta;
use object_store::list::PaginatedListOptions;
use object_store::path::Path;

use crate::client::Bucket;
use crate::error::ObjectError;
use crate::request::path;

/// What lies in a folder.
#[derive(Default)]
pub(crate) struct Listed {
    pub(crate) objects: Vec<ObjectMeta>,
    pub(crate) folders: BTreeSet<Path>,
}

impl Bucket {
    /// Lists what lies in a folder, itself and not deeper.
    pub(crate) async fn list(&self, key: &str) -> Result<Listed, ObjectError> {
        self.pages(key, Some("/")).await
    }

    /// Lists what lies below a folder, in whichever folder of it.
    pub(crate) async fn list_below(&self, key: &str) -> Result<Vec<ObjectMeta>, ObjectError> {
        Ok(self.pages(key, None).await?.objects)
    }

    /// All pages of a list, each with tries of its own.
    async fn pages(
        &self,
        key: &str,
        delimiter: Option<&'static str>,
    ) -> Result<Listed, ObjectError> {
        let prefix = (!key.is_empty()).then(|| format!("{}/", path(key)));
        let mut listed = Listed::default();
        let mut tokens = HashSet::new();
        let mut next: Option<String> = None;
        loop {
            let page = || {
                let options = PaginatedListOptions {
                    delimiter: delimiter.map(Into::into),
                    page_token: next.clone(),
                    ..PaginatedListOptions::default()
                };
                self.client.list_paginated(prefix.as_deref(), options)
            };
            let page = self.send(("list", key), page).await?;
            listed.objects.extend(page.result.objects);
            listed.folders.extend(page.result.common_prefixes);
            next = page.page_token.filter(|token| !token.is_empty());
            match &next {
                None => return Ok(listed),
                Some(token) if tokens.insert(token.clone()) => {}
                Some(_) => return Err(self.repeats(key)),
            }
        }
    }

    /// The same, but none that comes before this key. The library knows how each service does that,
    /// and shows no pages.
    pub(crate) async fn list_from(
        &self,
        key: &str,
        first: &str,
    ) -> Result<Vec<ObjectMeta>, ObjectError> {
        let prefix = (!key.is_empty()).then(|| path(key));
        // It is the beginning of keys, which come after it.
        let offset = path(first);
        let list = || gathered(self.client.list_with_offset(prefix.as_ref(), &offset));
        let found = self.send(("list", key), list).await?;
        found.ok_or_else(|| self.repeats(key))
    }

    fn repeats(&self, key: &str) -> ObjectError {
        let place = self.named(key);
        ObjectError::Repeats { place }
    }
}

/// The objects of all pages. None if one of them comes twice.
async fn gathered(
    mut pages: BoxStream<'static, object_store::Result<ObjectMeta>>,
) -> object_store::Result<Option<Vec<ObjectMeta>>> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    while let Some(object) = pages.next().await {
        let object = object?;
        if !seen.insert(object.location.clone()) {
            return Ok(None);
        }
        found.push(object);
    }
    Ok(Some(found))
}
