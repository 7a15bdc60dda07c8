//! One function a fuzz target, for any bytes: what the fuzz targets call.

use windlass_pages::{Decoder, Encoded, Encoder, Layout, Streams};

/// Longest frame here, in bytes.
const FRAME_BYTES: usize = 131_072;

/// A layout, then pages: they must come back. Two bytes say how long the layout is.
pub fn pages(bytes: &[u8]) {
    let Some((layout, raw)) = with_layout(bytes) else {
        return;
    };
    assert_eq!(Layout::from_bytes(&layout.to_bytes()), Ok(layout.clone()));
    let whole = raw.len().min(FRAME_BYTES) / layout.page_size().bytes();
    let raw = &raw[..whole * layout.page_size().bytes()];
    let mut streams = Streams::new();
    if Encoder::new().encode(&layout, raw, &mut streams) == Encoded::NotWorth {
        return;
    }
    let slices: Vec<&[u8]> = streams.iter().map(|(stream, _)| stream).collect();
    let mut back = vec![0xA5; raw.len()];
    Decoder::new()
        .decode(&layout, &slices, &mut back)
        .expect("an encoder's streams are right");
    assert!(back == raw, "other bytes come back");
}

/// A layout, then streams: the decoder must come back. A byte says how many pages they are, then
/// each stream has its length in three bytes.
pub fn page_streams(bytes: &[u8]) {
    let Some((layout, rest)) = with_layout(bytes) else {
        return;
    };
    let Some((pages, mut rest)) = rest.split_first() else {
        return;
    };
    let mut streams = Vec::new();
    while let Some(([a, b, c], after)) = rest.split_first_chunk::<3>() {
        let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        let (stream, after) = after.split_at(length.min(after.len()));
        streams.push(stream);
        rest = after;
    }
    let mut raw = vec![0; usize::from(pages % 17) * layout.page_size().bytes()];
    std::hint::black_box(Decoder::new().decode(&layout, &streams, &mut raw).is_ok());
}

fn with_layout(bytes: &[u8]) -> Option<(Layout, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_le_bytes(*length));
    let (layout, rest) = rest.split_at_checked(length)?;
    Some((Layout::from_bytes(layout).ok()?, rest))
}
