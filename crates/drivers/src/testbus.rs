//! A bus for tests: own memory, and a list of writes and reads. Nothing answers but the test.

use crate::bus::{Bus, Tag, Window};

/// The bus. Writes and reads outside of the device's registers fail the test.
pub struct TestBus {
    pub memory: Vec<u8>,
    /// Offset in the registers, and the bytes.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// Offset in the registers, length, tag.
    pub reads: Vec<(u64, u32, Tag)>,
    own: Window,
    registers: Window,
}

impl TestBus {
    pub fn new(own: Window, registers: Window) -> TestBus {
        let memory = vec![0xee; own.length as usize];
        TestBus { memory, writes: Vec::new(), reads: Vec::new(), own, registers }
    }

    /// Makes a bus with this much memory, and no device.
    pub fn memory(length: u64) -> TestBus {
        TestBus::new(Window { address: 0, length }, Window { address: length, length: 0 })
    }
}

impl Bus for TestBus {
    fn window(&self) -> Window {
        self.own
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) {
        let offset = offset as usize;
        bytes.copy_from_slice(&self.memory[offset..offset + bytes.len()]);
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        let offset = offset as usize;
        self.memory[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        assert!(self.registers.contains(address, bytes.len() as u64), "a write to {address:#x}");
        self.writes.push((address - self.registers.address, bytes.to_vec()));
    }

    fn read(&mut self, address: u64, length: u32, tag: Tag) {
        assert!(self.registers.contains(address, length.into()), "a read of {address:#x}");
        self.reads.push((address - self.registers.address, length, tag));
    }

    fn interrupt(&mut self, vector: u16) {
        panic!("interrupt {vector}");
    }
}
