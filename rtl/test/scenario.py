"""Random commands for the engine core: entries and descriptors as a host writes them, the devices behind them, and what a plain
program would make of the same bytes. The commands are the same for the core in SystemVerilog and for the Rust core."""

import hashlib
import random
import zlib
from dataclasses import dataclass, field

from layouts import constants, pack

C = constants("core_pkg")
BLOCK = 1 << C["BlockShift"]
TO_END = C["LengthToEnd"]
OPEN_END = (1 << 63) - 1
POSITIONAL = [C["EndpointFile"], C["EndpointBlock"], C["EndpointMemory"], C["EndpointDeviceMemory"]]
STREAMS = [C["EndpointFlow"], C["EndpointStream"]]
SIZES = {C["OpMd5"]: 16, C["OpSha1"]: 20, C["OpSha256"]: 32, C["OpCrc32"]: 4, C["OpCrc32c"]: 4, C["OpCrc64Nvme"]: 8}
PARAMETERS = {C["OpAes256Ctr"]: 48, C["OpAes256Xts"]: 80}
OPERATORS = [*SIZES, *PARAMETERS]


def mix(*numbers):
    """The same number for the same numbers, here and in Rust."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = (state ^ number) * 0xBF58476D1CE4E5B9 % (1 << 64)
        state ^= state >> 29
    return state >> 16


def piece(command, place, position, length):
    """How much of so many bytes a device moves at once."""
    chance = mix(command, place, position)
    return 1 + chance // 8 % length if chance % 8 < 2 else length


@dataclass
class Command:
    number: int
    queue: int
    entry: bytes
    descriptor: bytes
    # What the devices have: bytes of the source in all, and room at the destination.
    source_size: int
    capacity: int = 1 << 62
    # The stage (0: source, 1 and following: operators, 9: destination, 10: flush, 11: binding) that fails, from which byte on.
    fault: tuple = None
    transfer: object = None
    result: int = 0
    address: int = 0
    cid: int = 0
    kind: str = "good"
    # Its operations of this stage are answered when they are aborted, and not before.
    hangs: int = None
    # Not even then.
    deaf: bool = False
    # Identifiers, flags and addresses, as `write` takes them.
    words: tuple = ()

    def plain(self):
        """For the Rust core."""
        fault = list(self.fault) if self.fault else None
        return {
            "queue": self.queue,
            "entry": self.entry.hex(),
            "descriptor": self.descriptor.hex(),
            "source_size": self.source_size,
            "capacity": self.capacity,
            "fault": fault,
        }


@dataclass
class Transfer:
    """What a command asks for, and the bytes behind it."""

    chain: list
    prefix: bytes
    source_kind: int
    source: bytes
    source_extents: list
    destination_kind: int
    destination_extents: list
    length: int
    # Parameter blocks, by place.
    parameters: dict = field(default_factory=dict)
    content: bytes = b""
    # Numbers of source, destination and prefix.
    handles: tuple = (1, 2, 3)
    covered: dict = field(default_factory=dict)

    def given(self):
        """The bytes that go into the chain."""
        data = self.prefix
        if self.source_kind in POSITIONAL:
            for offset, length in self.source_extents:
                data += self.source[offset : offset + length]
        else:
            data += self.source
        return data if self.length == TO_END else data[: self.length]

    def expected(self):
        """The bytes that arrive, and the digests, of a plain sequential program."""
        data, digests = self.given(), {}
        self.covered = {"in": len(data)}
        for at, operator in enumerate(self.chain):
            unit = Unit(operator, at)
            data = unit.process(data)
            if operator in SIZES:
                digests[at] = unit.value()
        return data, digests


class Unit:
    """A stand-in for a processing unit: depends on every byte and on their order, as the real ones."""

    def __init__(self, operator, at):
        self.operator, self.at, self.position = operator, at, 0
        names = {C["OpMd5"]: "md5", C["OpSha1"]: "sha1", C["OpSha256"]: "sha256"}
        self.hash = hashlib.new(names[operator]) if operator in names else None
        self.code = 0

    def process(self, data):
        if self.hash:
            self.hash.update(data)
        elif self.operator in SIZES:
            self.code = zlib.crc32(data, self.code)
        else:
            start, count = self.position, len(data)
            keys = bytes((at * 7 + self.at * 13 + (at >> 8)) & 255 for at in range(start, start + count))
            data = (int.from_bytes(data, "little") ^ int.from_bytes(keys, "little")).to_bytes(count, "little")
        self.position += len(data)
        return data

    def value(self):
        size = SIZES[self.operator]
        return self.hash.digest() if self.hash else (self.code * 0x100000001).to_bytes(8, "big")[-size:]


def cut(chance, length, most=4):
    """Extents of so many bytes, with gaps between them, in an order that is not theirs."""
    places = sorted({0, length, *(chance.randrange(length) for _ in range(chance.randrange(most)))} if length else {0, 0})
    pairs = [(low + 100 * at, high - low) for at, (low, high) in enumerate(zip(places, places[1:]))]
    return pairs[::-1] or [(0, 0)]


def build(chance, number, queue, cid, result, address):
    """A command; most are sound, some of them fail at a device, some are broken."""
    length = chance.choice([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, chance.randrange(5 * BLOCK), chance.randrange(3 * BLOCK)])
    chain = [chance.choice(OPERATORS) for _ in range(chance.choice([0, 0, 1, 1, 2, 3, 8]))]
    source_kind = chance.choice(POSITIONAL if chance.random() < 0.6 else STREAMS)
    destination_kind = chance.choice(POSITIONAL if chance.random() < 0.6 else STREAMS)
    prefix = chance.randbytes(chance.randrange(1, 6000)) if chance.random() < 0.2 else b""
    inline = not prefix and len(chain) <= 2 and not set(chain) & set(PARAMETERS) and chance.random() < 0.5
    source_extents = cut(chance, length, 1 if inline else 4) if source_kind in POSITIONAL else []
    total = length + len(prefix)
    to_end = chance.random() < 0.4 and not (inline and (source_kind in POSITIONAL or destination_kind in POSITIONAL))
    # A file that is read until it gives no more.
    opens = source_kind == C["EndpointFile"] and not inline and length and chance.random() < 0.15
    if opens:
        source_extents[-1] = (source_extents[-1][0], OPEN_END - source_extents[-1][0])
    size = max((offset + count for offset, count in source_extents), default=length)
    if opens:
        size = min(offset for offset, _ in source_extents[-1:]) + 1 + chance.randrange(9000)
        if any(offset + count > size for offset, count in source_extents[:-1]):
            size = max(offset + count for offset, count in source_extents[:-1]) + chance.randrange(9000)
        to_end, total = True, 0
    source = chance.randbytes(size)
    room = total if total else chance.randrange(40_000)
    destination_extents = cut(chance, room, 1 if inline else 4) if destination_kind in POSITIONAL else []
    command = Command(number, queue, b"", b"", len(source))
    transfer = Transfer(
        chain, prefix, source_kind, source, source_extents, destination_kind, destination_extents, TO_END if to_end else total
    )
    known = not opens and source_kind in POSITIONAL
    if chance.random() < 0.15:
        place = chance.choice([0, 9, 11, *range(1, len(chain) + 1)])
        at = chance.randrange(max(total, 1))
        command.fault = (place, at, C["StatusReadError"] + (place == 9) * (C["StatusWriteError"] - C["StatusReadError"]))
        command.kind = "fault"
    elif chance.random() < 0.1 and length > 1 and not opens:
        # The source ends too early.
        command.source_size = chance.randrange(length)
        command.kind = "short"
    elif to_end and not known and destination_kind in POSITIONAL:
        command.kind = "full"
    flags = chance.choice([0, 0, 0, C["FlagDurable"], C["FlagMore"], C["FlagAcknowledged"]])
    rid = chance.choice([0, 0, 1, 2])
    write(chance, command, transfer, inline, (cid, rid, flags, result, address))
    if chance.random() < 0.15:
        spoil(chance, command)
    return command


def random_parameters(chance, operator):
    """A cipher's keys, and its counter or data units."""
    block = bytearray(chance.randbytes(PARAMETERS[operator]))
    if operator == C["OpAes256Xts"]:
        block[64:72] = chance.choice([512, 4096, 16]).to_bytes(8, "little")
    return bytes(block)


