//! One right value of every structure.

use windlass_media::windlass_pages::{Column, Layout, PageSize};
use windlass_media::{
    BackupType, Codec, Encoder, Facts, FileEntry, FileFlags, FileKind, FileNo, FileTable,
    FormatError, FrameEntry, IndexBlock, IndexBlockBuilder, IndexDirectoryEntry, PageEncoder,
    PageLayout, PieceEntry, Seal, SetDescription, SetId, StripeHeader, StripeIndex,
    StripeTableEntry, SupersededFiles, Taken, crc32c,
};

pub const SET: SetId = SetId(*b"sixteen bytes id");
pub const REGION: u64 = 512;
pub const REGION_BYTES: u64 = 1024;

pub fn header() -> StripeHeader {
    StripeHeader {
        set_id: SET,
        stripe: StripeIndex(1),
        alignment: 512,
        transfer_bytes: 1 << 20,
        frame_bytes: 1 << 17,
        created_nanos: 1_700_000_000_000_000_000,
        page_frames: false,
        lock: None,
        locations: vec![b"/backup/a".to_vec(), b"/backup/b".to_vec()],
        parities: vec![],
    }
}

/// A block that lies at REGION + REGION_BYTES. It has a frame of two pieces and a frame of zeros.
pub fn index_block() -> IndexBlock {
    let mut builder = IndexBlockBuilder::default();
    let piece = |file, offset, bytes| PieceEntry {
        file: FileNo(file),
        bytes,
        offset,
        crc32c: 0x1234_5678,
        layer: 0,
    };
    let frame = FrameEntry {
        offset: REGION,
        stored_bytes: 1000,
        raw_bytes: 3000,
        crc32c: 0x9abc_def0,
        codec: Codec::Lz4,
        piece_count: 0,
        page: None,
    };
    builder.push(frame, &[piece(1, 0, 1000), piece(2, 0, 2000)]);
    let zeros = FrameEntry {
        offset: REGION + 1000,
        stored_bytes: 0,
        raw_bytes: 8192,
        crc32c: 0,
        codec: Codec::Zero,
        piece_count: 0,
        page: None,
    };
    builder.push(
        zeros,
        &[PieceEntry {
            layer: 1,
            ..piece(3, 65_536, 8192)
        }],
    );
    builder.take(SET, StripeIndex(1), 0, REGION, REGION_BYTES)
}

pub fn files() -> FileTable {
    let entry = |number: u32, path: &str| FileEntry {
        file: FileNo(number),
        kind: FileKind::File,
        flags: FileFlags {
            last: number == 1,
            crc_known: true,
        },
        mode: 0o600,
        bytes: 1000 * u64::from(number),
        mtime_nanos: -5,
        crc32c: number,
        path: path.as_bytes().to_vec(),
        link_target: Vec::new(),
    };
    let kind = |kind, number, path| FileEntry {
        kind,
        flags: FileFlags::default(),
        mode: 0o777,
        bytes: 0,
        crc32c: 0,
        ..entry(number, path)
    };
    let link_target = b"../base".to_vec();
    FileTable(vec![
        kind(FileKind::Directory, 10, "base"),
        entry(1, "base/1"),
        entry(2, "base/two"),
        FileEntry {
            link_target,
            ..kind(FileKind::Symlink, 11, "link")
        },
    ])
}

pub fn facts() -> Facts {
    Facts {
        tool: "windlass 0.1.0".into(),
        backup_type: BackupType::Full,
        started: "2026-01-01T00:00:00Z".into(),
        finished: "2026-01-01T00:00:01Z".into(),
        options: serde_json::json!({"codec": "zstd:1", "buffers": 7}),
        database: serde_json::json!({"kind": "directory", "nested": [1, 2.5, null, true]}),
        parents: vec![SET.to_string()],
    }
}

pub fn description() -> SetDescription {
    let stripe = |location: &[u8]| StripeTableEntry {
        location: location.to_vec(),
        data_bytes: 4096,
        index_blocks: 1,
        frames: 2,
        raw_bytes: 11_192,
        stored_bytes: 1000,
        hash: [9; 32],
    };
    let stripes = vec![stripe(b"/backup/a"), stripe(b"/backup/b")];
    SetDescription {
        stripes,
        files: files(),
        superseded: SupersededFiles::new(vec![FileNo(0x0800_005a), FileNo(70)]),
        base: None,
        facts: facts(),
    }
}

