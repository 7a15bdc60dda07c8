#!/usr/bin/env python3
"""Reads a Windlass backup set from docs/format.md alone: a second opinion on the format, not a tool.

    format-reader.py STRIPE [STRIPE ...]                    what the set is, and its files
    format-reader.py STRIPE [STRIPE ...] --file PATH > OUT  one file's bytes, checked

Python's standard library and nothing else. What it lacks: zstd (the `zstd` program stands in, for
footers and frames), LZ4 (frames of that codec are refused), BLAKE3 (hashes are not checked, and the
program says so). CRC-32Cs, lengths, order and "must be zero" are checked, frame by frame.
"""

import json
import shutil
import struct
import subprocess
import sys

SECTIONS = {1: "directory", 2: "stripes", 3: "files", 4: "facts", 5: "superseded"}
CODECS = {0: "none", 1: "lz4", 2: "zstd", 3: "zero"}


class Damage(Exception):
    pass


def need(condition, what):
    if not condition:
        raise Damage(what)


def crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc32c_table()


def crc32c(data):
    crc, table = 0xFFFFFFFF, TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def is_zero(data):
    return not data.strip(b"\0")


def check_crc(block, what):
    need(crc32c(block[:-4]) == struct.unpack("<I", block[-4:])[0], f"{what}: checksum mismatch")


def unzstd(data):
    program = shutil.which("zstd")
    need(program, "a zstd section or frame, and no `zstd` program in PATH")
    done = subprocess.run([program, "-dcq"], input=data, stdout=subprocess.PIPE, check=True)
    return done.stdout


class Fields:
    """Reads little-endian fields one after the other."""

    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def bytes(self, count):
        need(self.at + count <= len(self.data), "a structure ends before its content")
        self.at += count
        return self.data[self.at - count : self.at]

    def string(self):
        return self.bytes(self.take("H"))