def write(chance, command, transfer, inline, words):
    """The entry and the descriptor."""
    cid, rid, flags, result, address = words
    command.transfer, command.cid, command.result, command.words = transfer, cid, result, words
    source_positional = transfer.source_kind in POSITIONAL
    common = {"opcode": C["OpcodeTransfer"], "cid": cid, "rid": rid, "result_address": result}
    if inline:
        length = transfer.length if transfer.length != TO_END or not source_positional else len(transfer.source)
        entry = pack(
            "inline_sqe_t",
            **common,
            source_handle=transfer.handles[0],
            destination_handle=transfer.handles[1],
            source_offset=transfer.source_extents[0][0] if source_positional else 0,
            destination_offset=transfer.destination_extents[0][0] if transfer.destination_extents else 0,
            op_chain=sum(number << 8 * at for at, number in enumerate(transfer.chain)),
            source_kind=transfer.source_kind,
            destination_kind=transfer.destination_kind,
            length=length,
            flags=flags | C["FlagInline"],
            modes=chance.choice([0, 0, 0x1A9]),
        )
        command.entry = entry.to_bytes(64, "little")
        return
    extents = bytearray()

    def end(kind, handle, pieces):
        if not kind:
            return 0
        at = 256 + len(extents) if pieces else 0
        for offset, length in pieces:
            extents.extend(offset.to_bytes(8, "little") + length.to_bytes(8, "little"))
        return pack("endpoint_t", kind=kind, handle=handle, extents_offset=at, extents_count=len(pieces), cache=chance.choice([0, 1, 2]))

    prefix = end(C["EndpointMemory"], transfer.handles[2], [(64, len(transfer.prefix))]) if transfer.prefix else 0
    source = end(transfer.source_kind, transfer.handles[0], transfer.source_extents)
    destination = end(transfer.destination_kind, transfer.handles[1], transfer.destination_extents)
    parameters = 0
    for at, operator in enumerate(transfer.chain):
        block = transfer.parameters.get(at)
        if block is None and operator in PARAMETERS:
            block = transfer.parameters[at] = random_parameters(chance, operator)
        if block is not None:
            place = pack("parameter_t", kind=C["ParameterDirect"], length=len(block), offset=256 + len(extents))
            parameters |= place << 128 * at
            extents += block + bytes(-len(block) % 8)
    header = pack(
        "descriptor_t",
        version=C["AbiVersion"],
        header_length=256,
        total_length=256 + len(extents),
        prefix=prefix,
        source=source,
        destination=destination,
        parameters=parameters,
    )
    command.descriptor = header.to_bytes(256, "little") + bytes(extents)
    entry = pack(
        "sqe_t",
        **common,
        descriptor_address=address,
        descriptor_length=len(command.descriptor),
        op_chain=sum(number << 8 * at for at, number in enumerate(transfer.chain)),
        length=transfer.length,
        flags=flags,
    )
    command.entry = entry.to_bytes(64, "little")


