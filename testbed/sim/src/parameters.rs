//! Every parameter of the servers in virtual time, with its source.
//!
//! None was chosen for its effect on results. There are three kinds of source: published measurements, data sheets, and
//! measurements of this repository's own code. Parameters without a source say *assumed*; they are the same on both sides of
//! every comparison, or favour the designs that the card is compared with.

use dcs_abi::operator::Operator;
use dcs_engine::Nanos;

/// A parameter, for a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the parameter.
    pub name: &'static str,
    /// Value of the parameter.
    pub value: u64,
    /// Unit of the value.
    pub unit: &'static str,
    /// Source of the value.
    pub source: &'static str,
}

macro_rules! parameters {
    ($Parameters:ident; $($name:ident: $type:ty = $value:expr, $unit:literal, $source:literal;)*) => {
        /// Parameters of servers. The [module](self) lists the kinds of their sources.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $Parameters {
            $(#[doc = $source] #[doc = ""] #[doc = $unit] pub $name: $type,)*
        }

        impl Default for $Parameters {
            fn default() -> $Parameters {
                $Parameters { $($name: $value,)* }
            }
        }

        impl $Parameters {
            /// Changes a parameter; returns false if the name is unknown.
            pub fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $(stringify!($name) => self.$name = value as $type,)*
                    _ => return false,
                }
                true
            }

            /// Returns all parameters with their sources.
            pub fn rows(&self) -> Vec<$crate::parameters::Row> {
                vec![$($crate::parameters::Row {
                    name: stringify!($name), value: self.$name as u64, unit: $unit, source: $source,
                },)*]
            }
        }
    };
}

pub(crate) use parameters;

