//! Command sets other than NVM: a namespace of subsystem local memory, which is the device memory, and one of
//! computational programs, which are the operators. A guest sees them if it has selected all command sets
//! (CC.CSS = 110b).

use dcs_nvme::command::{ALL_NAMESPACES, Command};
use dcs_nvme::identify::{self, AnyNamespace, SIZE, set};
use dcs_nvme::register::Configuration;
use dcs_nvme::{Status, programs};

use crate::controller::Controller;
use crate::namespace::identifier;
use crate::near;

/// The only combination of command sets: NVM, subsystem local memory, computational programs.
const COMBINATION: u64 = 1 << set::NVM | 1 << set::LOCAL_MEMORY | 1 << set::PROGRAMS;

/// CNTID of the controller that receives the command.
const THIS_CONTROLLER: u16 = 0xffff;

impl Controller {
    /// Returns true if the guest has selected all command sets.
    pub(crate) fn has_sets(&self) -> bool {
        self.config.programs && self.registers.enabled_by.command_set == Configuration::ALL_SETS
    }

    /// Returns the command set of a namespace; NVM if there is no such namespace.
    pub(crate) fn set_of(&self, number: u32) -> u8 {
        if number <= self.config.namespaces || !self.has_sets() {
            return set::NVM;
        }
        match number {
            number if number == self.config.local_memory_namespace() => set::LOCAL_MEMORY,
            number if number == self.config.programs_namespace() => set::PROGRAMS,
            _ => set::NVM,
        }
    }

    /// Returns the numbers of the active namespaces above `after`, of one command set or of all.
    pub(crate) fn active_numbers(&self, after: u32, set: Option<u8>) -> impl Iterator<Item = u32> {
        let nvm = self.namespaces.range(after.saturating_add(1)..).map(|(number, _)| *number);
        let others = match self.has_sets() {
            true => self.config.local_memory_namespace()..self.config.programs_namespace() + 1,
            false => 0..0,
        };
        nvm.chain(others.filter(move |number| *number > after))
            .filter(move |number| set.is_none_or(|set| self.set_of(*number) == set))
    }

    /// Returns identify data that only a namespace of logical blocks has; `None` if no namespace has this
    /// number.
    ///
    /// # Errors
    ///
    /// Fails if the number is invalid, or the namespace is of another command set.
    pub(crate) fn with_blocks(&self, number: u32) -> Result<Option<&crate::Namespace>, Status> {
        match self.set_of(number) {
            set::NVM => self.known(number),
            _ => Err(Status::INVALID_COMMAND_SET),
        }
    }

    /// Returns identify data by CNS and CSI that describe command sets.
    pub(crate) fn identify_sets(&self, command: &Command) -> Result<[u8; SIZE], Status> {
        let (structure, wanted) = (command.words[0] as u8, (command.words[1] >> 24) as u8);
        let number = command.namespace;
        let known =
            wanted == set::NVM || self.has_sets() && matches!(wanted, set::LOCAL_MEMORY | set::PROGRAMS);
        match structure {
            identify::ANY_NAMESPACE => self.identify_any(number),
            identify::COMMAND_SETS if self.config.programs => {
                let controller = (command.words[0] >> 16) as u16;
                match [self.config.number, THIS_CONTROLLER].contains(&controller) {
                    true => Ok(identify::command_sets_bytes(&[COMBINATION])),
                    false => Err(Status::INVALID_FIELD),
                }
            }
            identify::COMMAND_SETS => Err(Status::INVALID_FIELD),
            _ if !known => Err(Status::INVALID_FIELD),
            identify::ACTIVE_NAMESPACES_OF_SET if number >= ALL_NAMESPACES - 1 => {
                Err(Status::INVALID_NAMESPACE)
            }
            identify::ACTIVE_NAMESPACES_OF_SET => {
                Ok(identify::active_namespaces_bytes(self.active_numbers(number, Some(wanted))))
            }
            // All fields are zero: there are no limits.
            identify::CONTROLLER_OF_SET => Ok([0; SIZE]),
            identify::NAMESPACE_OF_SET => self.identify_of_set(number, wanted),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Returns identify data of a namespace of any command set.
    fn identify_any(&self, number: u32) -> Result<[u8; SIZE], Status> {
        Ok(match self.set_of(number) {
            set::NVM => self.known(number)?.map_or([0; SIZE], |namespace| {
                let (sharing, attributes) = (namespace.shared.into(), namespace.read_only.into());
                AnyNamespace { sharing, attributes, ready: true }.bytes()
            }),
            _ => AnyNamespace { ready: true, ..AnyNamespace::default() }.bytes(),
        })
    }

    fn identify_of_set(&self, number: u32, wanted: u8) -> Result<[u8; SIZE], Status> {
        if wanted != self.set_of(number) {
            return Err(Status::INVALID_COMMAND_SET);
        }
        match wanted {
            // Here too all fields are zero.
            set::NVM => self.known(number).map(|_| [0; SIZE]),
            // The size, in the bytes that other command sets use: no source shows the specification's fields.
            set::LOCAL_MEMORY => {
                let mut data = [0; SIZE];
                data[..8].copy_from_slice(&u64::from(self.config.memory).to_le_bytes());
                Ok(data)
            }
            _ => {
                let (activated, program_bytes) = self.near.most_programs();
                Ok(programs::Namespace {
                    activated,
                    sets: near::SETS as u16,
                    granularity: near::GRANULARITY.trailing_zeros() as u16,
                    ranges: near::RANGES as u8,
                    program_bytes,
                }
                .bytes())
            }
        }
    }

    /// Returns the descriptors that identify a namespace: its identifier and its command set.
    pub(crate) fn descriptors_of_set(&self, number: u32) -> [u8; SIZE] {
        let nguid = identifier(&self.config.subsystem, number);
        let known =
            [identify::Identifier::Nguid(nguid), identify::Identifier::CommandSet(self.set_of(number))];
        identify::identifiers_bytes(&known)
    }
}
