//! Configuration space: the existing bits, the writable ones, and the effects of writes.
//!
//! [PCI 3.0, 6.1 and 6.2.5; PCI Power Management 1.2, 3.2; PCIe 5.0, 7.5.3; PCI 3.0, 6.8.2 (MSI-X)]

/// Size of the configuration space of a PCI Express function in bytes.
pub const SIZE: usize = 4096;

const COMMAND: usize = 0x04;
const BAR0: usize = 0x10;
const POWER: usize = 0x40;
const INTERRUPTS: usize = 0x50;
const EXPRESS: usize = 0x60;

const MEMORY_SPACE: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;
/// Initiate Function Level Reset bit of Device Control.
const FLR: u8 = 1 << 7;

/// The identity of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor number.
    pub vendor: u16,
    /// Device number.
    pub device: u16,
    /// Base class, subclass, programming interface.
    pub class: [u8; 3],
    /// Revision.
    pub revision: u8,
}

impl Identity {
    /// Identity of the dcs card as a processing accelerator (class 12h), which no stock driver binds to. PCI-SIG did not assign the vendor
    /// number: the card is not made of silicon.
    pub const ACCELERATOR: Identity =
        Identity { vendor: 0xdc51, device: 0x0001, class: [0x12, 0x00, 0x00], revision: 1 };
    /// Identity of the dcs card as an NVMe I/O controller, to which an operating system's own NVMe driver binds.
    /// [`Registers`](super::Registers) must then be those of one.
    pub const NVME: Identity =
        Identity { vendor: 0xdc51, device: 0x0002, class: [0x01, 0x08, 0x02], revision: 1 };
}

/// The means by which a function interrupts its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// MSI-X with this many vectors, 1 to 2,048: the table and the pending bits are BAR4.
    MsiX(u16),
    /// MSI with this many vectors, a power of two of at most 32. QEMU 11.1 removes such a function from a running guest; one with MSI-X
    /// kills the guest (an assertion of QEMU's).
    Msi(u16),
}

impl Interrupts {
    /// Returns the number of vectors.
    pub fn vectors(self) -> u16 {
        match self {
            Interrupts::MsiX(vectors) | Interrupts::Msi(vectors) => vectors,
        }
    }

    /// Returns the size of BAR4 in bytes.
    pub fn table(self) -> u64 {
        match self {
            Interrupts::MsiX(vectors) => vectors_size(vectors),
            Interrupts::Msi(_) => 0,
        }
    }
}

/// The configuration space of a function with 64-bit BARs 0, 2 and 4.
#[derive(Clone)]
pub struct Config {
    bytes: [u8; 256],
    /// Bits that a host can write.
    writable: [u8; 256],
    initial: [u8; 256],
}

/// The effect of a host's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No effect beyond the bits.
    None,
    /// A function level reset: this space was reset already.
    Reset,
}

impl Config {
    /// Makes the space of a function with BARs 0 and 2 of these sizes (powers of two; 0 if there is none), and BAR4 as its interrupts need
    /// it.
    ///
    /// # Panics
    ///
    /// If sizes or vectors are invalid.
    pub fn new(identity: Identity, bars: [u64; 2], interrupts: Interrupts) -> Config {
        let mut config = Config { bytes: [0; 256], writable: [0; 256], initial: [0; 256] };
        config.header(identity);
        // BAR2 is prefetchable.
        let bars = [(bars[0], 0b0100u8), (bars[1], 0b1100), (interrupts.table(), 0b0100)];
        for (index, (size, flags)) in bars.into_iter().enumerate() {
            if size == 0 {
                continue;
            }
            assert!(size.is_power_of_two() && size >= 4096, "a BAR of {size} bytes");
            let at = BAR0 + 8 * index;
            config.put(at, &[flags]);
            config.writable[at..at + 8].copy_from_slice(&(!(size - 1)).to_le_bytes());
        }
        config.capabilities(interrupts);
        config.initial = config.bytes;
        config
    }

    fn header(&mut self, identity: Identity) {
        self.put(0x00, &identity.vendor.to_le_bytes());
        self.put(0x02, &identity.device.to_le_bytes());
        // Status: there is a capabilities list.
        self.put(0x06, &[0x10]);
        let [base, sub, interface] = identity.class;
        self.put(0x08, &[identity.revision, interface, sub, base]);
        self.put(0x2c, &identity.vendor.to_le_bytes());
        self.put(0x2e, &identity.device.to_le_bytes());
        self.put(0x34, &[POWER as u8]);
        // Memory space, bus master, parity, SERR#, INTx disable.
        self.writable[COMMAND..COMMAND + 2].copy_from_slice(&0x0546u16.to_le_bytes());
        // Cache line size and interrupt line are scratch registers of the host.
        self.writable[0x0c] = 0xff;
        self.writable[0x3c] = 0xff;
    }

