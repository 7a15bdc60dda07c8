//! The files that rehearsals back up: their pages compress about as well as those of a database.
//!
//! Half of each page is noise, the other half is words from a short list. The pages are the same on
//! every machine, and no codec can make them nearly vanish.

use std::fs;
use std::path::{Path, PathBuf};

use windlass_engine::media::fitted;
use windlass_engine::{Cancel, durable};

use crate::error::LabError;
use crate::probe::check_space;
use crate::sample::{Sample, next};

const PAGE_BYTES: usize = 8192;
/// The size of the files. PostgreSQL's files have up to a gigabyte each.
const FILE_BYTES: u64 = 16 << 20;
const SEED: u64 = 0x0c0_4905;
const WORDS: [&[u8]; 8] = [
    b"warehouse ",
    b"district ",
    b"customer ",
    b"order line ",
    b"delivered ",
    b"in stock ",
    b"quantity ",
    b"1996-03-13 ",
];

/// Files to back up.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// Where they are.
    pub files: Vec<PathBuf>,
    /// Bytes of all.
    pub bytes: u64,
}

impl Corpus {
    /// How many times its bytes a rehearsal needs: the files, the stripes, the restored files.
    const COPIES: u64 = 3;

    /// Fails if there is no room at `place` to rehearse with `bytes` bytes.
    pub fn check_space(place: &Path, bytes: u64) -> Result<(), LabError> {
        check_space(place, bytes.saturating_mul(Self::COPIES))
    }

    /// Writes about `bytes` bytes of pages below a directory.
    pub fn write(directory: &Path, bytes: u64, cancel: &Cancel) -> Result<Self, LabError> {
        fs::create_dir_all(directory).map_err(LabError::io("create", directory))?;
        let mut random = SEED;
        let count = bytes.div_ceil(FILE_BYTES).max(1);
        let mut files = Vec::new();
        for index in 0..count {
            cancel.check()?;
            let path = directory.join(format!("{index}"));
            let content = pages(&mut random, FILE_BYTES);
            durable::write(&path, &content, 0o600).map_err(LabError::io("write", &path))?;
            files.push(path);
        }
        let bytes = count * FILE_BYTES;
        Ok(Self { files, bytes })
    }

    /// A sample of the corpus, to measure codecs on.
    pub fn sample(&self, bytes: u64) -> Result<Sample, LabError> {
        Sample::of_files(&self.files, bytes)
    }
}

fn pages(random: &mut u64, bytes: u64) -> Vec<u8> {
    let bytes = fitted(bytes);
    let mut content = Vec::with_capacity(bytes + PAGE_BYTES);
    while content.len() < bytes {
        let end = content.len() + PAGE_BYTES;
        while content.len() < end - PAGE_BYTES / 2 {
            *random = next(*random);
            content.extend_from_slice(&random.to_le_bytes());
        }
        while content.len() < end {
            *random = next(*random);
            let word: usize = fitted(*random % WORDS.len() as u64);
            content.extend_from_slice(WORDS[word]);
        }
        content.truncate(end);
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corpus_is_the_same_again_and_compresses_to_about_half() {
        let place = tempfile::tempdir().unwrap();
        let corpus = Corpus::write(&place.path().join("one"), 1, &Cancel::new()).unwrap();
        let again = Corpus::write(&place.path().join("two"), 1, &Cancel::new()).unwrap();
        let content = fs::read(&corpus.files[0]).unwrap();
        assert_eq!(content.len() as u64, corpus.bytes);
        assert!(content == fs::read(&again.files[0]).unwrap());
        let codec = windlass_engine::media::Codec::Zstd(1);
        let mut encoder = windlass_engine::media::Encoder::new(codec).unwrap();
        let mut into = vec![0; encoder.bound(1 << 17)];
        let (_, stored) = encoder.encode(&content[..1 << 17], &mut into).unwrap();
        assert!((70_000..85_000).contains(&stored), "{stored}");
    }
}
