//! Log pages. [base 5.16]

use std::collections::VecDeque;

use dcs_nvme::command::{ALL_NAMESPACES, Command, GetLogPage, admin, feature, log, nvm};
use dcs_nvme::identify::set;
use dcs_nvme::programs::LIST_HEADER;
use dcs_nvme::{Completion, Status, local_memory, programs};

use crate::controller::{Controller, Counters};
use crate::host::HostPort;
use crate::near::entry::{FROM_GUEST, NO_DATA, TO_GUEST};

/// Entries of the error log.
pub const ERRORS: u16 = 16;

/// The warning and the critical temperature, in kelvins.
pub const WARNING_TEMPERATURE: u16 = 343;
pub const CRITICAL_TEMPERATURE: u16 = 353;

/// The temperature that is reported, in kelvins: 25 degrees Celsius. There is no sensor.
const TEMPERATURE: u16 = 298;

/// Logical blocks are counted in units of 1,000 times 512 bytes.
const UNIT: u64 = 512_000;

/// The reported firmware revision.
pub const FIRMWARE: &str = env!("CARGO_PKG_VERSION");

/// The contents of the logs.
#[derive(Default)]
pub struct Logs {
    errors: VecDeque<[u8; 64]>,
    pub counters: Counters,
}

impl Logs {
    /// Records a command that failed.
    pub fn failed(&mut self, done: &Completion) {
        self.counters.errors += 1;
        let mut entry = [0; 64];
        entry[..8].copy_from_slice(&self.counters.errors.to_le_bytes());
        entry[8..10].copy_from_slice(&done.submission_queue.to_le_bytes());
        entry[10..12].copy_from_slice(&done.cid.to_le_bytes());
        entry[12..14].copy_from_slice(&(done.status.0 << 1).to_le_bytes());
        // The wrong field of the command is not known.
        entry[14..16].fill(0xff);
        self.errors.truncate(usize::from(ERRORS) - 1);
        self.errors.push_front(entry);
        self.counters.media_errors += u64::from(done.status.kind() == 2);
    }

    /// Returns the error log, newest first. [base figure 206]
    fn error_page(&self, page: &mut Vec<u8>) {
        self.errors.iter().for_each(|entry| page.extend_from_slice(entry));
        page.resize(usize::from(ERRORS) * 64, 0);
    }

    /// Returns the health log. [base figure 207]
    fn health(&self, page: &mut Vec<u8>) {
        page.resize(512, 0);
        page[1..3].copy_from_slice(&TEMPERATURE.to_le_bytes());
        // Available spare, and its threshold, in percent.
        page[3..5].copy_from_slice(&[100, 10]);
        let counters = self.counters;
        let counts = [
            (32, counters.bytes_read.div_ceil(UNIT)),
            (48, counters.bytes_written.div_ceil(UNIT)),
            (64, counters.reads),
            (80, counters.writes),
            (160, counters.media_errors),
            (176, counters.errors),
        ];
        for (at, count) in counts {
            page[at..at + 8].copy_from_slice(&count.to_le_bytes());
        }
    }
}

/// Returns the firmware log: firmware in slot 1. [base figure 208]
fn firmware(page: &mut Vec<u8>) {
    page.resize(512, 0);
    page[0] = 1;
    let revision = &FIRMWARE.as_bytes()[..FIRMWARE.len().min(8)];
    page[8..16].fill(b' ');
    page[8..8 + revision.len()].copy_from_slice(revision);
}

/// Supported; changes logical blocks. [base figure 210]
const SUPPORTED: u8 = 1;
const CHANGES: u8 = 1 << 1;

/// Returns the supported commands of a command set, and their effects. [base figure 209]
fn effects(page: &mut Vec<u8>, set: u8) {
    page.resize(4096, 0);
    let admin = [
        admin::DELETE_SUBMISSION_QUEUE,
        admin::CREATE_SUBMISSION_QUEUE,
        admin::GET_LOG_PAGE,
        admin::DELETE_COMPLETION_QUEUE,
        admin::CREATE_COMPLETION_QUEUE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNCHRONOUS_EVENT_REQUEST,
        admin::KEEP_ALIVE,
        admin::DOORBELL_BUFFER_CONFIG,
    ];
    let nvm = [
        (nvm::FLUSH, 0),
        (nvm::WRITE, CHANGES),
        (nvm::READ, 0),
        (nvm::COMPARE, 0),
        (nvm::WRITE_ZEROES, CHANGES),
        (nvm::DATASET_MANAGEMENT, CHANGES),
        (nvm::COPY, CHANGES),
        (NO_DATA, CHANGES),
        (FROM_GUEST, CHANGES),
        (TO_GUEST, 0),
    ];
    let memory = [
        (nvm::FLUSH, 0),
        (local_memory::READ, 0),
        (local_memory::WRITE, CHANGES),
        (local_memory::FILL, CHANGES),
        (local_memory::COPY, CHANGES),
    ];
    let programs_admin = [admin::LOAD_PROGRAM, admin::PROGRAM_ACTIVATION, admin::MEMORY_RANGE_SETS];
    admin.iter().for_each(|opcode| page[usize::from(*opcode) * 4] = SUPPORTED);
    let io: &[(u8, u8)] = match set {
        set::LOCAL_MEMORY => &memory,
        set::PROGRAMS => {
            programs_admin.iter().for_each(|opcode| page[usize::from(*opcode) * 4] = SUPPORTED);
            &[(programs::EXECUTE, CHANGES)]
        }
        _ => &nvm,
    };
    io.iter().for_each(|(opcode, changes)| page[1024 + usize::from(*opcode) * 4] = SUPPORTED | changes);
}

