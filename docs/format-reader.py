#!/usr/bin/env python3
"""Reads a Windlass backup set from docs/format.md alone: a second opinion on the format, not a tool.

    format-reader.py STRIPE [STRIPE ...]                    what the set is, and its files
    format-reader.py STRIPE [STRIPE ...] --file PATH > OUT  one file's bytes, checked
    format-reader.py OBJECT.wlog > OUT                      what a log object holds, checked
    format-reader.py OBJECT.wlog ... --onto FILE > OUT      what their transactions make of a SQLite database
    format-reader.py --frame STORED RAW_BYTES > OUT         one frame of pages, stored without a codec
    format-reader.py ... --identity FILE                    for an encrypted set: an identity of age

For a set that builds on others, name the stripes of all of them.

Python's standard library and nothing else. What it lacks: zstd (the `zstd` program stands in, for
footers and frames), LZ4 (frames of that codec are refused), BLAKE3 (hashes are not checked, and the
program says so). CRC-32Cs, lengths, order and "must be zero" are checked, frame by frame. Pages that were
taken apart are put together by pages_reader.py, beside this file. An encrypted set needs the program
`age`, which opens its envelopes, and the package `cryptography` (Debian: age, python3-cryptography).
"""

import io
import json
import shutil
import struct
import subprocess
import sys

import pages_reader

SECTIONS = {1: "directory", 2: "stripes", 3: "files", 4: "facts", 5: "superseded", 6: "base", 7: "spans"}
# Where identities of age are, if that was said.
IDENTITY = []
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


def unpacked(data, codec):
    need(codec != 1, "an LZ4 frame: this reader has no LZ4")
    return unzstd(data) if codec == 2 else data


def laid_out(stored, codec, size):
    """The laid out bytes of a frame: its parts, decoded, one after the other."""
    head = Fields(stored)
    table = [head.take("II") for _ in range(head.take("B"))]
    laid = b""
    for stored_bytes, raw_bytes in table:
        part = head.bytes(stored_bytes)
        part = part if stored_bytes == raw_bytes else unpacked(part, codec)
        need(len(part) == raw_bytes, "frame: a part is not as long as stated")
        laid += part
    need(head.at == len(stored) and len(laid) == size, "frame: parts do not add up")
    return laid


def streams_of(laid):
    """The description of the pages, and their streams."""
    head = Fields(laid)
    count = head.number()
    need(count <= 1024, "frame: too many streams")
    lengths = [head.number() for _ in range(count)]
    description = head.bytes(head.number())
    streams = [b""] * count
    for group in (0, 1):
        for index, length in enumerate(lengths):
            if length & 1 == group:
                streams[index] = head.bytes(length >> 1)
    need(head.at == len(laid), "frame: streams do not add up")
    return description, streams


def pages_of(laid, raw_bytes):
    """The pages of a frame."""
    try:
        return pages_reader.pages(*streams_of(laid), raw_bytes)
    except pages_reader.Wrong as wrong:
        raise Damage(f"a frame of pages: {wrong}") from wrong


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

    def number(self):
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.take("B")
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise Damage("a number has more than 28 bits")

    def string(self):
        return self.bytes(self.take("H"))


