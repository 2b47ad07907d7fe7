//! Java's FileChannel.transferTo, blocking and not, many threads.

use crate::place::{Place, installed, output, whole};
use dcs_testkit::bytes;

const SIZE: usize = (5 << 20) + 13;

/// A program that sends a file to itself over 16 connections, 64 KiB and 1 MiB per call, and compares.
const PROGRAM: &str = r#"
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.*;

class Send {
    static byte[] expected;

    public static void main(String[] arguments) throws Exception {
        Path path = Path.of(arguments[0]);
        expected = Files.readAllBytes(path);
        ServerSocketChannel listener = ServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 0));
        List<Thread> threads = new ArrayList<>();
        List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
        for (int i = 0; i < 16; i++) {
            SocketChannel out = SocketChannel.open(listener.getLocalAddress());
            SocketChannel in = listener.accept();
            int piece = i % 2 == 0 ? 1 << 16 : 1 << 20;
            boolean blocking = i % 4 < 2;
            threads.add(new Thread(() -> guard(failures, () -> send(path, out, piece, blocking))));
            threads.add(new Thread(() -> guard(failures, () -> receive(in))));
        }
        for (Thread thread : threads) thread.start();
        for (Thread thread : threads) thread.join();
        for (Throwable failure : failures) failure.printStackTrace();
        System.exit(failures.isEmpty() ? 0 : 1);
    }

    interface Body { void run() throws Exception; }

    static void guard(List<Throwable> failures, Body body) {
        try { body.run(); } catch (Throwable failure) { failures.add(failure); }
    }

    static void send(Path path, SocketChannel out, int piece, boolean blocking) throws Exception {
        out.configureBlocking(blocking);
        try (out; FileChannel file = FileChannel.open(path); Selector selector = Selector.open()) {
            if (!blocking) out.register(selector, SelectionKey.OP_WRITE);
            long at = 0, size = file.size();
            while (at < size) {
                long sent = file.transferTo(at, Math.min(piece, size - at), out);
                if (sent == 0) { selector.select(); selector.selectedKeys().clear(); }
                at += sent;
            }
        }
    }

    static void receive(SocketChannel in) throws Exception {
        ByteBuffer all = ByteBuffer.allocate(expected.length + 1);
        try (in) { while (in.read(all) >= 0) { } }
        if (!Arrays.equals(expected, Arrays.copyOf(all.array(), all.position()))) throw new Exception("other bytes");
    }
}
"#;

#[test]
fn digests_of_all_that_it_sends() {
    let Some(java) = installed("java", "default-jdk-headless") else { return };
    if installed("javac", "default-jdk-headless").is_none() {
        return;
    }
    let place = Place::new();
    let (file, program) = (place.write("file", bytes(SIZE, 9)), place.write("Send.java", PROGRAM));
    let mut command = place.command(java, "[[rule]]\npath = '*/file'\nthrough = 'crc32,md5'\n");
    output(command.arg("-Xmx256m").arg(program).arg(&file));
    let counted = place.counters();
    assert!(counted["engine_calls"] >= 16 * 5, "{counted:?}");
    assert_eq!(counted["engine_bytes"], 16 * SIZE as u64);
    assert_eq!((counted["fallback_calls"], counted["failed"]), (0, 0), "{counted:?}");
    assert_eq!(whole(&place.log("object"))["file"], 16);
    assert_eq!(place.check_digests(|path| path.into()), 32);
}