class Stripe:
    def __init__(self, path):
        self.path, self.file = path, open(path, "rb")
        self.size = self.file.seek(0, 2)
        self.read_header()
        self.read_seal()
        self.read_footer()
        self.check_layout()

    def read(self, offset, count):
        self.file.seek(offset)
        data = self.file.read(count)
        need(len(data) == count, f"{self.path}: ends before {offset + count}")
        return data

    def read_header(self):
        head = Fields(self.read(0, 64))
        magic, version, features, self.header_bytes = head.take("8sHHI")
        need(magic == b"WNDLASS\x01", f"{self.path}: not a stripe")
        need(version == 1 and features in (0, 1), f"{self.path}: a newer format")
        need(512 <= self.header_bytes <= 1 << 20, "header: length")
        block = self.read(0, self.header_bytes)
        check_crc(block, "header")
        head = Fields(block, 16)
        self.set_id, self.stripe, count = head.take("16sHH")
        self.alignment, self.transfer_bytes, self.frame_bytes, self.created = head.take("IIIq")
        role, encryption = head.take("BB")
        need((role, encryption) == (0, 0) and is_zero(head.bytes(6)), "header: a newer feature")
        self.locations = [head.string() for _ in range(count)]
        need(is_zero(block[head.at : -4]), "header: padding")

    def read_seal(self):
        block = self.read(self.size - self.alignment, self.alignment)
        need(is_zero(block[:-512]), "seal: padding")
        record = block[-512:]
        need(record[:8] == b"WNDLSEAL", f"{self.path}: not sealed")
        check_crc(record, "seal")
        seal = Fields(record, 8)
        version, features, alignment, set_id, stripe, count, zero = seal.take("HHI16sHHI")
        self.footer_offset, self.footer_bytes, total = seal.take("QQQ")
        self.footer_hash, self.root = seal.take("32s32s")
        need((version, features, zero) == (1, 0, 0), "seal: a newer feature")
        mine = (self.alignment, self.set_id, self.stripe, len(self.locations), self.size)
        need((alignment, set_id, stripe, count, total) == mine, "seal: not this stripe's")
        end = self.footer_offset + self.footer_bytes + self.alignment
        need(end == self.size and is_zero(record[seal.at : -4]), "seal: does not end the stripe")

    def read_footer(self):
        need(self.footer_bytes <= 1 << 30, "footer: length")
        data = self.read(self.footer_offset, self.footer_bytes)
        head = Fields(data)
        magic, version, stripe, count, set_id, total = head.take("8sHHI16sQ")
        need(magic == b"WNDLFOOT" and version == 1 and total == len(data), "footer: not one")
        need((set_id, stripe) == (self.set_id, self.stripe) and count <= 64, "footer: foreign")
        heads = [head.take("IIQQ") for _ in range(count)]
        self.sections = {}
        for kind, flags, raw_bytes, stored_bytes in heads:
            stored = head.bytes(stored_bytes)
            need(flags & ~0x101 == 0 and (kind in SECTIONS or not flags & 1), "footer: a newer section")
            need(raw_bytes <= 200 * stored_bytes + 65536, "footer: a bomb")
            if kind in SECTIONS:
                raw = unzstd(stored) if flags & 0x100 else stored
                need(len(raw) == raw_bytes, "footer: a section is not as long as stated")
                need(self.sections.setdefault(kind, raw) is raw, "footer: a section twice")
        need(is_zero(data[head.at :]), "footer: padding")
        directory = Fields(self.sections[1])
        count = len(self.sections[1]) // 80
        self.directory = [directory.take("QIIQIIB15s32s") for _ in range(count)]

    def check_layout(self):
        position = self.header_bytes
        for offset, size, _, region, *_ in self.directory:
            need(region == position and offset >= region, "index directory: a gap")
            position = offset + size
        need(position == self.footer_offset, "index directory: a gap before the footer")

    def frames(self):
        """Every frame: (offset, stored bytes, raw bytes, crc, codec, [pieces], [its pages])."""
        for number, (offset, size, _, region, *_) in enumerate(self.directory):
            block = self.read(offset, size)
            check_crc(block, "index block")
            head = Fields(block)
            magic, set_id, stripe, zero, found = head.take("8s16sHHI")
            start, length, frame_count, piece_count, total, paged = head.take("QQIIII")
            need(magic == b"WNDLINDX" and (set_id, stripe) == (self.set_id, self.stripe), "index block: foreign")
            need((found, start, start + length, total) == (number, region, offset, size), "index block: misplaced")
            need(zero == 0 and paged in (0, 1), "index block: reserved")
            form = "QIIIBBHIIHHI" if paged else "QIIIBBH"
            frames = [head.take(form) for _ in range(frame_count)]
            pieces = iter([head.take("IIQIB3s") for _ in range(piece_count)])
            need(is_zero(block[head.at : -4]), "index block: padding")
            position = start
            for at, stored, raw, crc, codec, flags, count, *page in frames:
                need(flags == 0 and codec in CODECS, "frame: a newer feature")
                need(not page or page[1:3] == [raw, 0] and not page[4], "frame: a newer layout of pages")
                need(0 <= at - position < self.alignment, "frame: out of order")
                need(is_zero(self.read(position, at - position)), "padding between frames")
                need(stored <= self.frame_bytes and raw <= self.frame_bytes, "frame: too large")
                position = at + stored
                own = [next(pieces) for _ in range(count)]
                need(sum(piece[1] for piece in own) == raw, "frame: pieces do not add up")
                yield at, stored, raw, crc, codec, own, page
            need(0 <= offset - position < self.alignment, "region: a gap at its end")
            need(is_zero(self.read(position, offset - position)), "padding before an index block")

    def decode(self, frame):
        at, stored, raw, crc, codec, _, page = frame
        data = self.read(at, stored)
        need(crc32c(data) == crc, f"{self.path}: frame at {at}: checksum mismatch")
        if codec == 3:
            need(stored == 0, "frame of zeros is stored")
            data = bytes(raw)
        need(codec != 1, "an LZ4 frame: this reader has no LZ4")
        data = unzstd(data) if codec == 2 else data
        need(len(data) == raw, f"{self.path}: frame at {at}: wrong length")
        need(not page or crc32c(data) == page[0], f"{self.path}: frame at {at}: pages differ")
        return data


