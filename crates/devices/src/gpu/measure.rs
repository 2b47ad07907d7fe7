//! Times of a GPU without an engine: kernels on data that are already on the GPU, by the GPU's own clock, and with the copies to and from
//! it, in sequence and overlapped.

use super::driver::{Context, DeviceMemory, Driver, HostMemory, Kernel, SPIN, Stream};
use super::jobs::{self, Kind};
use super::{Answer, GpuError, GpuOptions, KERNELS, LANES, Properties, SLACK, Work, launch};
use std::time::{Duration, Instant};

/// Times of one pass over all pieces.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Kernel alone, on data on the GPU, by the GPU's clock.
    pub resident: Duration,
    /// Copies in, kernel, copies out, in sequence.
    pub apart: Duration,
    /// Copies and kernels overlapped in [`LANES`] streams, with as many launches or four times as many, whichever is faster.
    pub overlapped: Duration,
    /// Set if the last pass had the same result as the first one.
    pub agree: bool,
}

/// Limits that nothing on the GPU can exceed, in bytes per second.
#[derive(Clone, Copy, Debug)]
pub struct PeakRates {
    /// Rate of the GPU's memory, read and written, as measured by a copy within it.
    pub memory: f64,
    /// Rate of copies from locked memory of the host.
    pub copy_in: f64,
    /// Rate of copies to locked memory of the host.
    pub copy_out: f64,
}

/// Bytes of the copies that measure memory rates: many times the size of caches.
const FLOOR: usize = 1 << 30;
/// Bytes of the copies on a stand-in, which is not a GPU and measures nothing.
const FLOOR_STAND_IN: usize = 1 << 20;
/// Time for which a GPU is kept busy before a measurement, so that its clocks have gone up.
const WARM_UP: Duration = Duration::from_millis(300);

/// A GPU with pieces of data to measure it with.
#[derive(Debug)]
pub struct Bench {
    context: Context,
    kernels: [Kernel; jobs::NAMES.len()],
    streams: Vec<Stream>,
    pieces: usize,
    size: usize,
    stride: usize,
    data: HostMemory,
    mirror: DeviceMemory,
    host: HostMemory,
    device: DeviceMemory,
    properties: Properties,
}

impl Bench {
    /// Opens a GPU, and allocates memory on both sides for that many pieces of `size` bytes, a multiple of 64.
    ///
    /// # Errors
    ///
    /// [`GpuError`] if the GPU is not available or lacks the memory.
    pub fn open(wanted: &GpuOptions, pieces: usize, size: usize) -> Result<Bench, GpuError> {
        let driver = Driver::load(wanted.library.as_deref())?;
        let properties = driver.properties(wanted.device)?;
        let context = Context::new(&driver, &properties, SPIN)?;
        let stride = (size + SLACK).next_multiple_of(256);
        Ok(Bench {
            kernels: context.kernels(KERNELS, jobs::NAMES)?,
            streams: (0..LANES).map(|_| context.stream()).collect::<Result<_, _>>()?,
            data: context.host_memory(pieces * size)?,
            mirror: context.device_memory(pieces * stride)?,
            host: context.host_memory(pieces * jobs::JOB_MAX)?,
            device: context.device_memory(pieces * jobs::JOB_MAX)?,
            context,
            pieces,
            size,
            stride,
            properties,
        })
    }

    /// Returns the GPU's properties.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns all pieces, contiguous.
    ///
    /// # Errors
    ///
    /// [`GpuError`] if it is unknown whether the GPU still uses them.
    pub fn data(&mut self) -> Result<&mut [u8], GpuError> {
        // A failure half-way may have left copies in progress.
        self.streams.iter().try_for_each(|stream| self.context.synchronize(*stream))?;
        // SAFETY: all streams are idle.
        Ok(unsafe { self.data.bytes() })
    }

    /// Measures the memory rates with large copies, `repetitions` of each.
    ///
    /// # Errors
    ///
    /// [`GpuError`].
    pub fn floor(&mut self, repetitions: u32) -> Result<PeakRates, GpuError> {
        let all = if self.properties.stand_in { FLOOR_STAND_IN } else { FLOOR };
        let half = all / 2;
        let (here, there) = (self.context.host_memory(half)?, self.context.device_memory(all)?);
        let (one, other) = (there.part(0, half), there.part(half, half));
        let stream = self.streams[0];
        self.warm_up(|bench| bench.context.copy_within(other, one, stream))?;
        let inside = self.timed(repetitions, |bench| bench.context.copy_within(other, one, stream))?;
        // SAFETY: locked memory that nothing else knows of.
        let into =
            self.timed(repetitions, |bench| unsafe { bench.context.copy_in(one, here.piece(0), stream) })?;
        let out = self.timed(repetitions, |bench| {
            // SAFETY: as above.
            unsafe { bench.context.copy_out(here.piece(0).cast_mut(), one, stream) }
        })?;
        let rate = |time: Duration| half as f64 / time.as_secs_f64();
        Ok(PeakRates { memory: 2.0 * rate(inside), copy_in: rate(into), copy_out: rate(out) })
    }

