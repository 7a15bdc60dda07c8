//! A stripe taken apart: header, seal and footer, whether each of them is right, and what can be
//! read with the rest. If the header is damaged, that of another stripe is used in its place. If
//! the footer is damaged, `walk.rs` goes from index block to index block.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_media::{
    FRAME_BYTES_MAX, Footer, FormatError, IndexDirectoryEntry, SEAL_BYTES, Seal, SetCipher,
    SetDescription, SetId, StripeHeader, StripeIndex, StripeTableEntry, Structure,
};

use super::findings::explain;
use super::report::{Damage, DamagedPart};
use super::walk::walk;
use crate::error::{EngineError, damage};
use crate::read::ReadFile;
use crate::set::{Ends, OpenStripe, StripeSpans, cipher_of};
use crate::storage::{ReadAt, Storage};

/// The parts of one stripe.
pub(super) struct Parts {
    path: PathBuf,
    /// None when it cannot be opened.
    device: Option<Arc<dyn ReadAt>>,
    header: Result<(StripeHeader, Vec<u8>), EngineError>,
    seal: Result<Seal, EngineError>,
    /// None when there is no seal that says where the footer is.
    footer: Option<Result<Index, EngineError>>,
    length: u64,
    /// What decrypts it, if its set is encrypted.
    cipher: Option<Arc<SetCipher>>,
}

/// The part of a footer that is kept.
struct Index {
    set_id: SetId,
    stripe: StripeIndex,
    root: [u8; 32],
    directory: Vec<IndexDirectoryEntry>,
    spans: StripeSpans,
    locations: Vec<Vec<u8>>,
}

/// What the stripes of a set agree on.
pub(super) struct Agreed<'a> {
    pub(super) set_id: SetId,
    pub(super) root: [u8; 32],
    /// What the set says about this stripe.
    pub(super) listed: Option<&'a StripeTableEntry>,
    /// The header of any stripe of the set.
    pub(super) model: Option<&'a StripeHeader>,
}

impl Parts {
    pub(super) fn of(storage: &dyn Storage, path: &Path, limit: u64) -> Self {
        let ends = match Ends::open(storage, path) {
            Ok(ends) => ends,
            Err(error) => {
                return Self {
                    path: path.to_owned(),
                    device: None,
                    header: Err(error),
                    seal: Err(EngineError::Stopped),
                    footer: None,
                    length: 0,
                    cipher: None,
                };
            }
        };
        let (seal, header) = (ends.seal(), ends.header());
        let locked = header.as_ref().ok();
        let cipher = locked.and_then(|(header, _)| cipher_of(storage, path, header).ok()?);
        let mut parts = Self {
            path: path.to_owned(),
            header,
            seal,
            footer: None,
            length: ends.bytes,
            device: Some(ends.device),
            cipher,
        };
        parts.read_footer(limit);
        parts
    }

    /// Reads the footer again with the cipher of another stripe of the set, if that helps. The
    /// envelopes of a damaged header are lost, and those of the others are the same.
    pub(super) fn unlock(&mut self, cipher: &Arc<SetCipher>, limit: u64) {
        if self.cipher.is_none() {
            self.cipher = Some(Arc::clone(cipher));
            self.read_footer(limit);
        }
    }

    pub(super) fn cipher(&self) -> Option<&Arc<SetCipher>> {
        self.cipher.as_ref()
    }

    fn read_footer(&mut self, limit: u64) {
        let index = |footer: Footer| Index {
            set_id: footer.set_id,
            stripe: footer.stripe,
            root: footer.set_root,
            directory: footer.directory,
            spans: StripeSpans::new(footer.spans),
            locations: {
                let stripes = footer.description.stripes.into_iter();
                stripes.map(|entry| entry.location).collect()
            },
        };
        self.footer = self.ends().and_then(|ends| {
            let seal = self.seal.as_ref().ok()?;
            let footer = ends.footer(seal, limit, self.cipher.as_deref());
            Some(footer.map(index))
        });
    }

