//! The command line of `dcs bench guest`.

use crate::guest::nic::KernelNic;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = HELP, subcommand_required = true, arg_required_else_help = true)]
pub struct Options {
    #[command(subcommand)]
    pub experiment: Experiment,
    /// Draw bar charts; `all` writes NAME-EXPERIMENT.svg
    #[arg(long, value_name = "NAME.svg", global = true)]
    pub svg: Option<PathBuf>,
    /// Measure little of each, for a quick look
    #[arg(long, global = true)]
    pub quick: bool,
    /// NIC of the guest's kernel
    #[arg(long, value_enum, default_value = "virtio", global = true)]
    pub nic: KernelNic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum Experiment {
    /// Bandwidth with 0 to 24 spinning processes in the guest, relative to that with none
    Contention,
    /// Object server: GET and PUT of 4 KiB to 4 MiB with MD5, Poisson arrivals; guest CPU at equal throughput
    Object,
    /// The HDFS balancer: sender, and receiver with CRC32; guest CPU at equal throughput
    Balancer,
    /// 1 to 4 sets of an SSD and a NIC, two streams each; guest CPU per GiB, and the share of each set
    Scaling,
    /// md5 and grep of a file: on a paravirtual disk, on a virtual drive, and near storage; guest and host CPU per GiB
    Drives,
    /// All experiments but drives
    All,
}

const HELP: &str = "\
Examples:
  dcs bench guest object                           # a table, with the papers' figures
  dcs bench guest contention --svg contention.svg
  dcs bench guest scaling                          # up to four SSDs and four NICs on one card
  dcs bench guest drives --svg drives.svg          # without the card: a guest's ways to its disk
  dcs bench guest all --json >guest.json              # for the report: dcs bench sim all --html report.html --guest guest.json
  dcs bench guest balancer --quick --json | jq 'select(.event == \"figure\")'

Each experiment boots its own server, as dcs vm demo does: the designs run on the same devices, one after the other, and a client
outside compares every byte and digest.

  host          host-centric: the kernel's NVMe driver, ext4, TCP and NIC driver
  software-tcp  software-optimised: the process drives the SSD itself over VFIO; data in host memory, operators on the processor; the
                kernel's TCP and NIC driver
  software-nic  the same, and the process drives the NIC too, with a TCP of its own
  software-p2p  software-controlled P2P: as software-nic, but data stay in the SSD's own memory, and the NIC reads them there; SSD -> NIC
                without operators, so only in contention and as the balancer's sender
  card          one command to the dcs card

drives boots a guest of its own, with a virtio-blk disk and a drive of dcs csd; it checks each digest.

Ratios to the software-optimised design are to the better of the two (software-tcp, software-nic).

QEMU emulates each instruction, so its seconds mean nothing. Guest CPU seconds per GiB are compared with each other, bandwidth with
spinners with that without, several sets with one. What QEMU's servers lack (a GPU, an integrated device) is in dcs bench sim, in virtual time.
docs/experiments.md says how it is measured and what it does not show.

Exit codes: 0 done; 1 a check or the guest failed; 2 usage; 9 no virtual server is available; 130 interrupted";
