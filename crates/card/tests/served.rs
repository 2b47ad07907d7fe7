//! A card whose functions are served at sockets, to hosts in this process.

use dcs_abi::admin::{AdminCompletion, AdminCompletionPacket, AdminEntry, GRANT_READ, GRANT_WRITE, opcode};
use dcs_abi::descriptor::{Builder, Endpoint, EndpointKind, EndpointRole, Extent};
use dcs_abi::entry::{CompletionEntry, OPCODE_TRANSFER, SubmissionEntry};
use dcs_abi::operator::Operator;
use dcs_abi::register::{cq_head_doorbell, sq_tail_doorbell};
use dcs_abi::result::{ResultArea, ResultPacket};
use dcs_abi::status::Status;
use dcs_card::card::Config;
use dcs_card::serve::serve_functions;
use dcs_nvme_client::Device;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Places in a host's memory: the rings, a descriptor, a result, data.
const ADMIN_SQ: u64 = 0;
const ADMIN_CQ: u64 = 0x1000;
const SQ: u64 = 0x2000;
const CQ: u64 = 0x3000;
const DESCRIPTOR: u64 = 0x4000;
const RESULT: u64 = 0x5000;
const DATA: u64 = 0x10_0000;
const MEMORY: u64 = 8 << 20;
const LENGTH: u64 = 1 << 20;
const DEPTH: u32 = 16;
/// Time that nothing takes.
const LONG: Duration = Duration::from_secs(60);

/// A host of a function.
struct Host {
    device: Device,
    admin: u32,
    commands: u32,
}

impl Host {
    /// Connects, enables the function, grants it all of its memory (handle 1), and makes queue pair 1.
    fn new(socket: &Path) -> Host {
        let mut device = Device::connect(socket, MEMORY).unwrap();
        device.listen(2).unwrap();
        device.write(0x24, &((DEPTH - 1) | ((DEPTH - 1) << 16)).to_le_bytes()).unwrap();
        device.write(0x28, &Device::address(ADMIN_SQ).to_le_bytes()).unwrap();
        device.write(0x30, &Device::address(ADMIN_CQ).to_le_bytes()).unwrap();
        device.write(0x14, &0x0046_0001u32.to_le_bytes()).unwrap();
        let end = Instant::now() + LONG;
        while device.load::<4>(0x1c).unwrap() != [1, 0, 0, 0] {
            assert!(Instant::now() < end, "CSTS.RDY");
            std::thread::yield_now();
        }
        let mut host = Host { device, admin: 0, commands: 0 };
        assert_eq!(host.grant(Device::address(0), MEMORY), Ok((1, 0)));
        let (size, base) = (1 | (DEPTH - 1) << 16, Device::address);
        host.run(opcode::CREATE_CQ, base(CQ), &[size, 3 | 1 << 16]).unwrap();
        host.run(opcode::CREATE_SQ, base(SQ), &[size, 1 | 1 << 16]).unwrap();
        host
    }

    fn grant(&mut self, address: u64, length: u64) -> Result<(u32, u32), Status> {
        self.run(opcode::GRANT_MEMORY, address, &[length as u32, 0, GRANT_READ | GRANT_WRITE])
    }

    /// Runs an admin command.
    fn run(&mut self, opcode: u8, data_address: u64, words: &[u32]) -> Result<(u32, u32), Status> {
        let mut entry = AdminEntry { opcode, data_address, cid: self.admin as u16, words: [0; 6] };
        entry.words[..words.len()].copy_from_slice(words);
        let slot = self.admin;
        let bytes = self.pass((0, ADMIN_SQ, ADMIN_CQ), slot, &entry.to_bytes());
        self.admin += 1;
        let found = AdminCompletion::parse(&AdminCompletionPacket::new_checked(&bytes[..]).unwrap()).unwrap();
        assert_eq!(found.cid, slot as u16);
        match Status::from_code(found.status >> 1) {
            Status::Success => Ok((found.value, found.extra)),
            status => Err(status),
        }
    }