    /// Keeps the GPU busy for a while.
    fn warm_up(&self, mut one: impl FnMut(&Bench) -> Result<(), GpuError>) -> Result<(), GpuError> {
        let start = Instant::now();
        while !self.properties.stand_in && start.elapsed() < WARM_UP {
            one(self)?;
            self.context.synchronize(self.streams[0])?;
        }
        Ok(())
    }

    /// Measures work of one kind, a job for each piece; returns the answers of its first pass. `first` is called right after that pass,
    /// when data that change in place have changed once.
    ///
    /// # Errors
    ///
    /// [`GpuError`].
    ///
    /// # Panics
    ///
    /// If there is not one job for each piece, or if they are of several kinds.
    pub fn measure(
        &mut self,
        work: &[Work],
        repetitions: u32,
        first: impl FnOnce(&[u8], &[Answer]),
    ) -> Result<Times, GpuError> {
        assert!(work.len() == self.pieces && work.iter().all(|one| one.kind() == work[0].kind()));
        let kind = work[0].kind();
        self.write(work);
        self.jobs_in(0, work.len(), kind, 0)?;
        self.copies_in(0, work.len(), 0)?;
        self.warm_up(|bench| bench.launch(0, work, kind, 0))?;
        self.context.synchronize(self.streams[0])?;
        self.write(work);
        self.pass_apart(work, kind)?;
        let before = self.outcome(work, kind);
        first(&before.0, &before.1);
        let mut passes = 1;
        let apart = best(repetitions, || {
            passes += 1;
            self.write(work);
            let start = Instant::now();
            self.pass_apart(work, kind).map(|()| start.elapsed())
        })?;
        let mut overlapped = Duration::MAX;
        for launches in [LANES, 4 * LANES] {
            let least = best(repetitions, || {
                passes += 1;
                self.write(work);
                let start = Instant::now();
                self.pass_overlapped(work, kind, launches).map(|()| start.elapsed())
            })?;
            overlapped = overlapped.min(least);
        }
        if passes % 2 == 0 {
            // A cipher undoes itself: after an odd number of passes the data are as after the first.
            self.write(work);
            self.pass_overlapped(work, kind, 4 * LANES)?;
        }
        let agree = self.outcome(work, kind) == before;
        self.write(work);
        self.jobs_in(0, work.len(), kind, 0)?;
        let resident = self.timed(repetitions, |bench| bench.launch(0, work, kind, 0))?;
        self.context.wipe(self.device, self.streams[0])?;
        self.context.synchronize(self.streams[0])?;
        Ok(Times { resident, apart, overlapped, agree })
    }

    /// Returns the results of a pass: the data and the answers.
    fn outcome(&mut self, work: &[Work], kind: Kind) -> (Vec<u8>, Vec<Answer>) {
        // SAFETY: all streams are idle.
        let jobs = unsafe { self.host.bytes() }.chunks_exact(kind.job());
        let answers = jobs.take(work.len()).map(|job| kind.answer(job)).collect();
        // SAFETY: as above.
        (unsafe { self.data.bytes() }.to_vec(), answers)
    }

    /// Returns the shortest of several equal runs on the first stream, by the GPU's clock.
    fn timed(
        &self,
        repetitions: u32,
        mut one: impl FnMut(&Bench) -> Result<(), GpuError>,
    ) -> Result<Duration, GpuError> {
        let stream = self.streams[0];
        let mut moments = Vec::new();
        for _ in 0..repetitions {
            let (start, end) = (self.context.moment(true)?, self.context.moment(true)?);
            self.context.record(start, stream)?;
            one(self)?;
            self.context.record(end, stream)?;
            moments.push((start, end));
        }
        self.context.synchronize(stream)?;
        let mut times = moments.into_iter().map(|(start, end)| self.context.between(start, end));
        let least = times.try_fold(f64::MAX, |least, time| time.map(|time| least.min(time)))?;
        Ok(Duration::from_secs_f64(least.max(1.0) / 1e9))
    }