class Set:
    def __init__(self, paths):
        self.stripes = sorted((Stripe(path) for path in paths), key=lambda stripe: stripe.stripe)
        first = self.stripes[0]
        for stripe in self.stripes:
            same = (stripe.set_id, stripe.root) == (first.set_id, first.root)
            need(same, "stripes of different sets")
            for kind in (2, 3, 4, 5):
                same = stripe.sections.get(kind) == first.sections.get(kind)
                need(same, "stripes disagree on the set")
        found = [stripe.stripe for stripe in self.stripes]
        need(found == list(range(len(first.locations))), f"stripes {found} of {len(first.locations)}")
        self.facts = json.loads(first.sections[4])
        self.files = self.read_files(first.sections[3])
        self.check_superseded(first.sections.get(5, b""))

    @staticmethod
    def read_files(raw):
        fields, files = Fields(raw), {}
        for _ in range(fields.take("I")):
            number, kind, flags, mode, size, mtime, crc = fields.take("IBBIQqI")
            path, link = fields.string(), fields.string()
            parts = path.split(b"/")
            need(path and not set(parts) & {b"", b".", b".."} and b"\0" not in path, "an unsafe path")
            files[path] = (number, "fdl"[kind], mode, size, crc if flags & 2 else None, link)
        need(fields.at == len(raw), "file table: bytes follow")
        for path in files:
            above = [path[:at] for at, byte in enumerate(path) if byte == 47]
            need(all(files[name][1] != "f" for name in above if name in files), "a path through a file")
        return files

    def check_superseded(self, raw):
        """Pieces of these files are on the stripes and do not count: nothing here looks for them."""
        need(len(raw) % 4 == 0, "superseded files: length")
        numbers = [number for (number,) in struct.iter_unpack("<I", raw)]
        need(numbers == sorted(set(numbers)), "superseded files: out of order")
        need(not {entry[0] for entry in self.files.values()} & set(numbers), "a listed file is superseded")

    def list(self):
        first = self.stripes[0]
        print(f"set {first.set_id.hex()}, {len(self.stripes)} stripes, format 1, written by {self.facts['tool']}")
        print(json.dumps(self.facts["database"]))
        for path, (_, kind, mode, size, crc, link) in self.files.items():
            crc = "-" * 8 if crc is None else f"{crc:08x}"
            arrow = f" -> {link.decode(errors='replace')}" if link else ""
            print(f"{kind} {mode:04o} {size:>14} {crc} {path.decode(errors='replace')}{arrow}")

    def extract(self, path, out):
        """Gathers a file's pieces, lowest layer first, so that higher layers overwrite."""
        need(path in self.files, "no such file in the set")
        number, kind, _, size, crc, _ = self.files[path]
        need(kind == "f", "not a regular file")
        found = []
        for stripe in self.stripes:
            for frame in stripe.frames():
                if any(piece[0] == number for piece in frame[5]):
                    found.append((stripe, frame))
        content, seen = bytearray(size), bytearray(size // 512 + 1)
        layers = sorted({piece[4] for _, frame in found for piece in frame[5] if piece[0] == number})
        for layer in layers:
            for stripe, frame in found:
                if any(piece[0] == number and piece[4] == layer for piece in frame[5]):
                    self.place(stripe.decode(frame), frame[5], (number, layer, layers), content, seen)
        need(all(seen[: (size + 511) // 512]), "bytes of the file are missing")
        need(crc is None or not any(layers), "a file with layers states a checksum")
        need(crc is None or crc32c(content) == crc, "the file's checksum differs")
        out.write(content)

    @staticmethod
    def place(raw, pieces, wanted, content, seen):
        number, layer, layers = wanted
        at = 0
        for file, size, offset, crc, own_layer, _ in pieces:
            data = raw[at : at + size]
            at += size
            if (file, own_layer) != (number, layer):
                continue
            need(crc32c(data) == crc, "a piece's checksum differs")
            if offset + size > len(content):
                need(len(layers) > 1, "a piece ends beyond its file")
                size = max(0, len(content) - offset)  # the file shrank while it was copied
                data = data[:size]
            content[offset : offset + size] = data
            for block in range(offset // 512, (offset + size + 511) // 512):
                seen[block] = 1


def main(arguments):
    path = None
    if "--file" in arguments[:-1]:
        at = arguments.index("--file")
        path = arguments[at + 1].encode()
        del arguments[at : at + 2]
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit(__doc__)
    print("note: BLAKE3 is not in Python's library; hashes are not checked", file=sys.stderr)
    try:
        found = Set(arguments)
        found.list() if path is None else found.extract(path, sys.stdout.buffer)
    except (Damage, OSError, struct.error, subprocess.CalledProcessError) as error:
        sys.exit(f"error: {error}")


main(sys.argv[1:])
