"""What the benches of the D2D modules share: the Rust functions as a program, and a stream's registers."""

import json
import os
import subprocess

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge
from layouts import package

D = package("d2d_pkg")[0][1]
STREAMS, CREDIT = D["Streams"], 1 << D["CreditShift"]
QUEUE, PAYLOAD, WINDOW, PLACES = (1 << D[f"{name}Shift"] for name in ("Queue", "Payload", "Window", "Places"))
PLACE = 2 * WINDOW * CREDIT
TX_ADDRESS, RX_ADDRESS, RATE, BASE_CREDITS, BYTE_COUNT, CREDIT_ADDRESS, GRANT, STATUS = range(8)
MOVED, TAKEN, TASK_LIST, TIMES, CONTROL, DROPPED, PACKETS, LOST = range(8, 16)
START, CLEAR, PAUSE = 1, 2, 4
# Errors that an owner tells.
TASKS, TEMPLATE, READ = 3, 4, 6
ALL = (1 << 64) - 1


class Reference:
    """A function of the Rust crate, in a process of its own."""

    def __init__(self, kind, blocks=0, epoch=0):
        program = os.environ["DCS_D2D_REFERENCE"]
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.now = 0
        settings = {"kind": kind, "streams": STREAMS, "window": WINDOW, "places": PLACES, "payload": PAYLOAD}
        self.line({**settings, "queue": QUEUE, "blocks": blocks, "epoch": epoch})

    def line(self, value):
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()

    def ask(self, what, **fields):
        self.line({"now": self.now, "do": what, **fields})
        answer = self.process.stdout.readline()
        assert answer, f"the reference ended at {what} {fields}"
        return json.loads(answer)

    def place(self, stream, number):
        return 0x1000 + 128 * stream + 8 * number

    def write(self, stream, number, value, halves=3):
        data = value.to_bytes(8, "little")
        data, skip = {1: (data[:4], 0), 2: (data[4:], 4), 3: (data, 0)}[halves]
        self.ask("write", at=self.place(stream, number) + skip, bytes=data.hex())

    def read(self, stream, number):
        return int.from_bytes(bytes.fromhex(self.ask("read", at=self.place(stream, number), length=8)), "little")

    def registers(self, stream):
        data = bytes.fromhex(self.ask("read", at=self.place(stream, 0), length=128))
        return [int.from_bytes(data[8 * number : 8 * number + 8], "little") for number in range(16)]

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait() == 0


async def start(dut, inputs):
    for name in (*inputs, "rst_ni"):
        getattr(dut, name).value = 0
    cocotb.start_soon(Clock(dut.clk_i, 4, unit="ns").start())
    for _ in range(3):
        await FallingEdge(dut.clk_i)
    dut.rst_ni.value = 1


def access(stream, number, halves=0, data=0):
    """The bits of `access_t`."""
    return ((stream << 4 | number) << 2 | halves) << 64 | data
