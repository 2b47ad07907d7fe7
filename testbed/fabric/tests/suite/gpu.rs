//! The GPU model: copies and kernels by doorbells, its memory as a peer's.

use std::time::Duration;

use dcs_drivers::bus::Bus;
use dcs_fabric::gpu::{COPY_DOORBELL, Command, Config, FAILED, Gpu, Kernels, LAUNCH_DOORBELL, Launch, Work};
use dcs_fabric::{Fabric, FunctionId, HOST, Rate, Timing};

/// Kernel 1 adds one to each byte and gives their number.
struct Increment;

impl Kernels for Increment {
    fn run(&mut self, launch: &Launch, data: &mut [u8]) -> Option<(Duration, Vec<u8>)> {
        data.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        let time = Duration::from_nanos(data.len() as u64);
        (launch.kernel == 1).then(|| (time, (data.len() as u64).to_le_bytes().to_vec()))
    }
}

const FENCE: u64 = 0x8000;

fn rig() -> (Fabric, FunctionId) {
    let mut fabric = Fabric::new(Timing::default(), 1 << 20, 1);
    let config = Config { memory: 1 << 20, start: Duration::from_micros(6) };
    let gpu = fabric.add_device("gpu", Rate::GEN2_X8, Gpu::new(config, Increment));
    fabric.set_bus_master(gpu, true);
    (fabric, gpu)
}

fn tell(fabric: &mut Fabric, gpu: FunctionId, doorbell: u64, command: Command) {
    let address = fabric.bar(gpu, 0).address + doorbell;
    fabric.port(HOST).write(address, &command.to_bytes());
}

fn fence(fabric: &mut Fabric) -> u64 {
    fabric.run(fabric.now() + Duration::from_millis(1));
    let mut bytes = [0; 8];
    fabric.port(HOST).load(FENCE, &mut bytes);
    u64::from_le_bytes(bytes)
}

#[test]
fn a_stream_s_copies_and_kernels_follow_each_other() {
    let (mut fabric, gpu) = rig();
    let data: Vec<u8> = (0..10_000u32).map(|at| at as u8).collect();
    fabric.port(HOST).store(0x1_0000, &data);
    let command =
        Command { work: Work::CopyIn(0x1_0000), stream: 3, offset: 4096, length: 10_000, fence: None };
    tell(&mut fabric, gpu, COPY_DOORBELL, command);
    let launch = Launch { kernel: 1, last: true, argument: 0, output: 0 };
    tell(&mut fabric, gpu, LAUNCH_DOORBELL, Command { work: Work::Launch(launch), ..command });
    let out = Command { work: Work::CopyOut(0x2_0000), fence: Some((FENCE, 7)), ..command };
    tell(&mut fabric, gpu, COPY_DOORBELL, out);
    assert_eq!(fence(&mut fabric), 7);
    let mut back = vec![0; 10_000];
    fabric.port(HOST).load(0x2_0000, &mut back);
    assert!(back.iter().zip(&data).all(|(new, old)| *new == old.wrapping_add(1)));
    // The kernel's result, by a peer's read of its memory.
    let address = fabric.bar(gpu, 1).address;
    assert_eq!(fabric.read(HOST, address, 8).unwrap(), 10_000u64.to_le_bytes());
    assert_eq!(fabric.device::<Gpu>(gpu).counts().launches, 1);
}

#[test]
fn its_memory_is_a_peer_s_and_a_kernel_takes_its_time() {
    let (mut fabric, gpu) = rig();
    let memory = fabric.bar(gpu, 1).address;
    fabric.port(HOST).write(memory + 100, &[9; 50]);
    let launch = Work::Launch(Launch { kernel: 1, last: true, argument: 0, output: 0 });
    let command = Command { work: launch, stream: 0, offset: 100, length: 50, fence: Some((FENCE, 1)) };
    tell(&mut fabric, gpu, LAUNCH_DOORBELL, command);
    let begun = fabric.now();
    while fabric.step(Some(begun + Duration::from_millis(1))).is_none() {}
    let took = fabric.now() - begun;
    assert!((6_050..7_500).contains(&took.as_nanos()), "{took:?}");
    assert_eq!(fabric.read(HOST, memory + 100, 50).unwrap(), [10; 50]);
}

#[test]
fn what_cannot_be_done_is_told_by_the_fence_and_the_next_goes_on() {
    let (mut fabric, gpu) = rig();
    let good = Command { work: Work::CopyIn(0), stream: 0, offset: 0, length: 8, fence: Some((FENCE, 5)) };
    let unknown = Work::Launch(Launch { kernel: 2, last: true, argument: 0, output: 0 });
    for (doorbell, bad) in [
        (COPY_DOORBELL, Command { work: Work::CopyIn(1 << 50), ..good }),
        (COPY_DOORBELL, Command { offset: u64::MAX, ..good }),
        (COPY_DOORBELL, Command { length: 2 << 20, ..good }),
        (LAUNCH_DOORBELL, Command { work: unknown, ..good }),
    ] {
        tell(&mut fabric, gpu, doorbell, bad);
        assert_eq!(fence(&mut fabric), FAILED, "{bad:?}");
        tell(&mut fabric, gpu, COPY_DOORBELL, good);
        assert_eq!(fence(&mut fabric), 5);
    }
    // At the wrong doorbell, and no command at all.
    tell(&mut fabric, gpu, LAUNCH_DOORBELL, good);
    let address = fabric.bar(gpu, 0).address + COPY_DOORBELL;
    fabric.port(HOST).write(address, &[0; 64]);
    fabric.port(HOST).write(address, &[1; 8]);
    fabric.run(fabric.now() + Duration::from_millis(1));
    assert_eq!(fabric.device::<Gpu>(gpu).counts().failed, 7);
}
