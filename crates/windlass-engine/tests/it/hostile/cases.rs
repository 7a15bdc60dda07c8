//! The hostile sets: each a right set with one thing wrong, sealed with right checksums.

use windlass_engine::media::{
    Codec, Encoder, FileEntry, FileFlags, FileKind, FileNo, FrameEntry, IndexDirectoryEntry,
    PieceEntry,
};

use crate::forge::*;
use crate::support::*;

pub type Cases = Vec<(&'static str, Forge)>;

pub fn with(change: impl FnOnce(&mut Forge)) -> Forge {
    let mut forge = Forge::default();
    change(&mut forge);
    forge
}

fn with_path(path: &[u8]) -> Forge {
    with(|forge| forge.files[0].path = path.to_vec())
}

fn link(index: usize, name: &str, to: &str) -> FileEntry {
    FileEntry {
        kind: FileKind::Symlink,
        bytes: 0,
        link_target: to.as_bytes().to_vec(),
        ..entry(index, name, 0)
    }
}

fn directory(index: usize, name: &str) -> FileEntry {
    let kind = FileKind::Directory;
    FileEntry {
        kind,
        mode: 0o700,
        ..entry(index, name, 0)
    }
}

/// Paths that lead out of the target, or nowhere.
fn paths() -> Cases {
    let deep = vec![b'x'; 4097];
    let long = vec![b'x'; 256];
    vec![
        ("path-up", with_path(b"../escaped")),
        ("path-up-inside", with_path(b"a/../../escaped")),
        ("path-up-only", with_path(b"..")),
        ("path-here", with_path(b"./a")),
        ("path-absolute", with_path(b"/tmp/windlass-escaped")),
        ("path-nul", with_path(b"a\0b")),
        ("path-empty", with_path(b"")),
        ("path-empty-component", with_path(b"a//b")),
        ("path-slash-at-end", with_path(b"a/")),
        ("path-4-kib", with_path(&deep)),
        ("path-long-component", with_path(&long)),
        (
            "path-twice",
            with(|forge| forge.files.push(entry(1, "file", 0))),
        ),
        (
            "number-twice",
            with(|forge| forge.files.push(entry(0, "other", 0))),
        ),
    ]
}

/// Links in the set through which the paths of other entries lead.
fn links() -> Cases {
    let through = |first: bool| {
        with(|forge| {
            forge.files[0].path = b"link/escaped".to_vec();
            let at = if first { 0 } else { 1 };
            forge.files.insert(at, link(1, "link", "../../outside"));
        })
    };
    vec![
        ("link-then-file-below", through(true)),
        ("file-then-link-above", through(false)),
        (
            "link-then-directory-below",
            with(|forge| {
                forge.files.push(link(1, "link", "../../outside"));
                forge.files.push(directory(2, "link/escaped"));
            }),
        ),
        (
            "link-below-link",
            with(|forge| {
                forge.files.push(link(1, "link", "../../outside"));
                forge.files.push(link(2, "link/escaped", "/etc/passwd"));
            }),
        ),
        (
            "link-with-nul",
            with(|forge| forge.files.push(link(1, "link", "a\0b"))),
        ),
        (
            "link-without-target",
            with(|forge| forge.files.push(link(1, "link", ""))),
        ),
        (
            "link-that-appears-last",
            with(|forge| {
                let flags = FileFlags {
                    last: true,
                    crc_known: false,
                };
                forge.files.push(FileEntry {
                    flags,
                    ..link(1, "link", "file")
                });
            }),
        ),
        (
            "file-with-target",
            with(|forge| forge.files[0].link_target = b"x".to_vec()),
        ),
        (
            "file-below-file",
            with(|forge| forge.files.push(entry(1, "file/below", 0))),
        ),
        (
            "mode-with-set-user-id",
            with(|forge| forge.files[0].mode = 0o4755),
        ),
    ]
}

pub fn patch32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn patch64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Counts and sizes beyond reason.
fn counts() -> Cases {
    let file_bytes = |bytes: u64| {
        with(move |forge| {
            forge.files[0].bytes = bytes;
            forge.raw_bytes = Some(bytes);
        })
    };
    let in_block = |at: usize, value: u32| {
        with(move |forge| forge.block = Box::new(move |block| patch32(block, at, value)))
    };
    let in_header = |at: usize, value: u32| {
        with(move |forge| forge.header_bytes = Box::new(move |bytes| patch32(bytes, at, value)))
    };
    let in_files = |value: u32| {
        with(move |forge| forge.file_table = Box::new(move |table| patch32(table, 0, value)))
    };
    let in_stripes = |value: u32| {
        with(move |forge| forge.stripe_table = Box::new(move |table| patch32(table, 0, value)))
    };
    // The place of each number in the stripe table, behind the location.
    let states = |at: usize| {
        with(move |forge| {
            forge.stripe_table = Box::new(move |table| table[4 + 2 + 12 + at] ^= 1);
        })
    };
    vec![
        ("states-another-number-of-index-blocks", states(8)),
        ("states-another-number-of-frames", states(12)),
        ("states-other-bytes-of-files", states(20)),
        ("states-other-bytes-of-frames", states(28)),
        ("file-of-2-to-the-62", file_bytes(1 << 62)),
        ("file-of-2-to-the-63", file_bytes(1 << 63)),
        ("file-of-2-to-the-64", file_bytes(u64::MAX)),
        (
            "eight-files-of-2-to-the-62",
            with(|forge| {
                forge.files.extend((1..9).map(|index| FileEntry {
                    bytes: 1 << 62,
                    ..entry(index, &format!("f{index}"), 0)
                }));
                forge.raw_bytes = Some(u64::MAX);
            }),
        ),
        (
            "eight-files-of-2-to-the-62-without-pieces",
            with(|forge| {
                forge.files.extend((1..9).map(|index| FileEntry {
                    bytes: 1 << 62,
                    ..entry(index, &format!("f{index}"), 0)
                }));
            }),
        ),
        ("files-4-billion", in_files(u32::MAX)),
        ("files-10-million", in_files(10_000_000)),
        ("files-one-too-many", in_files(2)),
        ("files-one-too-few", in_files(0)),
        ("stripes-none", in_stripes(0)),
        ("stripes-65", in_stripes(65)),
        ("stripes-4-billion", in_stripes(u32::MAX)),
        ("frames-4-billion", in_block(48, u32::MAX)),
        ("pieces-4-billion", in_block(52, u32::MAX)),
        ("block-of-another-length", in_block(56, 4 << 20)),
        ("header-of-1-mib", in_header(12, 1 << 20)),
        ("header-of-4-gib", in_header(12, u32::MAX)),
        ("header-alignment-none", in_header(36, 0)),
        ("header-alignment-odd", in_header(36, 513)),
        ("header-frames-too-large", in_header(44, (4 << 20) + 1)),
        ("header-frames-of-nothing", in_header(44, 0)),
        ("header-frames-smaller-than-they-are", in_header(44, 100)),
        ("header-65-stripes", in_header(32, 65 << 16)),
        (
            "header-two-stripes",
            with(|forge| forge.header.locations.push(b"/dev/zero".to_vec())),
        ),
    ]
}

fn two_pieces(first: PieceEntry, second: PieceEntry) -> Forge {
    with(|forge| {
        let content = plain(3000, 1);
        let halves = [
            frame(&content[..1500], vec![first]),
            frame(&content[1500..], vec![second]),
        ];
        forge.frames = halves.into();
    })
}

/// Pieces that overlap, are missing, or lie elsewhere.
fn pieces() -> Cases {
    let content = plain(3000, 1);
    let (first, second) = (
        piece(0, 0, &content[..1500]),
        piece(0, 1500, &content[1500..]),
    );
    let at = |offset| PieceEntry { offset, ..second };
    vec![
        ("pieces-overlap", two_pieces(first, at(1000))),
        ("pieces-overlap-wholly", two_pieces(first, at(0))),
        ("piece-beyond-the-file", two_pieces(first, at(1501))),
        ("piece-at-2-to-the-62", two_pieces(first, at(1 << 62))),
        ("piece-at-2-to-the-64", two_pieces(first, at(u64::MAX))),
        (
            "piece-of-no-file",
            two_pieces(
                first,
                PieceEntry {
                    file: FileNo(9),
                    ..second
                },
            ),
        ),
        (
            "piece-longer-than-its-frame",
            two_pieces(
                first,
                PieceEntry {
                    bytes: 1501,
                    ..second
                },
            ),
        ),
        (
            "piece-of-4-gib",
            two_pieces(
                first,
                PieceEntry {
                    bytes: u32::MAX,
                    ..second
                },
            ),
        ),
        (
            "piece-with-another-checksum",
            two_pieces(
                first,
                PieceEntry {
                    crc32c: 1,
                    ..second
                },
            ),
        ),
        (
            "piece-missing",
            with(|forge| {
                forge.frames = vec![frame(&content[..1500], vec![first])];
            }),
        ),
        (
            "piece-too-many",
            with(|forge| forge.frames.push(frame(&content[1500..], vec![second]))),
        ),
        ("pieces-of-an-unread-layer", {
            let mut forge = two_pieces(
                first,
                PieceEntry {
                    offset: 0,
                    layer: 1,
                    ..second
                },
            );
            forge.directory = Box::new(|directory| directory[0].layer_max = 0);
            forge
        }),
        (
            "piece-of-a-directory",
            with(|forge| {
                forge.files.push(directory(1, "dir"));
                forge.frames.push(frame(
                    &content[1500..],
                    vec![PieceEntry {
                        file: FileNo(1),
                        ..second
                    }],
                ));
            }),
        ),
    ]
}

pub fn zstd(bytes: usize) -> Vec<u8> {
    let mut into = vec![0; 1 << 20];
    let raw = vec![7; bytes];
    let (_, stored) = Encoder::new(Codec::Zstd(3))
        .unwrap()
        .encode(&raw, &mut into)
        .unwrap();
    into.truncate(stored);
    into
}

/// One frame that states that it holds `said` bytes, and holds `held`.
fn bomb(frame_bytes: u32, said: usize, held: usize) -> Forge {
    with(|forge| {
        let content = vec![7; said];
        forge.header.frame_bytes = frame_bytes;
        forge.files[0].bytes = said as u64;
        let pieces = vec![piece(0, 0, &content)];
        forge.frames = vec![packed(Codec::Zstd(3), said, zstd(held), pieces)];
    })
}

/// Small inputs that claim to be large.
fn bombs() -> Cases {
    let section = |index: usize, change: fn(&mut Section)| {
        with(move |forge| forge.sections = Box::new(move |all| change(&mut all[index])))
    };
    let compressed = |raw_bytes: u64, held: usize| {
        with(move |forge| {
            forge.sections = Box::new(move |all| {
                let stored = zstd(held);
                all[2] = Section {
                    kind: 3,
                    flags: 1 | 1 << 8,
                    raw_bytes,
                    stored,
                };
            });
        })
    };
    vec![
        (
            "frame-of-more-than-it-says",
            bomb(4 << 20, 1 << 20, 64 << 20),
        ),
        (
            "frame-of-less-than-it-says",
            bomb(4 << 20, 4 << 20, 1 << 20),
        ),
        (
            "frame-of-more-than-the-header-says",
            bomb(64 << 10, 4 << 20, 4 << 20),
        ),
        (
            "frame-of-zeros-that-is-stored",
            with(|forge| forge.frames[0].0.codec = Codec::Zero),
        ),
        (
            "frame-of-zeros-with-a-checksum",
            with(|forge| {
                let pieces = vec![piece(0, 0, &plain(3000, 1))];
                forge.frames = vec![packed(Codec::Zero, 3000, Vec::new(), pieces)];
            }),
        ),
        (
            "file-table-of-1-gib-from-5-kib",
            compressed(1 << 30, 40 << 20),
        ),
        (
            "file-table-of-more-than-it-says",
            compressed(100_000, 40 << 20),
        ),
        ("file-table-of-less-than-it-says", compressed(100_000, 1000)),
        (
            "file-table-of-2-to-the-63",
            section(2, |files| files.raw_bytes = 1 << 63),
        ),
        (
            "facts-of-1-gib",
            section(3, |facts| facts.raw_bytes = 1 << 30),
        ),
        (
            "section-of-an-unknown-kind",
            section(3, |facts| facts.kind = 99),
        ),
        (
            "section-twice",
            with(|forge| {
                forge.sections = Box::new(|all| all.push(all[2].clone()));
            }),
        ),
        (
            "section-missing",
            with(|forge| forge.sections = Box::new(|all| drop(all.pop()))),
        ),
        (
            "sections-65",
            with(|forge| {
                forge.sections = Box::new(|all| all.resize(65, all[0].clone()));
            }),
        ),
        (
            "facts-of-many-numbers",
            with(|forge| {
                let numbers = vec!["0"; 7 << 20].join(",");
                let facts = String::from_utf8(forge.facts.clone()).unwrap();
                let facts =
                    facts.replacen("\"options\":{}", &format!("\"options\":[{numbers}]"), 1);
                assert!(facts.len() > numbers.len());
                forge.facts = facts.into_bytes();
            }),
        ),
        (
            "files-of-no-length",
            with(|forge| {
                let more = (1..1_000_000).map(|index| entry(index, &format!("{index}"), 0));
                forge.files.extend(more);
            }),
        ),
        (
            "facts-nested",
            with(|forge| forge.facts = vec![b'['; 100_000]),
        ),
        ("facts-not-json", with(|forge| forge.facts = b"{".to_vec())),
    ]
}

/// Structures that overlap, or lie beyond the end of others.
fn places() -> Cases {
    let in_directory = |change: fn(&mut IndexDirectoryEntry)| {
        with(move |forge| forge.directory = Box::new(move |all| change(&mut all[0])))
    };
    let in_block = |at: usize, value: u64| {
        with(move |forge| forge.block = Box::new(move |block| patch64(block, at, value)))
    };
    let in_frame = |change: fn(&mut FrameEntry)| with(|forge| change(&mut forge.frames[0].0));
    vec![
        (
            "block-is-the-header",
            in_directory(|entry| entry.offset = 0),
        ),
        (
            "block-is-the-footer",
            in_directory(|entry| entry.offset += u64::from(entry.bytes)),
        ),
        (
            "block-beyond-the-stripe",
            in_directory(|entry| entry.offset = 1 << 40),
        ),
        (
            "block-at-2-to-the-64",
            in_directory(|entry| entry.offset = u64::MAX),
        ),
        (
            "block-larger-than-the-stripe",
            in_directory(|entry| entry.bytes = 4 << 20),
        ),
        (
            "block-of-4-gib",
            in_directory(|entry| entry.bytes = u32::MAX),
        ),
        ("block-of-nothing", in_directory(|entry| entry.bytes = 0)),
        (
            "block-missing",
            with(|forge| forge.directory = Box::new(Vec::clear)),
        ),
        (
            "block-twice",
            with(|forge| {
                forge.directory = Box::new(|all| all.push(all[0].clone()));
            }),
        ),
        (
            "region-elsewhere",
            in_directory(|entry| entry.region_offset = 0),
        ),
        ("region-of-2-to-the-64", in_block(40, u64::MAX)),
        ("frame-before-its-region", in_block(64, 0)),
        ("frame-beyond-its-region", in_block(64, 1 << 40)),
        ("frame-at-2-to-the-64", in_block(64, u64::MAX)),
        (
            "frame-of-another-checksum",
            in_frame(|frame| frame.crc32c ^= 1),
        ),
        (
            "frame-of-an-unknown-codec",
            with(|forge| {
                forge.block = Box::new(|block| block[64 + 20] = 9);
            }),
        ),
        (
            "frame-with-unknown-flags",
            with(|forge| {
                forge.block = Box::new(|block| block[64 + 21] = 1);
            }),
        ),
        (
            "region-with-a-gap",
            with(|forge| {
                forge.region = Box::new(|region| region.extend([0; 512]));
            }),
        ),
        (
            "region-with-hidden-bytes",
            with(|forge| {
                forge.region = Box::new(|region| *region.last_mut().unwrap() = 1);
            }),
        ),
        (
            "seal-of-a-longer-stripe",
            with(|forge| {
                forge.seal = Box::new(|seal| seal.stripe_bytes += 512);
            }),
        ),
        (
            "seal-footer-at-2-to-the-64",
            with(|forge| {
                forge.seal = Box::new(|seal| seal.footer_offset = u64::MAX - 100);
            }),
        ),
        (
            "seal-footer-of-2-gib",
            with(|forge| {
                forge.seal = Box::new(|seal| {
                    seal.footer_bytes = 2 << 30;
                    seal.footer_offset = seal.stripe_bytes.wrapping_sub(512 + (2 << 30));
                });
            }),
        ),
        (
            "seal-footer-is-the-stripe",
            with(|forge| {
                forge.seal = Box::new(|seal| {
                    seal.footer_bytes += seal.footer_offset;
                    seal.footer_offset = 0;
                });
            }),
        ),
        (
            "seal-of-another-root",
            with(|forge| forge.seal = Box::new(|seal| seal.set_root[5] ^= 1)),
        ),
    ]
}

/// Structures that do not begin where the format wants them.
fn unaligned() -> Cases {
    let longer = |bytes: usize| {
        with(|forge| forge.region = Box::new(move |region| region.extend(vec![0; bytes])))
    };
    vec![
        ("block-not-aligned", longer(1)),
        ("block-not-aligned-by-8", longer(8)),
    ]
}

pub fn all_cases() -> Cases {
    [
        paths(),
        links(),
        counts(),
        pieces(),
        bombs(),
        places(),
        unaligned(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
