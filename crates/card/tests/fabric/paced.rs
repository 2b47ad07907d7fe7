//! Tests of media streams: an SSD's videos go to a NIC in datagrams, each when it is due in virtual time. The frames on the wire are read by
//! smoltcp, which checks every checksum.

use crate::rig::{CARD, End, FREE, HOST_MEMORY, PEER, Rig, Transfer};
use crate::transfers::{data, digest};
use dcs_abi::admin::{AdminEntry, PacedOptions, PacedSending, PacedSendingPacket, opcode};
use dcs_abi::descriptor::{Pace, Pacing};
use dcs_abi::entry::FLAG_MORE;
use dcs_abi::operator::Operator::{Aes256Ctr, Md5};
use dcs_abi::status::{Stage, Status};
use dcs_card::card::Config;
use dcs_drivers::bus::Window;
use dcs_fabric::nic::Family;
use dcs_fabric::{Fault, Rule, When, Wire};
use dcs_media::rtcp::Report;
use dcs_media::rtp::Header;
use dcs_media::ts::{self, PACKET, PAYLOAD, Packet};
use smoltcp::wire::{EthernetFrame, Ipv4Packet, UdpPacket};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

const NIC: u32 = 3;
const PORT: u16 = 5004;
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 129, 2, 3);
const SECOND: u64 = 1_000_000_000;
/// 50 Mb/s: 30.08 us a packet.
const TICKS: u64 = 812;
const PCR: Pace = Pace { pacing: Pacing::Pcr, rate: 0, window_us: 0 };

/// A datagram on the wire.
#[derive(Clone, Debug)]
struct Datagram {
    /// Time of its arrival.
    at: u64,
    mac: [u8; 6],
    hops: u8,
    from: u16,
    to: SocketAddrV4,
    bytes: Vec<u8>,
}

/// Makes a server with an SSD (handle 2), a NIC (3) and a peer that keeps all frames.
fn server(family: Family) -> Rig {
    let mut rig = Rig::ready(Config { key: [7; 16], ..Config::default() }, 1);
    assert_eq!(rig.plug(family, Wire::default()), Ok(NIC));
    rig.net().frames = Some(Vec::new());
    assert!(rig.run_until(|rig| rig.now() > 5 * SECOND), "the NIC has a link by then");
    rig
}

/// A transport stream of this many packets, with a clock reference every 40.
fn video(packets: u64, counter: u8) -> Vec<u8> {
    let mut counter = counter;
    let packet = |number: u64| {
        let pcr = number.is_multiple_of(40).then_some(900 + number * TICKS);
        counter = (counter + u8::from(pcr.is_none())) & 15;
        ts::make(0x100, counter, pcr, number as u8)
    };
    (0..packets).flat_map(packet).collect()
}

fn options(to: Ipv4Addr, rtp: bool) -> PacedOptions {
    let (to, random, unix) = (SocketAddrV4::new(to, PORT), u64::MAX - 7, 1_700_000_000 * SECOND);
    PacedOptions { nic: NIC, to, payload: PAYLOAD as u16, hops: 4, rtp, random, unix }
}

fn open(rig: &mut Rig, options: PacedOptions) -> Result<u32, Status> {
    rig.admin(options.entry()).map(|(handle, _)| handle)
}

/// Puts bytes onto the SSD; returns the transfer of them to a stream.
fn send(rig: &mut Rig, at: u64, bytes: &[u8], stream: u32, pace: Pace) -> Transfer {
    rig.ssds[0].1.store(at, bytes);
    // The destination may be given more than the source has in whole logical blocks: the length says how much.
    let room = bytes.len().next_multiple_of(512) as u64;
    let transfer = Transfer::new(End::ssd(2, &[(at, room)]), End::paced(stream, pace));
    Transfer { length: bytes.len() as u64, ..transfer }
}

fn sending(rig: &mut Rig, stream: u32) -> PacedSending {
    let words = [stream, 0, 0, 0, 0, 0];
    let entry = AdminEntry { opcode: opcode::PACED_SENDING, data_address: FREE, words, ..Default::default() };
    assert_eq!(rig.admin(entry), Ok((0, 0)));
    let bytes = rig.load(FREE, PacedSending::SIZE);
    PacedSending::parse(&PacedSendingPacket::new_checked(&bytes[..]).unwrap()).unwrap()
}

