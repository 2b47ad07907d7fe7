//! Memory of this process that data go through where the kernel cannot reach the guest's.

/// Where buffers begin: enough for O_DIRECT on any disk.
const ALIGNMENT: usize = 4096;

/// Bytes at an aligned place. Moving a buffer does not move its bytes.
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({})", self.length)
    }
}

impl Buffer {
    /// A buffer of zeros with room for that many bytes.
    pub fn new(room: usize) -> Buffer {
        let memory = vec![0; room + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Buffer { memory, start, length: room }
    }

    /// Bytes that it can have.
    pub fn room(&self) -> usize {
        self.memory.len() - ALIGNMENT
    }

    /// Gives it another length. What its bytes are then nobody says.
    ///
    /// # Panics
    ///
    /// Where that is more than there is room for.
    pub fn resize(&mut self, length: usize) {
        assert!(length <= self.room(), "{length} bytes in a buffer of {}", self.room());
        self.length = length;
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    /// Its bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_has_the_length_it_was_given() {
        let mut buffer = Buffer::new(8192);
        assert_eq!((buffer.bytes().len(), buffer.room()), (8192, 8192));
        assert!((buffer.bytes().as_ptr() as usize).is_multiple_of(ALIGNMENT));
        buffer.resize(512);
        buffer.bytes_mut().fill(1);
        buffer.resize(1024);
        assert_eq!((buffer.bytes()[511], buffer.bytes()[512]), (1, 0));
    }
}
