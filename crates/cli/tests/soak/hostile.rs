//! Hostile clients: they send only what honest ones may send, but badly.

use super::honest::Report;
use dcs_testkit::Random;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

/// A misbehaviour that a client repeats.
const WAYS: [&str; 14] = [
    "says nothing",
    "drips a head",
    "announces a body",
    "begins a body",
    "drips a body",
    "reads nothing",
    "reads slowly",
    "resets a body",
    "resets an answer",
    "ends a body early",
    "sends a form for ever",
    "sends other data than it says",
    "copies and leaves",
    "sends noise",
];

/// Misbehaves without end.
pub async fn run(address: SocketAddr, number: usize, report: Rc<RefCell<Report>>) {
    let way = WAYS[number % WAYS.len()];
    let mut random = Random(1 << 40 | number as u64);
    loop {
        *report.borrow_mut().figures_of_hostile.entry(way).or_default() += 1;
        // These clients expect the server to end the connection.
        let _ = timeout(Duration::from_secs(90), once(address, way, &mut random)).await;
        sleep(Duration::from_millis(random.below(500))).await;
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    socket.connect(address).await
}

fn put(length: u64) -> Vec<u8> {
    format!("PUT /bucket/hostile HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n").into_bytes()
}

const GET: &[u8] = b"GET /bucket/big HTTP/1.1\r\nHost: h\r\n\r\n";

async fn once(address: SocketAddr, way: &str, random: &mut Random) -> io::Result<()> {
    let mut stream = connect(address).await?;
    match way {
        "says nothing" => to_the_end(stream).await,
        "drips a head" => drip(&mut stream, b"GET /bucket/big HTTP/1.1\r\nHost: h\r\nX-Drip: ", b"x").await,
        "announces a body" => {
            stream.write_all(&put(1 << 30)).await?;
            to_the_end(stream).await
        }
        "begins a body" => {
            stream.write_all(&put(900_000)).await?;
            stream.write_all(&vec![1; 1 + random.below(100_000) as usize]).await?;
            to_the_end(stream).await
        }
        "drips a body" => drip(&mut stream, &put(5_000_000), b"x").await,
        "reads nothing" => {
            stream.write_all(GET).await?;
            sleep(Duration::from_secs(60)).await;
            Ok(())
        }
        "reads slowly" => {
            stream.write_all(GET).await?;
            let mut room = [0; 64];
            while stream.read(&mut room).await? > 0 {
                sleep(Duration::from_millis(500)).await;
            }
            Ok(())
        }
        "resets a body" => {
            stream.write_all(&put(3_000_000)).await?;
            stream.write_all(&vec![2; random.below(2_000_000) as usize]).await?;
            reset(stream)
        }
        "resets an answer" => {
            stream.write_all(GET).await?;
            stream.read_exact(&mut vec![0; 1 + random.below(100_000) as usize]).await?;
            reset(stream)
        }
        "ends a body early" => {
            stream.write_all(&put(100_000)).await?;
            stream.write_all(&vec![3; random.below(100_000) as usize]).await?;
            stream.shutdown().await?;
            to_the_end(stream).await
        }
        "sends a form for ever" => {
            let head =
                b"POST /bucket HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=x\r\n\
                Content-Length: 60000\r\n\r\n--x\r\n";
            drip(&mut stream, head, b"y").await
        }
        "sends other data than it says" => {
            let head =
                b"PUT /bucket/hostile HTTP/1.1\r\nHost: h\r\nContent-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==\r\n\
                x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n\
                x-amz-decoded-content-length: 5000000\r\nContent-Length: 70000\r\n\r\nffff\r\n";
            stream.write_all(head).await?;
            stream.write_all(&vec![b'z'; 69_994]).await?;
            to_the_end(stream).await
        }
        "copies and leaves" => {
            let head = b"PUT /bucket/hostile HTTP/1.1\r\nHost: h\r\nx-amz-copy-source: /bucket/big\r\n\
                Content-Length: 0\r\n\r\n";
            stream.write_all(head).await?;
            sleep(Duration::from_millis(random.below(30))).await;
            reset(stream)
        }
        _ => {
            let noise: Vec<u8> = (0..random.below(50_000)).map(|_| random.below(256) as u8).collect();
            stream.write_all(&noise).await?;
            to_the_end(stream).await
        }
    }
}

/// Reads until the server ends the connection.
async fn to_the_end(mut stream: TcpStream) -> io::Result<()> {
    let mut room = [0; 4096];
    while stream.read(&mut room).await? > 0 {}
    Ok(())
}

/// Sends a byte now and then.
async fn drip(stream: &mut TcpStream, first: &[u8], byte: &[u8]) -> io::Result<()> {
    stream.write_all(first).await?;
    loop {
        sleep(Duration::from_millis(700)).await;
        stream.write_all(byte).await?;
    }
}

fn reset(stream: TcpStream) -> io::Result<()> {
    stream.set_zero_linger()
}