    /// Copies through md5, and returns the command's status with the digest.
    fn copy(&mut self, handle: u32, from: u64, to: u64) -> (Status, Vec<u8>) {
        let mut bytes = vec![0; 0x1000];
        let mut builder = Builder::new(&mut bytes).unwrap();
        for (role, offset, handle) in
            [(EndpointRole::Source, from, handle), (EndpointRole::Destination, Device::address(to), 1)]
        {
            let endpoint = Endpoint { kind: EndpointKind::Memory as u8, handle, ..Default::default() };
            builder.endpoint(role, endpoint, &[Extent { offset, length: LENGTH }]).unwrap();
        }
        let length = builder.finish();
        self.device.memory().store(DESCRIPTOR, &bytes[..length]);
        let mut op_chain = [0; 8];
        op_chain[0] = Operator::Md5 as u8;
        let entry = SubmissionEntry {
            opcode: OPCODE_TRANSFER,
            cid: 7,
            descriptor_length: length as u32,
            descriptor_address: Device::address(DESCRIPTOR),
            result_address: Device::address(RESULT),
            op_chain,
            length: LENGTH,
            ..Default::default()
        };
        let slot = self.commands;
        let completion = self.pass((1, SQ, CQ), slot, &entry.to_bytes());
        self.commands += 1;
        let phase = (slot / DEPTH).is_multiple_of(2);
        let completion = CompletionEntry::if_new(&completion, phase).unwrap().expect("it is new");
        assert!(self.device.wait(1, LONG).unwrap(), "an interrupt");
        let mut result = vec![0; ResultArea::SIZE];
        self.device.memory().load(RESULT, &mut result);
        let result = ResultArea::parse(&ResultPacket::new_checked(&result[..]).unwrap()).unwrap();
        (completion.status(), result.digests[0].value[..16].to_vec())
    }

    /// Puts an entry into a ring, and waits for its completion.
    fn pass(&mut self, (queue, sq, cq): (u16, u64, u64), count: u32, entry: &[u8; 64]) -> [u8; 16] {
        let (slot, phase) = (u64::from(count % DEPTH), u8::from((count / DEPTH).is_multiple_of(2)));
        self.device.memory().store(sq + slot * 64, entry);
        let next = (count + 1) % DEPTH;
        self.device.post(&[(sq_tail_doorbell(queue) as u64, next)]).unwrap();
        let (mut bytes, end) = ([0; 16], Instant::now() + LONG);
        loop {
            self.device.memory().load(cq + slot * 16, &mut bytes);
            if bytes[14] & 1 == phase {
                break;
            }
            assert!(Instant::now() < end, "no completion");
            std::thread::yield_now();
        }
        self.device.post(&[(cq_head_doorbell(queue) as u64, next)]).unwrap();
        bytes
    }

    /// Copies its own bytes, and checks them and their digest.
    fn works(&mut self, seed: u64) {
        let bytes = dcs_testkit::bytes(LENGTH as usize, seed);
        self.device.memory().store(DATA, &bytes);
        let (status, digest) = self.copy(1, Device::address(DATA), DATA + LENGTH);
        let mut md5 = dcs_ndp::Context::new(Operator::Md5, &[]).unwrap();
        md5.absorb(&bytes);
        assert_eq!((status, &digest[..]), (Status::Success, md5.value().unwrap().as_bytes()));
        let mut there = vec![0; LENGTH as usize];
        self.device.memory().load(DATA + LENGTH, &mut there);
        assert!(there == bytes);
    }
}

#[test]
fn each_function_serves_a_host_at_its_socket() {
    let folder = tempfile::tempdir().unwrap();
    let sockets: Vec<PathBuf> = (0..3).map(|at| folder.path().join(format!("f{at}"))).collect();
    let paths: Vec<&Path> = sockets.iter().map(PathBuf::as_path).collect();
    let mut config = Config { key: [7; 16], ..Config::default() };
    config.engine.queues = 9;
    let served = serve_functions(&paths, 16 << 20, config).unwrap();
    let (mut one, mut other) = (Host::new(&sockets[1]), Host::new(&sockets[2]));
    for round in 0..20 {
        one.works(2 * round);
        other.works(2 * round + 1);
    }
    // Both at once.
    std::thread::scope(|scope| {
        for host in [&mut one, &mut other] {
            scope.spawn(move || (0..20).for_each(|seed| host.works(seed)));
        }
    });
    // A host reaches what it shares, and nothing else.
    let beyond = Device::address(MEMORY);
    let (handle, _) = one.grant(beyond, LENGTH).unwrap();
    assert_eq!(one.copy(handle, beyond, DATA).0, Status::ReadError);
    one.works(50);
    // One goes in the middle of a command; the next finds the function as after power-on.
    let tail = (other.commands + 1) % DEPTH;
    other.device.post(&[(sq_tail_doorbell(1) as u64, tail)]).unwrap();
    drop(other);
    one.works(51);
    let mut next = Host::new(&sockets[2]);
    next.works(52);
    next.device.reset().unwrap();
    one.works(53);
    drop(served);
}
