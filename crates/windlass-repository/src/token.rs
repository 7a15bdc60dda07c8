//! What tells the content of an encrypted frame from other content, without its key.
//!
//! A host that archives log and cannot read it again still has to know whether the place has the
//! same: servers hand over a segment twice. So each frame has a keyed hash of what it holds, in the
//! clear. The key comes from a secret of the cluster that is in its pg_control. Who has neither the
//! cluster nor a backup of it that they can read learns nothing from such a hash. A plain hash
//! would let everybody try what a frame may hold.

use windlass_media::CONTENT_TOKEN_BYTES;
use windlass_postgres::Control;

/// Distinguishes this key from whatever else may be derived from the same secret.
const CONTEXT: &str = "windlass 2026 content of a log frame";

/// Computes what tells content from other content.
#[derive(Clone, PartialEq, Eq)]
pub struct ContentKey([u8; 32]);

impl std::fmt::Debug for ContentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ContentKey")
    }
}

impl ContentKey {
    /// That of a cluster. `None` if it has no secret.
    pub fn of(control: &Control) -> Option<Self> {
        let mut secret = control.system_identifier.to_le_bytes().to_vec();
        secret.extend_from_slice(control.secret()?);
        Some(Self(blake3::derive_key(CONTEXT, &secret)))
    }

    /// The token of decoded bytes at a position of the log, or of a file.
    pub(crate) fn token(&self, position: u64, decoded: &[u8]) -> [u8; CONTENT_TOKEN_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&position.to_le_bytes());
        hasher.update(decoded);
        let mut token = [0; CONTENT_TOKEN_BYTES];
        token.copy_from_slice(&hasher.finalize().as_bytes()[..CONTENT_TOKEN_BYTES]);
        token
    }
}
