//! Identify data of the controller and its namespaces. [base 5.17]

use dcs_nvme::command::{ALL_NAMESPACES, Command};
use dcs_nvme::identify::{self, EntrySizes, Format, Identifier, SIZE, Sgl};
use dcs_nvme::{Status, command, completion};

use crate::controller::Controller;
use crate::events::{NAMESPACES_CHANGED, REQUESTS};
use crate::host::HostPort;
use crate::logs::{CRITICAL_TEMPERATURE, ERRORS, FIRMWARE, WARNING_TEMPERATURE};
use crate::namespace::Namespace;
use crate::near::COPY_MAX;
use crate::registers::VERSION;
use crate::timers::KEEP_ALIVE;

/// Number of Abort commands in progress at once, as reported. None is ever in progress.
const ABORTS: u16 = 4;

/// The best size of a write in bytes.
const GRANULARITY: u32 = 4096;

fn only(bytes: usize) -> EntrySizes {
    let shift = bytes.trailing_zeros() as u8;
    EntrySizes { least: shift, most: shift }
}

/// Returns text padded with spaces.
fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut padded = [b' '; N];
    padded.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    padded
}

impl Controller {
    pub(crate) fn identify(&mut self, port: &mut dyn HostPort, command: &Command) -> Status {
        let data = match self.identify_data(command) {
            Ok(data) => data,
            Err(status) => return status.with_do_not_retry(),
        };
        self.copy_out(port, &command.data, &data)
    }

    fn identify_data(&self, command: &Command) -> Result<[u8; SIZE], Status> {
        let (structure, number) = (command.words[0] as u8, command.namespace);
        match structure {
            identify::CONTROLLER => Ok(self.identify_controller()),
            // All allocated namespaces are attached.
            identify::NAMESPACE | identify::ALLOCATED_NAMESPACE => Ok(match self.with_blocks(number)? {
                Some(namespace) => self.identify_namespace(namespace),
                None => [0; SIZE],
            }),
            identify::ACTIVE_NAMESPACES | identify::ALLOCATED_NAMESPACES => {
                if number >= ALL_NAMESPACES - 1 {
                    return Err(Status::INVALID_NAMESPACE);
                }
                Ok(identify::active_namespaces_bytes(self.active_numbers(number, None)))
            }
            identify::NAMESPACE_DESCRIPTORS if self.set_of(number) != identify::set::NVM => {
                Ok(self.descriptors_of_set(number))
            }
            identify::NAMESPACE_DESCRIPTORS => {
                let namespace = self.known(number)?.ok_or(Status::INVALID_FIELD)?;
                Ok(identifiers(namespace))
            }
            identify::CONTROLLERS_OF_NAMESPACE | identify::CONTROLLERS => self.controllers(command),
            _ => self.identify_sets(command),
        }
    }

    /// Returns the controllers of the subsystem, or those to which a namespace is attached.
    fn controllers(&self, command: &Command) -> Result<[u8; SIZE], Status> {
        let (structure, least) = (command.words[0] as u8, (command.words[0] >> 16) as u16);
        // The other controllers of the subsystem are not known here.
        if self.config.shared {
            return Err(Status::INVALID_FIELD);
        }
        let number = command.namespace;
        let attached = match structure {
            identify::CONTROLLERS => true,
            _ if number == ALL_NAMESPACES => return Err(Status::INVALID_FIELD),
            _ => self.set_of(number) != identify::set::NVM || self.known(number)?.is_some(),
        };
        let this = [self.config.number];
        let listed = attached && self.config.number >= least;
        Ok(identify::controllers_bytes(if listed { &this } else { &[] }))
    }

    /// Returns the namespace with this number if it is active.
    ///
    /// # Errors
    ///
    /// Fails if the number is invalid.
    pub(crate) fn known(&self, number: u32) -> Result<Option<&Namespace>, Status> {
        if number == 0 || number > self.config.largest_namespace() {
            return Err(Status::INVALID_NAMESPACE);
        }
        Ok(self.namespaces.get(&number))
    }

    fn identify_controller(&self) -> [u8; SIZE] {
        let config = &self.config;
        let mut subsystem = [0; 256];
        subsystem[..config.subsystem.len()].copy_from_slice(config.subsystem.as_bytes());
        identify::Controller {
            vendor: config.vendor,
            serial: text(&config.serial),
            model: text("dcs virtual drive"),
            firmware: text(FIRMWARE),
            // The subsystem may have other controllers.
            sharing: u8::from(config.shared) << 1,
            // In pages of 4 KiB.
            max_transfer: config.transfer_shift - 12,
            number: config.number,
            version: VERSION,
            events: NAMESPACES_CHANGED,
            // Host identifiers of 8 or 16 bytes.
            attributes: 1,
            // An I/O controller.
            kind: 1,
            // Doorbell buffer config.
            optional_admin: u16::from(config.shadow_doorbells) << 8,
            aborts: ABORTS,
            event_requests: REQUESTS,
            // One slot, read only.
            firmware_slots: 0b11,
            // Commands supported and effects; any length and offset.
            log_pages: 0b110,
            error_entries: ERRORS,
            warning_temperature: WARNING_TEMPERATURE,
            critical_temperature: CRITICAL_TEMPERATURE,
            keep_alive: KEEP_ALIVE,
            submission_entries: only(command::SIZE),
            completion_entries: only(completion::SIZE),
            namespaces: config.largest_namespace(),
            // Compare, dataset management, write zeroes, timestamp, copy.
            optional_commands: 1 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 8,
            copy_forms: self.copy_forms(),
            write_cache: self.has_cache,
            // Flush takes the number of all namespaces.
            flush_all: 0b11,
            sgl: Sgl::Bytes,
            bit_buckets: false,
            subsystem,
            // Not known.
            power: 0,
        }
        .bytes()
    }

    fn identify_namespace(&self, namespace: &Namespace) -> [u8; SIZE] {
        let mut data = identify::Namespace {
            blocks: namespace.blocks,
            capacity: namespace.blocks,
            used: namespace.blocks,
            // Thin provisioning; with a preferred granularity.
            features: u8::from(namespace.thin) | 1 << 4,
            sharing: namespace.shared.into(),
            // Deallocated blocks read as zeros, and Write Zeroes may deallocate; not if the volume cannot
            // deallocate, or a chain would decrypt the zeros.
            deallocated: if namespace.thin && namespace.chain.is_none() { 1 | 1 << 3 } else { 0 },
            granularity: (GRANULARITY >> namespace.shift).max(1),
            copy_source: u16::MAX,
            copy_length: (COPY_MAX >> namespace.shift) as u32,
            copy_sources: 256,
            attributes: namespace.read_only.into(),
            nguid: namespace.nguid,
            eui64: namespace.eui64,
            ..identify::Namespace::default()
        };
        data.formats[0] = Format { metadata: 0, shift: namespace.shift };
        data.bytes()
    }
}

fn identifiers(namespace: &Namespace) -> [u8; SIZE] {
    let mut known = Vec::with_capacity(3);
    if namespace.eui64 != [0; 8] {
        known.push(Identifier::Eui64(namespace.eui64));
    }
    if namespace.nguid != [0; 16] {
        known.push(Identifier::Nguid(namespace.nguid));
    }
    known.push(Identifier::CommandSet(identify::set::NVM));
    identify::identifiers_bytes(&known)
}