parameters! {
    Parameters;
    cores: usize = 6, "cores",
        "Xeon E5-2630, the processor of DCS-ctrl's prototype (dissertation, table 3.5). The experiments of DCS (chapter 2) have two: Core 2 Duo (table 2.3).";
    sched_latency: Nanos = 5_000_000, "ns",
        "Time in which each runnable thread runs once: sysctl_sched_latency of Linux 2.6.32, the kernel of both prototypes (CentOS 6.5, tables 2.3 and 3.5); times 1 + log2(cores), as there.";
    sched_granularity: Nanos = 1_000_000, "ns",
        "Least time that a thread runs: sysctl_sched_min_granularity of the same kernel.";
    sched_wakeup: Nanos = 1_000_000, "ns",
        "How much more than a waking thread a running one must have had to be displaced: sysctl_sched_wakeup_granularity of the same kernel.";
    switch: Nanos = 170, "ns",
        "From one thread to another on a busy core: scheduler, Arrakis (OSDI 2014), table 1, receiver running.";
    wake: Nanos = 2_400, "ns",
        "From an interrupt to the woken thread's first instruction on an idle core: scheduler, Arrakis (OSDI 2014), table 1, CPU idle.";
    syscall: Nanos = 330, "ns",
        "Into the kernel and back: kernel crossing, Arrakis (OSDI 2014), table 1, CPU idle: 0.13 and 0.20 us.";
    interrupt: Nanos = 1_000, "ns",
        "An interrupt that signals a file descriptor (VFIO): assumed. The same for user-space drivers and for the card's library; the kernel's own stacks have theirs within the two below.";
    kernel_read: Nanos = 20_000, "ns",
        "The kernel's storage stack for one read, all of it: FlexCSV (ATC 2021), figure 3: the latency of the software stack is set to 20 us. Half of it before the command, half after.";
    kernel_page: Nanos = 620, "ns/4 KiB",
        "The kernel's work on a page between the SSD and the NIC, beyond kernel_read: a sendfile that fills 10 Gb/s takes 34 % of a processor (slides of 2018, DCS: 34 % CPU at 100 % bandwidth). That is 1.24 us a page at 1.125 GB/s, of which kernel_read is 0.62. The slide may mean two cores: one is kind to the kernel.";
    kernel_send: Nanos = 1_420, "ns",
        "The kernel's network stack for one packet, or one large segment, that goes out: Arrakis (OSDI 2014), table 1, CPU idle. UDP's; TCP's is more.";
    kernel_receive: Nanos = 1_240, "ns",
        "The same for one packet that comes in, or for up to 44 that generic receive offload has merged: 1.24 us. The interrupt is within. The driver's work on each packet is taken to be user_receive.";
    user_send: Nanos = 170, "ns",
        "A user-space network stack for one packet, or one large segment, that goes out: Arrakis/N (its own interface, without copies; OSDI 2014), table 1. UDP's; TCP's is more.";
    user_receive: Nanos = 210, "ns",
        "The same for one packet that comes in: 0.21 us.";
    user_nvme: Nanos = 96, "ns",
        "A user-space NVMe driver for one command, submission and completion: SPDK's 10.39 million operations a second by one core (spdk.io, May 2019). Half before, half after.";
    library: Nanos = 2_000, "ns",
        "The dcs library for one command, submission and completion: 13,000 instructions are about 3 us, of which the engine's core, which is on the card, has 4,450 (docs/performance.md, dcs bench control, measured). Half before, half after.";
    copy_ps: u64 = 200, "ps/byte",
        "Copying by the processor, source and destination not in its caches: 5 GB/s, assumed: about half of a channel of DDR3-1333 (10.7 GB/s), which reads and writes.";
    memory_ps: u64 = 156, "ps/byte",
        "Host memory for all: 6.4 GB/s, the 800 MHz front-side bus of DCS's host (table 2.3). Contenders take an even share of it each.";
    cpu_md5_ps: u64 = 1_164, "ps/byte",
        "MD5 on the processor: 0.80 GiB/s (docs/operators.md, measured on an AVX-512 Xeon, faster than the papers').";
    cpu_crc32_ps: u64 = 16, "ps/byte",
        "CRC32 on the processor: 59 GiB/s (docs/operators.md). The papers' had no such instructions in use.";
    cpu_aes256_ps: u64 = 95, "ps/byte",
        "AES-256 on the processor: 9.78 GiB/s (docs/operators.md).";
    gpu_launch: Nanos = 3_000, "ns",
        "The GPU's driver for one kernel launch: 334,000 a second at most (University of Virginia, CUDA kernel overhead, figure 2).";
    gpu_start: Nanos = 6_000, "ns",
        "From a launch to the kernel's end beyond its own work: two thirds of a synchronous launch can be hidden (the same, figure 1), and a third is gpu_launch. Counted as the device's time.";
    gpu_copy: Nanos = 5_000, "ns",
        "The GPU's driver for one copy: cudaMemcpyAsync takes 5 to 7 us a call (DualPath, arXiv 2602.21548, section 5.2): the least.";
    unit_md5_ps: u64 = 8_247, "ps/byte",
        "MD5 by one unit of the card: 0.97 Gb/s (dissertation, table 3.3). One stream on the GPU is taken to be as fast, so that only control and data paths differ: kind to the GPU, whose threads are slower.";
    unit_crc32_ps: u64 = 800, "ps/byte",
        "CRC32 by one unit: 10 Gb/s (table 3.3), on the GPU too.";
    unit_aes256_ps: u64 = 196, "ps/byte",
        "AES-256 by one unit: 40.90 Gb/s (table 3.3), on the GPU too.";
    units: u16 = 11, "units",
        "Units of each operator: as many as MD5 needs for 10 Gb/s (table 3.3). Times the SSD and NIC sets.";
    ssd_read: Nanos = 80_000, "ns",
        "First byte of a read of 4 KiB anywhere, from flash: assumed. Of the Intel 750, the specification has 20 us on average for sequential reads.";
    ssd_write: Nanos = 15_000, "ns",
        "A write into the SSD's cache: the Intel 750's specification gives 20 us on average (sequential, through a host's stack); less the stack.";
    ssd_rate: u64 = 2_150_000_000, "bytes/s",
        "Intel 750 400 GB, reads: 17.2 Gb/s (table 3.5). Writes are 7.2 Gb/s there; the model has one rate for both.";
    nic_rate: u64 = 10_000_000_000, "bit/s",
        "Broadcom BCM57711 (table 3.5).";
    nic_moderation: Nanos = 25_000, "ns",
        "Least time between two interrupts of the NIC: bnx2x's default (rx-usecs 25, which later drivers round down to 24; tx-usecs is 50).";
    d2d_logic: Nanos = 231, "ns",
        "Parse Control and UOE of two D2D NICs for one packet: what the components that Larsen et al. name (two passes of 1,188 ns, 2,352 ns of PCIe) leave of their total of 4,959 ns, on an FPGA at 125 to 160 MHz.";
    request: Nanos = 20_000, "ns",
        "What an object server does for a request besides its data: assumed; OpenStack Swift's Python takes more, a server in C less. The same in every design.";
}

impl Parameters {
    /// Returns the processor's time for this many bytes of an operator.
    pub fn on_cpu(&self, operator: Operator, bytes: u64) -> Nanos {
        let rate = match operator {
            Operator::Md5 => self.cpu_md5_ps,
            Operator::Crc32 => self.cpu_crc32_ps,
            Operator::Aes256Ctr => self.cpu_aes256_ps,
            other => panic!("no parameter says how fast {} is", other.name()),
        };
        bytes * rate / 1000
    }

    /// Returns the time of a unit of the card, and of one stream on the GPU, in picoseconds per byte.
    pub fn unit_ps(&self, operator: Operator) -> u64 {
        match operator {
            Operator::Md5 => self.unit_md5_ps,
            Operator::Crc32 => self.unit_crc32_ps,
            Operator::Aes256Ctr => self.unit_aes256_ps,
            other => panic!("no parameter says how fast {} is", other.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_s_units_are_as_fast_as_they_are_said_to_be() {
        for operator in [Operator::Md5, Operator::Crc32, Operator::Aes256Ctr] {
            let rate = (operator, Parameters::default().unit_ps(operator));
            assert!(dcs_card::costs::Costs::FPGA.slower.contains(&rate), "{rate:?}");
        }
    }

    #[test]
    fn every_parameter_has_a_source() {
        for row in Parameters::default().rows() {
            assert!(row.source.len() > 20 && row.value > 0, "{row:?}");
        }
    }
}
