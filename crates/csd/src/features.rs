//! Features: settings that the guest may change and read. A reset restores the defaults.

use dcs_nvme::Status;
use dcs_nvme::command::{ALL_NAMESPACES, Command, Feature, QueueCounts, feature};

use crate::controller::Controller;
use crate::host::HostPort;
use crate::logs::WARNING_TEMPERATURE;
use crate::slots::Work;
use crate::storage::Storage;

/// Bytes of host behavior support data. [base figure 338]
const HOST_BEHAVIOR_SIZE: usize = 512;

/// The features' values.
pub struct Features {
    arbitration: u32,
    /// The thresholds: over and under.
    thresholds: [u16; 2],
    error_recovery: u32,
    pub write_cache: bool,
    pub coalescing: u32,
    /// For each vector: its interrupts are not coalesced.
    vectors: Vec<bool>,
    atomicity: u32,
    behavior: [u8; HOST_BEHAVIOR_SIZE],
    host: HostIdentifier,
}

/// The identifier that the guest has set. [base 2.1 5.1.25.1.28]
#[derive(Clone, Copy, Default)]
struct HostIdentifier {
    bytes: [u8; 16],
    /// It has 16 bytes; otherwise only the first 8 count.
    extended: bool,
}

/// Returns the number of bytes of a host identifier, by the feature's value.
fn host_identifier_size(value: u32) -> usize {
    if value & 1 != 0 { 16 } else { 8 }
}

impl Features {
    pub fn new(queues: u16) -> Features {
        Features {
            arbitration: 0,
            thresholds: [WARNING_TEMPERATURE, 0],
            error_recovery: 0,
            write_cache: true,
            coalescing: 0,
            vectors: vec![false; usize::from(queues) + 1],
            atomicity: 0,
            behavior: [0; HOST_BEHAVIOR_SIZE],
            host: HostIdentifier::default(),
        }
    }

    /// Returns true if coalescing applies to a vector. The admin queue's interrupts are never coalesced.
    pub fn is_coalesced(&self, vector: u16) -> bool {
        self.vectors.get(usize::from(vector)) == Some(&false)
    }

    /// Returns the temperature threshold that a value of the feature selects. [base figure 321]
    fn threshold(&mut self, value: u32) -> Option<&mut u16> {
        let (sensor, which) = (value >> 16 & 0xf, value >> 20 & 3);
        self.thresholds.get_mut(which as usize).filter(|_| sensor == 0)
    }
}

impl Controller {
    /// Returns true if a write must be on the medium when it is completed.
    pub(crate) fn is_durable(&self, asked_for: bool) -> bool {
        asked_for || self.config.write_through || !self.features.write_cache
    }

    /// Returns true if the host has enabled a form of copies' sources (CDFE of the host behavior support).
    pub(crate) fn has_enabled(&self, form: u8) -> bool {
        u16::from_le_bytes([self.features.behavior[4], self.features.behavior[5]]) >> form & 1 != 0
    }

    /// Returns true if the feature is supported.
    pub(crate) fn has_feature(&self, number: u8) -> bool {
        match number {
            feature::VOLATILE_WRITE_CACHE => self.has_cache,
            feature::COMMAND_SETS => self.config.programs,
            number => matches!(
                number,
                feature::ARBITRATION
                    | feature::POWER_MANAGEMENT
                    | feature::TEMPERATURE_THRESHOLD
                    | feature::ERROR_RECOVERY
                    | feature::NUMBER_OF_QUEUES
                    | feature::INTERRUPT_COALESCING
                    | feature::INTERRUPT_VECTOR
                    | feature::WRITE_ATOMICITY
                    | feature::ASYNCHRONOUS_EVENTS
                    | feature::TIMESTAMP
                    | feature::KEEP_ALIVE
                    | feature::HOST_BEHAVIOR
                    | feature::HOST_IDENTIFIER
            ),
        }
    }

