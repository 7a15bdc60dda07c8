//! A stripe in a bucket, being written.
//!
//!   buffers --> [gathered] --full part--> uploads --> data | seal | name
//!
//! Transfers are gathered to parts (`gathered.rs`). Parts have one length: some services ask for
//! that.
//!
//! Invariants
//! - The order is: marker, data, look at the data's length, seal, name, and the marker goes. Each
//!   step is durable before the next. Between marker and parts a second marker names their upload.
//! - Nothing that is there is replaced. A name that somebody else has fails the run.
//! - What an unsealed stripe has in the bucket is removed when the device is dropped. What a killed
//!   run leaves, `cleanup.rs` finds by the marker.

use std::sync::Arc;

use bytes::Bytes;
use object_store::PutPayload;
use windlass_engine::media::{NAME_HEAD_BYTES_MAX, NAME_TAIL_BYTES_MAX, NameObject, SetId};
use windlass_engine::{Buffer, Cancel, Device, DeviceOperation, EngineError, WriteDone};

use crate::client::Bucket;
use crate::error::{Fault, ObjectError};
use crate::gathered::Gathered;
use crate::layout::{StripeKeys, below};
use crate::location::Location;
use crate::marker::{Marker, Writer};
use crate::settings::{PARTS_IN_FLIGHT, PARTS_MAX};
use crate::upload::{Upload, abort};

/// A copy of the footer goes into the name object if it is not longer than this.
const FOOTER_COPY_BYTES_MAX: usize = 64 * 1024;

/// What stripe is written, and how.
#[derive(Clone, Debug)]
pub struct ObjectStripe {
    /// Its name in a place of a bucket.
    pub location: Location,
    /// Its set.
    pub set_id: SetId,
    /// Its number in the set.
    pub index: u16,
    /// Block size of the set.
    pub alignment: u32,
    /// Bytes of a part.
    pub part_bytes: u64,
}

/// What is done of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// Its bytes are being written.
    Begun,
    /// Its data are complete.
    Data,
    /// It is sealed.
    Sealed,
    /// It has its name, or may have it.
    Named,
}

/// A stripe of a set in a bucket.
pub struct ObjectDevice {
    text: String,
    stripe: ObjectStripe,
    place: Location,
    bucket: Arc<Bucket>,
    cancel: Cancel,
    keys: StripeKeys,
    marker: Marker,
    done: Done,
    /// Where the next byte goes.
    offset: u64,
    gathered: Gathered,
    upload: Option<Upload>,
    head: Vec<u8>,
    /// What was written last, if it is short: the footer, when the data end.
    last: Vec<u8>,
    stripe_bytes: u64,
    seal: Vec<u8>,
}

impl ObjectDevice {
    /// Begins a stripe: writes its marker. Refuses a name that is taken.
    ///
    /// Says whether the server keeps what is there when it is asked to (`true`), or ignores that.
    pub(crate) fn create(
        bucket: Arc<Bucket>,
        stripe: ObjectStripe,
        cancel: Cancel,
    ) -> Result<(Self, bool), EngineError> {
        let text = stripe.location.to_string();
        let (place, name) = stripe.location.split();
        let keys = StripeKeys::new(&stripe.set_id, stripe.index);
        let marker = Marker {
            set: stripe.set_id.to_string(),
            stripe: stripe.index,
            name: name.to_owned(),
            upload: None,
            writer: Writer::own(),
        };
        let mut device = Self {
            text,
            place,
            keys,
            marker,
            bucket,
            cancel,
            done: Done::Begun,
            offset: 0,
            gathered: Gathered::default(),
            upload: None,
            head: Vec::new(),
            last: Vec::new(),
            stripe_bytes: 0,
            seal: Vec::new(),
            stripe,
        };
        match device.begin() {
            Ok(keeps) => Ok((device, keeps)),
            Err(error) => {
                // Nothing but perhaps the marker is there, which goes when the device is dropped.
                Err(device.failed(DeviceOperation::Create, error))
            }
        }
    }

    /// Writes the marker twice. The second try shows whether the server heeds the condition.
    fn begin(&mut self) -> Result<bool, ObjectError> {
        let key = &self.stripe.location.key;
        if self.bucket.wait(self.bucket.head(key))?.is_some() {
            let object = self.text.clone();
            return Err(ObjectError::Taken { object });
        }
        let key = below(&self.place, &self.keys.marker);
        let bytes = Bytes::from(self.marker.encode());
        self.bucket.wait(self.bucket.create(&key, &bytes))?;
        let again = self.bucket.wait(self.bucket.create_once(&key, bytes));
        Ok(again.is_err())
    }

