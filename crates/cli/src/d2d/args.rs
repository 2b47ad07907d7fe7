//! The command line of `dcs d2d` and its help.

use crate::stream::args::Rate;
use crate::stream::ends::Address;
use crate::units;
use clap::{Args, Subcommand};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct D2d {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve an SSD that sends to NICs, for your QEMU
    Ssd(Ssd),
    /// Serve a NIC that takes data from SSDs, for your QEMU
    Nic(Nic),
    /// In the guest: have an SSD send a video to a NIC, which sends it as UDP or RTP, and sleep until it is done
    Stream(Stream),
    /// In the guest: have an SSD store what a NIC receives as UDP or RTP, and sleep until it is done
    Record(Record),
}

/// Options of a function.
#[derive(Debug, Args)]
pub struct Served {
    /// Unix socket for QEMU (vfio-user)
    pub socket: PathBuf,
    /// Unix socket that stands for the PCIe switch between SSDs and a NIC: the NIC listens, SSDs join
    #[arg(long, value_name = "SOCKET")]
    pub switch: PathBuf,
    /// Number of streams of the function
    #[arg(long, value_name = "COUNT", value_parser = units::count::<1, 4096>, default_value = "128")]
    pub streams: usize,
}

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Ssd {
    #[command(flatten)]
    pub served: Served,
    /// File with the SSD's blocks
    pub image: PathBuf,
    /// Let streams write the file, which must have whole blocks of 4,096 bytes; otherwise it is only read
    #[arg(long)]
    pub writable: bool,
}

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Nic {
    #[command(flatten)]
    pub served: Served,
    /// Host to which all datagrams go, whatever address the guest gives them; the port is the guest's
    #[arg(long, value_name = "ADDRESS", conflicts_with = "tap")]
    pub udp: Option<IpAddr>,
    /// Tap device of this machine to use as the wire: frames go to it unchanged, and come from it
    #[arg(long, value_name = "NAME")]
    pub tap: Option<String>,
}

/// Functions of a driver.
#[derive(Debug, Args)]
pub struct Functions {
    /// PCI address of the SSD, as in 0000:00:04.0
    pub ssd: String,
    /// PCI address of the NIC
    pub nic: String,
}

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Stream {
    #[command(flatten)]
    pub functions: Functions,
    /// udp://ADDRESS:PORT or rtp://ADDRESS:PORT, with an IPv4 address; each further stream goes to the second next
    /// port
    pub to: Address,
    /// Bytes of the video
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub length: u64,
    /// Block of the SSD at which the video begins
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    pub block: u64,
    /// Bits per second, or free
    #[arg(long, value_name = "RATE")]
    pub rate: Rate,
    /// Interval at which a stream sends the data that are due
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "10ms")]
    pub slot: Duration,
    /// Number of streams, all of the same video
    #[arg(long, value_name = "COUNT", value_parser = units::count::<1, 4096>, default_value = "1")]
    pub streams: usize,
    /// Time without progress after which a stream fails
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "5s")]
    pub stall: Duration,
    /// Source address of datagrams
    #[arg(long, value_name = "ADDRESS", default_value = "10.0.2.15")]
    pub from: Ipv4Addr,
    /// MAC address of the next hop; dcs d2d nic --udp ignores it
    #[arg(long, value_name = "MAC", value_parser = mac, default_value = "02:00:00:00:00:01")]
    pub mac: [u8; 6],
}

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Record {
    #[command(flatten)]
    pub functions: Functions,
    /// udp://ADDRESS:PORT or rtp://ADDRESS:PORT to which datagrams come, with an IPv4 address; each further stream
    /// has the second next port
    pub at: Address,
    /// Bytes to store
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub length: u64,
    /// Block of the SSD at which the first stream is stored; further streams follow it
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    pub block: u64,
    /// Number of streams
    #[arg(long, value_name = "COUNT", value_parser = units::count::<1, 4096>, default_value = "1")]
    pub streams: usize,
    /// Time without datagrams after which a stream fails
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "30s")]
    pub stall: Duration,
    /// Take datagrams only from this address
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<Ipv4Addr>,
}

/// Parses a MAC address.
fn mac(text: &str) -> Result<[u8; 6], String> {
    let wrong = || format!("'{text}' is not a MAC address; expected one like 02:00:00:00:00:01");
    let is_byte = |part: &&str| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |part| Some(part).filter(is_byte).and_then(|part| u8::from_str_radix(part, 16).ok());
    let parts: Option<Vec<u8>> = text.split(':').map(byte).collect();
    parts.and_then(|parts| parts.try_into().ok()).filter(|mac| *mac != [0; 6]).ok_or_else(wrong)
}

const HELP: &str = "\
Examples:
  dcs d2d nic /run/user/1000/nic --switch /run/user/1000/switch --udp 127.0.0.1 &
  dcs d2d ssd /run/user/1000/ssd video.ts --switch /run/user/1000/switch &
  qemu-system-x86_64 ... -object memory-backend-memfd,id=m,size=1G,share=on -machine q35,memory-backend=m \\
    -device intel-iommu,caching-mode=on \\
    -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/run/user/1000/ssd\"},\"rombar\":0}' \\
    -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/run/user/1000/nic\"},\"rombar\":0}'
In the guest, as root:
  dcs d2d stream 0000:00:03.0 0000:00:04.0 udp://10.0.2.2:5004 --length 64MiB --rate 7.82M --streams 120
  dcs d2d record 0000:00:03.0 0000:00:04.0 udp://10.0.2.15:5004 --length 64MiB     # nic --tap tap0, ssd --writable

The SSD's blocks are the bytes of its file, 4,096 each; the last one is filled up with zeros. The functions send to each other
through the switch, past QEMU and the guest's IOMMU. The driver takes both functions (vfio-pci), writes their registers and
sleeps until a stream ends. docs/d2d.md has registers and rules for drivers of your own.

A NIC on a tap device sends and receives frames: give the device an address, and the next hop's MAC address to dcs d2d stream (--mac).
It does not answer ARP: ip neighbour add 10.0.2.15 lladdr 02:00:00:00:00:02 dev tap0.

Exit codes: 0 all was sent or stored; 1 a stream failed; 2 usage; 6 not permitted; 7 not found; 130 interrupted";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_are_read() {
        assert_eq!(mac("02:00:00:aB:00:01"), Ok([2, 0, 0, 0xab, 0, 1]));
        for wrong in
            ["", "02:00", "02:00:00:00:00:1", "02:00:00:00:00:+1", "00:00:00:00:00:00", "0:1:2:3:4:5:6"]
        {
            assert!(mac(wrong).is_err(), "{wrong}");
        }
    }
}
