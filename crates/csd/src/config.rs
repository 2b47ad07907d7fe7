//! The configuration of a drive.

/// The configuration of a drive. The same configuration gives the same drive again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Serial number: 1 to 20 printable ASCII characters.
    pub serial: String,
    /// The PCI vendor ID of the function, which identify data repeat.
    pub vendor: u16,
    /// The subsystem's name (NQN): 1 to 223 bytes. Controllers of the same subsystem report the same one.
    pub subsystem: String,
    /// Number of the controller in its subsystem (CNTLID), 0 to 0xffef.
    pub number: u16,
    /// There is no volatile write cache: every write is on the medium when it is completed, and guests need
    /// no flushes.
    pub write_through: bool,
    /// Its subsystem has several controllers, which a guest may use as paths.
    pub shared: bool,
    /// Maximum number of I/O queue pairs, 1 to 64. There is a vector for each, and one for the admin queue.
    pub queues: u16,
    /// Maximum number of entries of a queue, 2 to 65,536.
    pub entries: u32,
    /// Maximum number of commands in progress, 1 to 4,096.
    pub commands: u16,
    /// Maximum number of bytes of a command's data, as a power of two, 12 to 22.
    pub transfer_shift: u8,
    /// Maximum number of commands at once whose data are copied, 1 to 256: each has a buffer of the largest
    /// transfer.
    pub buffers: u16,
    /// Bytes of device memory for near-storage commands, up to 1 GiB.
    pub memory: u32,
    /// Bytes of memory that operators of near-storage commands and streams may use together, 1 MiB to 64 GiB.
    pub operator_memory: u64,
    /// Device memory is also a namespace of subsystem local memory, and operators are also the programs of a
    /// namespace of computational programs, for a guest that selects these command sets. Requires device
    /// memory.
    pub programs: bool,
    /// Offers shadow doorbells, which save register writes.
    pub shadow_doorbells: bool,
    /// The largest namespace number, 1 to 1,024. Firmware probes each number.
    pub namespaces: u32,
}

impl Config {
    /// Returns the default configuration with this serial number: 8 queue pairs of up to 1,024 entries, 256
    /// commands, transfers of 1 MiB.
    pub fn new(serial: &str) -> Config {
        Config {
            serial: serial.to_owned(),
            vendor: 0,
            subsystem: format!("nqn.2014-08.org.nvmexpress:dcs:{serial}"),
            number: 1,
            write_through: false,
            shared: false,
            queues: 8,
            entries: 1024,
            commands: 256,
            transfer_shift: 20,
            buffers: 16,
            memory: 1 << 20,
            operator_memory: 512 << 20,
            programs: false,
            shadow_doorbells: true,
            namespaces: 16,
        }
    }

    /// Returns the number of the namespace of subsystem local memory, if there is one.
    pub fn local_memory_namespace(&self) -> u32 {
        self.namespaces + 1
    }

    /// Returns the number of the namespace of computational programs, if there is one.
    pub fn programs_namespace(&self) -> u32 {
        self.namespaces + 2
    }

    /// Returns the largest number that a namespace may have.
    pub(crate) fn largest_namespace(&self) -> u32 {
        if self.programs { self.programs_namespace() } else { self.namespaces }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// Returns the first invalid setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        let printable = |text: &str| text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        if self.serial.is_empty() || self.serial.len() > 20 || !printable(&self.serial) {
            return Err(ConfigError::Serial);
        }
        if self.subsystem.is_empty() || self.subsystem.len() > 223 {
            return Err(ConfigError::Subsystem);
        }
        let range = |name, value: u64, least: u64, most: u64| match value {
            value if (least..=most).contains(&value) => Ok(()),
            value => Err(ConfigError::Range { name, value, least, most }),
        };
        range("the controller's number", self.number.into(), 0, 0xffef)?;
        range("I/O queue pairs", self.queues.into(), 1, 64)?;
        range("entries of a queue", self.entries.into(), 2, 65_536)?;
        range("commands under way", self.commands.into(), 1, 4096)?;
        range("the largest transfer, as a power of two,", self.transfer_shift.into(), 12, 22)?;
        range("buffers", self.buffers.into(), 1, 256)?;
        let least = if self.programs { 4096 } else { 0 };
        range("bytes of device memory", self.memory.into(), least, 1 << 30)?;
        range("bytes of memory for operators", self.operator_memory, 1 << 20, 64 << 30)?;
        range("namespaces", self.namespaces.into(), 1, 1024)
    }
}

/// The reason why a drive or a namespace cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The serial number is missing or invalid.
    #[error("a serial number has 1 to 20 printable ASCII characters")]
    Serial,
    /// The subsystem's name is missing or invalid.
    #[error("a subsystem's name (NQN) has 1 to 223 bytes")]
    Subsystem,
    /// A number is too small or too large.
    #[error("{name} must be {least} to {most}, not {value}")]
    Range {
        /// The setting's name.
        name: &'static str,
        /// The given value.
        value: u64,
        /// The smallest valid value.
        least: u64,
        /// The largest valid value.
        most: u64,
    },
    /// A namespace with this number exists already.
    #[error("there is a namespace {0} already")]
    Taken(u32),
    /// There is no namespace with this number.
    #[error("there is no namespace {0}")]
    Missing(u32),
    /// The size of logical blocks is not supported.
    #[error("logical blocks have 512 or 4096 bytes")]
    Block,
    /// The volume has larger blocks than the namespace.
    #[error(
        "logical blocks of {block} bytes on a volume that takes multiples of {alignment}: use larger ones"
    )]
    Alignment {
        /// Bytes of a logical block.
        block: u64,
        /// Bytes of the volume's blocks.
        alignment: u64,
    },
    /// The key of a chain is invalid.
    #[error("a key of aes256-xts has two different halves of 32 bytes")]
    Key,
    /// The namespace ends beyond the volume's end.
    #[error("the namespace has {wanted} bytes, but its volume only {there}")]
    Size {
        /// Bytes of the namespace.
        wanted: u64,
        /// Bytes of the volume.
        there: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(Config::new("a").check(), Ok(()));
        assert_eq!(Config::new("").check(), Err(ConfigError::Serial));
        assert_eq!(Config::new("a\n").check(), Err(ConfigError::Serial));
        assert_eq!(
            Config { subsystem: "x".repeat(224), ..Config::new("a") }.check(),
            Err(ConfigError::Subsystem)
        );
        let changes: [fn(&mut Config); 8] = [
            |config| (config.programs, config.memory) = (true, 0),
            |config| config.number = 0xfff0,
            |config| config.queues = 0,
            |config| config.entries = 1,
            |config| config.commands = 0,
            |config| config.transfer_shift = 23,
            |config| config.buffers = 0,
            |config| config.namespaces = 0,
        ];
        for change in changes {
            let mut config = Config::new("a");
            change(&mut config);
            let error = config.check().unwrap_err();
            assert!(matches!(error, ConfigError::Range { .. }), "{error}");
        }
    }
}
