//! The GPU of a controller: blocks that it processes, files read to it.

use super::{Controller, Event, Pending, Setup};
use crate::buffer::Buffer;
use crate::endpoint::Object;
use crate::gpu::{self, Gpu};
use crate::route::{Route, ToGpu};
use dcs_abi::result::{PATH_GPU_STORAGE, PATH_SOURCE_DIRECT};
use dcs_abi::status::Status;
use dcs_engine::{BlockId, EndpointRole, Failure, Operation, OperationKind, Outcome};
use std::sync::Arc;

impl Controller {
    /// Attaches a GPU. Call it before anything is started, and after SSDs are attached.
    ///
    /// # Errors
    ///
    /// [`gpu::GpuError`]; the controller then has no GPU.
    pub fn attach_gpu(
        &mut self,
        setup: Setup,
        wanted: &gpu::GpuOptions,
    ) -> Result<gpu::Properties, gpu::GpuError> {
        let gpu = Gpu::open(wanted, &self.pool, setup.block_size, Arc::clone(&self.wake))?;
        let properties = gpu.properties().clone();
        self.gpu = Some(gpu);
        Ok(properties)
    }

    /// Hands a piece of a block to the GPU; [`Event::Computed`] has the result. Until then the block
    /// is not in the pool.
    ///
    /// # Errors
    ///
    /// If the GPU is lost, or there is none; or if the block is in use elsewhere, or the piece is not in it.
    pub fn compute(&mut self, job: gpu::Job) -> Result<(), Failure> {
        let broken = Failure::new(Status::InternalError);
        self.gpu.as_mut().ok_or(broken)?.submit(job, &mut self.pool)
    }

    /// Returns the bytes of a block that the GPU is to process. If they are on the GPU alone, the bytes here are stale; set `looks` if the
    /// caller would read them.
    ///
    /// # Errors
    ///
    /// If the block is in use elsewhere, or its bytes are on the GPU alone and `looks` is set.
    pub fn bytes_for_gpu(&self, block: BlockId, looks: bool) -> Result<&[u8], Failure> {
        let kept = self.gpu.as_ref().and_then(|gpu| gpu.kept(block));
        let buffer = match kept {
            Some((buffer, here)) => (here || !looks).then_some(buffer),
            None => self.pool.get(block),
        };
        buffer.map(Buffer::bytes).ok_or(Failure::new(Status::InternalError))
    }

    /// Copies a block back to the host's memory for a unit that is not the GPU's.
    /// [`Controller::start`] does the same for its own.
    ///
    /// # Errors
    ///
    /// If the bytes are on the GPU alone, and were meant for the GPU alone.
    pub fn bring_back_for(&mut self, kind: &OperationKind) -> Result<(), Failure> {
        match *kind {
            OperationKind::Process { block, .. } => self.bring_back(block, false),
            OperationKind::Resize { block, output, output_start, .. } => {
                self.bring_back(output, output_start == 0)?;
                self.bring_back(block, false)
            }
            _ => Ok(()),
        }
    }

    /// Copies a block back to the host's memory. `fresh`: its bytes are not needed.
    pub(super) fn bring_back(&mut self, block: BlockId, fresh: bool) -> Result<(), Failure> {
        self.gpu.as_mut().map_or(Ok(()), |gpu| gpu.bring_back(block, fresh, &mut self.pool))
    }

    /// Returns how files are read to the GPU directly, or why they are not; `None` if there is no GPU.
    pub fn gpu_storage(&self) -> Option<&Result<gpu::Storage, gpu::StorageError>> {
        self.gpu.as_ref().map(Gpu::storage)
    }

    /// Returns the GPU's last failure.
    pub fn gpu_trouble(&self) -> Option<&gpu::GpuError> {
        self.gpu.as_ref()?.trouble()
    }

    /// Returns how many batches the GPU was given, and how many blocks in them.
    pub fn gpu_counts(&self) -> (u64, u64) {
        self.gpu.as_ref().map_or((0, 0), Gpu::counts)
    }

    /// Processes what the GPU has done.
    pub(super) fn reap_gpu(&mut self) {
        let Some(gpu) = &mut self.gpu else { return };
        gpu.poll(&mut self.pool, &mut self.computed, &mut self.fetched);
        let computed = self.computed.drain(..);
        self.events.extend(computed.map(|done| Event::Computed(done.operation, done.result)));
        for fetched in std::mem::take(&mut self.fetched) {
            self.reap_fetched(&fetched);
        }
    }

    /// Processes the end of a read to the GPU.
    fn reap_fetched(&mut self, fetched: &gpu::Fetched) {
        let id = fetched.operation.id;
        let Some(Pending::ToGpu { aborted }) = self.pending.remove(&id) else { return };
        match fetched.bytes {
            Some(bytes) => {
                let (bytes, path) = (bytes as u64, PATH_SOURCE_DIRECT | PATH_GPU_STORAGE);
                self.done(id, Outcome::Moved { bytes, path, held: false });
            }
            None if aborted => self.finish_aborted(id),
            None => {
                self.pending.insert(id, Pending::Retry { aborted: false, by_host: true, copied: None });
                self.events.push(Event::Retry(fetched.operation));
            }
        }
    }

    /// Starts reading a file to the GPU, past the host's memory; returns false if it must be read in the ordinary way.
    pub(super) fn read_to_gpu(&mut self, operation: &Operation, route: &Route) -> bool {
        let OperationKind::Read { role: EndpointRole::Source, offset, block, start: 0, length } =
            operation.kind
        else {
            return false;
        };
        let Some(then) = route.to_gpu.filter(|_| self.gpu.as_ref().is_some_and(Gpu::reads_files)) else {
            return false;
        };
        let side = route.side(EndpointRole::Source);
        let Object::File(file) = &side.endpoint.object else { return false };
        let whole = (offset | u64::from(length)).is_multiple_of(gpu::PAGE as u64);
        if !whole || !file.may_go_to_gpu() {
            return false;
        }
        // Cached bytes get there sooner from the page cache. With O_DIRECT the cache is not consulted.
        if !side.direct_io && file.is_cached(offset, length.into()) != Some(false) {
            return false;
        }
        // Blocks that are with the GPU cannot be registered.
        self.register_once();
        let Some(gpu) = &mut self.gpu else { return false };
        // The read overwrites the block's content.
        let _ = gpu.bring_back(block, true, &mut self.pool);
        let Some(buffer) = self.pool.take(block) else { return false };
        let length = length as usize;
        // If the GPU will change the whole block, the host gets it after that.
        let copies_back = !(then == ToGpu::Changes && length == buffer.bytes().len());
        let endpoint = Arc::clone(&side.endpoint);
        gpu.read(gpu::Read { operation: *operation, block, buffer, length, offset, endpoint, copies_back });
        self.pending.insert(operation.id, Pending::ToGpu { aborted: false });
        true
    }
}
