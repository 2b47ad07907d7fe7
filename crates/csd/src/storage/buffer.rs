//! Memory of this process for data that the kernel cannot move to or from the guest's directly.

/// Alignment of buffers: enough for O_DIRECT on any disk.
const ALIGNMENT: usize = 4096;

/// Bytes at an aligned address. Moving a buffer does not move its bytes.
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
    /// Makes a buffer of zeros with room for this many bytes.
    pub fn new(room: usize) -> Buffer {
        let memory = vec![0; room + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Buffer { memory, start, length: room }
    }

    /// Returns the number of bytes that it has room for.
    pub fn room(&self) -> usize {
        self.memory.len() - ALIGNMENT
    }

    /// Changes its length. Its contents are undefined afterwards.
    ///
    /// # Panics
    ///
    /// Panics if it has no room for that.
    pub fn resize(&mut self, length: usize) {
        assert!(length <= self.room(), "{length} bytes in a buffer of {}", self.room());
        self.length = length;
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    /// Returns its bytes, mutably.
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