    fn capabilities(&mut self, interrupts: Interrupts) {
        // Power management 1.2, D0 to D3; no reset on the way back.
        self.put(POWER, &[0x01, INTERRUPTS as u8, 0x03, 0x00, 0x08]);
        self.writable[POWER + 4] = 0x03;
        match interrupts {
            Interrupts::MsiX(vectors) => self.msi_x(vectors),
            Interrupts::Msi(vectors) => self.msi(vectors),
        }
        // PCI Express 2, endpoint; payloads of 256 bytes, function level reset, role-based error reporting.
        self.put(EXPRESS, &[0x10, 0x00, 0x02, 0x00]);
        self.put(EXPRESS + 4, &(1u32 | 1 << 15 | 1 << 28).to_le_bytes());
        // Relaxed order, payloads, no snoop, reads, error reporting.
        self.writable[EXPRESS + 8..EXPRESS + 10].copy_from_slice(&0x78ffu16.to_le_bytes());
        // Link: 8 GT/s, 4 lanes, running at that rate.
        self.put(EXPRESS + 0x0c, &(3u32 | 4 << 4).to_le_bytes());
        self.put(EXPRESS + 0x12, &(3u16 | 4 << 4).to_le_bytes());
    }

    /// Adds MSI-X: the table at the start of BAR4, followed by the pending bits.
    fn msi_x(&mut self, vectors: u16) {
        assert!((1..=2048).contains(&vectors), "{vectors} MSI-X vectors");
        self.put(INTERRUPTS, &[0x11, EXPRESS as u8]);
        self.put(INTERRUPTS + 2, &(vectors - 1).to_le_bytes());
        self.put(INTERRUPTS + 4, &4u32.to_le_bytes());
        self.put(INTERRUPTS + 8, &(pending_offset(vectors) as u32 | 4).to_le_bytes());
        self.writable[INTERRUPTS + 3] = 0xc0;
    }

    /// Adds MSI, with 64-bit addresses and without masks. [PCI 3.0, 6.8.1]
    fn msi(&mut self, vectors: u16) {
        assert!(vectors.is_power_of_two() && vectors <= 32, "{vectors} MSI vectors");
        let capable = vectors.trailing_zeros() as u8;
        self.put(INTERRUPTS, &[0x05, EXPRESS as u8, 1 << 7 | capable << 1]);
        // Enable bit, and the number of vectors; address and data of a message.
        self.writable[INTERRUPTS + 2] = 0x71;
        self.writable[INTERRUPTS + 4..INTERRUPTS + 14].fill(0xff);
        self.writable[INTERRUPTS + 4] = 0xfc;
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Reads bytes; missing ones are zeros.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (n, byte) in bytes.iter_mut().enumerate() {
            *byte = place(offset, n).map_or(0, |at| self.bytes[at]);
        }
    }

