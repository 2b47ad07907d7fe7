//! Parameters of servers with virtual drives, in addition to those of [`crate::parameters`], each with its source.

use dcs_engine::Nanos;

crate::parameters::parameters! {
    Timings;
    vm_cores: usize = 24, "cores",
        "Two Xeon Gold 5118 of 12 cores each (FlexCSV, section 5.1).";
    drive_ssd_latency: Nanos = 10_000, "ns",
        "Optane 900P, 4 KiB, read or written: 10 us (FlexCSV, sections 3.1 and 5.1). The transfer at the SSD's rate is within.";
    drive_ssd_rate: u64 = 2_252_800_000, "bytes/s",
        "The same SSD: 550,000 random reads of 4 KiB a second (FlexCSV, section 5.1).";
    exit: Nanos = 1_000, "ns",
        "A guest's exit to the hypervisor and back, with an event for another thread (ioeventfd): assumed, some 2,300 cycles. Half before, half after. The same in every design that has exits.";
    device_model: Nanos = 2_000, "ns",
        "The hypervisor's device model for one request: taking it from the virtqueue, mapping it, putting the answer there (QEMU, in user space): assumed. Half before, half after.";
    inject: Nanos = 1_000, "ns",
        "An interrupt for a guest whose processor sleeps: until the processor's thread is woken (which takes `wake`) and the guest entered: assumed, as an exit. By a virtual function's interrupt too, since the guest sleeps.";
    char_driver: Nanos = 2_000, "ns",
        "A driver of an FPGA for one call, without a storage stack (a character device): descriptors, mapping of a page: assumed. Half before, half after. In guests and in the host.";
    renaming_submission: Nanos = 728, "ns",
        "The engine's scheduler with renaming, submission (FlexCSV, table 1).";
    renaming_completion: Nanos = 96, "ns",
        "The same, completion (table 1).";
    static_submission: Nanos = 656, "ns",
        "Without renaming, submission (table 1).";
    static_completion: Nanos = 72, "ns",
        "Without renaming, completion (table 1).";
    interconnect: Nanos = 16, "ns",
        "A hop of the on-chip interconnect: 4 cycles of 250 MHz (table 2 has the clock), assumed.";
    encryption: u64 = 211_000_000, "bytes/s",
        "Blowfish by one slot (FlexCSV, table 3). Section 3.1 has 14 us for 4 KiB, which is 293 MB/s.";
    decryption: u64 = 212_000_000, "bytes/s",
        "The same, decryption (table 3).";
    hash: u64 = 285_000_000, "bytes/s",
        "SHA-256 by one slot (table 3).";
    aggregate: u64 = 4_700_000_000, "bytes/s",
        "Aggregate by one slot (table 3).";
    filter: u64 = 278_000_000, "bytes/s",
        "Filter by one slot (table 3).";
    grep: u64 = 426_000_000, "bytes/s",
        "Grep by one slot (table 3).";
    knn: u64 = 4_220_000_000, "bytes/s",
        "K nearest neighbours by one slot (table 3).";
    bitmap: u64 = 4_240_000_000, "bytes/s",
        "Bitmap by one slot (table 3).";
    slot_latency: Nanos = 256, "ns",
        "From a block's first word to a slot's first answer: 64 cycles of 250 MHz, as the card's units have it (crates/card, costs).";
    bitstream: u64 = 4_194_304, "bytes",
        "A slot's partial bitstream, large enough for the largest operator (table 3: 63,570 LUTs, 3.7 % of an Alveo U250's 1.73 million): 4 MiB, assumed: about that share of the whole device's.";
    icap: u64 = 800_000_000, "bytes/s",
        "The FPGA's configuration port from inside, for slots in the die that has the port: 32 bits at 200 MHz (Xilinx, XAPP1338). Slots in other dies of a U250 would take 125 MHz, but four have room in one: 4 * 63,570 of its 432,000 LUTs.";
    example: u64 = 100_000_000, "bytes/s",
        "The example operator of figure 6 (section 3.2).";
}

/// The paper's operators (table 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// Blowfish.
    Encryption,
    /// Blowfish decryption.
    Decryption,
    /// SHA-256.
    Hash,
    /// Sums of columns.
    Aggregate,
    /// Rows that match.
    Filter,
    /// Lines that match.
    Grep,
    /// Nearest neighbours.
    Knn,
    /// Compressed bitmaps.
    Bitmap,
    /// The example of figure 6.
    Example,
}

impl Operator {
    /// Operators of table 3.
    pub const ALL: [Operator; 8] = [
        Operator::Encryption,
        Operator::Decryption,
        Operator::Hash,
        Operator::Aggregate,
        Operator::Filter,
        Operator::Grep,
        Operator::Knn,
        Operator::Bitmap,
    ];

    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Operator::Encryption => "encryption",
            Operator::Decryption => "decryption",
            Operator::Hash => "hash",
            Operator::Aggregate => "aggregate",
            Operator::Filter => "filter",
            Operator::Grep => "grep",
            Operator::Knn => "knn",
            Operator::Bitmap => "bitmap",
            Operator::Example => "example",
        }
    }
}

impl Timings {
    /// Returns the bytes per second of a slot.
    pub fn rate(&self, operator: Operator) -> u64 {
        match operator {
            Operator::Encryption => self.encryption,
            Operator::Decryption => self.decryption,
            Operator::Hash => self.hash,
            Operator::Aggregate => self.aggregate,
            Operator::Filter => self.filter,
            Operator::Grep => self.grep,
            Operator::Knn => self.knn,
            Operator::Bitmap => self.bitmap,
            Operator::Example => self.example,
        }
    }

    /// Returns the time that a slot takes for this many bytes.
    pub fn working(&self, operator: Operator, bytes: u64) -> Nanos {
        self.slot_latency + (bytes as u128 * 1_000_000_000 / u128::from(self.rate(operator))) as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timing_has_a_source() {
        for row in Timings::default().rows() {
            assert!(row.source.len() > 15 && row.value > 0, "{row:?}");
        }
    }
}
