//! Encrypted sets without a real recipient: the data key is known, and the envelope opens nothing.

use std::sync::Arc;

use windlass_engine::media::{DataKey, Envelope, Lock, SetCipher, SetId};
use windlass_engine::{Encryption, KeyFault, Keys};

/// Always the same data key, whoever asks.
#[derive(Debug)]
pub struct OneKey(pub Arc<DataKey>);

impl Keys for OneKey {
    fn open(&self, _set: SetId, _lock: &Lock) -> Result<Arc<DataKey>, KeyFault> {
        Ok(Arc::clone(&self.0))
    }
}

/// That of this number.
pub fn one_key(seed: u8) -> OneKey {
    OneKey(Arc::new(
        DataKey::from_bytes(&[seed; 32]).expect("32 bytes are a key"),
    ))
}

/// Encrypts a set with the data key of this number.
pub fn encryption(seed: u8, set_id: SetId) -> Encryption {
    let key = one_key(seed).0;
    Encryption {
        cipher: Arc::new(SetCipher::new(&key, set_id).expect("a key makes a cipher")),
        lock: Lock {
            check: key.check_for(set_id),
            envelopes: vec![Envelope {
                recipient: "age1somebody".to_owned(),
                bytes: b"the envelope of a test; ".repeat(8),
            }],
        },
    }
}