class Cipher:
    """Decrypts what belongs to one set."""

    def __init__(self, key, set_id):
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        def derived(what, size=32):
            return HKDF(hashes.SHA256(), size, set_id, b"windlass " + what).derive(key)

        self.set_id, self.check = set_id, derived(b"check", 16)
        self.frames, self.structures = AESGCM(derived(b"frames")), AESGCM(derived(b"structures"))
        self.log_frames = AESGCM(derived(b"log frames"))

    def open(self, key, kind, about, sealed, what):
        from cryptography.exceptions import InvalidTag

        need(len(sealed) >= 28, f"{what}: too short to be encrypted")
        try:
            return key.decrypt(sealed[:12], sealed[12:], kind + b"\0" + about)
        except InvalidTag:
            raise Damage(f"{what}: changed, moved, or of another set") from None

    def block(self, head, sealed):
        return self.open(self.structures, b"block", head, sealed, "index block")

    def section(self, stripe, head, sealed):
        about = self.set_id + struct.pack("<H", stripe) + head
        return self.open(self.structures, b"section", about, sealed, "section")

    def frame(self, frame, sealed):
        _, _, raw, _, codec, pieces, page = frame
        layout, laid = (page[2], page[1]) if page else (0, raw)
        about = self.set_id + struct.pack("<BHII", codec, layout, raw, laid)
        about += b"".join(struct.pack("<IIQIB3s", *piece) for piece in pieces)
        return self.open(self.frames, b"frame", about, sealed, "frame")

    def log_frame(self, about, stored):
        """The CRC of the decoded bytes of a frame of a log object, and its packed bytes."""
        need(len(stored) >= 48, "log frame: too short to be encrypted")
        clear = self.open(self.log_frames, b"log frame", about + stored[:16], stored[16:], "log frame")
        return struct.unpack("<I", clear[:4])[0], clear[4:]