def cancel(number, queue, own_number, target, cid):
    """A Cancel for a command of the same queue."""
    entry = pack("sqe_t", opcode=C["OpcodeCancel"], cid=cid, op_chain=own_number | target << 16)
    return Command(number, queue, entry.to_bytes(64, "little"), b"", 0, cid=cid, kind="cancel")


def plain(number, queue, cid, address, chain, length, **fields):
    """A sound command from memory to memory, with a descriptor where it has an address."""
    kind, extents = C["EndpointMemory"], [(0, length)]
    command = Command(number, queue, b"", b"", length)
    source = bytes(at * 31 & 255 for at in range(length))
    transfer = Transfer(chain, b"", kind, source, extents, kind, extents, length)
    words = (cid, fields.pop("rid", 0), fields.pop("flags", 0), fields.pop("result", 0), address or 0)
    write(random.Random(number), command, transfer, address is None, words)
    bits = int.from_bytes(command.entry, "little") | pack("sqe_t", **fields)
    command.entry = bits.to_bytes(64, "little")
    return command


def spoil(chance, command):
    """Breaks a few bytes of what the host says, but not where things are: no identifier, and no address."""
    command.kind = "spoiled"
    entry, descriptor = bytearray(command.entry), bytearray(command.descriptor)
    inline = not descriptor
    places = [0, 1, 4, 5, 60, 61, 62, 63, *range(40, 56)] + ([24, 31, 32, 38, 39] if inline else [32, 36])
    for _ in range(chance.choice([1, 1, 1, 2])):
        if descriptor and chance.random() < 0.7:
            at = chance.randrange(len(descriptor)) if chance.random() < 0.5 else chance.randrange(144)
            descriptor[at] = chance.choice([0, 1, 2, 3, 7, 255, chance.randrange(256)])
        else:
            entry[chance.choice(places)] = chance.choice([0, 1, 2, 3, 4, 8, 9, 16, 63, 255, chance.randrange(256)])
    if entry[0] == C["OpcodeCancel"]:
        entry[0] = 0
    if inline:
        # Without the flag it would name a descriptor that nobody wrote.
        entry[60] |= C["FlagInline"]
    command.entry, command.descriptor = bytes(entry), bytes(descriptor)
