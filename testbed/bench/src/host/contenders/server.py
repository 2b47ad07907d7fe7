# The contender in Python: a thread for each stream, hashlib or zlib, a socket. It speaks the same protocol as the contenders
# in Rust (protocol.rs).
import ctypes, hashlib, itertools, json, os, resource, socket, sys, threading, time, zlib

BUFFER = 1 << 18
# PR_SET_PDEATHSIG, SIGKILL: ends with a benchmark that is killed.
ctypes.CDLL(None).prctl(1, 9)
serve = json.loads(sys.stdin.readline())
os.sched_setaffinity(0, serve["cores"])
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
chain, direction, streams = serve["job"]["chain"], serve["job"]["direction"], serve["streams"]
counting = stop = False
latency_us = []


class Crc32:
    def __init__(self):
        self.value = 0

    def update(self, data):
        self.value = zlib.crc32(data, self.value)

    def digest(self):
        return self.value.to_bytes(4, "big")


def open_file(item):
    return os.open(item["path"], os.O_RDONLY if direction == "Send" else os.O_WRONLY)


if serve["open_once"]:
    for item in itertools.chain(*streams):
        item["fd"] = open_file(item)


class Chain:
    def __init__(self):
        self.digests, self.steps, self.packer = [], [], None
        for word in chain:
            name, _, level = word.partition(":")
            if name == "gzip":
                self.packer = zlib.compressobj(int(level or 1), zlib.DEFLATED, 31)
            else:
                self.digests.append(Crc32() if name == "crc32" else hashlib.new(name))

    def step(self, data, last):
        for digest in self.digests:
            digest.update(data)
        if self.packer is None:
            return data
        packed = self.packer.compress(data)
        return packed + self.packer.flush() if last else packed

    def values(self):
        return [digest.digest() for digest in self.digests]


def drop_cache(fd):
    if serve["cold"]:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def send(connection, fd, length, view):
    if not chain:
        at = 0
        while at < length:
            at += os.sendfile(connection.fileno(), fd, at, length - at)
        return length, length, []
    one, at, out = Chain(), 0, 0
    while at < length:
        read = os.preadv(fd, [view[: min(BUFFER, length - at)]], at)
        at += read
        data = one.step(view[:read], at == length)
        connection.sendall(data)
        out += len(data)
    return length, out, one.values()


def receive(connection, fd, length, view):
    one, at, out = Chain(), 0, 0
    while at < length:
        read = connection.recv_into(view[: min(BUFFER, length - at)])
        if read == 0:
            if at == 0:
                return None
            raise EOFError
        at += read
        data = one.step(view[:read], at == length)
        while len(data) > 0:
            written = os.pwrite(fd, data, out)
            data, out = data[written:], out + written
    return length, out, one.values()


def run(connection, items, task, account):
    view = memoryview(bytearray(BUFFER))
    for item in itertools.cycle(items):
        begun = time.perf_counter()
        fd = item["fd"] if "fd" in item else open_file(item)
        moved = (send if direction == "Send" else receive)(connection, fd, task["length"], view)
        drop_cache(fd)
        if "fd" not in item:
            os.close(fd)
        if moved is None:
            break
        if counting:
            latency_us.append((time.perf_counter() - begun) * 1e6)
        account["objects"] += 1
        account["bytes_in"] += moved[0]
        account["bytes_out"] += moved[1]
        if task["extent"] == "UntilStopped" and item["expected"]:
            account["wrong"] += moved[2] != item["digests"]
        else:
            account["digests"] = [value.hex() for value in moved[2]]
        if task["extent"] == "First" or (direction == "Send" and stop):
            break
    if direction == "Send":
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
    connection.close()


for item in itertools.chain(*streams):
    item["digests"] = [bytes.fromhex(value) for value in item["expected"]]
listener = socket.create_server(("127.0.0.1", 0), backlog=128)
try:
    congestion = os.environ.get("DCS_CONGESTION", "cubic").encode()
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion)
except OSError:
    pass  # not available: the machine's default
library = "Python %s, %s" % (sys.version.split()[0], "zlib " + zlib.ZLIB_RUNTIME_VERSION)
if any(not word.startswith(("gzip", "crc32")) for word in chain):
    import ssl

    library = "Python %s, %s" % (sys.version.split()[0], " ".join(ssl.OPENSSL_VERSION.split()[:2]))
address = "127.0.0.1:%d" % listener.getsockname()[1]
print(json.dumps({"address": address, "library": library if chain else "none"}), flush=True)
while line := sys.stdin.readline():
    task, stop, counting, latency_us = json.loads(line), False, False, []
    connections = [None] * len(streams)
    for _ in streams:
        connection = listener.accept()[0]
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections[int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "little")] = connection
    accounts = [{"objects": 0, "bytes_in": 0, "bytes_out": 0, "digests": [], "wrong": 0} for _ in streams]
    threads = [
        threading.Thread(target=run, args=(connection, items, task, account), daemon=True)
        for connection, items, account in zip(connections, streams, accounts)
    ]
    for thread in threads:
        thread.start()
    while task["extent"] == "UntilStopped" and not stop:
        word = json.loads(sys.stdin.readline() or '"Stop"')
        counting, stop = word == "Begin", word == "Stop"
    for thread in threads:
        thread.join()
    print(json.dumps({"streams": accounts, "latency_us": latency_us}), flush=True)