    /// Writes the writable bits.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Effect {
        let mut effect = Effect::None;
        for (n, byte) in bytes.iter().enumerate() {
            let Some(at) = place(offset, n) else { break };
            if at == EXPRESS + 9 && byte & FLR != 0 {
                effect = Effect::Reset;
            }
            self.bytes[at] = self.bytes[at] & !self.writable[at] | byte & self.writable[at];
        }
        if effect == Effect::Reset {
            self.reset();
        }
        effect
    }

    /// Restores the initial state except the BARs. A client of vfio-user emulates these itself, so a guest that restores its settings after
    /// a reset finds them unchanged and does not write them again.
    pub fn reset(&mut self) {
        let bars = BAR0..BAR0 + 24;
        let kept = self.bytes;
        self.clear();
        self.bytes[bars.clone()].copy_from_slice(&kept[bars]);
    }

    /// Restores the initial state.
    pub fn clear(&mut self) {
        self.bytes = self.initial;
    }

    /// Returns true if the function may access other devices: it is bus master, and in D0.
    pub fn is_master(&self) -> bool {
        self.command() & BUS_MASTER != 0 && self.bytes[POWER + 4] & 3 == 0
    }

    /// Returns the address of a BAR (0, 2 or 4), once memory space is enabled and an address was set.
    pub fn bar(&self, index: usize) -> Option<u64> {
        let at = BAR0 + 4 * index;
        let mut address = [0; 8];
        address.copy_from_slice(&self.bytes[at..at + 8]);
        let address = u64::from_le_bytes(address) & !0xf;
        (self.command() & MEMORY_SPACE != 0 && address != 0).then_some(address)
    }

    fn command(&self) -> u16 {
        u16::from_le_bytes([self.bytes[COMMAND], self.bytes[COMMAND + 1]])
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Config {{ command: {:#x}, bar2: {:x?} }}", self.command(), self.bar(2))
    }
}

/// Returns the index of the `n`th byte of an access, if it exists.
fn place(offset: u64, n: usize) -> Option<usize> {
    usize::try_from(offset).ok()?.checked_add(n).filter(|at| *at < 256)
}

/// Returns the offset of the pending bits in BAR4.
pub fn pending_offset(vectors: u16) -> u64 {
    16 * u64::from(vectors)
}

/// Returns the size in bytes of a BAR with the table and the pending bits of this many MSI-X vectors.
fn vectors_size(vectors: u16) -> u64 {
    let pending = u64::from(vectors).div_ceil(64) * 8;
    (pending_offset(vectors) + pending).next_power_of_two().max(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new(Identity::ACCELERATOR, [0x2000, 1 << 24], Interrupts::MsiX(5))
    }

    fn word(config: &Config, at: u64) -> u32 {
        let mut word = [0; 4];
        config.read(at, &mut word);
        u32::from_le_bytes(word)
    }

    #[test]
    fn bars_tell_their_size_and_take_an_address() {
        let mut config = config();
        for (at, low) in [(0x10, 0xffff_e004), (0x18, 0xff00_000c), (0x20, 0xffff_f004)] {
            config.write(at, &[0xff; 8]);
            assert_eq!((word(&config, at), word(&config, at + 4)), (low, u32::MAX));
        }
        config.write(0x18, &0x38_1234_5678u64.to_le_bytes());
        assert_eq!(config.bar(2), None, "memory space is off");
        config.write(4, &[2]);
        assert_eq!(config.bar(2), Some(0x38_1200_0000));
    }

    #[test]
    fn mastering_needs_its_bit_and_full_power() {
        let mut config = config();
        assert!(!config.is_master());
        config.write(4, &[6, 0]);
        assert!(config.is_master());
        config.write(POWER as u64 + 4, &[3]);
        assert!(!config.is_master());
        config.write(POWER as u64 + 4, &[0]);
        assert!(config.is_master());
    }

    #[test]
    fn a_function_level_reset_leaves_the_bars_alone() {
        let mut config = config();
        config.write(4, &[6, 0]);
        config.write(0x18, &[0xff; 8]);
        assert_eq!(config.write(EXPRESS as u64 + 8, &[0, 0x80]), Effect::Reset);
        assert!(!config.is_master());
        assert_eq!(word(&config, 0x18), 0xff00_000c);
        assert_eq!(word(&config, EXPRESS as u64 + 8), 0);
        config.clear();
        assert_eq!(word(&config, 0x18), 0xc);
    }

    #[test]
    fn what_is_fixed_stays() {
        let (fresh, mut config) = (config(), config());
        config.write(0, &[0xff; 4]);
        config.write(6, &[0xff; 6]);
        config.write(0x28, &[0xff; 20]);
        config.write(4094, &[0xff; 8]);
        config.write(u64::MAX, &[0xff; 8]);
        for at in [0, 4, 8, 0x28, 0x2c, 0x30, 0x34, 0x38, 4092] {
            assert_eq!(word(&config, at), word(&fresh, at));
        }
    }

    #[test]
    fn the_capabilities_are_a_list() {
        let config = config();
        let (mut at, mut seen) = (word(&config, 0x34) as u8, Vec::new());
        while at != 0 {
            let head = word(&config, at.into());
            seen.push(head as u8);
            at = (head >> 8) as u8;
        }
        assert_eq!(seen, [0x01, 0x11, 0x10]);
        assert_eq!(word(&config, INTERRUPTS as u64) >> 16, 4, "five vectors");
        assert_eq!((pending_offset(5), vectors_size(5), vectors_size(2048)), (80, 4096, 65536));
    }

    #[test]
    fn a_function_with_msi_has_no_table_and_may_lack_memory() {
        let mut config = Config::new(Identity::NVME, [0x4000, 0], Interrupts::Msi(16));
        for (at, low) in [(0x10, 0xffff_c004), (0x18, 0), (0x20, 0)] {
            config.write(at, &[0xff; 8]);
            assert_eq!(word(&config, at), low);
        }
        assert_eq!(word(&config, INTERRUPTS as u64), 0x0088_6005, "16 vectors, addresses of 64 bits");
        config.write(INTERRUPTS as u64, &[0xff; 16]);
        let words = [0, 4, 8, 12].map(|at| word(&config, INTERRUPTS as u64 + at));
        assert_eq!(words, [0x00f9_6005, 0xffff_fffc, 0xffff_ffff, 0xffff]);
        config.write(4, &[2]);
        assert_eq!(config.bar(2), None);
    }
}