pub fn directory() -> Vec<IndexDirectoryEntry> {
    vec![IndexDirectoryEntry {
        offset: REGION + REGION_BYTES,
        bytes: 512,
        frame_count: 2,
        region_offset: REGION,
        file_min: FileNo(1),
        file_max: FileNo(3),
        layer_max: 1,
        hash: [3; 32],
    }]
}

/// The footers of both stripes, and the root they share.
pub fn footers() -> (Vec<Vec<u8>>, [u8; 32]) {
    let (mut footers, mut root) = (Vec::new(), [0; 32]);
    let each = |_, footer, of| {
        footers.push(footer);
        root = of;
        Ok::<(), FormatError>(())
    };
    description()
        .footers(SET, 512, &[directory(), Vec::new()], each)
        .unwrap();
    (footers, root)
}

pub fn seal() -> Seal {
    Seal {
        set_id: SET,
        stripe: StripeIndex(1),
        stripe_count: 2,
        footer_offset: 4096,
        footer_bytes: 1024,
        footer_hash: [1; 32],
        set_root: [2; 32],
        stripe_bytes: 4096 + 1024 + 512,
        alignment: 512,
    }
}

/// A frame that zstd or LZ4 made.
pub fn stored(codec: Codec, raw: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::new(codec).unwrap();
    let mut into = vec![0; encoder.bound(raw.len())];
    let (_, bytes) = encoder.encode(raw, &mut into).unwrap();
    into.truncate(bytes);
    assert_ne!(crc32c(&into), 0);
    into
}

/// Two pages of a table, taken apart: the length of their laid out bytes, their own, and the stored
/// bytes.
pub fn laid_frame(codec: Codec) -> (usize, usize, Vec<u8>) {
    let raw = heap_pages();
    let page_size = PageSize::new(8192).unwrap();
    let columns = vec![
        Column::postgres(4, b'i', 23).unwrap(),
        Column::postgres(-1, b'i', 25).unwrap(),
    ];
    let layout = PageLayout::new(Layout::PostgresHeap { page_size, columns });
    let mut pages = PageEncoder::default();
    assert_eq!(pages.take_apart(&layout, &raw), Taken::Apart);
    let mut encoder = Encoder::new(codec).unwrap();
    let mut into = vec![0; encoder.bound(raw.len()) + 100];
    let laid = pages.store(&layout, raw.len(), &mut encoder, &mut into);
    let laid = laid.unwrap();
    into.truncate(laid.stored_bytes);
    (laid.laid_bytes, raw.len(), into)
}

/// Two pages with rows of a number and a word.
fn heap_pages() -> Vec<u8> {
    let mut pages = vec![0; 2 * 8192];
    for (block, page) in pages.chunks_exact_mut(8192).enumerate() {
        let (mut lower, mut upper) = (24, 8192);
        for number in 1..=150_u16 {
            upper -= 40;
            let row = &mut page[upper..upper + 40];
            row[0] = 3;
            row[14] = block as u8;
            row[16..18].copy_from_slice(&number.to_le_bytes());
            row[18..22].copy_from_slice(&[2, 0, 2, 9]);
            row[22] = 24;
            row[24..26].copy_from_slice(&(number + 150 * block as u16).to_le_bytes());
            row[28] = 12 << 1 | 1;
            row[29..40].copy_from_slice(format!("word {:06}", number % 7).as_bytes());
            let pointer = upper as u32 | 1 << 15 | 40 << 17;
            page[lower..lower + 4].copy_from_slice(&pointer.to_le_bytes());
            lower += 4;
        }
        let fields = [lower as u16, upper as u16, 8192, 8192 | 4];
        for (field, value) in page[12..20].chunks_exact_mut(2).zip(fields) {
            field.copy_from_slice(&value.to_le_bytes());
        }
    }
    pages
}
