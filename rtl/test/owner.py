"""The world around the engine core: a host with its rings in memory, and an owner that does what the core asks for, in any order
and after any time. What the core promises is checked with each operation."""

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from layouts import constants, pack, unpack
from scenario import BLOCK, POSITIONAL, SIZES, Unit, piece

C = constants("core_pkg")
MEMORY = 1 << 20
RESULT = C["ResultSize"]
NEVER = 1 << 62
# Milliseconds that a command which has failed waits for its devices: longer than any of them takes.
GRACE = 1 << 20
# Of functions, by their numbers.
FUNC_WEIGHTS = (2, 1, 1, 5)


class Ring:
    def __init__(self, home, index, depth, weight, tenant, func):
        self.index, self.depth, self.tenant, self.func, self.number = index, depth, tenant, func, 10 + index
        self.submission, self.completion = home.allocate(depth * 64), home.allocate(depth * 16)
        self.tail = self.head = self.taken = self.written = 0
        self.phase, self.owed = 1, []
        # The core knows it; it is to go; it is gone.
        self.there = self.going = self.gone = False
        # Its host tells of no completion that it has taken.
        self.mute = False
        self.config = pack(
            "queue_config_t",
            submission=self.submission,
            completion=self.completion,
            depth=depth,
            weight=weight,
            tenant=tenant,
            func=func,
            func_weight=FUNC_WEIGHTS[func % len(FUNC_WEIGHTS)],
            number=self.number,
            interrupts=1,
            vector=index + 3,
        )

    def room(self):
        return (self.tail + 1) % self.depth != self.head


