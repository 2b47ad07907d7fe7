//! No stream blocks another: sockets that accept nothing, files that return nothing, an engine that does nothing.

use crate::place::{Place, output, skip};
use dcs_testkit::bytes;

const MD5: &str = "[[rule]]\nthrough = 'md5'\n";

/// Part shared by the scripts. `deliver` sends a file to a client that reads it, and compares.
const COMMON: &str = "
import ctypes, os, select, socket, struct, sys, threading, time
path = sys.argv[1]
expected = open(path, 'rb').read()
libc = ctypes.CDLL(None, use_errno=True)
def pair():
    listener = socket.create_server(('127.0.0.1', 0))
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    client.connect(listener.getsockname())
    server, _ = listener.accept()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    return server, client
def send(sock, path, size):
    file, at = os.open(path, os.O_RDONLY), 0
    while at < size:
        at += os.sendfile(sock.fileno(), file, at, size - at)
def in_background(*arguments):
    threading.Thread(target=send, args=arguments, daemon=True).start()
def deliver():
    server, client = pair()
    client.settimeout(60)
    in_background(server, path, len(expected))
    data = bytearray()
    while len(data) < len(expected):
        data += client.recv(1 << 20)
    assert data == expected
";

fn run(script: &str, arguments: &[&str]) -> (Place, String) {
    let place = Place::new();
    let file = place.write("file", bytes((3 << 20) + 5, 20));
    let script = format!("{COMMON}{script}");
    let said = output(place.command("python3", MD5).args(["-c", &script]).arg(&file).args(arguments));
    (place, said)
}

/// A script. Argument: the number of clients that read nothing. Their sockets block.
const CLIENTS: &str = "
stalled = [pair() for _ in range(int(sys.argv[2]))]
for server, client in stalled:
    in_background(server, path, len(expected))
for server, client in stalled:
    # Until its socket is full, and stays so.
    while select.select([], [server], [], 0)[1]:
        time.sleep(0.001)
deliver()
os._exit(0)
";

#[test]
fn clients_that_take_nothing_stop_nobody() {
    for clients in ["1", "100"] {
        run(CLIENTS, &[clients]);
    }
}

/// A script with a file system in user space, whose file of 1 MiB returns half of it.
const FUSE: &str = "
folder = os.path.join(os.path.dirname(path), 'folder')
os.mkdir(folder)
dev = os.open('/dev/fuse', os.O_RDWR)
options = 'fd=%d,rootmode=40000,user_id=0,group_id=0' % dev
if libc.mount(b'dcs', folder.encode(), b'fuse', 0, options.encode()):
    print('no FUSE: ' + os.strerror(ctypes.get_errno()))
    os._exit(0)
asked, tell = os.pipe()
def attributes(node):
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack('<6Q10I', node, 1 << 20, 2048, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
def serve():
    while True:
        request = os.read(dev, 1 << 17)
        length, opcode, unique, node = struct.unpack_from('<IIQQ', request)
        offset, size = struct.unpack_from('<QI', request, 48) if opcode == 15 else (0, 0)
        reply = {
            1: struct.pack('<4Q2I', 2, 0, 3600, 3600, 0, 0) + attributes(2),
            3: struct.pack('<Q2I', 3600, 0, 0) + attributes(node),
            14: struct.pack('<Q2I', 0, 0, 0),
            26: struct.pack('<4I2H2I', 7, 31, 1 << 17, 0, 0, 0, 4096, 0) + bytes(36),
        }.get(opcode)
        if opcode == 15 and offset < 1 << 19:
            reply = bytes(size)
        if opcode == 15 and not reply:
            os.write(tell, b'.')
        elif opcode != 2:
            answer = reply or b''
            os.write(dev, struct.pack('<IiQ', 16 + len(answer), 0 if reply else -38, unique) + answer)
server = os.fork()
if server == 0:
    serve()
os.close(dev)
try:
    def receive(client):
        while client.recv(1 << 20):
            pass
    for _ in range(16):
        server_end, client = pair()
        in_background(server_end, os.path.join(folder, 'file'), 1 << 20)
        threading.Thread(target=receive, args=(client,), daemon=True).start()
    # Until the file gives no more.
    os.read(asked, 1)
    for _ in range(3):
        deliver()
finally:
    os.kill(server, 9)
    libc.umount2(folder.encode(), 2)
os._exit(0)
";

#[test]
fn a_file_that_gives_nothing_stops_nobody() {
    if std::fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
        return skip("there is no FUSE here");
    }
    let (_place, said) = run(FUSE, &[]);
    if !said.is_empty() {
        skip(said.trim());
    }
}

/// A script in which a tracer stops the engine's thread, amid a transfer.
const STUCK: &str = "
def trace(request, thread):
    if libc.ptrace(request, thread, None, None):
        os.kill(child, 9)
        print('no ptrace: ' + os.strerror(ctypes.get_errno()))
        os._exit(0)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
ready, go = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    server, client = pair()
    data = bytearray()
    def receive():
        while part := client.recv(1 << 20):
            data.extend(part)
    receiver = threading.Thread(target=receive)
    receiver.start()
    file = os.open(path, os.O_RDONLY)
    at = os.sendfile(server.fileno(), file, 0, 100000)
    os.write(ready[1], b'.')
    os.read(go[0], 1)
    while at < len(expected):
        at += os.sendfile(server.fileno(), file, at, len(expected) - at)
    server.close()
    receiver.join()
    assert data == expected
    deliver()
    # It waits for no engine, as a server that is stopped.
    sys.exit()
os.read(ready[0], 1)
for thread in os.listdir('/proc/%d/task' % child):
    if open('/proc/%d/task/%s/comm' % (child, thread)).read() == 'dcs-engine\\n':
        trace(0x4206, int(thread))
        trace(0x4207, int(thread))
        os.waitpid(int(thread), 0x40000000)
os.write(go[1], b'.')
ended = {}
while child not in ended:
    # The thread too, before which the process does not end.
    thread, status = os.waitpid(-1, 0x40000000)
    ended[thread] = status
assert ended[child] == 0
";

#[test]
fn an_engine_that_does_nothing_is_given_up() {
    let (place, said) = run(STUCK, &[]);
    if !said.is_empty() {
        return skip(said.trim());
    }
    // Earlier data are logged without a digest, the kernel carries out the rest, and the next stream uses another engine.
    let objects = place.log("object");
    let [given_up, next] = &objects[..] else { panic!("{objects:?}") };
    assert!(given_up["error"].is_string() && given_up["digests"].is_null(), "{given_up}");
    assert_eq!((&next["ended"], &next["whole"]), (&"end".into(), &true.into()), "{next}");
    assert_eq!(place.check_digests(|path| path.into()), 1);
    let counted = place.counters();
    assert!(counted["fallback_bytes"] > 0 && counted["failed"] == 0, "{counted:?}");
}
