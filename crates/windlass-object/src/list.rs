//! Lists of a bucket, page after page.
//!
//! Invariant: a server that gives a page again, or pages without anything for ever, ends the list
//! with an error. Nothing is collected without end.

use std::collections::{BTreeSet, HashSet};

use object_store::ObjectMeta;
use object_store::list::PaginatedListOptions;
use object_store::path::Path;

use crate::client::Bucket;
use crate::error::ObjectError;
use crate::request::path;

/// How many pages in a row may bring nothing. Services give some where much was removed.
const EMPTY_PAGES_MAX: usize = 1000;
/// How the names of buckets of S3's directory kind end. Their lists begin with the first key only.
const DIRECTORY_BUCKET: &str = "--x-s3";

/// What lies in a folder.
#[derive(Default)]
pub(crate) struct Listed {
    pub(crate) objects: Vec<ObjectMeta>,
    pub(crate) folders: BTreeSet<Path>,
}

impl Bucket {
    /// Lists what lies in a folder, itself and not deeper.
    pub(crate) async fn list(&self, key: &str) -> Result<Listed, ObjectError> {
        self.pages(key, Some("/"), None).await
    }

    /// Lists what lies below a folder, in whichever folder of it.
    pub(crate) async fn list_below(&self, key: &str) -> Result<Vec<ObjectMeta>, ObjectError> {
        Ok(self.pages(key, None, None).await?.objects)
    }

    /// The same, but none that comes before this key.
    pub(crate) async fn list_from(
        &self,
        key: &str,
        first: &str,
    ) -> Result<Vec<ObjectMeta>, ObjectError> {
        // It is the beginning of keys, which come after it.
        let first = path(first);
        Ok(self.pages(key, None, Some(&first)).await?.objects)
    }

    /// All pages of a list, each with tries of its own.
    async fn pages(
        &self,
        key: &str,
        delimiter: Option<&'static str>,
        after: Option<&Path>,
    ) -> Result<Listed, ObjectError> {
        let prefix = (!key.is_empty()).then(|| format!("{}/", path(key)));
        let offset = after.filter(|_| !self.location.bucket.ends_with(DIRECTORY_BUCKET));
        let (mut listed, mut seen) = (Listed::default(), Seen::default());
        let mut next: Option<String> = None;
        loop {
            let page = || {
                let options = PaginatedListOptions {
                    offset: offset.map(ToString::to_string),
                    delimiter: delimiter.map(Into::into),
                    page_token: next.clone(),
                    ..PaginatedListOptions::default()
                };
                self.client.list_paginated(prefix.as_deref(), options)
            };
            let page = self.send(("list", key), page).await?;
            let mut objects = page.result.objects;
            let before = listed.folders.len();
            listed.folders.extend(page.result.common_prefixes);
            let is_empty = objects.is_empty() && listed.folders.len() == before;
            let first = objects.first().map(|object| object.location.clone());
            let token = page.page_token.filter(|token| !token.is_empty());
            if seen.goes_round(first, is_empty, token.as_ref()) {
                let place = self.named(key);
                return Err(ObjectError::Repeats { place });
            }
            // Some servers begin with the first key all the same.
            objects.retain(|object| after.is_none_or(|after| object.location > *after));
            listed.objects.append(&mut objects);
            next = token;
            if next.is_none() {
                return Ok(listed);
            }
        }
    }
}

/// What the pages of a list were, so that one without an end is found.
#[derive(Default)]
struct Seen {
    tokens: HashSet<String>,
    /// The first object of each page: no other page has it.
    firsts: HashSet<Path>,
    /// How many pages in a row have brought nothing.
    empty: usize,
}

impl Seen {
    /// Whether the list gives what it gave already, or has brought nothing for so long that nothing
    /// will come.
    fn goes_round(&mut self, first: Option<Path>, is_empty: bool, token: Option<&String>) -> bool {
        self.empty = if is_empty { self.empty + 1 } else { 0 };
        let is_again = first.is_some_and(|first| !self.firsts.insert(first));
        let leads_back = token.is_some_and(|token| !self.tokens.insert(token.clone()));
        is_again || leads_back || (token.is_some() && self.empty > EMPTY_PAGES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use tokio::runtime::Runtime;

    use super::*;

    /// A bucket whose lists have pages like this, whatever was asked for.
    fn bucket(runtime: &Runtime, page: fn(usize) -> String) -> Bucket {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let client = client.unwrap();
                let mut lines = BufReader::new(&client).lines();
                assert!(lines.any(|line| line.unwrap().is_empty()));
                let body = page(number);
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
                (&client).write_all(answer.as_bytes()).unwrap();
            }
        });
        Bucket::unsigned(runtime, endpoint)
    }

    /// A page with these objects of a folder.
    fn page(names: &[&str], token: &str) -> String {
        let object = |name: &&str| {
            format!(
                "<Contents><Key>log/{name}</Key><LastModified>2026-11-27T07:00:00.000Z\
                 </LastModified><ETag>&quot;1&quot;</ETag><Size>1</Size></Contents>"
            )
        };
        let objects: String = names.iter().map(object).collect();
        let next = match token.is_empty() {
            true => String::new(),
            false => format!("<NextContinuationToken>{token}</NextContinuationToken>"),
        };
        format!("<ListBucketResult>{objects}{next}</ListBucketResult>")
    }

    #[test]
    fn a_list_without_an_end_is_an_error_however_it_goes_on() {
        let runtime = Runtime::new().unwrap();
        let endless: [fn(usize) -> String; 4] = [
            |_| page(&[], "again"),
            |number| page(&[], &number.to_string()),
            |number| page(&["a", "b"], &number.to_string()),
            |number| page(&[["a", "b"][number % 2]], &number.to_string()),
        ];
        for (case, answer) in endless.into_iter().enumerate() {
            let bucket = bucket(&runtime, answer);
            let found = bucket.wait(bucket.list_from("log", "log/0"));
            let is_found = matches!(found, Err(ObjectError::Repeats { .. }));
            assert!(is_found, "case {case}: {found:?}");
            let found = bucket.wait(bucket.list("log")).err();
            let is_found = matches!(found, Some(ObjectError::Repeats { .. }));
            assert!(is_found, "case {case}: {found:?}");
        }
    }

    #[test]
    fn a_list_goes_on_after_pages_without_anything_and_begins_where_it_was_asked_to() {
        let runtime = Runtime::new().unwrap();
        let bucket = bucket(&runtime, |number| match number % 4 {
            0 => page(&["a", "b"], "1"),
            3 => page(&["c", "d"], ""),
            number => page(&[], &(number + 1).to_string()),
        });
        let names = |found: Vec<ObjectMeta>| {
            let names = found.iter().filter_map(|one| one.location.filename());
            names.collect::<Vec<_>>().join(" ")
        };
        let found = bucket.wait(bucket.list_below("log")).unwrap();
        assert_eq!(names(found), "a b c d");
        let found = bucket.wait(bucket.list_from("log", "log/b")).unwrap();
        assert_eq!(names(found), "c d");
    }
}