def cipher_of(set_id, check, envelopes):
    """The cipher of a set or a log object: the program `age` opens one of its envelopes."""
    names = ", ".join(name.decode() for name, _ in envelopes)
    need(IDENTITY, f"it is encrypted to {names}: name --identity FILE")
    for _, envelope in envelopes:
        command = ["age", "--decrypt", "--identity", IDENTITY[0]]
        done = subprocess.run(command, input=envelope, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if done.returncode == 0 and len(done.stdout) == 32:
            cipher = Cipher(done.stdout, set_id)
            if cipher.check == check:
                return cipher
    raise Damage(f"the identity opens no envelope of it: it is encrypted to {names}")


def spans_of(pieces):
    """From where to where these pieces are, by file: (file, highest layer, first, end). No spans if one has no bytes."""
    found = {}
    for file, size, offset, _, layer, _ in pieces:
        if size == 0:
            return []
        highest, first, end = found.get(file, (layer, offset, 0))
        found[file] = (max(highest, layer), min(first, offset), max(end, offset + size))
    return [(file, *span) for file, span in sorted(found.items())]


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
        need(version == 1 and features < 8, f"{self.path}: a newer format")
        need(512 <= self.header_bytes <= 1 << 20, "header: length")
        block = self.read(0, self.header_bytes)
        check_crc(block, "header")
        head = Fields(block, 16)
        self.set_id, self.stripe, count = head.take("16sHH")
        self.alignment, self.transfer_bytes, self.frame_bytes, self.created = head.take("IIIq")
        role, encryption = head.take("BB")
        parities = head.take("B")
        features_are = (role, encryption, bool(parities)) == (0, features >> 1 & 1, bool(features & 4))
        need(features_are and is_zero(head.bytes(5)), "header: a newer feature")
        self.locations = [head.string() for _ in range(count)]
        self.parities = [head.string() for _ in range(parities)]
        self.cipher = None
        if encryption:
            check, count = head.take("16sH")
            envelopes = [(head.string(), head.string()) for _ in range(count)]
            self.cipher = cipher_of(self.set_id, check, envelopes)
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
            need(flags & ~0x301 == 0 and (kind in SECTIONS or not flags & 1), "footer: a newer section")
            need(bool(flags & 0x200) == bool(self.cipher), "footer: only the section or its set is encrypted")
            if self.cipher and kind in SECTIONS:
                about = struct.pack("<IIQ", kind, flags, raw_bytes)
                stored = self.cipher.section(stripe if kind in (1, 7) else 0xFFFF, about, stored)
            need(raw_bytes <= 200 * len(stored) + 65536, "footer: a bomb")
            if kind in SECTIONS:
                raw = unzstd(stored) if flags & 0x100 else stored
                need(len(raw) == raw_bytes, "footer: a section is not as long as stated")
                need(self.sections.setdefault(kind, raw) is raw, "footer: a section twice")
        need(is_zero(data[head.at :]), "footer: padding")
        directory = Fields(self.sections[1])
        count = len(self.sections[1]) // 80
        self.directory = [directory.take("QIIQIIB15s32s") for _ in range(count)]
        self.spans = self.read_spans(self.sections.get(7))

    def read_spans(self, raw):
        """What the footer says that each index block has of each file; None where it says nothing."""
        if raw is None:
            return [None] * len(self.directory)
        fields, blocks = Fields(raw), []
        for _, _, _, _, low, high, layer, _, _ in self.directory:
            count = fields.take("B")
            if count == 255:
                blocks.append(None)
                continue
            need(0 < count <= 16, "spans: how many")
            spans = [fields.take("IBQQ") for _ in range(count)]
            files = [span[0] for span in spans]
            need(files == sorted(set(files)), "spans: out of order")
            need(all(first < end <= (1 << 62) + (4 << 20) for _, _, first, end in spans), "spans: no range")
            stated = (files[0], files[-1], max(span[1] for span in spans))
            need(stated == (low, high, layer), "spans: not as in the index directory")
            blocks.append(spans)
        need(fields.at == len(raw), "spans: bytes follow")
        return blocks

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
            need(zero == 0 and paged < 4, "index block: reserved")
            need(bool(paged & 2) == bool(self.cipher), "index block: only it or its set is encrypted")
            paged &= 1
            if self.cipher:
                sealed = (40 if paged else 24) * frame_count + 24 * piece_count + 28
                need(is_zero(block[64 + sealed : -4]), "index block: padding")
                head = Fields(self.cipher.block(block[:64], block[64 : 64 + sealed]))
            form = "QIIIBBHIIHHI" if paged else "QIIIBBH"
            frames = [head.take(form) for _ in range(frame_count)]
            pieces = [head.take("IIQIB3s") for _ in range(piece_count)]
            need(self.spans[number] in (None, spans_of(pieces)), "index block: other spans than the footer's")
            pieces = iter(pieces)
            need(self.cipher or is_zero(block[head.at : -4]), "index block: padding")
            longer = 28 if self.cipher else 0
            position = start
            for at, stored, raw, crc, codec, flags, count, *page in frames:
                need(flags == 0 and codec in CODECS, "frame: a newer feature")
                need(not page or not page[4], "frame: reserved")
                need(not page or page[2] < 2, "frame: a newer layout of pages")
                need(not page or page[1] == raw or page[2] and page[1] < raw and codec != 3, "frame: laid out length")
                need(0 <= at - position < self.alignment, "frame: out of order")
                need(is_zero(self.read(position, at - position)), "padding between frames")
                need(stored <= self.frame_bytes + longer and raw <= self.frame_bytes, "frame: too large")
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
        if self.cipher and codec != 3:
            data = self.cipher.frame(frame, data)
        if codec == 3:
            need(stored == 0, "frame of zeros is stored")
            data = bytes(raw)
        if page and page[2] == 1:
            data = pages_of(laid_out(data, codec, page[1]), raw)
        else:
            data = unpacked(data, codec)
        need(len(data) == raw, f"{self.path}: frame at {at}: wrong length")
        need(not page or crc32c(data) == page[0], f"{self.path}: frame at {at}: pages differ")
        return data


class Set:
    def __init__(self, stripes):
        self.stripes = sorted(stripes, key=lambda stripe: stripe.stripe)
        first = self.stripes[0]
        for stripe in self.stripes:
            same = (stripe.set_id, stripe.root) == (first.set_id, first.root)
            need(same, "stripes of different sets")
            for kind in (2, 3, 4, 5, 6):
                same = stripe.sections.get(kind) == first.sections.get(kind)
                need(same, "stripes disagree on the set")
        found = [stripe.stripe for stripe in self.stripes]
        need(found == list(range(len(first.locations))), f"stripes {found} of {len(first.locations)}")
        self.facts = json.loads(first.sections[4])
        self.files = self.read_files(first.sections[3])
        self.check_superseded(first.sections.get(5, b""))
        self.base, self.base_id, self.base_root, self.inherited = None, None, None, {}
        need((self.facts["type"] in ("diff", "incr")) == (6 in first.sections), "a base, or none")
        if 6 in first.sections:
            self.read_base(first.sections[6])

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

    def read_base(self, raw):
        """Which bytes of which files are in the base."""
        fields = Fields(raw)
        self.base_id, self.base_root, count = fields.take("16s32sH")
        [fields.string() for _ in range(count)]
        entries = [fields.take("IIQ") for _ in range(fields.take("I"))]
        need(fields.at == len(raw), "base: bytes follow")
        numbers = [number for number, _, _ in entries]
        need(numbers == sorted(set(numbers)), "base: out of order")
        need(len({below for _, below, _ in entries}) == len(entries), "base: one file for two")
        own = {entry[0]: entry for entry in self.files.values()}
        for number, below, limit in entries:
            _, kind, _, size, crc, _ = own[number]
            need(kind == "f" and crc is None and 0 < limit <= size, "base: a file that cannot inherit")
            self.inherited[number] = (below, limit)

    def stand_on(self, sets):
        """Finds the base among other sets, and the bases below it."""
        if self.base_id is None:
            return
        self.base = sets.get(self.base_id)
        need(self.base, f"the base {self.base_id.hex()} is missing")
        need(self.base.stripes[0].root == self.base_root, "another set has the id of the base")
        lengths = {entry[0]: entry[3] for entry in self.base.files.values() if entry[1] == "f"}
        for below, limit in self.inherited.values():
            need(limit <= lengths.get(below, 0), "the base does not have the bytes of a file")
        self.base.stand_on(sets)

    def list(self):
        first = self.stripes[0]
        print(f"set {first.set_id.hex()}, {len(self.stripes)} stripes, format 1, written by {self.facts['tool']}")
        print(json.dumps(self.facts["database"]))
        for path, (_, kind, mode, size, crc, link) in self.files.items():
            crc = "-" * 8 if crc is None else f"{crc:08x}"
            arrow = f" -> {link.decode(errors='replace')}" if link else ""
            print(f"{kind} {mode:04o} {size:>14} {crc} {path.decode(errors='replace')}{arrow}")

    def extract(self, path, out):
        need(path in self.files, "no such file in the set")
        number, kind, _, size, crc, _ = self.files[path]
        need(kind == "f", "not a regular file")
        content, seen = bytearray(size), bytearray(size)
        layers = self.gather(number, size, content, seen)
        need(all(seen), "bytes of the file are missing")
        need(crc is None or not any(layers), "a file with layers states a checksum")
        need(crc is None or crc32c(content) == crc, "the file's checksum differs")
        out.write(content)

    def gather(self, number, limit, content, seen):
        """Gathers a file's bytes below the limit: those of the base first, then the lowest layer,
        so that what is newer overwrites."""
        if number in self.inherited:
            below, least = self.inherited[number]
            self.base.gather(below, min(limit, least), content, seen)
        found = []
        for stripe in self.stripes:
            for frame in stripe.frames():
                if any(piece[0] == number for piece in frame[5]):
                    found.append((stripe, frame))
        layers = sorted({piece[4] for _, frame in found for piece in frame[5] if piece[0] == number})
        # Only then may a piece reach beyond the end of its file.
        own = next((entry[3] for entry in self.files.values() if entry[0] == number))
        reach = None if len(layers) > 1 or number in self.inherited else own
        for layer in layers:
            for stripe, frame in found:
                if any(piece[0] == number and piece[4] == layer for piece in frame[5]):
                    self.lay(stripe.decode(frame), frame[5], (number, layer, reach), (content, seen, limit))
        return layers

    @staticmethod
    def lay(raw, pieces, wanted, target):
        (number, layer, reach), (content, seen, limit) = wanted, target
        at = 0
        for file, size, offset, crc, own_layer, _ in pieces:
            data = raw[at : at + size]
            at += size
            if (file, own_layer) != (number, layer):
                continue
            need(crc32c(data) == crc, "a piece's checksum differs")
            need(reach is None or offset + size <= reach, "a piece ends beyond its file")
            size = max(0, min(size, limit - offset))
            content[offset : offset + size] = data[:size]
            seen[offset : offset + size] = b"\1" * size


def log_lock(data):
    """The cipher of an encrypted log object, and where its first frame begins."""
    lock = Fields(data, 128)
    magic, length, zero, object_id, check, count = lock.take("8sI4s16s16sH")
    need(magic == b"WNDLLOCK" and is_zero(zero), "log lock: a newer format")
    check_crc(data[128 : 128 + length], "log lock")
    envelopes = [(lock.string(), lock.string()) for _ in range(count)]
    need(lock.at + 4 == 128 + length, "log lock: lengths")
    return cipher_of(object_id, check, envelopes), 128 + length


def marked(path):
    """Up to where a growing object was durable, by the mark beside it; 0 if nobody knows."""
    try:
        with open(path.removesuffix(".wlog") + ".until", "rb") as file:
            mark = file.read()
    except FileNotFoundError:
        return 0
    if is_zero(mark):
        return 0
    check_crc(mark, "log mark")
    magic, version, features, position, zero = Fields(mark).take("8sHHQ8s")
    need(magic == b"WNDLUPTO" and (version, features) == (1, 0) and is_zero(zero), "log mark: a newer format")
    return position


def read_log(path, out):
    """Writes what a log object holds: a run of a log, or a file that belongs to one. Returns its kind,
    and from where to where the run goes."""
    with open(path, "rb") as file:
        data = file.read()
    check_crc(data[:128], "log header")
    head = Fields(data, 8)
    version, features, frame_bytes, system, timeline, segment_bytes = head.take("HHIQII")
    start, _, kind, length, zero = head.take("QqBB6s")
    need(version == 1 and features < 2 and kind in (0, 1, 2) and is_zero(zero), "log header: a newer format")
    name = head.bytes(length)
    need(length <= 64 and is_zero(data[head.at : 124]), "log header: padding")
    cipher, begin = log_lock(data) if features else (None, 128)
    sealed = data[-96:-88] == b"WNDLLEND"
    index, limit = [], len(data)
    if sealed:
        check_crc(data[-96:], "log end")
        version, features, count, end, limit, total, index_crc, _ = Fields(data, len(data) - 88).take("HHIQQQI32s")
        need((version, features, total) == (1, 0, len(data)), "log end: a newer format")
        need(limit + 16 * count + 96 == total and is_zero(data[-12:-4]), "log end: lengths")
        need(crc32c(data[limit:-96]) == index_crc, "log index: checksum mismatch")
        index = list(struct.iter_unpack("<QQ", data[limit:-96]))
    at, position, found = begin, start, []
    while at + 40 <= limit:
        frame = data[at : at + 40]
        if not sealed and (len(frame) < 40 or crc32c(frame[:-4]) != struct.unpack("<I", frame[-4:])[0]):
            break  # the torn end of an object that grows
        check_crc(frame, "log frame")
        magic, codec, flag, zero, stored, raw, where, crc, raw_crc, unsynced = Fields(frame).take("4sBB2sIIQIII")
        need(magic == b"WLFR" and codec in CODECS and is_zero(zero), "log frame: a newer feature")
        need(flag == (cipher is not None), "log frame: only it or its object is encrypted")
        need(max(stored - 48 * flag, raw) <= frame_bytes and where == position, "log frame: out of order")
        data_of = data[at + 40 : at + 40 + stored]
        if not sealed and len(data_of) < stored:
            break
        need(crc32c(data_of) == crc, f"log frame at {at}: checksum mismatch")
        if cipher:
            about = data[:128] + struct.pack("<BIQI", codec, raw, where, unsynced)
            raw_crc, data_of = cipher.log_frame(about, data_of)
        need(codec != 1, "an LZ4 frame: this reader has no LZ4")
        content = bytes(raw) if codec == 3 else unzstd(data_of) if codec == 2 else data_of
        need(len(content) == raw and crc32c(content) == raw_crc, f"log frame at {at}: wrong content")
        out.write(content)
        found.append((where, at))
        at, position = at + 40 + stored, position + raw
    if sealed:
        need((at, position, found) == (limit, end, index), "log index: it does not list the frames")
    else:
        need(position >= marked(path), "a growing object ends before what was durable")
    what = f"file {name.decode()}" if kind == 1 else f"log from {start:#x} to {position:#x}"
    of = f"SQLite database {system:016X}" if kind == 2 else f"cluster {system}, segments of {segment_bytes}"
    print(f"{what}, {of}, timeline {timeline}", file=sys.stderr)
    return kind, start, position


def transactions(data):
    """The transactions among these records: number, bytes of the database behind it, and its pages."""
    at = 0
    while at + 72 <= len(data):
        check_crc(data[at : at + 72], "record")
        magic, kind, zero, page_bytes, pages, count = Fields(data, at).take("4sB3sIII")
        number, _, _, more = Fields(data, at + 40).take("Qqq4s")
        need(magic == b"WLCM" and kind < 2 and is_zero(zero + more), "record: a newer format")
        at += 72
        size = count * (4 + page_bytes) if kind else count
        if at + size > len(data):
            break  # the end of a writer that was cut off
        if kind:
            found = [data[start : start + 4 + page_bytes] for start in range(at, at + size, 4 + page_bytes)]
            yield number, pages * page_bytes, [(struct.unpack("<I", one[:4])[0], one[4:]) for one in found]
        at += size


def replay(paths, onto, out):
    """Puts the transactions of log objects over a database whose state lies within that log: those
    that it has already are overwritten by themselves and by what came later."""
    with open(onto, "rb") as file:
        content = bytearray(file.read())
    before, reached = None, None
    for path in paths:
        records = io.BytesIO()
        kind, start, end = read_log(path, records)
        need(kind == 2, "no log of a SQLite database")
        need(reached in (None, start), "log is missing between two objects")
        reached = end
        for number, length, pages in transactions(records.getvalue()):
            need(before is None or number == before + 1, "a transaction is missing")
            before = number
            for place, page in pages:
                at = (place - 1) * len(page)
                need(place > 0 and at + len(page) <= 1 << 40, "a page that no database has")
                content.extend(bytes(max(0, at + len(page) - len(content))))
                content[at : at + len(page)] = page
            need(length <= len(content), "a database ends before its length")
            del content[length:]
    out.write(content)


def read_frame(path, raw_bytes, out):
    """Writes the pages of one frame that is stored without a codec."""
    with open(path, "rb") as file:
        stored = file.read()
    size = sum(decoded for _, decoded in struct.iter_unpack("<II", stored[1 : 1 + 8 * stored[0]]))
    pages = pages_of(laid_out(stored, 0, size), raw_bytes)
    need(len(pages) == raw_bytes, "a frame of pages: wrong length")
    out.write(pages)


def option(arguments, name):
    """Takes an option with its value out of the arguments."""
    if name not in arguments[:-1]:
        return None
    at = arguments.index(name)
    value = arguments[at + 1]
    del arguments[at : at + 2]
    return value


def main(arguments):
    path, identity, onto = (option(arguments, name) for name in ("--file", "--identity", "--onto"))
    path = path and path.encode()
    if identity:
        IDENTITY.append(identity)
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit(__doc__)
    print("note: BLAKE3 is not in Python's library; hashes are not checked", file=sys.stderr)
    try:
        if arguments[0] == "--frame" and len(arguments) == 3:
            return read_frame(arguments[1], int(arguments[2]), sys.stdout.buffer)
        if onto:
            return replay(arguments, onto, sys.stdout.buffer)
        if arguments[0].endswith(".wlog"):
            read_log(arguments[0], sys.stdout.buffer)
            return
        stripes = [Stripe(name) for name in arguments]
        ids = dict.fromkeys(stripe.set_id for stripe in stripes)
        sets = {of: Set([one for one in stripes if one.set_id == of]) for of in ids}
        # The set that is wanted is the one on which no other builds.
        below = {one.base_id for one in sets.values()}
        newest = [one for of, one in sets.items() if of not in below]
        need(len(newest) == 1, "stripes of sets that do not form a chain")
        found = newest[0]
        found.stand_on(sets)
        found.list() if path is None else found.extract(path, sys.stdout.buffer)
    except (Damage, OSError, struct.error, subprocess.CalledProcessError) as error:
        sys.exit(f"error: {error}")


main(sys.argv[1:])