    fn ends(&self) -> Option<Ends<'_>> {
        Some(Ends {
            location: &self.path,
            device: Arc::clone(self.device.as_ref()?),
            bytes: self.length,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Which stripe of which set this is, if the header or the seal says it.
    pub(super) fn identity(&self) -> Option<(SetId, StripeIndex)> {
        match (&self.header, &self.seal) {
            (Ok((header, _)), _) => Some((header.set_id, header.stripe)),
            (_, Ok(seal)) => Some((seal.set_id, seal.stripe)),
            _ => None,
        }
    }

    pub(super) fn own_header(&self) -> Option<&StripeHeader> {
        self.header.as_ref().ok().map(|(header, _)| header)
    }

    fn index(&self) -> Option<&Index> {
        self.footer.as_ref()?.as_ref().ok()
    }

    /// How much memory its list of index blocks takes.
    pub(super) fn directory_bytes(&self) -> u64 {
        self.index().map_or(0, |index| {
            let entries = index.directory.capacity() * size_of::<IndexDirectoryEntry>();
            entries as u64 + index.spans.memory_bytes()
        })
    }

    /// The root of the set that its footer describes.
    pub(super) fn root(&self) -> Option<[u8; 32]> {
        self.index().map(|index| index.root)
    }

    pub(super) fn locations(&self) -> Option<Vec<Vec<u8>>> {
        self.index().map(|index| index.locations.clone())
    }

    pub(super) fn stripe_count(&self) -> u16 {
        let sealed = self.seal.as_ref().map_or(0, |seal| seal.stripe_count);
        sealed.max(self.own_header().map_or(0, StripeHeader::stripe_count))
    }

    pub(super) fn description(&self, limit: u64) -> Option<SetDescription> {
        let (ends, seal) = (self.ends()?, self.seal.as_ref().ok()?);
        let footer = ends.footer(seal, limit, self.cipher.as_deref());
        footer.ok().map(|footer| footer.description)
    }

    /// Lists what is wrong. Returns the stripe as far as it can be read, if any of it can.
    pub(super) fn open(
        mut self,
        index: StripeIndex,
        agreed: &Agreed<'_>,
        found: &mut Vec<Damage>,
    ) -> Result<Option<OpenStripe>, EngineError> {
        let name = self.path.to_string_lossy().into_owned();
        let mut list = |part, bytes, error: &EngineError| {
            let (offset, fault) = explain(error);
            let place = (offset, bytes);
            found.push(Damage::new(index.number(), &name, part, place, fault));
        };
        let header = self.header(index, agreed);
        let header_bytes = header.encode().map_or(0, |bytes| bytes.len() as u64);
        let footer_bytes = self.seal.as_ref().map_or(0, |seal| seal.footer_bytes);
        if let Err(error) = &self.header {
            list(DamagedPart::Header, header_bytes, error);
        }
        if let Err(error) = &self.seal {
            list(DamagedPart::Seal, SEAL_BYTES as u64, error);
        }
        if let Some(Err(error)) = &self.footer {
            list(DamagedPart::Footer, footer_bytes, error);
        }
        if let Some((part, fault)) = self.contradiction(&header, agreed.root) {
            let offset = self.seal.as_ref().map_or(0, |seal| seal.footer_offset);
            let error = damage(&self.path, offset, fault);
            list(part, footer_bytes, &error);
            return Ok(None);
        }
        let Some(device) = self.device.take() else {
            return Ok(None);
        };
        let file = ReadFile::of(device);
        let (start, end) = (self.start(agreed, header_bytes), self.end(agreed));
        let walked = self.index().is_none();
        let (directory, spans) = match self.footer.take() {
            Some(Ok(index)) => (index.directory, index.spans),
            _ => {
                let cipher = self.cipher.as_deref();
                let lost = |offset, bytes| {
                    let error = damage(&self.path, offset, no_block());
                    list(DamagedPart::IndexBlock, bytes, &error);
                };
                let found = walk(file.bytes(), (&header, cipher), (start, end), lost);
                (found, StripeSpans::default())
            }
        };
        let sound = self.header.is_ok() && self.seal.is_ok() && !walked;
        let stripe = self.stripe(file, header, (directory, spans, walked));
        if sound
            && let Some(listed) = agreed.listed
            && let Err(error) = stripe.check(listed, &agreed.root)
        {
            list(DamagedPart::Footer, footer_bytes, &error);
        }
        Ok(Some(stripe))
    }

    /// Looks for parts that are right but do not belong together, or not to this set.
    fn contradiction(
        &self,
        header: &StripeHeader,
        root: [u8; 32],
    ) -> Option<(DamagedPart, FormatError)> {
        let foreign = |structure, found| FormatError::Foreign {
            structure,
            expected: header.set_id,
            found,
        };
        let own = (header.set_id, header.stripe);
        let seal = self.seal.as_ref().ok();
        if let Some(seal) = seal.filter(|seal| (seal.set_id, seal.stripe) != own) {
            return Some((DamagedPart::Seal, foreign(Structure::Seal, seal.set_id)));
        }
        let footer = self.index()?;
        let part = DamagedPart::Footer;
        if (footer.set_id, footer.stripe) != own {
            return Some((part, foreign(Structure::Footer, footer.set_id)));
        }
        let other = footer.root != root || seal.is_some_and(|seal| seal.set_root != root);
        other.then_some((part, FormatError::Hash(Structure::StripeTable)))
    }

    /// The header of the stripe. If it is damaged, one made of what the other stripes and the seal
    /// say.
    fn header(&self, index: StripeIndex, agreed: &Agreed<'_>) -> StripeHeader {
        if let Ok((header, _)) = &self.header {
            return header.clone();
        }
        let seal = self.seal.as_ref().ok();
        let count = seal.map_or(1, |seal| usize::from(seal.stripe_count));
        let unknown = || StripeHeader {
            set_id: agreed.set_id,
            stripe: index,
            alignment: seal.map_or(4096, |seal| seal.alignment),
            transfer_bytes: 0,
            frame_bytes: FRAME_BYTES_MAX,
            created_nanos: 0,
            page_frames: false,
            lock: None,
            locations: vec![Vec::new(); count],
            parities: Vec::new(),
        };
        let model = agreed.model.cloned().unwrap_or_else(unknown);
        StripeHeader {
            stripe: index,
            ..model
        }
    }

    /// Where the first region begins, if that is known. All headers of a set have the same length.
    fn start(&self, agreed: &Agreed<'_>, header_bytes: u64) -> Option<u64> {
        (self.header.is_ok() || agreed.model.is_some()).then_some(header_bytes)
    }

    /// Where the data ends, if that is known.
    fn end(&self, agreed: &Agreed<'_>) -> Option<u64> {
        let listed = agreed.listed.map(|listed| listed.data_bytes);
        let sealed = self.seal.as_ref().ok().map(|seal| seal.footer_offset);
        listed.or(sealed)
    }

    fn stripe(
        self,
        file: ReadFile,
        header: StripeHeader,
        (directory, spans, is_walked): (Vec<IndexDirectoryEntry>, StripeSpans, bool),
    ) -> OpenStripe {
        let unsealed = Seal {
            set_id: header.set_id,
            stripe: header.stripe,
            stripe_count: header.stripe_count(),
            footer_offset: self.length,
            footer_bytes: 0,
            footer_hash: [0; 32],
            set_root: [0; 32],
            stripe_bytes: self.length,
            alignment: header.alignment,
        };
        OpenStripe {
            location: self.path,
            file,
            header,
            header_bytes: self.header.map_or_else(|_| Vec::new(), |(_, bytes)| bytes),
            seal: self.seal.unwrap_or(unsealed),
            directory,
            spans,
            is_walked,
            cipher: self.cipher,
            rebuilder: None,
        }
    }
}

fn no_block() -> FormatError {
    FormatError::Invalid {
        structure: Structure::IndexBlock,
        what: "none is where one must be",
    }
}
