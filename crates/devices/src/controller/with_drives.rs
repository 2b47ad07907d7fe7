//! The SSDs and the NIC that a controller drives itself.

use super::{Controller, Event, Pending, Setup};
use crate::paced::Sending;
use crate::vfio_devices::{
    DirectDevices, DriveError, DriveEvent, DriveWork, Driven, Interface, Moved, Namespace, NicOptions,
    NicRequest, SsdOptions,
};
use dcs_abi::admin::Answer;
use dcs_abi::status::Status;
use dcs_engine::{DeviceEvent, Failure, Operation, Outcome};
use rustix::fd::AsFd;
use std::sync::Arc;

impl Controller {
    /// Drives these SSDs and this NIC directly from now on, and moves its blocks into memory that they reach. Call it before anything is
    /// started.
    ///
    /// # Errors
    ///
    /// [`DriveError`]; the controller then has no devices.
    pub fn attach(
        &mut self,
        setup: Setup,
        wanted: &[SsdOptions],
        nic: Option<&NicOptions>,
    ) -> Result<Vec<Arc<Namespace>>, DriveError> {
        let (drives, pool) =
            DirectDevices::open((wanted, nic), setup.blocks, setup.block_size, self.wake.as_fd())?;
        let namespaces = drives.namespaces().cloned().collect();
        self.pool = pool;
        self.drives = Some(drives);
        Ok(namespaces)
    }

    /// Returns the bytes moved between the blocks and the devices that the controller drives directly.
    pub fn moved(&self) -> Moved {
        self.drives.as_ref().map_or_else(Moved::default, DirectDevices::moved)
    }

    /// Returns true if the blocks are in an SSD's memory: transfers should come from an SSD and go to the NIC.
    pub fn is_peer_to_peer(&self) -> bool {
        self.drives.as_ref().is_some_and(DirectDevices::is_peer_to_peer)
    }

    /// Returns the NIC, if the controller drives one.
    pub fn interface(&self) -> Option<&Arc<Interface>> {
        self.drives.as_ref().and_then(DirectDevices::interface)
    }

    /// Makes a request to the NIC. `None`: the answer comes later as an [`Event::Answer`], under this ticket.
    pub fn ask(&mut self, ticket: u16, ask: NicRequest) -> Option<Answer> {
        match &mut self.drives {
            Some(drives) => drives.ask(ticket, ask),
            None => Some(Err(Status::UnsupportedEndpoint)),
        }
    }

    /// Returns what a media stream of the NIC has sent, by its handle.
    pub fn paced_sending(&self, handle: u32) -> Option<Sending> {
        let sending = self.drives.as_ref()?.paced_sending(handle)?;
        Some(Sending { counts: sending.counts, errno: sending.errno as i32, segments: false })
    }

    /// Releases the devices, if all are idle: they are stopped and reset. Waits a while for peers to acknowledge what connections of the
    /// NIC have sent.
    pub fn detach(&mut self) {
        if self.pending.is_empty() {
            self.drives = None;
        }
    }

    /// Sets whether a command is waiting for a block that another command has: see
    /// [`Network::short_of_blocks`](dcs_drivers::network::Network::short_of_blocks).
    pub fn short_of_blocks(&mut self, short: bool) {
        self.drives.iter_mut().for_each(|drives| drives.short_of_blocks(short));
    }

    /// Hands an operation and its block to a device.
    pub(super) fn drive(
        &mut self,
        operation: &Operation,
        driven: &Driven,
        work: DriveWork,
    ) -> Option<Outcome> {
        let block = match work {
            DriveWork::Read { block, .. } | DriveWork::Write { block, .. } => Some(block),
            DriveWork::Flush => None,
        };
        let Some(drives) = &mut self.drives else {
            return Some(Outcome::Failed(Failure::new(Status::BadHandle)));
        };
        let buffer = block.and_then(|block| self.pool.take(block));
        self.pending.insert(operation.id, Pending::Drive { block });
        match drives.submit(driven, operation.id, work, buffer) {
            Ok(()) => None,
            Err((failure, buffer)) => {
                self.pending.remove(&operation.id);
                if let (Some(block), Some(buffer)) = (block, buffer) {
                    self.pool.put(block, buffer);
                }
                Some(Outcome::Failed(failure))
            }
        }
    }

    /// Processes what the devices have done.
    pub(super) fn reap_drives(&mut self) {
        let Some(drives) = &mut self.drives else { return };
        let block = |operation| match self.pending.get(&operation) {
            Some(Pending::Drive { block }) => *block,
            _ => None,
        };
        drives.poll(&mut self.pool, block, &mut self.drive_events);
        for event in std::mem::take(&mut self.drive_events) {
            match event {
                DriveEvent::Device(event) => {
                    self.events.push(Event::Device(event));
                    match event {
                        DeviceEvent::Done(operation, _) => _ = self.pending.remove(&operation),
                        DeviceEvent::Released(block) => self.retry_block(block),
                    }
                }
                DriveEvent::Answer(ticket, answer) => self.events.push(Event::Answer(ticket, answer)),
            }
        }
    }
}