/// Reads what has arrived, except what answers TCP and echoes.
fn heard(rig: &mut Rig) -> Vec<Datagram> {
    // What the NIC has sent is on the wire for a moment.
    wait(rig, 10_000_000);
    let read = |(at, frame): (u64, Vec<u8>)| {
        let ethernet = EthernetFrame::new_checked(&frame[..]).unwrap();
        let ip = Ipv4Packet::new_checked(ethernet.payload()).unwrap();
        let udp = UdpPacket::new_checked(ip.payload()).unwrap();
        let (from, to) = (ip.src_addr(), ip.dst_addr());
        assert!(ip.verify_checksum() && udp.verify_checksum(&from.into(), &to.into()));
        assert!(from == CARD && udp.checksum() != 0);
        Datagram {
            at,
            mac: ethernet.dst_addr().0,
            hops: ip.hop_limit(),
            from: udp.src_port(),
            to: SocketAddrV4::new(to, udp.dst_port()),
            bytes: udp.payload().to_vec(),
        }
    };
    rig.net().frames.replace(Vec::new()).unwrap().into_iter().map(read).collect()
}

fn wait(rig: &mut Rig, nanos: u64) {
    let end = rig.now() + nanos;
    rig.run_until(|rig| rig.now() > end);
}

fn payload(datagrams: &[Datagram]) -> Vec<u8> {
    datagrams.iter().flat_map(|datagram| datagram.bytes.clone()).collect()
}

/// Checks that datagrams of seven packets came at their times, by the clock references in them alone.
fn punctual(datagrams: &[Datagram], within: u64) {
    let due = |at: usize| (at * 7) as u64 * TICKS * 1000 / 27;
    for (at, datagram) in datagrams.iter().enumerate() {
        let (came, due) = (datagram.at - datagrams[0].at, due(at));
        assert!(came.abs_diff(due) <= within, "datagram {at}: {came} ns, due after {due}");
    }
}

#[test]
fn a_video_goes_from_an_ssd_to_a_group_when_its_clock_says() {
    for family in [Family::Igb, Family::E1000e] {
        let mut rig = server(family);
        let bytes = video(900, 0);
        let stream = open(&mut rig, options(GROUP, false)).unwrap();
        let meter = rig.fabric.meter(Window { address: 0, length: HOST_MEMORY });
        let transfer = send(&mut rig, 4096, &bytes, stream, PCR).through(&[(Md5, &[])]);
        let ended = rig.run(&transfer);
        assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, bytes.len() as u64));
        assert_eq!(ended.digest(0), digest(Md5, &bytes));
        assert!(rig.fabric.metered(meter).bytes() < 4096, "no data through host memory");
        wait(&mut rig, SECOND);
        let came = heard(&mut rig);
        assert!(payload(&came) == bytes);
        let group = SocketAddrV4::new(GROUP, PORT);
        // The lower 23 bits of the group's address (RFC 1112).
        let rightly = |it: &Datagram| it.mac == [1, 0, 0x5e, 1, 2, 3] && it.hops == 4 && it.to == group;
        assert!(came.iter().all(|it| rightly(it) && it.from == came[0].from && it.from >= 49_152));
        assert!(came.iter().rev().skip(1).all(|it| it.bytes.len() == PAYLOAD));
        punctual(&came, 20_000);
        // It took as long as the clock says: 27 ms.
        let took = 900 * TICKS * 1000 / 27;
        assert!(ended.took > took - 1_000_000 && ended.took < took + 2_000_000, "{}", ended.took);
        let said = sending(&mut rig, stream);
        assert_eq!((said.datagrams, said.bytes), (129, bytes.len() as u64));
        assert_eq!(
            (said.late, said.lost, said.slips, said.jumps, said.skipped, said.errno),
            (0, 0, 0, 0, 0, 0)
        );
        assert!(said.worst < 50_000 && said.deviations.iter().sum::<u64>() == 129, "{said:?}");
        assert_eq!(rig.command(opcode::RELEASE, &[stream]), Ok((0, 0)));
        rig.assert_idle();
    }
}