    fn failed(&self, operation: DeviceOperation, error: ObjectError) -> EngineError {
        match error {
            ObjectError::Cancelled => EngineError::Cancelled,
            error => EngineError::DeviceIo {
                operation,
                device: self.text.clone(),
                offset: self.offset,
                source: error.into(),
            },
        }
    }

    /// Sends the parts that were gathered.
    fn send_parts(&mut self) -> Result<(), ObjectError> {
        while self.gathered.bytes() >= self.stripe.part_bytes {
            let part = self.gathered.take(self.stripe.part_bytes);
            self.send(part)?;
        }
        Ok(())
    }

    fn send(&mut self, part: Vec<Bytes>) -> Result<(), ObjectError> {
        if self.upload.is_none() {
            self.begin_upload()?;
        }
        if self.offset > self.stripe.part_bytes.saturating_mul(PARTS_MAX) {
            return Err(ObjectError::TooLarge {
                bucket: self.stripe.location.bucket_name(),
                parts_max: PARTS_MAX,
                part_bytes: self.stripe.part_bytes,
                stripe_bytes_max: self.stripe.part_bytes.saturating_mul(PARTS_MAX),
            });
        }
        match &mut self.upload {
            Some(upload) => upload.part(part, &self.cancel),
            None => Ok(()),
        }
    }

    /// Begins the upload, and says so in a second marker before the first part.
    fn begin_upload(&mut self) -> Result<(), ObjectError> {
        let key = below(&self.place, &self.keys.data);
        let upload = Upload::begin(&self.bucket, &key, PARTS_IN_FLIGHT)?;
        self.marker.upload = Some(upload.id().to_owned());
        self.upload = Some(upload);
        let marker = Bytes::from(self.marker.encode());
        let key = below(&self.place, &self.keys.parts);
        self.bucket.wait(self.bucket.create(&key, &marker))
    }

    /// Completes the data: as one object of parts, or as one request if they are short.
    fn complete(&mut self) -> Result<(), ObjectError> {
        self.gathered.close();
        self.send_parts()?;
        let rest = self.gathered.take(u64::MAX);
        if self.upload.is_some() {
            if !rest.is_empty() {
                self.send(rest)?;
            }
            return match &mut self.upload {
                Some(upload) => upload.complete(&self.cancel),
                None => Ok(()),
            };
        }
        let key = below(&self.place, &self.keys.data);
        let payload = PutPayload::from_iter(rest);
        let bucket = &self.bucket;
        let found = match bucket.wait(bucket.put(&key, payload)) {
            // If an answer was lost, the next try may be refused because the object is there. Its
            // key has the set's id, so it is our own.
            Err(error) if error.fault() == Some(Fault::Denied) => {
                let found = bucket.wait(bucket.head(&key)).unwrap_or_default();
                Some(found.ok_or(error)?)
            }
            written => {
                written?;
                bucket.wait(bucket.head_written(&key))?
            }
        };
        match found {
            Some(meta) if meta.size == self.offset => Ok(()),
            meta => Err(ObjectError::Length {
                object: self.bucket.named(&key),
                found: meta.map_or(0, |meta| meta.size),
                expected: self.offset,
            }),
        }
    }

    fn create_seal(&mut self) -> Result<(), ObjectError> {
        let key = below(&self.place, &self.keys.seal);
        let seal = Bytes::from(self.seal.clone());
        self.bucket.wait(self.bucket.create(&key, &seal))
    }

    /// Gives the stripe its name, and removes the marker.
    fn name(&mut self) -> Result<(), ObjectError> {
        let mut tail = std::mem::take(&mut self.last);
        tail.extend_from_slice(&self.seal);
        tail.drain(..tail.len().saturating_sub(NAME_TAIL_BYTES_MAX));
        let name = NameObject {
            key: self.keys.data.clone(),
            data_bytes: self.offset,
            stripe_bytes: self.stripe_bytes,
            head: std::mem::take(&mut self.head),
            tail,
        };
        let bytes = name.encode().map_err(|source| ObjectError::Format {
            object: self.text.clone(),
            source,
        })?;
        let key = self.stripe.location.key.clone();
        let bucket = &self.bucket;
        bucket.wait(bucket.create(&key, &Bytes::from(bytes)))?;
        // The set is there. A marker that stays costs nothing, and the next clean-up removes it.
        let mut markers = self.markers();
        let removed = markers.try_for_each(|marker| bucket.wait(bucket.delete(&marker)));
        removed.unwrap_or_default();
        Ok(())
    }

