//! The arguments of kernels: the structures of `kernels.cu`, and the size of launches.

/// Work for a GPU on a piece of a stream. The stream's owner keeps its state: it is sent with the job, and the new state is returned.
#[derive(Clone, PartialEq, Eq)]
pub enum Work {
    /// MD5's compression function over whole blocks of 64 bytes.
    Md5([u32; 4]),
    /// SHA-256's.
    Sha256([u32; 8]),
    /// Remainder of a reflected CRC of 32 bits, starting from zero and without a final XOR.
    Crc32 {
        /// The polynomial, the coefficient of x^0 highest.
        polynomial: u32,
    },
    /// AES-256 in counter mode, in place.
    Aes256Ctr {
        /// Expanded key.
        keys: Box<[u32; 60]>,
        /// Counter block of the 16-byte unit that the piece begins in.
        counter: u128,
        /// Bytes of that unit before the piece: below 16.
        skip: u8,
    },
}

/// Prints no keys.
impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind().name().to_str().unwrap_or_default())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Work::Aes256Ctr { keys, .. } = self {
            keys.fill(0);
            // Keeps the compiler from omitting the fill.
            std::hint::black_box(keys);
        }
    }
}

/// The result of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The state after the piece.
    Md5([u32; 4]),
    /// The state after the piece.
    Sha256([u32; 8]),
    /// The remainder.
    Crc32(u32),
    /// The block has changed.
    Changed,
}

/// A kernel and its constants: jobs of one kind share a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Md5,
    Sha256,
    Crc32(u32),
    Aes256Ctr,
}

/// The kernels, in the order of [`Kind::kernel`].
pub(super) const NAMES: [&std::ffi::CStr; 4] = [c"dcs_md5", c"dcs_sha256", c"dcs_crc32", c"dcs_aes256_ctr"];

/// Size of the longest job, in bytes.
pub(super) const JOB_MAX: usize = 288;

/// `CRC_CHUNK`, `CRC_THREADS`, `AES_THREADS`, and threads of a block of the others.
const CRC_CHUNK: u64 = 1024;
const CRC_THREADS: u32 = 128;
const AES_THREADS: u32 = 256;
const HASH_THREADS: u32 = 32;
/// Units per thread: filling the table costs as much as a few units.
const AES_UNITS: u64 = 8;

/// Powers of x in `CrcConstants`.
const POWERS: usize = 31;

impl Work {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Work::Md5(_) => Kind::Md5,
            Work::Sha256(_) => Kind::Sha256,
            Work::Crc32 { polynomial } => Kind::Crc32(*polynomial),
            Work::Aes256Ctr { .. } => Kind::Aes256Ctr,
        }
    }

    /// Returns the bytes to leave free before a piece of that length, so that the kernel finds it aligned.
    pub(super) fn lead(&self, length: usize) -> usize {
        match self {
            Work::Md5(_) | Work::Sha256(_) => 0,
            Work::Crc32 { .. } => length.wrapping_neg() % 16,
            Work::Aes256Ctr { skip, .. } => usize::from(*skip),
        }
    }

    /// Writes the job for a piece of that length. On the GPU it is preceded by [`Work::lead`] bytes, which start at `place`.
    pub(super) fn write(&self, place: u64, length: usize, job: &mut [u8]) {
        job.fill(0);
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            job[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        match self {
            Work::Md5(_) | Work::Sha256(_) => {
                put(&place.to_le_bytes());
                put(&(length as u64 / 64).to_le_bytes());
                let state: &[u32] = if let Work::Md5(state) = self { state } else { &[] };
                let state = if let Work::Sha256(state) = self { state } else { state };
                state.iter().for_each(|word| put(&word.to_le_bytes()));
            }
            Work::Crc32 { .. } => {
                put(&(place + self.lead(length) as u64).to_le_bytes());
                put(&(length as u64).to_le_bytes());
            }
            Work::Aes256Ctr { keys, counter, .. } => {
                put(&place.to_le_bytes());
                put(&self.units(length).to_le_bytes());
                put(&((counter >> 64) as u64).to_le_bytes());
                put(&(*counter as u64).to_le_bytes());
                keys.iter().for_each(|word| put(&word.to_le_bytes()));
            }
        }
    }

    /// Returns the number of 16-byte units that a piece spans.
    fn units(&self, length: usize) -> u64 {
        (self.lead(length) + length).div_ceil(16) as u64
    }

    /// Returns the launch's blocks along x for a piece of that length.
    pub(super) fn blocks(&self, length: usize) -> u32 {
        let blocks = match self {
            Work::Md5(_) | Work::Sha256(_) => 1,
            Work::Crc32 { .. } => (length as u64).div_ceil(CRC_CHUNK * u64::from(CRC_THREADS)),
            Work::Aes256Ctr { .. } => self.units(length).div_ceil(u64::from(AES_THREADS) * AES_UNITS),
        };
        blocks.max(1) as u32
    }
}