#[test]
fn datagrams_that_are_due_within_a_window_go_together() {
    let mut rig = server(Family::Igb);
    let bytes = video(900, 0);
    let stream = open(&mut rig, options(GROUP, false)).unwrap();
    let pace = Pace { window_us: 2000, ..PCR };
    let transfer = send(&mut rig, 0, &bytes, stream, pace);
    assert_eq!(rig.run(&transfer).status(), Status::Success);
    let came = heard(&mut rig);
    assert!(payload(&came) == bytes);
    // 27 ms have 14 ticks of 2 ms; between two of them the wire is quiet.
    let bursts = came.windows(2).filter(|two| two[1].at - two[0].at > 1_000_000).count() + 1;
    assert!((13..=15).contains(&bursts), "{bursts} bursts");
    let said = sending(&mut rig, stream);
    assert!(said.late == 0 && said.worst <= 1_200_000, "half a window and the wire's time: {said:?}");
    rig.assert_idle();
}

#[test]
fn videos_that_join_leave_no_gap_and_reports_tell_of_them() {
    let mut rig = server(Family::E1000e);
    let stream = open(&mut rig, options(PEER, true)).unwrap();
    let videos = [video(301, 3), video(400, 9), video(202, 1)];
    let total: usize = videos.iter().map(Vec::len).sum();
    // Each begins when the one before it is read: the host's ids of requests are not needed for one at a time.
    for (at, bytes) in videos.iter().enumerate() {
        let transfer = send(&mut rig, at as u64 * (1 << 20), bytes, stream, PCR);
        let flags = if at + 1 < videos.len() { FLAG_MORE } else { 0 };
        assert_eq!(rig.run(&Transfer { flags, ..transfer }).status(), Status::Success);
    }
    assert_eq!(rig.command(opcode::RELEASE, &[stream]), Ok((0, 0)));
    wait(&mut rig, SECOND);
    let (media, reports): (Vec<_>, Vec<_>) = heard(&mut rig).into_iter().partition(|it| it.to.port() == PORT);
    assert!(media.iter().all(|it| it.mac == [2, 0, 0, 0, 0, 9] && it.hops == 64));
    let (mut counter, mut marked, mut bytes) = (3, 0, 0);
    for (number, datagram) in media.iter().enumerate() {
        let (header, packets) = Header::parse(&datagram.bytes).unwrap();
        assert_eq!(header.sequence, 65_535u16.wrapping_add(number as u16));
        assert_eq!((header.ssrc, header.payload_type), (u32::MAX - 7, 33));
        assert!(packets.len() == PAYLOAD || number + 1 == media.len());
        bytes += packets.len();
        for packet in packets.as_chunks::<PACKET>().0 {
            let packet = Packet::parse(packet).unwrap();
            assert_eq!(packet.counter, (counter + u8::from(packet.has_payload)) & 15);
            counter = packet.counter;
            marked += usize::from(packet.discontinuity);
        }
    }
    assert_eq!((bytes, marked), (total, 2));
    assert!(reports.iter().all(|it| it.to.port() == PORT + 1 && it.from == media[0].from + 1));
    let first = Report::parse(&reports[0].bytes).unwrap();
    // The network's time began some seconds before the stream was opened, and 1970 in 1900.
    assert_eq!((first.ssrc, first.ntp >> 32), (u32::MAX - 7, 1_700_000_000 + 2_208_988_800));
    let last = &reports.last().unwrap().bytes;
    assert_eq!(last[last.len() - 8..last.len() - 6], [0x81, 203], "a goodbye");
    let said = Report::parse(last).unwrap();
    assert_eq!((said.packets as usize, said.octets as usize), (media.len(), total));
    assert!(last.windows(12).any(|text| text == b"dcs@10.0.0.1"));
    // Its ports are free, its handle is gone.
    assert_eq!(rig.command(opcode::RELEASE, &[stream]), Err(Status::BadHandle));
    rig.assert_idle();
}