class World:
    """Everything but the core. `chance` decides about times; without it everything is as fast as it can be."""

    def __init__(self, dut, chance=None, slow=1.0):
        self.dut, self.chance, self.slow = dut, chance, slow
        self.memory, self.used = bytearray(MEMORY), 4096
        self.rings, self.flying, self.bindings, self.slots = [], {}, [], {}
        self.reads, self.interrupts, self.written = [], [], []
        self.outcome = self.bound = self.look = None
        self.doorbells, self.done, self.cycle = [], {}, 0
        self.driven, self.aborted, self.operations, self.stamps = {}, set(), 0, []
        self.blocks, self.units, self.traces = {}, set(), {}
        self.most, self.extra = 0, []
        # With slots: the operator of each, the one that is being loaded and with what, and how many were.
        self.holds = [slot % C["Pools"] for slot in range(C["Units"])]
        self.loading, self.loads = None, 0

    def allocate(self, size):
        at = self.used
        self.used += (size + 63) // 64 * 64
        assert self.used <= MEMORY
        return at

    def drive(self, name, value):
        if self.driven.get(name) != value:
            self.driven[name] = value
            getattr(self.dut, name).value = value

    def sees(self, name):
        return int(getattr(self.dut, name).value)

    def may(self, likely=0.7):
        return self.chance is None or self.chance.random() < likely

    def later(self, most=40):
        return self.cycle + (1 if self.chance is None else 1 + int(self.chance.randrange(1, most) * self.slow))

    async def start(self):
        names = """create_i delete_i deleted_ready_i doorbell_valid_i read_ready_i data_valid_i write_ready_i interrupt_ready_i bind_ready_i bound_valid_i
            unbind_ready_i operation_ready_i outcome_valid_i held_i released_valid_i stop_valid_i abort_ready_i digest_ready_i
            look_command_i block_read_valid_i block_write_valid_i now_i millis_i rst_ni"""
        for name in names.split():
            if hasattr(self.dut, name):
                self.drive(name, 0)
        cocotb.start_soon(Clock(self.dut.clk_i, 4, unit="ns").start())
        for _ in range(3):
            await FallingEdge(self.dut.clk_i)
        if hasattr(self.dut, "grace_i"):
            self.drive("grace_i", GRACE)
        self.drive("rst_ni", 1)

    def home(self, func):
        """Whoever has a function's memory."""
        return self

    async def create(self, depth, weight=1, tenant=0, func=0):
        ring = Ring(self, len(self.rings), depth, weight, tenant, func)
        self.rings.append(ring)
        self.drive("create_i", 1)
        self.drive("create_queue_i", ring.index)
        self.drive("create_config_i", ring.config)
        await FallingEdge(self.dut.clk_i)
        self.drive("create_i", 0)

    def submit(self, queue, entry, command):
        """Writes an entry; the doorbell is rung in its time."""
        ring = self.rings[queue]
        at = ring.submission + 64 * ring.tail
        self.home(ring.func).memory[at : at + 64] = entry
        ring.tail = (ring.tail + 1) % ring.depth
        ring.owed.append(command)
        self.doorbells.append((queue, 0, ring.tail))

    # ---- A cycle ----

    async def step(self):
        self.drive("millis_i", self.cycle // 250)
        self.drive("now_i", 4 * self.cycle)
        self.offer_host()
        self.offer_owner()
        await ReadOnly()
        self.take_host()
        self.take_owner()
        await FallingEdge(self.dut.clk_i)
        self.cycle += 1

    def offer_host(self):
        bell = self.doorbells[0] if self.doorbells and self.may(0.5) else None
        self.bell = bell
        self.drive("doorbell_valid_i", int(bell is not None))
        if bell:
            self.drive("doorbell_queue_i", bell[0])
            self.drive("doorbell_completion_i", bell[1])
            self.drive("doorbell_value_i", bell[2])
        for name in ("read_ready_i", "write_ready_i", "interrupt_ready_i"):
            self.drive(name, int(self.may()))
        word = self.reads[0] if self.reads and self.reads[0][0] <= self.cycle and (self.held_word or self.may()) else None
        self.held_word = word is not None
        self.drive("data_valid_i", int(word is not None))
        if word:
            self.drive("data_i", word[1])
            self.drive("data_error_i", word[2])

    held_word = held_outcome = held_bound = False

    def offer_owner(self):
        for name in ("bind_ready_i", "unbind_ready_i", "operation_ready_i", "abort_ready_i"):
            self.drive(name, int(self.may()))
        if C["Slots"]:
            self.drive("load_ready_i", int(self.loading is not None and self.may(0.02)))
        # The transfer of what was bound last, a cycle later.
        self.drive("look_command_i", self.look or 0)
        if self.bound is None and self.bindings and self.bindings[0][0] <= self.cycle:
            self.bound = self.bindings.pop(0)[1:]
        self.drive("bound_valid_i", int(self.bound is not None))
        if self.bound:
            slot, failure = self.bound
            self.drive("bound_command_i", slot)
            self.drive("bound_ok_i", int(failure is None))
            self.drive("bound_flush_i", 0)
            self.drive("bound_failure_i", failure or 0)
        if self.outcome is None:
            due = [key for key, flight in self.flying.items() if flight["due"] <= self.cycle]
            if due:
                key = due[0] if self.chance is None else self.chance.choice(due)
                self.outcome = self.perform(key)
        self.drive("outcome_valid_i", int(self.outcome is not None))
        if self.outcome:
            self.drive("outcome_i", self.outcome)

    def take_host(self):
        assert not self.sees("doorbell_bad_o")
        if self.bell:
            self.doorbells.pop(0)
        if self.sees("read_valid_o") and self.driven["read_ready_i"]:
            address, count = self.sees("read_address_o"), self.sees("read_bytes_o")
            sound = address + count <= MEMORY
            # Faster than the devices: else few commands are in flight.
            at = self.cycle + (1 if self.chance is None else self.chance.randrange(1, 20))
            for start in range(address, address + count, 8):
                bits = int.from_bytes(self.memory[start : start + 8], "little") if sound else 0
                self.reads.append((at, bits, int(not sound)))
        if self.held_word and self.sees("data_ready_o"):
            self.reads.pop(0)
            self.held_word = False
        if self.sees("write_valid_o") and self.driven["write_ready_i"]:
            address, data = self.sees("write_address_o"), self.sees("write_data_o")
            self.memory[address : address + 8] = data.to_bytes(8, "little")
        if self.sees("interrupt_valid_o") and self.driven["interrupt_ready_i"]:
            self.interrupts.append(self.sees("interrupt_vector_o"))
            self.consume(self.rings[self.interrupts[-1] - 3])

    def consume(self, ring):
        """Reads what is new in a completion ring."""
        while True:
            at = ring.completion + 16 * ring.taken
            entry = unpack("cqe_t", int.from_bytes(self.home(ring.func).memory[at : at + 16], "little"))
            if entry["status"] & 1 != ring.phase:
                return
            assert entry["sq_id"] == ring.number
            ring.head = entry["sq_head"]
            ring.taken = (ring.taken + 1) % ring.depth
            ring.phase ^= ring.taken == 0
            command = next(command for command in ring.owed if command.cid == entry["cid"] and command not in self.done.values())
            ring.owed.remove(command)
            entry["status"] >>= 1
            entry["at"] = self.cycle
            assert command.number not in self.done, "one completion for each command"
            self.done[command.number] = entry
            self.finished(command, entry)
            if not ring.mute:
                self.doorbells.append((ring.index, 1, ring.taken))

    def finished(self, command, entry):
        """A command is done."""

    # ---- The owner ----

    def take_owner(self):
        dut = self.dut
        if C["Slots"]:
            self.load()
        if self.look is not None:
            slot, self.look = self.look, None
            self.bind(slot, unpack("transfer_t", int(dut.look_transfer_o.value)))
        if self.bound and self.sees("bound_ready_o"):
            self.bound = None
        if self.sees("bind_valid_o") and self.driven["bind_ready_i"]:
            self.look = self.sees("bind_command_o")
            assert self.look not in self.slots or self.slots[self.look]["ended"], "bound once"
        if self.sees("unbind_valid_o") and self.driven["unbind_ready_i"]:
            slot = self.slots[self.sees("unbind_command_o")]
            outlives = slot["command"].deaf and self.driven["grace_i"] < GRACE
            assert slot["bound"] and not slot["ended"] and (outlives or not slot["flying"])
            slot["ended"] = True
        if self.outcome is not None and self.sees("outcome_ready_o"):
            self.outcome = None
        if self.sees("operation_valid_o") and self.driven["operation_ready_i"]:
            operation = unpack("operation_t", int(dut.operation_o.value))
            self.issue(operation, self.sees("operation_command_o"))
        if self.sees("abort_valid_o") and self.driven["abort_ready_i"]:
            stopped = unpack("operation_id_t", int(dut.abort_id_o.value))
            names = ("blockless", "serial", "command" if stopped["blockless"] else "row")
            known = {tuple(unpack("operation_id_t", key)[name] for name in names): key for key in self.flying}
            key = known.get(tuple(stopped[name] for name in names))
            if key is not None and not self.slots[self.flying[key]["slot"]]["command"].deaf:
                self.aborted.add(key)
                if self.flying[key]["due"] == NEVER or (self.chance and self.chance.random() < 0.5):
                    self.flying[key]["due"] = self.cycle
        assert not self.sees("stale_o")

    def bind(self, slot, transfer):
        command = next(
            command for command in self.rings[transfer["owner"]].owed if command.cid == transfer["cid"] and command.transfer
        )
        failure = None
        if command.fault and command.fault[0] == 11:
            failure = pack("failure_t", stage=C["StageSource"], at=0, status=C["StatusBadHandle"])
        pools = [transfer["chain"] >> 3 * at & 7 for at in range(transfer["operators"])]
        operators = [C_POOLS[pool] for pool in pools]
        self.slots[slot] = {
            "command": command,
            "transfer": transfer,
            "bound": failure is None,
            "ended": failure is not None,
            "units": [Unit(operator, at) for at, operator in enumerate(operators)],
            "read": 0,
            "wrote": 0,
            "sink": bytearray(),
            "file": {},
            "trace": [],
            "counts": {},
            "flying": 0,
            "times": [[0] * 4 for _ in range(10)],
            "ends": set(),
        }
        self.traces[command.number] = self.slots[slot]
        self.bindings.append((self.later(), slot, failure))

    def issue(self, operation, slot):
        key, kind = operation["id"], operation["kind"]
        place = unpack("operation_id_t", key)
        state = self.slots[slot]
        assert state["bound"] and not state["ended"], "operations are those of bound commands"
        assert key not in self.flying
        command, transfer = state["command"], state["transfer"]
        flight = {"operation": operation, "slot": slot, "due": self.later(), "row": place["row"], "at": place["at"]}
        if kind in (C["DoRead"], C["DoWrite"], C["DoProcess"]):
            users = [flight["row"] for flight in self.flying.values() if flight["operation"]["kind"] < C["DoSnapshot"]]
            assert place["row"] not in users, "a block has one user"
            assert operation["start"] + operation["length"] <= BLOCK
            holder = self.blocks.setdefault(place["row"], [None, bytearray(BLOCK)])
            holder[0] = command.number
        if kind in (C["DoRead"], C["DoWrite"]):
            assert operation["length"] > 0
            end = transfer["destination_kind"] if kind == C["DoWrite"] else transfer["source_kind"]
            if not operation["prefix"] and end not in POSITIONAL:
                assert (kind, slot) not in self.ends(), "a stream is in order"
                assert operation["offset"] == 0
        if kind == C["DoProcess"]:
            unit = self.unit(operation)
            assert unit not in self.units, "one block at a time in a unit"
            if C["Slots"]:
                assert self.holds[unit] == operation["pool"], "a slot that holds another operator"
                assert not self.loading or self.loading[0] != unit, "a slot that is being loaded"
            assert C_POOLS[operation["pool"]] == state["units"][place["at"]].operator
            self.units.add(unit)
            assert (slot, place["at"]) not in [
                (f["slot"], f["at"]) for f in self.flying.values() if f["operation"]["kind"] == kind
            ], "an operator takes blocks one after the other"
            # Blocks but the last one are whole ones: units take nothing else.
            assert operation["last"] or operation["length"] == BLOCK
        stage = {C["DoRead"]: 0, C["DoWrite"]: 9, C["DoFlush"]: 10, C["DoSnapshot"]: -1}.get(kind, place["at"] + 1)
        if command.hangs == stage:
            flight["due"] = NEVER
        self.flying[key] = flight
        state["flying"] += 1
        self.operations += 1
        self.most = max(self.most, len(self.flying))
        slot = {C["DoRead"]: 0, C["DoWrite"]: 1, C["DoFlush"]: 1}.get(kind, place["at"] + 2)
        times = flight["times"] = state["times"][slot]
        flight["issued"] = 4 * self.cycle
        times[0] = times[0] or flight["issued"]
        times[3] += 1
        trace = [kind, operation["prefix"], operation["offset"], operation["start"], operation["length"]]
        if kind == C["DoProcess"]:
            trace = [kind, place["at"], 0, operation["length"], operation["last"]]
        if kind in (C["DoSnapshot"], C["DoFlush"]):
            trace = [kind, place["at"]]
        state["trace"].append(trace)

    def unit(self, operation):
        """A unit is one of its pool; a slot is one of all."""
        return operation["unit"] if C["Slots"] else (operation["pool"], operation["unit"])

    def load(self):
        """Loads slots, each in its time."""
        asked = (self.sees("load_unit_o"), self.sees("load_pool_o")) if self.sees("load_valid_o") else None
        if self.driven["load_ready_i"]:
            assert asked == self.loading
            self.holds[asked[0]] = asked[1]
            self.loading, self.loads = None, self.loads + 1
        elif asked:
            assert self.loading in (None, asked) and asked[0] not in self.units, "a slot that nobody has"
            self.loading = asked

    def ends(self):
        streams = set()
        for flight in self.flying.values():
            kind, operation = flight["operation"]["kind"], flight["operation"]
            transfer = self.slots[flight["slot"]]["transfer"]
            end = transfer["destination_kind"] if kind == C["DoWrite"] else transfer["source_kind"]
            if kind in (C["DoRead"], C["DoWrite"]) and not operation["prefix"] and end not in POSITIONAL:
                streams.add((kind, flight["slot"]))
        return streams

    def perform(self, key):
        """Does an operation; gives its outcome."""
        flight = self.flying.pop(key)
        operation, state = flight["operation"], self.slots[flight["slot"]]
        state["flying"] -= 1
        times = flight["times"]
        times[1] = 4 * self.cycle
        times[2] += 4 * self.cycle - flight["issued"]
        kind, at = operation["kind"], flight["at"]
        if kind == C["DoProcess"]:
            self.units.remove(self.unit(operation))
        aborted = key in self.aborted
        self.aborted.discard(key)
        if aborted and (state["command"].hangs is not None or self.may(0.5)):
            return pack("outcome_t", id=key, kind=C["Failed"], status=C["StatusCancelled"])
        content = self.blocks[flight["row"]][1] if kind < C["DoSnapshot"] else None
        done = self.carry_out(state, operation, at, content)
        if done[0] == "failed":
            return pack("outcome_t", id=key, kind=C["Failed"], status=done[1])
        return pack("outcome_t", id=key, kind=C[done[0]], bytes=done[1])

    def carry_out(self, state, operation, at, content):
        command, transfer = state["command"], state["transfer"]
        fault = command.fault or (-1, 0, 0)
        kind, start, length, offset = (operation[name] for name in ("kind", "start", "length", "offset"))
        positional = transfer["source_kind"] in POSITIONAL
        if kind == C["DoRead"]:
            place = 0 if operation["prefix"] else 1
            position = offset if operation["prefix"] or positional else state["read"]
            if fault[0] == 0 and not operation["prefix"] and position + length > fault[1]:
                return "failed", fault[2]
            bytes_ = bytes(64) + command.transfer.prefix if operation["prefix"] else command.transfer.source[: command.source_size]
            moved = min(piece(command.number, place, position, length), max(len(bytes_) - position, 0))
            content[start : start + moved] = bytes_[position : position + moved]
            if not operation["prefix"] and not positional:
                state["read"] += moved
            return "Moved", moved
        if kind == C["DoWrite"]:
            position = offset if transfer["destination_kind"] in POSITIONAL else state["wrote"]
            if fault[0] == 9 and position + length > fault[1]:
                return "failed", fault[2]
            moved = piece(command.number, 9, position, length)
            state["file"].update(enumerate(content[start : start + moved], position))
            state["wrote"] += moved
            return "Moved", moved
        if kind == C["DoFlush"]:
            return ("failed", fault[2]) if fault[0] == 10 else ("Flushed", 0)
        unit = state["units"][at]
        if kind == C["DoSnapshot"]:
            return "Digest", 0
        if fault[0] == at + 1 and unit.position + length > fault[1]:
            return "failed", fault[2]
        content[:length] = unit.process(bytes(content[:length]))
        return ("Digest", 0) if unit.operator in SIZES and operation["last"] else ("Processed", length)


C_POOLS = [C[f"Op{name}"] for name in ("Md5", "Sha1", "Sha256", "Crc32", "Crc32c", "Crc64Nvme", "Aes256Ctr", "Aes256Xts")]