impl Controller {
    /// Carries out Get Log Page.
    pub(crate) fn get_log_page(&mut self, port: &mut dyn HostPort, command: &Command) -> Status {
        let wanted = GetLogPage::from_words(&command.words);
        let everywhere = matches!(command.namespace, 0 | ALL_NAMESPACES);
        if wanted.bytes > 1 << self.config.transfer_shift || !wanted.offset.is_multiple_of(4) {
            return Status::INVALID_FIELD.with_do_not_retry();
        }
        let mut page = Vec::new();
        match wanted.page {
            log::ERRORS => self.logs.error_page(&mut page),
            log::HEALTH if everywhere => self.logs.health(&mut page),
            log::HEALTH => return Status::INVALID_FIELD.with_do_not_retry(),
            log::FIRMWARE => firmware(&mut page),
            log::CHANGED_NAMESPACES => self.changed_namespaces(&mut page),
            log::EFFECTS => {
                // The command set's identifier counts only if there are several.
                let set = if self.has_sets() { (command.words[4] >> 24) as u8 } else { set::NVM };
                if !matches!(set, set::NVM | set::LOCAL_MEMORY | set::PROGRAMS) {
                    return Status::INVALID_FIELD.with_do_not_retry();
                }
                effects(&mut page, set);
            }
            log::SUPPORTED => self.supported_pages(&mut page),
            log::FEATURES => self.supported_features(&mut page),
            log::PROGRAMS | log::PROGRAM_TYPES if self.has_sets() => {
                if command.namespace != self.config.programs_namespace() {
                    return Status::INVALID_NAMESPACE.with_do_not_retry();
                }
                match wanted.page {
                    log::PROGRAMS => self.near.program_list(&mut page),
                    // No type has entries: all is zero, whatever the fields are.
                    _ => page.resize(LIST_HEADER, 0),
                }
            }
            _ => return Status::INVALID_LOG_PAGE.with_do_not_retry(),
        }
        let Some(rest) = usize::try_from(wanted.offset).ok().and_then(|offset| page.get(offset..)) else {
            return Status::INVALID_FIELD.with_do_not_retry();
        };
        // The specification does not define the bytes beyond a page's end: they are unchanged.
        let length = rest.len().min(wanted.bytes as usize);
        let status = self.copy_out(port, &command.data, &rest[..length]);
        if status.is_success() && !wanted.retain_event {
            self.events.has_read(wanted.page);
            if wanted.page == log::CHANGED_NAMESPACES {
                self.changed.clear();
            }
        }
        status
    }

    /// Returns a double word for each log page; bit 0: supported. [base 2.2 5.1.12.1.1]
    fn supported_pages(&self, page: &mut Vec<u8>) {
        page.resize(1024, 0);
        let always = [
            log::SUPPORTED,
            log::ERRORS,
            log::HEALTH,
            log::FIRMWARE,
            log::CHANGED_NAMESPACES,
            log::EFFECTS,
            log::FEATURES,
        ];
        always.iter().for_each(|number| page[4 * usize::from(*number)] = 1);
        if self.has_sets() {
            [log::PROGRAMS, log::PROGRAM_TYPES].iter().for_each(|number| page[4 * usize::from(*number)] = 1);
        }
    }

    /// Returns a double word for each feature; bit 0: supported; from bit 20 on its scope: bit 0 of that is a
    /// namespace, bit 1 the controller. [base 2.2 5.1.12.1.18]
    fn supported_features(&self, page: &mut Vec<u8>) {
        page.resize(1024, 0);
        for (number, place) in (0..=u8::MAX).zip(page.chunks_exact_mut(4)) {
            if self.has_feature(number) {
                let scope = if number == feature::ERROR_RECOVERY { 1 } else { 1 << 1 };
                place.copy_from_slice(&(1u32 | scope << 20).to_le_bytes());
            }
        }
    }

    /// Returns the numbers of the namespaces that changed since the log was read, or the value for too many.
    /// [base 5.16.1.5]
    fn changed_namespaces(&self, page: &mut Vec<u8>) {
        page.resize(4096, 0);
        for (place, number) in page.chunks_exact_mut(4).zip(&self.changed) {
            place.copy_from_slice(&number.to_le_bytes());
        }
    }
}