#[test]
fn what_an_operator_makes_goes_at_a_rate() {
    let mut rig = server(Family::Igb);
    let stream = open(&mut rig, options(PEER, false)).unwrap();
    let bytes = data(200_000, 41);
    let key = dcs_ndp::parameter::aes256_ctr(&[5; 32], &[6; 16]);
    let pace = Pace { pacing: Pacing::Constant, rate: 20_000_000, window_us: 0 };
    let transfer = send(&mut rig, 0, &bytes, stream, pace).through(&[(Aes256Ctr, &key)]);
    let ended = rig.run(&transfer);
    assert_eq!(ended.status(), Status::Success);
    // 80 ms, but for the last datagram's time.
    assert!((78_000_000..82_000_000).contains(&ended.took), "{}", ended.took);
    let mut expected = bytes;
    dcs_ndp::Context::new(Aes256Ctr, &key).unwrap().in_place(&mut expected, true).unwrap();
    let came = heard(&mut rig);
    assert!(payload(&came) == expected);
    for (at, datagram) in came.iter().enumerate() {
        let due = (at * PAYLOAD * 8 * 50) as u64;
        assert!((datagram.at - came[0].at).abs_diff(due) < 20_000, "datagram {at}");
    }
    // As fast as the wire takes them.
    let free = send(&mut rig, 0, &expected, stream, Pace::default());
    let ended = rig.run(&free);
    assert!(ended.status() == Status::Success && ended.took < 5_000_000, "{}", ended.took);
    assert!(payload(&heard(&mut rig)) == expected);
    rig.assert_idle();
}

#[test]
fn sixty_streams_have_their_own_times_and_bytes() {
    let mut rig = server(Family::Igb);
    let bytes = video(450, 0);
    // There are 64 commands at once on this card.
    let streams: Vec<u32> = (0..60)
        .map(|at| {
            let to = SocketAddrV4::new(Ipv4Addr::new(239, 0, 0, at), PORT);
            open(&mut rig, PacedOptions { to, ..options(GROUP, false) }).unwrap()
        })
        .collect();
    // They have 600 of the wire's 1000 Mb/s.
    let pace = Pace { pacing: Pacing::Constant, rate: 10_000_000, window_us: 1000 };
    let transfer = send(&mut rig, 0, &bytes, streams[0], pace);
    let cids: Vec<u16> = streams
        .iter()
        .map(|stream| rig.submit(&Transfer { destination: End::paced(*stream, pace), ..transfer.clone() }))
        .collect();
    for cid in cids {
        assert_eq!(rig.wait(cid).status(), Status::Success);
    }
    let came = heard(&mut rig);
    for at in 0..60 {
        let of = |it: &&Datagram| it.to.ip().octets() == [239, 0, 0, at];
        let its: Vec<Datagram> = came.iter().filter(of).cloned().collect();
        assert!(payload(&its) == bytes, "stream {at}");
    }
    for stream in streams {
        let said = sending(&mut rig, stream);
        assert_eq!((said.datagrams, said.late, said.lost), (65, 0, 0));
        assert!(said.worst < 3_000_000, "{said:?}");
    }
    rig.assert_idle();
}

#[test]
fn a_link_that_goes_is_said_and_the_stream_goes_on_when_it_is_back() {
    let mut rig = server(Family::Igb);
    let stream = open(&mut rig, options(GROUP, false)).unwrap();
    // 20 Mb/s for 1.6 s.
    let bytes = data(PAYLOAD * 3040, 42);
    let pace = Pace { pacing: Pacing::Constant, rate: 20_000_000, window_us: 1000 };
    let transfer = send(&mut rig, 0, &bytes, stream, pace);
    let cid = rig.submit(&transfer);
    let end = rig.nic.as_ref().unwrap().1;
    wait(&mut rig, SECOND / 2);
    rig.fabric.set_carrier(end, false);
    // Memory and the SSD do not wait for the NIC.
    let other = data(100_000, 43);
    rig.ssds[0].1.store(32 << 20, &other);
    let copy = Transfer::new(End::ssd(2, &[(32 << 20, 100_000 / 512 * 512)]), End::memory(1, FREE, 1 << 20));
    assert_eq!(rig.run(&copy).status(), Status::Success);
    wait(&mut rig, SECOND / 2);
    assert_eq!(sending(&mut rig, stream).errno, 100, "ENETDOWN");
    rig.fabric.set_carrier(end, true);
    let ended = rig.wait(cid);
    assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, bytes.len() as u64));
    assert!((1_590_000_000..1_650_000_000).contains(&ended.took), "it keeps its pace: {}", ended.took);
    let came = heard(&mut rig);
    let said = sending(&mut rig, stream);
    // Up to the moment when the driver sees that the link is gone, and again when it is back, a NIC tells nothing.
    assert_eq!(said.datagrams + said.lost, 3040);
    assert!(said.lost > 500 && said.slips == 0, "{said:?}");
    assert!(came.len() as u64 <= said.datagrams && came.len() > 1500, "{}", came.len());
    let whole: Vec<&[u8]> = bytes.chunks(PAYLOAD).collect();
    assert!(came[0].bytes == whole[0] && came.last().unwrap().bytes == *whole.last().unwrap());
    assert!(came.iter().all(|it| whole.contains(&&it.bytes[..])));
    rig.assert_idle();
}