impl Kind {
    /// Returns its index in [`NAMES`].
    pub fn kernel(self) -> usize {
        match self {
            Kind::Md5 => 0,
            Kind::Sha256 => 1,
            Kind::Crc32(_) => 2,
            Kind::Aes256Ctr => 3,
        }
    }

    pub fn name(self) -> &'static std::ffi::CStr {
        NAMES[self.kernel()]
    }

    /// Returns the size of a job in bytes.
    pub fn job(self) -> usize {
        match self {
            Kind::Md5 | Kind::Sha256 => 48,
            Kind::Crc32(_) => 32,
            Kind::Aes256Ctr => JOB_MAX,
        }
    }

    /// Returns a launch's blocks along x and y, and threads of a block, for that many jobs, the largest of which takes `most` blocks.
    pub fn grid(self, jobs: u32, most: u32) -> ((u32, u32), u32) {
        match self {
            Kind::Md5 | Kind::Sha256 => ((jobs.div_ceil(HASH_THREADS), 1), HASH_THREADS),
            Kind::Crc32(_) => ((most, jobs), CRC_THREADS),
            Kind::Aes256Ctr => ((most, jobs), AES_THREADS),
        }
    }

    /// Returns the most jobs of a batch: a block that changes is copied twice.
    pub fn jobs_most(self) -> usize {
        if self.answers() { super::JOBS } else { super::JOBS / 2 }
    }

    /// Returns true if a job contains an answer.
    pub fn answers(self) -> bool {
        self != Kind::Aes256Ctr
    }

    /// Reads the answer out of a finished job.
    pub fn answer(self, job: &[u8]) -> Answer {
        let word = |at: usize| {
            let word = job.get(16 + 4 * at..20 + 4 * at).and_then(|bytes| bytes.try_into().ok());
            u32::from_le_bytes(word.unwrap_or_default())
        };
        match self {
            Kind::Md5 => Answer::Md5(std::array::from_fn(word)),
            Kind::Sha256 => Answer::Sha256(std::array::from_fn(word)),
            Kind::Crc32(_) => Answer::Crc32(word(0)),
            Kind::Aes256Ctr => Answer::Changed,
        }
    }
}

/// Returns `CrcConstants` of a polynomial.
pub(super) fn crc_constants(polynomial: u32) -> [u32; 1 + POWERS] {
    let mut constants = [0; 1 + POWERS];
    constants[0] = polynomial;
    // x, squared until it is x^(8 * CRC_CHUNK), and further.
    let mut power = 1 << 30;
    for _ in 0..(8 * CRC_CHUNK).trailing_zeros() {
        power = multiply(power, power, polynomial);
    }
    for place in &mut constants[1..] {
        *place = power;
        power = multiply(power, power, polynomial);
    }
    constants
}

/// Returns a * b modulo the polynomial; the coefficient of x^0 is the highest bit.
fn multiply(a: u32, mut b: u32, polynomial: u32) -> u32 {
    let mut product = 0;
    for bit in (0..32).rev() {
        if a >> bit & 1 == 1 {
            product ^= b;
        }
        b = b >> 1 ^ if b & 1 == 1 { polynomial } else { 0 };
    }
    product
}