    /// Writes the jobs. All streams must be idle.
    fn write(&mut self, work: &[Work]) {
        let (size, stride) = (self.size, self.stride);
        let mirror = self.mirror;
        // SAFETY: all streams are idle.
        let bytes = unsafe { self.host.bytes() };
        for (at, (work, job)) in work.iter().zip(bytes.chunks_exact_mut(work[0].kind().job())).enumerate() {
            work.write(mirror.part(at * stride, stride).address(), size, job);
        }
    }

    fn place(&self, at: usize) -> DeviceMemory {
        // Sizes are multiples of 64 and pieces begin their streams: no job leaves room before its piece.
        self.mirror.part(at * self.stride, self.size)
    }

    fn copies_in(&self, from: usize, to: usize, stream: usize) -> Result<(), GpuError> {
        for at in from..to {
            // SAFETY: locked memory, of which this is one piece; nothing writes to it before the stream is idle.
            unsafe {
                self.context.copy_in(self.place(at), self.data.piece(at * self.size), self.streams[stream])
            }?;
        }
        Ok(())
    }

    fn copies_out(&self, from: usize, to: usize, stream: usize) -> Result<(), GpuError> {
        for at in from..to {
            let piece = self.data.piece(at * self.size).cast_mut();
            // SAFETY: as above, and nothing reads it.
            unsafe { self.context.copy_out(piece, self.place(at), self.streams[stream]) }?;
        }
        Ok(())
    }

    /// Returns the jobs of those pieces.
    fn jobs(&self, from: usize, to: usize, kind: Kind) -> DeviceMemory {
        self.device.part(from * kind.job(), (to - from) * kind.job())
    }

    fn jobs_in(&self, from: usize, to: usize, kind: Kind, stream: usize) -> Result<(), GpuError> {
        let piece = self.host.piece(from * kind.job());
        // SAFETY: locked memory, which nothing writes to before the stream is idle.
        unsafe { self.context.copy_in(self.jobs(from, to, kind), piece, self.streams[stream]) }
    }

    fn results_out(&self, from: usize, to: usize, kind: Kind, stream: usize) -> Result<(), GpuError> {
        if !kind.answers() {
            return self.copies_out(from, to, stream);
        }
        let piece = self.host.piece(from * kind.job()).cast_mut();
        // SAFETY: locked memory, which nothing uses before the stream is idle.
        unsafe { self.context.copy_out(piece, self.jobs(from, to, kind), self.streams[stream]) }
    }

    fn launch(&self, from: usize, work: &[Work], kind: Kind, stream: usize) -> Result<(), GpuError> {
        let most = work.iter().map(|work| work.blocks(self.size)).max().unwrap_or(1);
        let (jobs, stream) = (self.jobs(from, from + work.len(), kind), self.streams[stream]);
        // SAFETY: each job names a piece with room behind it.
        unsafe { launch(&self.context, &self.kernels, kind, (jobs, work.len(), most), stream) }
    }

    fn pass_apart(&self, work: &[Work], kind: Kind) -> Result<(), GpuError> {
        self.copies_in(0, work.len(), 0)?;
        self.jobs_in(0, work.len(), kind, 0)?;
        self.context.synchronize(self.streams[0])?;
        self.launch(0, work, kind, 0)?;
        self.context.synchronize(self.streams[0])?;
        self.results_out(0, work.len(), kind, 0)?;
        self.context.synchronize(self.streams[0])
    }

    fn pass_overlapped(&self, work: &[Work], kind: Kind, launches: usize) -> Result<(), GpuError> {
        let group = work.len().div_ceil(launches).max(1);
        for (number, work) in work.chunks(group).enumerate() {
            let (stream, from) = (number % LANES, number * group);
            let to = from + work.len();
            self.copies_in(from, to, stream)?;
            self.jobs_in(from, to, kind, stream)?;
            self.launch(from, work, kind, stream)?;
            self.results_out(from, to, kind, stream)?;
        }
        self.streams.iter().try_for_each(|stream| self.context.synchronize(*stream))
    }
}

/// Returns the shortest of several runs: longer ones were disturbed.
fn best(repetitions: u32, mut one: impl FnMut() -> Result<Duration, GpuError>) -> Result<Duration, GpuError> {
    (0..repetitions).map(|_| one()).try_fold(Duration::MAX, |least, time| time.map(|time| least.min(time)))
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A failed call may have left copies in progress; they end with the context, as does the memory on both sides.
        let _ = self.context.destroy();
    }
}
