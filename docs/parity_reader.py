#!/usr/bin/env python3
"""Rebuilds a stripe of a set with parity, from docs/format.md alone: a second opinion on the format, not a tool.

    parity_reader.py NUMBER FILE [FILE ...] > STRIPE    stripe NUMBER, from 1, of the files that are left

Name the files with parity and the stripes that are left, in any order. Python's standard library and
nothing else. BLAKE3 is not in it, so hashes are not checked; every CRC-32C is.
"""

import struct
import sys

CASTAGNOLI = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CASTAGNOLI.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CASTAGNOLI[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def need(condition, what):
    if not condition:
        sys.exit(f"error: {what}")


def product(one, other):
    total = 0
    while other:
        total ^= one if other & 1 else 0
        one = one << 1 ^ (0x11D if one & 0x80 else 0)
        other >>= 1
    return total


INVERSE = {one: other for one in range(1, 256) for other in range(1, 256) if product(one, other) == 1}
TIMES = [bytes(product(factor, byte) for byte in range(256)) for factor in range(256)]


def coefficient(parity, stripe):
    return product(64 + stripe, INVERSE[(64 + stripe) ^ parity])


def added(total, factor, data):
    """total + factor * data, with zeros behind the data."""
    data = data.translate(TIMES[factor]).ljust(len(total), b"\0")
    return (int.from_bytes(total, "big") ^ int.from_bytes(data, "big")).to_bytes(len(total), "big")


def checked(block, what):
    need(crc32c(block[:-4]) == struct.unpack("<I", block[-4:])[0], f"{what}: checksum mismatch")
    return block


class Parity:
    """A file with parity."""

    def __init__(self, path):
        self.file = open(path, "rb")
        head = self.read(0, 64)
        version, features, length = struct.unpack_from("<HHI", head, 8)
        need((version, features) == (1, 0), f"{path}: a newer format")
        head = checked(self.read(0, length), f"{path}: header")
        self.set_id, self.number, self.parities, self.stripes = struct.unpack_from("<16sHHH", head, 16)
        end = checked(self.read(self.file.seek(0, 2) - 512, 512), f"{path}: end")
        need(end[:8] == b"WNDLPEND", f"{path}: not complete")
        directory = self.read(*struct.unpack_from("<QQ", end, 32))
        need(directory[:8] == b"WNDLGDIR", f"{path}: no directory")
        (count,) = struct.unpack_from("<I", directory, 28)
        self.lengths = struct.unpack_from(f"<{self.stripes}Q", directory, 40)
        size, at = 64 + 8 * self.stripes, 40 + 8 * self.stripes
        blocks = [struct.unpack_from("<QI", directory, at + number * size) for number in range(count)]
        self.groups = [group for offset, length in blocks for group in self.block(offset, length)]

    def read(self, offset, count):
        self.file.seek(offset)
        return self.file.read(count)

    def block(self, offset, length):
        block = checked(self.read(offset, length), "group block")
        need(block[:8] == b"WNDLGRPS", "group block: not one")
        groups, members = struct.unpack_from("<II", block, 48)
        at = 64 + 24 * groups
        for number in range(groups):
            start, size, crc, count = struct.unpack_from("<QIIH", block, 64 + 24 * number)
            own = [struct.unpack_from("<QIIH", block, at + 24 * member) for member in range(count)]
            at += 24 * count
            yield (start, size, crc), own


def solved(rows, sums):
    """The unknowns of as many equations, whose right sides are bytes."""
    rows, sums = [list(row) for row in rows], list(sums)
    for column in range(len(rows)):
        pivot = next(at for at in range(column, len(rows)) if rows[at][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        sums[column], sums[pivot] = sums[pivot], sums[column]
        scale = INVERSE[rows[column][column]]
        rows[column] = [product(scale, one) for one in rows[column]]
        sums[column] = sums[column].translate(TIMES[scale])
        for at, row in enumerate(rows):
            factor = row[column]
            if at != column and factor:
                rows[at] = [one ^ product(factor, two) for one, two in zip(row, rows[column])]
                sums[at] = added(sums[at], factor, sums[column])
    return sums


def rebuilt(group, wanted, parities, stripes):
    """The member of the wanted stripe."""
    number, members = group
    there, lost = {}, []
    for offset, size, crc, stripe in members:
        data = b""
        if stripe in stripes and stripe != wanted:
            stripes[stripe].seek(offset)
            data = stripes[stripe].read(size)
        if len(data) == size and crc32c(data) == crc:
            there[stripe] = data
        else:
            lost.append((offset, size, crc, stripe))
    rows, sums = [], []
    for parity in parities:
        known = parity.groups[number:number + 1]
        if not known or known[0][1] != members:
            continue  # it was computed anew, with other groups
        (start, size, crc), _ = known[0]
        total = parity.read(start, size)
        if len(rows) == len(lost) or crc32c(total) != crc:
            continue
        for stripe, data in there.items():
            total = added(total, coefficient(parity.number, stripe), data)
        rows.append([coefficient(parity.number, stripe) for *_, stripe in lost])
        sums.append(total)
    need(len(rows) == len(lost), f"group {number}: more is lost than can be rebuilt")
    for (offset, size, crc, stripe), data in zip(lost, solved(rows, sums)):
        need(crc32c(data[:size]) == crc, f"group {number}: what was rebuilt is wrong")
        if stripe == wanted:
            return offset, data[:size]


def main(number, *paths):
    wanted, stripes, parities = int(number) - 1, {}, []
    for path in paths:
        file = open(path, "rb")
        head = file.read(64)
        if head[:7] == b"WNDLPAR":
            parities.append(Parity(path))
        elif head[:7] == b"WNDLASS":
            stripes[struct.unpack_from("<H", head, 32)[0]] = file
    need(parities, "no file with parity was named")
    position = 0
    for number, (_, members) in enumerate(parities[0].groups):
        if any(stripe == wanted for *_, stripe in members):
            offset, data = rebuilt((number, members), wanted, parities, stripes)
            need(offset == position, f"group {number}: a gap")
            sys.stdout.buffer.write(data)
            position += len(data)
    need(position == parities[0].lengths[wanted], "the stripe is not as long as the directory says")


if len(sys.argv) < 3:
    sys.exit(__doc__)
main(*sys.argv[1:])
