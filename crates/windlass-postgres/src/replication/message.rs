//! Messages of PostgreSQL's protocol, as far as a replication needs them.

/// The longest message that is read. Log comes in messages of at most 128 KiB; the longest other
/// one is the history of a timeline.
pub(super) const BODY_BYTES_MAX: u32 = 16 << 20;

/// A message of the server. Tag 0 means that the connection has ended.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) tag: u8,
    pub(super) body: Vec<u8>,
}

impl Message {
    pub(super) fn end() -> Self {
        Self {
            tag: 0,
            body: Vec::new(),
        }
    }

    /// A message with this tag.
    pub(super) fn encode(tag: u8, body: &[u8]) -> Option<Vec<u8>> {
        let length = u32::try_from(body.len()).ok()?.checked_add(4)?;
        Some([&[tag][..], &length.to_be_bytes(), body].concat())
    }

    /// The values of a row; `None` for null.
    pub(super) fn row(&self) -> Option<Vec<Option<String>>> {
        let mut rest = &self.body[..];
        let count = u16::from_be_bytes(take(&mut rest)?);
        let mut values = Vec::new();
        for _ in 0..count {
            let length = i32::from_be_bytes(take(&mut rest)?);
            let value = match usize::try_from(length) {
                Err(_) => None,
                Ok(length) => {
                    let (value, after) = rest.split_at_checked(length)?;
                    rest = after;
                    Some(String::from_utf8_lossy(value).into_owned())
                }
            };
            values.push(value);
        }
        Some(values)
    }

    /// A field of an error: `M` the message, `C` its code, `H` the hint.
    pub(super) fn field(&self, wanted: u8) -> Option<String> {
        let fields = self.body.split(|byte| *byte == 0);
        let found = fields.filter_map(|field| field.split_first());
        found
            .filter(|(kind, _)| **kind == wanted)
            .map(|(_, text)| String::from_utf8_lossy(text).into_owned())
            .next()
    }
}

/// Takes the first bytes.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_at_checked(N)?;
    *rest = after;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_errors_are_read_and_what_is_cut_off_is_refused() {
        let body = [
            &2_u16.to_be_bytes()[..],
            &(-1_i32).to_be_bytes(),
            &2_i32.to_be_bytes(),
            b"ab",
        ];
        let row = Message {
            tag: b'D',
            body: body.concat(),
        };
        assert_eq!(row.row().unwrap(), [None, Some("ab".to_owned())]);
        for cut in 0..row.body.len() {
            let body = row.body[..cut].to_vec();
            assert_eq!(Message { tag: b'D', body }.row(), None);
        }
        let error = Message {
            tag: b'E',
            body: b"SFATAL\0C57P03\0Mnot now\0\0".to_vec(),
        };
        assert_eq!(error.field(b'M').unwrap(), "not now");
        assert_eq!(error.field(b'C').unwrap(), "57P03");
        assert_eq!(error.field(b'H'), None);
    }
}