#[test]
fn what_a_nic_has_when_it_hangs_is_lost_and_the_stream_goes_on_after_its_reset() {
    for family in [Family::Igb, Family::E1000e] {
        let mut rig = server(family);
        let stream = open(&mut rig, options(GROUP, false)).unwrap();
        let bytes = data(PAYLOAD * 3040, 42);
        let pace = Pace { pacing: Pacing::Constant, rate: 20_000_000, window_us: 10_000 };
        let transfer = send(&mut rig, 0, &bytes, stream, pace);
        let nic = rig.nic.as_ref().unwrap().0;
        rig.fabric.inject(nic, Rule::once(When::Transmit, Fault::Hang).after(1000));
        let ended = rig.run(&transfer);
        assert_eq!(rig.fabric.faults_struck(nic), 1);
        assert_eq!((ended.status(), ended.entry.delivered.value()), (Status::Success, bytes.len() as u64));
        assert!(ended.took > 6 * SECOND, "the driver gives it five seconds: {}", ended.took);
        let came = heard(&mut rig);
        let said = sending(&mut rig, stream);
        assert_eq!((said.datagrams + said.lost, said.errno, said.slips), (3040, 100, 1), "{said:?}");
        // A batch has 19 datagrams, and it hung amid one. It may have said to have sent the one with which it hung. Others are lost until
        // there is a link again.
        let untold = said.datagrams - came.len() as u64;
        assert!(untold <= 1 && (5..400).contains(&said.lost), "{untold} {said:?}");
        rig.assert_idle();
    }
}

#[test]
fn a_peer_that_is_not_there_costs_its_own_stream_alone() {
    let mut rig = server(Family::E1000e);
    let nobody = open(&mut rig, options(Ipv4Addr::new(10, 0, 0, 77), true)).unwrap();
    let stream = open(&mut rig, options(PEER, false)).unwrap();
    let bytes = video(4000, 0);
    let lost = send(&mut rig, 0, &bytes, nobody, PCR);
    let goes = send(&mut rig, 0, &bytes, stream, PCR);
    let cids = [rig.submit(&lost), rig.submit(&goes)];
    for cid in cids {
        let ended = rig.wait(cid);
        assert_eq!(ended.status(), Status::Success);
        // 120 ms, and the time for which a datagram waits for an answer.
        assert!(ended.took < 260_000_000, "{}", ended.took);
    }
    let said = sending(&mut rig, nobody);
    assert_eq!((said.datagrams, said.lost, said.errno, said.slips), (0, 572, 113, 0), "EHOSTUNREACH");
    let said = sending(&mut rig, stream);
    assert_eq!((said.datagrams, said.lost, said.late), (572, 0, 0));
    assert!(payload(&heard(&mut rig)) == bytes);
    rig.command(opcode::RELEASE, &[nobody]).unwrap();
    rig.assert_idle();
}

#[test]
fn bytes_that_come_too_late_put_the_stream_off_and_are_counted() {
    if crate::core::lacks("blocks of 64 KiB") {
        return;
    }
    let mut rig = server(Family::Igb);
    let stream = open(&mut rig, options(GROUP, false)).unwrap();
    let bytes = video(20_000, 0);
    let transfer = send(&mut rig, 0, &bytes, stream, PCR);
    let ssd = rig.ssds[0].0;
    // The card reads 80 ms ahead. Up to a quarter of a second later, datagrams are late; beyond that, all that follow are put off.
    for (nth, millis) in [(20, 180), (45, 500)] {
        let fault = Fault::DelayCompletion(Duration::from_millis(millis));
        rig.fabric.inject(ssd, Rule::once(When::opcode(2), fault).after(nth));
    }
    let ended = rig.run(&transfer);
    assert_eq!(ended.status(), Status::Success);
    assert!(payload(&heard(&mut rig)) == bytes);
    let said = sending(&mut rig, stream);
    assert!(said.slips == 1 && said.slipped > 250_000_000, "{said:?}");
    assert!(said.late > 100 && said.worst > 50_000_000 && said.worst < 250_000_000, "{said:?}");
    assert_eq!((said.lost, said.datagrams), (0, 2858));
    rig.assert_idle();
}

