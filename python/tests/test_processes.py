"""fork, signals, the end of the interpreter."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import dcs


def in_child(body):
    """Runs it in a child; tells the exit status. A child that hangs is ended by its alarm."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(20)
            body()
            status = 0
        except BaseException as error:
            print("in the child:", repr(error), file=sys.stderr)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_makes_its_own_engine(pair):
    parent = dcs.default_engine()
    running = dcs.transfer(pair[0], dcs.Memory(1), count=1)
    running.fileno()

    def body():
        engine = dcs.default_engine()
        assert engine is not parent
        assert dcs.transfer(b"child", dcs.Memory(5), ["md5"]).result(10).memory == b"child"
        uses = [parent.statistics, parent.close, running.done, running.result, running.fileno, running.cancel]
        for use in [*uses, lambda: dcs.transfer(b"", dcs.Memory(0), engine=parent)]:
            with pytest.raises(RuntimeError, match="belongs to the process that made it"):
                use()
        assert repr(parent) == "<dcs.Engine of another process>"
        assert repr(running) == "<dcs.Transfer of another process>"

    assert in_child(body) == 0
    pair[1].sendall(b"1")
    assert running.result(10).memory == b"1", "the parent's goes on"
    assert dcs.default_engine() is parent


def test_a_child_lets_go_of_what_its_parent_made(pair):
    script = """
import os, socket, dcs
one, other = socket.socketpair()
engine = dcs.Engine()
transfers = [dcs.transfer(one, dcs.Memory(1), engine=engine), dcs.transfer(one, bytearray(1))]
if os.fork() == 0:
    del transfers, engine
    print(dcs.transfer(b"1", dcs.Memory(1)).result().bytes_out, flush=True)
    raise SystemExit(0)
assert os.wait()[1] == 0
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, text=True)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_forks_while_threads_work():
    stop = threading.Event()

    def work():
        while not stop.is_set():
            dcs.transfer(b"x" * 100_000, dcs.Memory(100_000), ["md5"]).result(30)

    threads = [threading.Thread(target=work) for _ in range(3)]
    [thread.start() for thread in threads]
    try:
        for _ in range(20):
            assert in_child(lambda: dcs.transfer(b"1", dcs.Memory(1)).result(10)) == 0
    finally:
        stop.set()
        [thread.join(30) for thread in threads]


@pytest.mark.parametrize("call", ["dcs.recvfile(one, file)", "dcs.transfer(one, file).result()"])
def test_ctrl_c(call, tmp_path):
    script = f"""
import signal, socket, sys, dcs
# A shell has its background jobs ignore it, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
one, other = socket.socketpair()
file = open(sys.argv[1], "wb")
print("waiting", flush=True)
try:
    {call}
except KeyboardInterrupt:
    # A transfer that was only waited for ends with its object.
    print("interrupted", dcs.default_engine().uses_io_uring in (True, False), flush=True)
"""
    command = [sys.executable, "-c", script, tmp_path / "file"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "waiting\n"
            time.sleep(0.3)
            before = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (out, process.returncode) == ("interrupted True\n", 0), err
    assert time.monotonic() - before < 5


def test_signal_handlers_run_and_the_transfer_goes_on(pair):
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: (seen.append(1), pair[1].sendall(b"1")))
    try:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        assert dcs.transfer(pair[0], dcs.Memory(1), count=1).result(20).memory == b"1"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [1]


def test_the_interpreter_ends_with_transfers_in_flight():
    script = """
import socket, dcs, threading
one, other = socket.socketpair()
kept = [dcs.transfer(one, dcs.Memory(1)), dcs.transfer(one, bytearray(5)), dcs.Engine()]
threading.Thread(target=kept[0].result, daemon=True).start()
print("end")
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", script], capture_output=True, timeout=30, text=True)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_subinterpreters_are_refused():
    script = """
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
import dcs
try:
    failure = interpreters.run_string(interpreters.create(), "import dcs")
    print(failure)
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, text=True)
    assert "subinterpreters" in done.stdout, done