    fn check_feature(&self, command: &Command, number: u8) -> Result<(), Status> {
        let of_namespace = number == feature::ERROR_RECOVERY;
        match command.namespace {
            _ if !self.has_feature(number) => Err(Status::INVALID_FIELD),
            0 | ALL_NAMESPACES => Ok(()),
            one if of_namespace && self.namespaces.contains_key(&one) => Ok(()),
            _ if of_namespace => Err(Status::INVALID_NAMESPACE),
            _ => Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC),
        }
    }

    /// Returns the numbers of I/O queues.
    fn queue_counts(&self) -> u32 {
        let count = u32::from(self.config.queues);
        QueueCounts { submissions: count, completions: count }.bits()
    }

    /// Carries out Get Features: returns the value, or the status of the error. [base 5.15]
    pub(crate) fn get_features(&mut self, port: &mut dyn HostPort, command: &Command) -> Result<u32, Status> {
        let wanted = Feature::from_words(&command.words);
        self.check_feature(command, wanted.number)?;
        let counts = self.queue_counts();
        let mut usual = Features::new(self.config.queues);
        let (features, is_default) = match wanted.select {
            0 => (&mut self.features, false),
            // None can be saved: the default is the value after a reset.
            1 | 2 => (&mut usual, true),
            3 => {
                let changeable = wanted.number != feature::POWER_MANAGEMENT;
                let of_namespace = wanted.number == feature::ERROR_RECOVERY;
                return Ok(u32::from(changeable) << 2 | u32::from(of_namespace) << 1);
            }
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok(match wanted.number {
            feature::ARBITRATION => features.arbitration,
            feature::TEMPERATURE_THRESHOLD => {
                (*features.threshold(wanted.value).ok_or(Status::INVALID_FIELD)?).into()
            }
            feature::ERROR_RECOVERY => features.error_recovery,
            feature::VOLATILE_WRITE_CACHE => features.write_cache.into(),
            feature::NUMBER_OF_QUEUES => counts,
            feature::INTERRUPT_COALESCING => features.coalescing,
            feature::INTERRUPT_VECTOR => {
                let vector = wanted.value & 0xffff;
                let alone = features.vectors.get(vector as usize).ok_or(Status::INVALID_FIELD)?;
                u32::from(*alone) << 16 | vector
            }
            feature::WRITE_ATOMICITY => features.atomicity,
            feature::ASYNCHRONOUS_EVENTS if is_default => 0,
            feature::ASYNCHRONOUS_EVENTS => self.events.wanted,
            feature::KEEP_ALIVE if is_default => 0,
            feature::KEEP_ALIVE => self.timers.keep_alive(),
            feature::HOST_BEHAVIOR => {
                let data = features.behavior;
                self.feature_data(port, command, &data)?
            }
            feature::TIMESTAMP => {
                let data = if is_default { [0; 8] } else { self.timers.timestamp(port.uptime()) };
                self.feature_data(port, command, &data)?
            }
            feature::HOST_IDENTIFIER => {
                let (host, size) = (features.host, host_identifier_size(wanted.value));
                if host.bytes != [0; 16] && host.extended != (size == host.bytes.len()) {
                    return Err(Status::INCONSISTENT_HOST_ID);
                }
                self.feature_data(port, command, &host.bytes[..size])?
            }
            _ => 0,
        })
    }

    fn feature_data(&self, port: &mut dyn HostPort, command: &Command, data: &[u8]) -> Result<u32, Status> {
        match self.copy_out(port, &command.data, data) {
            Status::SUCCESS => Ok(0),
            status => Err(status),
        }
    }

    /// Carries out Set Features: returns the result, or the status of the error; `None` if the command ends
    /// later. [base 5.27]
    pub(crate) fn set_features(
        &mut self,
        drive: u32,
        port: &mut dyn HostPort,
        storage: &mut dyn Storage,
        command: &Command,
    ) -> Result<Option<u32>, Status> {
        let wanted = Feature::from_words(&command.words);
        self.check_feature(command, wanted.number)?;
        if wanted.save {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        let (features, value) = (&mut self.features, wanted.value);
        match wanted.number {
            feature::ARBITRATION => features.arbitration = value,
            // There is only one power state.
            feature::POWER_MANAGEMENT if value & 0x1f == 0 => {}
            feature::POWER_MANAGEMENT => return Err(Status::INVALID_FIELD),
            feature::TEMPERATURE_THRESHOLD => {
                *features.threshold(value).ok_or(Status::INVALID_FIELD)? = value as u16;
            }
            feature::ERROR_RECOVERY => features.error_recovery = value,
            feature::VOLATILE_WRITE_CACHE if value & 1 != 0 => features.write_cache = true,
            feature::VOLATILE_WRITE_CACHE => {
                if !self.slots.has_free() {
                    return Err(Status::INTERRUPTED);
                }
                // From here on writes are durable, including those in progress: they end with a flush of
                // their own.
                self.features.write_cache = false;
                self.flush_all(drive, storage, port, Work::CacheOff, (0, command.cid));
                return Ok(None);
            }
            feature::NUMBER_OF_QUEUES => return self.set_number_of_queues(value).map(Some),
            feature::INTERRUPT_COALESCING => features.coalescing = value & 0xffff,
            feature::INTERRUPT_VECTOR => {
                let vector = features.vectors.get_mut((value & 0xffff) as usize);
                *vector.ok_or(Status::INVALID_FIELD)? = value >> 16 & 1 != 0;
            }
            feature::WRITE_ATOMICITY => features.atomicity = value & 1,
            feature::ASYNCHRONOUS_EVENTS => self.events.wanted = value,
            feature::HOST_BEHAVIOR => {
                self.features.behavior = self.data_from_guest(port, command, HOST_BEHAVIOR_SIZE)?;
            }
            feature::TIMESTAMP => {
                let data = self.data_from_guest(port, command, 8)?;
                self.timers.set_timestamp(port.uptime(), data);
            }
            feature::KEEP_ALIVE => self.timers.set_keep_alive(port.uptime(), value),
            feature::HOST_IDENTIFIER => {
                let size = host_identifier_size(value);
                let bytes = self.data_from_guest(port, command, size)?;
                self.features.host = HostIdentifier { bytes, extended: size == 16 };
            }
            // There is only one combination of command sets.
            feature::COMMAND_SETS if value & 0x1ff == 0 => {}
            feature::COMMAND_SETS => return Err(Status::COMMAND_SETS_REJECTED),
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(Some(0))
    }

    fn set_number_of_queues(&self, value: u32) -> Result<u32, Status> {
        let there = self.submissions.iter().skip(1).flatten().count();
        if there > 0 || self.completions.iter().skip(1).flatten().count() > 0 {
            return Err(Status::SEQUENCE_ERROR);
        }
        let counts = QueueCounts::from_bits(value);
        if counts.submissions > 0xffff || counts.completions > 0xffff {
            return Err(Status::INVALID_FIELD);
        }
        Ok(self.queue_counts())
    }

    /// Copies the first `size` bytes of a feature's data from the guest; the others are zero.
    fn data_from_guest<const N: usize>(
        &self,
        port: &mut dyn HostPort,
        command: &Command,
        size: usize,
    ) -> Result<[u8; N], Status> {
        let mut data = [0; N];
        match self.copy_in(port, &command.data, &mut data[..size]) {
            Status::SUCCESS => Ok(data),
            status => Err(status),
        }
    }
}