    /// Removes what an unsealed stripe has in the bucket. The marker goes last, and stays as long
    /// as anything that it leads to may be there.
    fn remove(&mut self) -> Result<(), ObjectError> {
        let bucket = self.bucket.hurried();
        let mut is_gone = true;
        if let Some(upload) = &mut self.upload {
            upload.give_up();
            let key = below(&self.place, &self.keys.data);
            is_gone = bucket.wait(abort(&bucket, &key, upload.id()))?;
        }
        let objects = [&self.keys.seal, &self.keys.data];
        let objects = objects.map(|key| below(&self.place, key));
        // Without its markers nobody would find the upload.
        let markers = self.markers().filter(|_| is_gone);
        for key in objects.into_iter().chain(markers) {
            bucket.wait(bucket.delete(&key))?;
        }
        Ok(())
    }

    /// The keys of the markers. The one that names the upload goes last.
    fn markers(&self) -> impl Iterator<Item = String> {
        let parts = self.upload.is_some().then_some(&self.keys.parts);
        let markers = std::iter::once(&self.keys.marker).chain(parts);
        markers.map(|key| below(&self.place, key))
    }
}

impl Device for ObjectDevice {
    fn location(&self) -> &str {
        &self.text
    }

    fn alignment(&self) -> u32 {
        self.stripe.alignment
    }

    fn depth(&self) -> usize {
        PARTS_IN_FLIGHT
    }

    fn in_flight(&self) -> usize {
        self.upload.as_ref().map_or(0, Upload::in_flight)
    }

    fn submit(&mut self, offset: u64, buffer: Buffer) -> Result<Option<WriteDone>, EngineError> {
        debug_assert_eq!(
            offset, self.offset,
            "a stripe is written from front to back"
        );
        self.offset += buffer.len() as u64;
        self.gathered.add(buffer);
        let sent = self.send_parts();
        sent.map_err(|error| self.failed(DeviceOperation::Write, error))?;
        Ok(self.upload.as_mut().and_then(Upload::ended))
    }

    fn reap(&mut self) -> Result<Option<WriteDone>, EngineError> {
        let Some(upload) = &mut self.upload else {
            return Ok(None);
        };
        let reaped = upload.reap(&self.cancel);
        reaped.map_err(|error| self.failed(DeviceOperation::Write, error))
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        if self.done != Done::Begun {
            self.seal = bytes.to_vec();
            return Ok(());
        }
        debug_assert_eq!(
            offset, self.offset,
            "a stripe is written from front to back"
        );
        if offset == 0 {
            self.head = bytes[..bytes.len().min(NAME_HEAD_BYTES_MAX)].to_vec();
        }
        self.last = match bytes.len() <= FOOTER_COPY_BYTES_MAX {
            true => bytes.to_vec(),
            false => Vec::new(),
        };
        self.offset += bytes.len() as u64;
        self.gathered.append(bytes);
        let sent = self.send_parts();
        sent.map_err(|error| self.failed(DeviceOperation::Write, error))
    }

    fn truncate(&mut self, bytes: u64) -> Result<(), EngineError> {
        self.stripe_bytes = bytes;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        let (done, result) = match self.done {
            Done::Begun => (Done::Data, self.complete()),
            Done::Data => (Done::Sealed, self.create_seal()),
            done => (done, Ok(())),
        };
        result.map_err(|error| self.failed(DeviceOperation::Sync, error))?;
        self.done = done;
        Ok(())
    }

    fn publish(&mut self) -> Result<(), EngineError> {
        // The set is sealed. Whatever happens now, this stripe belongs to it and must stay.
        self.done = Done::Named;
        let named = self.name();
        named.map_err(|error| self.failed(DeviceOperation::Publish, error))
    }
}

impl Drop for ObjectDevice {
    fn drop(&mut self) {
        if self.done != Done::Named {
            // What cannot be removed now, the clean-up of the next run removes.
            self.remove().unwrap_or_default();
        }
    }
}