#[test]
fn what_cannot_be_sent_is_said_and_others_go_on() {
    let mut rig = server(Family::Igb);
    let stream = open(&mut rig, options(PEER, false)).unwrap();
    let corrupt = |rig: &mut Rig, bytes: &[u8]| {
        let transfer = send(rig, 0, bytes, stream, PCR);
        let ended = rig.run(&transfer);
        (ended.status(), ended.entry.stage(), ended.result.errno)
    };
    assert_eq!(corrupt(&mut rig, &data(20_000, 1)), (Status::CorruptData, Stage::Destination, 74), "EBADMSG");
    let silent: Vec<u8> = (0..20).flat_map(|number| ts::make(5, number, None, 1)).collect();
    assert_eq!(corrupt(&mut rig, &silent), (Status::CorruptData, Stage::Destination, 61), "ENODATA");
    wait(&mut rig, SECOND);
    heard(&mut rig);
    let good = video(400, 0);
    let goes = open(&mut rig, options(GROUP, false)).unwrap();
    let transfer = send(&mut rig, 0, &good, goes, PCR);
    assert_eq!(rig.run(&transfer).status(), Status::Success);
    assert!(payload(&heard(&mut rig)) == good);
    // A stream of minutes is cancelled: what it has taken is sent in its time all the same, and the next one does not wait.
    let slow = Pace { pacing: Pacing::Constant, rate: 100_000, window_us: 0 };
    let transfer = Transfer { timeout_ms: 500, ..send(&mut rig, 0, &data(1 << 20, 44), stream, slow) };
    let ended = rig.run(&transfer);
    assert_eq!((ended.status(), ended.entry.stage()), (Status::Timeout, Stage::Destination));
    let fresh = open(&mut rig, options(GROUP, false)).unwrap();
    let transfer = send(&mut rig, 0, &good, fresh, PCR);
    assert_eq!(rig.run(&transfer).status(), Status::Success);
    let to_group = heard(&mut rig).into_iter().filter(|it| *it.to.ip() == GROUP).collect::<Vec<_>>();
    assert!(payload(&to_group) == good);
    let before = sending(&mut rig, stream).datagrams;
    wait(&mut rig, 10 * SECOND);
    assert!(sending(&mut rig, stream).datagrams > before, "it goes on");
    rig.assert_idle();
}

