"""What a read-hash-send loop costs beside dcs.sendfile: CPU seconds per GiB, with MD5, in several threads.

    python3 compare.py [THREADS [MIB [ROUNDS]]]            # 8 threads, 64 MiB each, 5 rounds

The loop is hashlib with pieces of 64 KiB, which releases the interpreter's lock as the engine does. Files are in the page
cache, sockets are TCP over loopback, and a process of its own reads them. Rounds take turns; CPU time is that of this
process with all its threads, the engine's included; what is printed are medians.
"""

import concurrent.futures
import hashlib
import multiprocessing
import os
import resource
import socket
import statistics
import sys
import tempfile
import threading
import time

import dcs


def drain(server):
    """Reads every connection to its end, and throws away what comes."""

    def one(sock):
        room = bytearray(1 << 20)
        while sock.recv_into(room):
            pass
        sock.close()

    while True:
        threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()


def loop(sock, file):
    digest = hashlib.md5()
    while piece := file.read(65536):
        digest.update(piece)
        sock.sendall(piece)
    return digest.hexdigest()


def engine(sock, file):
    # A socket that does not block and a promise save a copy: the bytes go from the page cache after their digest.
    sock.setblocking(False)
    return dcs.sendfile(sock, file, through=["md5"], immutable=True).hexdigest("md5")


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(send, address, path, threads, expected):
    """CPU seconds and seconds that all threads took."""

    def work(_):
        with socket.create_connection(address) as sock, open(path, "rb", buffering=0) as file:
            assert send(sock, file) == expected

    with concurrent.futures.ThreadPoolExecutor(threads) as workers:
        before, begun = cpu(), time.monotonic()
        list(workers.map(work, range(threads)))
        return cpu() - before, time.monotonic() - begun


def main(threads=8, mib=64, rounds=5):
    content = os.urandom(1 << 20) * mib
    expected = hashlib.md5(content).hexdigest()
    server = socket.create_server(("127.0.0.1", 0), backlog=threads)
    # Before there is an engine: a child would have copies of its descriptors.
    reader = multiprocessing.get_context("fork").Process(target=drain, args=(server,), daemon=True)
    reader.start()
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        contenders, figures = {"loop": loop, "dcs": engine}, {"loop": [], "dcs": []}
        gib = threads * mib / 1024
        for number in range(rounds + 1):
            for name, send in contenders.items():
                used, took = measure(send, server.getsockname(), file.name, threads, expected)
                # The first round warms up.
                if number:
                    figures[name].append((used / gib, gib / took))
    reader.terminate()
    for name, rounds in figures.items():
        used, rate = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"{name:5} {used:.2f} CPU s/GiB  {rate:.2f} GiB/s")
    ratios = [ours[0] / theirs[0] for ours, theirs in zip(figures["dcs"], figures["loop"], strict=True)]
    print(f"ratio {statistics.median(ratios):.2f} of the loop's CPU time (of paired rounds)")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
