"""Puts the pages of layout 1 together from docs/pages.md alone: the half of format-reader.py that
knows pages.

    pages(description, streams, raw_bytes) -> bytes

Python's standard library and nothing else. It reads what writers write, and refuses most of what
they would not. It is slow, and shows each step.
"""

import struct

MASK = (1 << 64) - 1
HEAP, BTREE, SQLITE = 1, 2, 3
SAME, DICTIONARY, PLAIN = 0, 5, 6


class Wrong(Exception):
    pass


def need(condition, what):
    if not condition:
        raise Wrong(what)


def signed64(number):
    """A number that wraps around at 64 bits, with its sign."""
    number &= MASK
    return number - (1 << 64) if number >> 63 else number


def unzigzag(number):
    return signed64(number >> 1 ^ -(number & 1))


def up(number, unit):
    return -(-number // unit) * unit


class Source:
    """Takes each stream from its beginning to its end."""

    def __init__(self, streams):
        need(2 <= len(streams) <= 64, "too few or too many streams")
        self.streams, self.at = streams, [0, 0]
        self.own = list(streams[2:])

    def take(self, stream, count):
        at = self.at[stream]
        need(0 <= count <= len(self.streams[stream]) - at, "a stream is too short")
        self.at[stream] = at + count
        return self.streams[stream][at : at + count]

    def main(self, count):
        return self.take(0, count)

    def byte(self):
        return self.main(1)[0]

    def number(self):
        value = 0
        for shift in range(0, 64, 7):
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                need(value <= MASK, "a number has more than 64 bits")
                return value
        raise Wrong("a number has more than 64 bits")

    def signed(self):
        return unzigzag(self.number())

    def bytes(self, count):
        where = self.byte()
        need(where < 3, "bytes are in an unknown stream")
        if where < 2:
            return self.take(where, count)
        need(self.own and len(self.own[0]) == count, "a stream has another length")
        return self.own.pop(0)

    def end(self):
        left = [len(self.streams[stream]) - self.at[stream] for stream in (0, 1)]
        need(left == [0, 0] and not self.own, "a stream is too long")

    def codes(self, count):
        width = self.byte()
        need(width <= 56 or width == 64, "an impossible width")
        packed = int.from_bytes(self.take(1, (count * width + 7) // 8), "little")
        codes = [packed >> (at * width) & (1 << width) - 1 for at in range(count)]
        if width < 64:
            at = -1
            for _ in range(self.number()):
                at += self.number() + 1
                need(at < count, "an exception is behind the end")
                codes[at] = (codes[at] | self.number() << width) & MASK
        return codes

    def column(self, count):
        if count == 0:
            return []
        kind = self.byte()
        need(kind <= PLAIN, "a column of an unknown kind")
        if kind == SAME:
            return [self.signed()] * count
        if kind == DICTIONARY:
            entries, last = [], 0
            for _ in range(self.byte() + 1):
                last = signed64(last + self.signed())
                entries.append(last)
            codes = self.codes(count)
            need(max(codes) < len(entries), "a number is not in the dictionary")
            return [entries[code] for code in codes]
        if kind == PLAIN:
            size = self.byte()
            need(1 <= size <= 8, "an impossible length")
            plain = self.main(count * size)
            words = (plain[at : at + size] for at in range(0, count * size, size))
            return [int.from_bytes(word, "little", signed=True) for word in words]
        differences, both_signs = kind >= 3, kind in (2, 4)
        first = self.signed() if differences else 0
        base = self.signed()
        codes = self.codes(count - 1 if differences else count)
        numbers = [signed64(base + (unzigzag(code) if both_signs else code)) for code in codes]
        if differences:
            numbers.insert(0, first)
            for at in range(1, count):
                numbers[at] = signed64(numbers[at] + numbers[at - 1])
        return numbers

    def kept(self, count):
        """Things that are kept as they are: their lengths, then all of their bytes."""
        lengths = self.column(count)
        need(all(length >= 0 for length in lengths), "an impossible length")
        return cut(self.bytes(sum(lengths)), lengths)

    def texts(self, count):
        way = self.byte()
        need(way < 4, "texts of an unknown kind")
        if way == 0:
            scales, values = self.column(count), self.column(count)
            return [numeric(value, scale) for value, scale in zip(values, scales)]
        if way == 1:
            before, behind = self.main(self.byte()), self.main(self.byte())
            of_digits = self.byte()
            scale = 0 if of_digits else self.byte()
            numbers = self.column(count)
            if of_digits:
                return [digits(before, number) for number in numbers]
            return [before + decimal(number, scale) + behind for number in numbers]
        if way == 2:
            lengths = [self.number() for _ in range(self.byte())]
            words = cut(self.main(sum(lengths)), lengths)
            return [words[code] for code in self.column(count)]
        lengths = self.column(count)
        return cut(self.bytes(sum(lengths)), lengths)


def cut(data, lengths):
    found, at = [], 0
    for length in lengths:
        found.append(data[at : at + length])
        at += length
    return found


def decimal(number, scale):
    text = str(abs(number)).zfill(scale + 1)
    if scale:
        text = text[:-scale] + "." + text[-scale:]
    return (("-" if number < 0 else "") + text).encode()


def digits(first, number):
    """The first text with its digits replaced by those of the number."""
    text = bytearray(first)
    for at in reversed(range(len(text))):
        if 48 <= text[at] <= 57:
            number, digit = divmod(number, 10)
            text[at] = 48 + digit
    need(number == 0, "a number does not fit its pattern")
    return bytes(text)


def numeric(value, scale):
    """A number as PostgreSQL writes it: short header, then digits to the base 10000."""
    need(0 <= scale < 64, "an impossible scale")
    fraction = -(-scale // 4)
    rest, words = abs(value) * 10 ** (4 * fraction - scale), []
    while rest:
        rest, word = divmod(rest, 10000)
        words.insert(0, word)
    weight = len(words) - 1 - fraction
    while words and words[-1] == 0:
        words.pop()
    sign = 0x2000 if value < 0 else 0
    head = 0x8000 | scale << 7 | (sign | weight & 0x7F if words else 0)
    return struct.pack(f"<{len(words) + 1}H", head, *words)


class Column:
    def __init__(self, source):
        head = source.byte()
        self.align, kind = 1 << (head & 3), head >> 2
        need(kind < 3, "a column of an unknown kind")
        self.size = source.number() if kind == 2 else None
        need(self.size is None or 1 <= self.size <= 32767, "an impossible length")

    def take(self, source, count):
        """The values as they stand in rows, and what each begins at a multiple of."""
        if count == 0:
            return []
        if self.size in (1, 2, 4, 8):
            numbers = source.column(count)
            words = [(number & MASK).to_bytes(8, "little")[: self.size] for number in numbers]
        elif self.size:
            data = source.bytes(count * self.size)
            words = [data[at : at + self.size] for at in range(0, len(data), self.size)]
        else:
            forms = source.column(count) if source.byte() else None
            texts = source.texts(count)
            forms = forms or [int(len(text) > 126) for text in texts]
            return [self.variable(form, text) for form, text in zip(forms, texts)]
        return [(word, self.align) for word in words]

    def variable(self, form, text):
        need(0 <= form < 4, "a value of an unknown form")
        if form == 0:
            return bytes([(len(text) + 1) << 1 & 255 | 1]) + text, 1
        if form == 3:
            need(len(text) == 16, "a value in a TOAST table has another length")
            return b"\1\x12" + text, 1
        return struct.pack("<I", len(text) + 4 << 2 | (form == 2) << 1) + text, self.align


def join(values):
    """Values behind each other, each at a multiple of its alignment."""
    row = bytearray()
    for word, align in values:
        row += bytes(-len(row) % align) + word
    return bytes(row)


def split_values(source, columns, rows):
    """The values of each row, which says by number which columns it has."""
    values = [[] for _ in rows]
    for number, column in enumerate(columns):
        own = [index for index, row in enumerate(rows) if number in row]
        for index, value in zip(own, column.take(source, len(own))):
            values[index].append(value)
    return values


def block(number):
    """A block number as rows point to it: its upper half comes first."""
    return struct.pack("<HH", number >> 16 & 0xFFFF, number & 0xFFFF)


def has_bit(bitmap, at):
    return bitmap[at // 8] >> at % 8 & 1


def heap_rows(source, columns, slots):
    """The rows, in order. `slots` has page and line pointer of each."""
    kinds = source.column(len(slots))
    need(all(0 <= kind < 3 for kind in kinds), "a row of an unknown kind")
    headed = [slot for slot, kind in zip(slots, kinds) if kind != 2]
    lists = [source.column(len(headed)) for _ in range(6)]
    bitmap_bytes = []
    for flags in lists[0]:
        count = (flags & 0x7FF) + 7 >> 3 if flags >> 16 & 1 else 0
        need(flags >> 32 == up(23 + count, 8), "a row with an impossible header")
        bitmap_bytes.append(count)
    bitmaps = [bytearray() for _ in headed]
    for at in range(max(bitmap_bytes, default=0)):
        own = [bitmap for bitmap, count in zip(bitmaps, bitmap_bytes) if count > at]
        for bitmap, byte in zip(own, source.column(len(own))):
            bitmap.append(byte & 255)
    kept = iter(source.kept(sum(kind != 0 for kind in kinds)))
    headers = [heap_header(*it) for it in zip(zip(*lists), headed, bitmaps)]
    of_header = [kind for kind in kinds if kind != 2]
    present = []
    for kind, flags, bitmap in zip(of_header, lists[0], bitmaps):
        if kind == 0:
            count = flags & 0x7FF
            need(count <= len(columns), "a row has more columns than its table")
            present.append({at for at in range(count) if not bitmap or has_bit(bitmap, at)})
    values = iter(split_values(source, columns, present))
    rows, header = [], iter(headers)
    for kind in kinds:
        head = b"" if kind == 2 else next(header)
        rows.append(head + (join(next(values)) if kind == 0 else next(kept)))
    return rows


def heap_header(fields, place, bitmap):
    (flags, xmin, xmax, cid, at_block, at_slot), (page, slot) = fields, place
    low = [number & 0xFFFFFFFF for number in (xmin, xmax, cid)]
    head = struct.pack("<III", *low) + block(at_block + page)
    head += struct.pack("<H", at_slot + slot & 0xFFFF) + struct.pack("<Q", flags)[:5] + bitmap
    return head + bytes((flags >> 32) - len(head))


def pointers(source, count):
    per_block = source.number()
    numbers = [number & MASK for number in source.column(count)]
    if per_block:
        numbers = [number // per_block << 16 | number % per_block + 1 for number in numbers]
    return [(number >> 16 & 0xFFFFFFFF, number & 0xFFFF) for number in numbers]


def btree_rows(source, columns, slots):
    kinds = source.column(len(slots))
    need(all(0 <= kind < 3 for kind in kinds), "a row of an unknown kind")
    cut_kinds = [kind for kind in kinds if kind != 2]
    flags = source.column(len(cut_kinds))
    has_nulls = [flag >> 1 & 1 for flag in flags]
    found = iter(source.column(sum(has_nulls)))
    bitmaps = [struct.pack("<I", next(found) & 0xFFFFFFFF) if nulls else b"" for nulls in has_nulls]
    plain = iter(pointers(source, cut_kinds.count(0)))
    counts = source.column(cut_kinds.count(1))
    posted = iter(pointers(source, sum(counts)))
    counts, kept = iter(counts), iter(source.kept(kinds.count(2)))
    numbers = range(len(columns))
    present = [{at for at in numbers if not bitmap or has_bit(bitmap, at)} for bitmap in bitmaps]
    values = split_values(source, columns, present)
    cuts, rows = iter(zip(cut_kinds, flags, bitmaps, values)), []
    for kind in kinds:
        if kind == 2:
            rows.append(next(kept))
            continue
        kind, flag, bitmap, own = next(cuts)
        body = (bitmap + bytes(4) if bitmap else b"") + join(own)
        body += bytes(-len(body) % 8)
        if kind == 0:
            place, slot = next(plain)
            info = flag << 14
        else:
            count = next(counts)
            place, slot, info = 8 + len(body), 0x2000 | count, flag << 14 | 0x2000
            for at_block, at_slot in [next(posted) for _ in range(count)]:
                body += block(at_block) + struct.pack("<H", at_slot)
            body += bytes(-len(body) % 8)
        rows.append(block(place) + struct.pack("<HH", slot, info | 8 + len(body)) + body)
    return rows


def fill_kinds(source, kinds, raw_pages, page_bytes):
    pages, raw_pages = [], iter(raw_pages)
    for kind in kinds:
        need(0 <= kind < 4, "a page of an unknown kind")
        pages.append(bytearray(next(raw_pages) if kind == 0 else bytes(page_bytes)))
    return pages


def postgres(source, kind, columns, page_bytes, count):
    special_bytes = 16 if kind == BTREE else 0
    kinds = source.column(count)
    raw = [source.main(page_bytes) for found in kinds if found == 0]
    pages = fill_kinds(source, kinds, raw, page_bytes)
    opened = [number for number, found in enumerate(kinds) if found > 1]
    for at in [*range(24), *range(page_bytes - special_bytes, page_bytes)]:
        value = 0
        for number, difference in zip(opened, source.main(len(opened))):
            value = value + difference & 255
            pages[number][at] = value
    bounds = [struct.unpack_from("<HHH", pages[number], 12) for number in opened]
    for lower, upper, special in bounds:
        ordered = 24 <= lower <= upper <= special == page_bytes - special_bytes
        need(ordered and lower % 4 == 0, "a page with an impossible header")
    counts = source.column(len(opened))
    steps = iter(source.column(sum(counts)))
    slots = []
    for rows in counts:
        slot, own = 0, []
        for _ in range(rows):
            slot += next(steps) + 1
            own.append(slot)
        slots.append(own)
    unit = source.byte()
    gaps = [gap * unit for gap in source.column(sum(counts))]
    others = source.column(sum((lower - 24) // 4 for lower, _, _ in bounds) - sum(counts))
    places = [(number, slot) for number, own in zip(opened, slots) for slot in own]
    rows = (heap_rows if kind == HEAP else btree_rows)(source, columns, places)
    starts = lay_rows(pages, opened, bounds, (slots, gaps, rows, others))
    for number, limits, covered in reversed(list(zip(opened, bounds, starts))):
        if kinds[number] == 3:
            stale(source, pages[number], limits, sorted(covered))
    return pages


def lay_rows(pages, opened, bounds, parts):
    """Writes rows and line pointers. Returns what the rows of each page cover."""
    slots, gaps, rows, others = parts
    others, first, covered = iter(others), 0, []
    for number, (lower, upper, special), own in zip(opened, bounds, slots):
        page, places, expected = pages[number], [], upper
        for slot in sorted(set(range(1, (lower - 24) // 4 + 1)) - set(own)):
            struct.pack_into("<I", page, 20 + 4 * slot, next(others) & 0xFFFFFFFF)
        for at in reversed(range(first, first + len(own))):
            start, row = expected + gaps[at], rows[at]
            need(lower <= start and start + len(row) <= special, "a row is outside of its page")
            page[start : start + len(row)] = row
            pointer = start | 1 << 15 | len(row) << 17
            struct.pack_into("<I", page, 20 + 4 * own[at - first], pointer)
            places.append((start, start + len(row)))
            expected = start + up(len(row), 8)
        first += len(own)
        covered.append(places)
    return covered


def stale(source, page, limits, covered):
    lower, _, special = limits
    for start, end in zip([lower, *(end for _, end in covered)], [*(at for at, _ in covered), special]):
        if start < end:
            count = source.number()
            if count:
                at = start + source.number()
                need(at + count <= end, "stale bytes are too long")
                page[at : at + count] = source.main(count)


def varint(value):
    value &= MASK
    if value >> 56:
        head = [value >> 8 + 7 * at & 127 | 128 for at in reversed(range(8))]
        return bytes([*head, value & 255])
    found = [value & 127]
    while value > 127:
        value >>= 7
        found.insert(0, value & 127 | 128)
    return bytes(found)


INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def integer(number, kind):
    """Serial type and bytes of an integer."""
    if kind > 4:
        serial = kind - 4
    elif number in (0, 1):
        return varint(8 + number), b""
    else:
        fits = (it for it, size in INTEGER_BYTES.items() if -(1 << 8 * size - 1) <= number < 1 << 8 * size - 1)
        serial = next(fits)
    size = INTEGER_BYTES[serial]
    return varint(serial), (number & MASK).to_bytes(8, "big")[8 - size :]


def reals(source, count):
    how = source.byte()
    need(how < 2, "numbers of an unknown kind")
    if how == 1:
        planes = [source.bytes(count) for _ in range(8)]
        return [bytes(number) for number in zip(*planes)]
    scale = source.byte()
    need(scale < 10, "an impossible scale")
    numbers = [struct.pack(">d", number / 10**scale) for number in source.column(count)]
    at = -1
    for _ in range(source.number()):
        at += source.number() + 1
        numbers[at] = source.main(8)[::-1]
    return numbers


def record(kinds, columns):
    types, body = b"", b""
    for kind, lists in zip(kinds, columns):
        if kind == 0:
            serial, value = b"\0", b""
        elif kind == 2:
            serial, value = b"\7", next(lists[1])
        elif kind in (3, 4):
            value = next(lists[kind - 1])
            serial = varint((13 if kind == 3 else 12) + 2 * len(value))
        else:
            serial, value = integer(next(lists[0]), kind)
        types, body = types + serial, body + value
    head = len(types) + len(varint(len(types) + len(varint(len(types)))))
    return varint(head) + types + body


def cells(source, leaves):
    """The cells of each leaf, which is (whether it is of a table, how many cells)."""
    total = sum(count for _, count in leaves)
    forms = source.column(total)
    sizes = [source.number() for _ in range(source.number())]
    kinds = cut(source.main(sum(sizes)), sizes)
    need(all(kind <= 10 for form in kinds for kind in form), "a value of an unknown kind")
    groups = source.number()
    group_of = source.column(len(leaves))
    kept = iter(source.kept(forms.count(0)))
    of_leaf = cut(forms, [count for _, count in leaves])
    found = []
    for group in range(groups):
        own = [at for at, it in enumerate(group_of) if it == group]
        records = [kinds[form - 1] for at in own for form in of_leaf[at] if form]
        of_tables = sum(form != 0 for at in own if leaves[at][0] for form in of_leaf[at])
        rowids, columns = iter(source.column(of_tables)), []
        for number in range(max(map(len, records), default=0)):
            there = [form[number] for form in records if len(form) > number]
            counts = [sum(kind in which for kind in there) for which in ((1, *range(5, 11)), (2,), (3,), (4,))]
            lists = [source.column(counts[0])]
            for count, read in zip(counts[1:], (reals, Source.texts, Source.texts)):
                lists.append(read(source, count) if count else [])
            columns.append([iter(values) for values in lists])
        found.append((rowids, columns))
    written = []
    for (is_table, _), group, own in zip(leaves, group_of, of_leaf):
        written.append([next(kept) if form == 0 else cell(is_table, kinds[form - 1], *found[group]) for form in own])
    return written


def cell(is_table, kinds, rowids, columns):
    rowid = varint(next(rowids)) if is_table else b""
    content = record(kinds, columns)
    return varint(len(content)) + rowid + content


def sqlite(source, reserved, page_bytes, count):
    usable = page_bytes - reserved
    need(usable >= 480, "no page of SQLite has so many reserved bytes")
    kinds = source.column(count)
    kept = source.bytes(kinds.count(0) * page_bytes)
    pages = fill_kinds(source, kinds, cut(kept, [page_bytes] * kinds.count(0)), page_bytes)
    opened = [number for number, kind in enumerate(kinds) if kind > 1]
    first, freeblock, counts, content, fragments = (source.column(len(opened)) for _ in range(5))
    need(set(first) <= {10, 13}, "a page is not a leaf")
    ends = [source.main(reserved) for _ in opened]
    total = sum(counts)
    steps, gaps = iter(source.column(total)), iter(source.column(total))
    found = cells(source, [(kind == 13, cells) for kind, cells in zip(first, counts)])
    remains = source.bytes(source.number())
    heads = zip(opened, first, freeblock, content, fragments, ends, found)
    for number, kind, free, above, fragment, end, own in heads:
        page = pages[number]
        page[usable:] = end
        place, order = 0, [None] * len(own)
        for cell_number in range(len(own)):
            place += next(steps)
            need(0 <= place < len(own) and order[place] is None, "a cell with an impossible place")
            order[place] = cell_number
            place += 1
        low, pointers_end, holes = usable, 8 + 2 * len(own), []
        for cell_number in order:
            gap, data = next(gaps), own[cell_number]
            holes.append((low - gap, low))
            low -= gap + len(data)
            need(pointers_end <= low, "a cell is outside of its page")
            page[low : low + len(data)] = data
            struct.pack_into(">H", page, 8 + 2 * cell_number, low & 0xFFFF)
        struct.pack_into(">BHHHB", page, 0, kind, free, len(own), above + low & 0xFFFF, fragment)
        if kinds[number] == 3:
            for start, stop in [*holes, (pointers_end, low)]:
                page[start:stop], remains = remains[: stop - start], remains[stop - start :]
    need(not remains, "stale bytes are left")
    return pages


def pages(description, streams, raw_bytes):
    """The pages of a frame."""
    head = Source([description, b""])
    kind, page_bytes = head.byte(), 1 << head.byte()
    need(512 <= page_bytes <= 65536 and raw_bytes % page_bytes == 0, "no page has this length")
    source, count = Source(streams), raw_bytes // page_bytes
    if kind == SQLITE:
        found = sqlite(source, head.byte(), page_bytes, count)
    else:
        need(kind in (HEAP, BTREE), "pages of an unknown kind")
        columns = [Column(head) for _ in range(head.number())]
        found = postgres(source, kind, columns, page_bytes, count)
    head.end()
    source.end()
    return b"".join(found)