#[test]
fn parameters_that_cannot_be_are_refused() {
    let mut rig = server(Family::Igb);
    let good = options(PEER, true);
    let to = |address: u32, port| SocketAddrV4::new(Ipv4Addr::from_bits(address), port);
    for wrong in [
        PacedOptions { to: to(PEER.to_bits(), 0), ..good },
        PacedOptions { to: to(PEER.to_bits(), 65_535), ..good },
        PacedOptions { to: to(0x0808_0808, PORT), ..good },
        PacedOptions { to: to(CARD.to_bits(), PORT), ..good },
        PacedOptions { to: to(u32::MAX, PORT), ..good },
        PacedOptions { payload: 0, ..good },
        PacedOptions { payload: 187, ..good },
        PacedOptions { payload: 1461, ..good },
        PacedOptions { hops: 0, ..good },
    ] {
        assert_eq!(open(&mut rig, wrong), Err(Status::InvalidField), "{wrong:?}");
    }
    for nic in [0, 1, 2, 77] {
        assert_eq!(open(&mut rig, PacedOptions { nic, ..good }), Err(Status::BadHandle));
    }
    let mut entry = good.entry();
    entry.words[3] |= 0x200;
    assert_eq!(rig.admin(entry), Err(Status::InvalidField));
    let stream = open(&mut rig, PacedOptions { payload: 1460, ..good }).unwrap();
    let said = |rig: &mut Rig, handle: u32, data_address: u64| {
        let words = [handle, 0, 0, 0, 0, 0];
        rig.admin(AdminEntry { opcode: opcode::PACED_SENDING, data_address, words, ..Default::default() })
    };
    assert_eq!(said(&mut rig, stream, HOST_MEMORY - 100), Err(Status::DataTransferError));
    for handle in [0, 1, 2, NIC, 77] {
        assert_eq!(said(&mut rig, handle, FREE), Err(Status::BadHandle));
    }
    // It is no source, and no connection.
    let bytes = video(100, 0);
    for (end, status) in [
        (End::flow(stream), Status::UnsupportedEndpoint),
        (End::paced(2, PCR), Status::UnsupportedEndpoint),
        (End::paced(NIC, PCR), Status::UnsupportedEndpoint),
        (End::paced(77, PCR), Status::BadHandle),
    ] {
        let transfer = Transfer { destination: end, ..send(&mut rig, 0, &bytes, stream, PCR) };
        let ended = rig.run(&transfer);
        assert_eq!((ended.status(), ended.entry.stage()), (status, Stage::Destination));
    }
    let source = End::paced(stream, Pace::default());
    let taken = rig.run(&Transfer { length: 1000, ..Transfer::new(source, End::memory(1, FREE, 1000)) });
    assert_eq!((taken.status(), taken.entry.stage()), (Status::UnsupportedEndpoint, Stage::Source));
    rig.assert_idle();
}

#[test]
fn resets_in_the_middle_of_streams_leave_nothing() {
    let mut rig = server(Family::Igb);
    let bytes = video(4000, 0);
    let stream = open(&mut rig, options(GROUP, true)).unwrap();
    let transfer = send(&mut rig, 0, &bytes, stream, PCR);
    let cid = rig.submit(&transfer);
    wait(&mut rig, 50_000_000);
    // The NIC is attached again: everything from before is over.
    assert_eq!(rig.attach_nic(Family::Igb), Ok(5));
    assert_eq!(rig.wait(cid).status(), Status::PeerReset);
    assert_eq!(rig.run(&transfer).status(), Status::DeviceReset);
    let words = [stream, 0, 0, 0, 0, 0];
    let ask = AdminEntry { opcode: opcode::PACED_SENDING, data_address: FREE, words, ..Default::default() };
    assert_eq!(rig.admin(ask), Err(Status::DeviceReset));
    rig.command(opcode::RELEASE, &[stream]).unwrap();
    rig.assert_idle();
    // A stream that is released has the rest of what it has taken sent; its transfer fails.
    let again = |rig: &mut Rig, nic| {
        wait(rig, 5 * SECOND);
        heard(rig);
        let stream = open(rig, PacedOptions { nic, ..options(GROUP, true) }).unwrap();
        let cid = rig.submit(&Transfer { destination: End::paced(stream, PCR), ..transfer.clone() });
        wait(rig, 50_000_000);
        (stream, cid)
    };
    let (stream, cid) = again(&mut rig, 5);
    rig.command(opcode::RELEASE, &[stream]).unwrap();
    let ended = rig.wait(cid);
    assert!(!ended.status().is_success() && ended.entry.stage() == Stage::Destination, "{ended:?}");
    wait(&mut rig, SECOND);
    let came = heard(&mut rig);
    assert_eq!(came.last().unwrap().to.port(), PORT + 1, "the goodbye is the last");
    assert!(came.len() > 100 && came.len() < 572, "{}", came.len());
    rig.assert_idle();
    // The card is reset.
    let _ = again(&mut rig, 5);
    rig.disable();
    rig.enable();
    assert_eq!(rig.grant(0, HOST_MEMORY), 1);
    rig.create_queues().unwrap();
    assert_eq!((rig.attach(0), rig.attach_nic(Family::Igb)), (Ok(2), Ok(3)));
    let (_, cid) = again(&mut rig, 3);
    assert_eq!(rig.wait(cid).status(), Status::Success);
    let media: Vec<_> = heard(&mut rig).into_iter().filter(|it| it.to.port() == PORT).collect();
    assert_eq!(media.len(), 572);
    rig.assert_idle();
}
