//! Memory that others change while we read it: a BAR, the memory of a guest, a buffer that a device writes to.
//!
//! Bytes are only ever copied in and out, by atomics or the processor's copy instruction: there is no reference to memory that changes
//! behind it. A copy in goes upwards, a copy out **downwards**, in aligned words of 8 bytes where they fit. So a writer of an entry whose
//! last word says that it is new, and its reader, each in one call, agree: the word is written last and read first. In long copies to and
//! from memory only the last bytes go by words: the rest is left to the processor's own copy, which is three times as fast and in no order.
//! A device's registers, and its memory behind a BAR, are copied by words alone.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use rustix::mm::{self, MapFlags, ProtFlags};

/// Size of a huge page in bytes, the usual one of x86-64.
const HUGE: u64 = 2 << 20;

/// Length from which a copy is long, in bytes, and the length of its end that is copied by words nevertheless.
const LONG_COPY: usize = 512;
const LAST: usize = 64;

/// A shared mapping of a piece of a file, or of memory without one.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    length: usize,
    writable: bool,
    /// Set if it is a BAR: a device sees each access.
    is_device: bool,
}

// SAFETY: the mapping belongs to this value until it is dropped, and is only accessed
// through atomics, and by an instruction that the compiler does not look into (`copy_long`).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a piece of a file. If the file becomes shorter, an access beyond its end kills this process (SIGBUS): a caller that maps
    /// another program's file must make sure that it can't.
    ///
    /// # Errors
    ///
    /// Those of mmap(2); `InvalidInput` for no bytes.
    pub fn file(file: BorrowedFd<'_>, offset: u64, length: u64, writable: bool) -> io::Result<Mapping> {
        let length =
            usize::try_from(length).ok().filter(|length| *length > 0).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base =
            unsafe { mm::mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, file, offset) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Mapping { base, length, writable, is_device: false })
    }

    /// Maps a piece of a device's file that is a BAR.
    ///
    /// # Errors
    ///
    /// As [`Mapping::file`].
    pub fn bar(device: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<Mapping> {
        let mut mapping = Mapping::file(device, offset, length, true)?;
        mapping.is_device = true;
        Ok(mapping)
    }

    /// Allocates zeroed memory, with all pages present.
    ///
    /// # Errors
    ///
    /// Those of mmap(2); `InvalidInput` for no bytes.
    pub fn anonymous(length: u64) -> io::Result<Mapping> {
        let length =
            usize::try_from(length).ok().filter(|length| *length > 0).ok_or(io::ErrorKind::InvalidInput)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: as above.
        let base = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Mapping { base, length, writable: true, is_device: false })
    }

    /// Allocates memory in huge pages of 2 MiB if the kernel has enough free; returns whether it had. An IOMMU then has fewer of them to
    /// look up. The length is rounded up to whole huge pages either way.
    ///
    /// # Errors
    ///
    /// Those of mmap(2); `InvalidInput` for no bytes.
    pub fn huge(length: u64) -> io::Result<(Mapping, bool)> {
        let length = length.checked_next_multiple_of(HUGE).ok_or(io::ErrorKind::InvalidInput)?;
        match Mapping::of_huge_pages(length) {
            Ok(mapping) => Ok((mapping, true)),
            Err(_) => Mapping::anonymous(length).map(|mapping| (mapping, false)),
        }
    }

    fn of_huge_pages(length: u64) -> io::Result<Mapping> {
        let length =
            usize::try_from(length).ok().filter(|length| *length > 0).ok_or(io::ErrorKind::InvalidInput)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::HUGETLB);
        // SAFETY: as above.
        let base = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mapping = Mapping { base, length, writable: true, is_device: false };
        // Without this, pages that a control group withholds would fail only at their first use, by a signal.
        // SAFETY: the mapping is this process's own and not in use yet; its content is kept.
        match unsafe { mm::madvise(base.as_ptr().cast(), length, mm::Advice::LinuxPopulateWrite) } {
            // Before Linux 5.14 this is not possible.
            Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(mapping),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the address of a piece in this process. A caller that makes references to it must make sure that nothing else, including a
    /// device, has the piece meanwhile, and that the mapping lives as long.
    ///
    /// # Panics
    ///
    /// If the piece exceeds the end.
    pub fn pointer(&self, offset: u64, length: usize) -> NonNull<u8> {
        let at = self.check(offset, length);
        // SAFETY: inside the mapping, which does not begin at zero.
        unsafe { self.base.add(at) }
    }

    /// Returns its address in this process: a number, for the kernel.
    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Loads a register of 4 bytes.
    ///
    /// # Panics
    ///
    /// If the register exceeds the end, or the offset is not a multiple of 4.
    pub fn read32(&self, offset: u64) -> u32 {
        // SAFETY: `register` says that the word is in the mapping and aligned.
        unsafe { self.register(offset, 4).cast::<u32>().read_volatile() }
    }

    /// Stores a register of 4 bytes, usually a doorbell. Earlier stores are visible before it.
    ///
    /// # Panics
    ///
    /// As [`Mapping::read32`], and if the mapping is read-only.
    pub fn write32(&self, offset: u64, value: u32) {
        assert!(self.writable, "a store to read-only memory");
        before_register();
        // SAFETY: as in `read32`, and the mapping is writable.
        unsafe { self.register(offset, 4).cast::<u32>().write_volatile(value) }
    }

    /// Loads a register of 8 bytes.
    ///
    /// # Panics
    ///
    /// As [`Mapping::read32`], with 8.
    pub fn read64(&self, offset: u64) -> u64 {
        // SAFETY: as in `read32`.
        unsafe { self.register(offset, 8).cast::<u64>().read_volatile() }
    }

    /// Stores a register of 8 bytes.
    ///
    /// # Panics
    ///
    /// As [`Mapping::write32`], with 8.
    pub fn write64(&self, offset: u64, value: u64) {
        assert!(self.writable, "a store to read-only memory");
        before_register();
        // SAFETY: as in `write32`.
        unsafe { self.register(offset, 8).cast::<u64>().write_volatile(value) }
    }

    fn register(&self, offset: u64, width: usize) -> *mut u8 {
        let at = self.check(offset, width);
        assert!(at.is_multiple_of(width), "a register at {offset:#x}");
        self.at(at)
    }

    /// Returns its length in bytes.
    pub fn length(&self) -> u64 {
        self.length as u64
    }

    /// Copies out, last word first.
    ///
    /// # Panics
    ///
    /// If the range exceeds the end.
    pub fn load(&self, offset: u64, bytes: &mut [u8]) {
        let start = self.check(offset, bytes.len());
        let mut end = bytes.len();
        if self.is_long(end) {
            let (first, last) = bytes.split_at_mut(end - LAST);
            self.load(offset + first.len() as u64, last);
            // SAFETY: `check` ensures that it is in the mapping; `first` is ours alone.
            unsafe { copy_long(first.as_mut_ptr(), self.at(start), first.len()) };
            return;
        }
        while end > 0 {
            if end >= 8 && (start + end).is_multiple_of(8) {
                // Most of it, without choosing the width of each word.
                for to in bytes[end % 8..end].rchunks_exact_mut(8) {
                    end -= 8;
                    // SAFETY: as below.
                    let word = unsafe { AtomicU64::from_ptr(self.at(start + end).cast()) };
                    to.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
                    fence(Ordering::Acquire);
                }
                continue;
            }
            let width = width(start + end, end, true);
            let at = self.at(start + end - width);
            let to = &mut bytes[end - width..end];
            // SAFETY: `check` ensures that the word is in the mapping, `width` that it is aligned (a mapping starts at a page), and all
            // accesses of this process are atomic, or `copy_long`'s. The memory may be read-only: loads are relaxed, for which that is
            // allowed.
            unsafe {
                match width {
                    8 => to.copy_from_slice(
                        &AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed).to_ne_bytes(),
                    ),
                    4 => to.copy_from_slice(
                        &AtomicU32::from_ptr(at.cast()).load(Ordering::Relaxed).to_ne_bytes(),
                    ),
                    2 => to.copy_from_slice(
                        &AtomicU16::from_ptr(at.cast()).load(Ordering::Relaxed).to_ne_bytes(),
                    ),
                    _ => to[0] = AtomicU8::from_ptr(at).load(Ordering::Relaxed),
                }
            }
            fence(Ordering::Acquire);
            end -= width;
        }
    }

    /// Copies in, first word first.
    ///
    /// # Panics
    ///
    /// If the range exceeds the end, or the memory is read-only.
    pub fn store(&self, offset: u64, bytes: &[u8]) {
        assert!(self.writable, "a store to read-only memory");
        let start = self.check(offset, bytes.len());
        let mut done = 0;
        if self.is_long(bytes.len()) {
            done = bytes.len() - LAST;
            // SAFETY: `check` ensures that it is in the mapping, which is writable.
            unsafe { copy_long(self.at(start), bytes.as_ptr(), done) };
        }
        while done < bytes.len() {
            if bytes.len() - done >= 8 && (start + done).is_multiple_of(8) {
                // Most of it, without choosing the width of each word.
                for from in bytes[done..].chunks_exact(8) {
                    // SAFETY: as below.
                    let word = unsafe { AtomicU64::from_ptr(self.at(start + done).cast()) };
                    word.store(u64::from_ne_bytes(array(from)), Ordering::Release);
                    done += 8;
                }
                continue;
            }
            let width = width(start + done, bytes.len() - done, false);
            let (at, from) = (self.at(start + done), &bytes[done..done + width]);
            // SAFETY: as in `load`, and the mapping is writable.
            unsafe {
                match width {
                    8 => AtomicU64::from_ptr(at.cast())
                        .store(u64::from_ne_bytes(array(from)), Ordering::Release),
                    4 => AtomicU32::from_ptr(at.cast())
                        .store(u32::from_ne_bytes(array(from)), Ordering::Release),
                    2 => AtomicU16::from_ptr(at.cast())
                        .store(u16::from_ne_bytes(array(from)), Ordering::Release),
                    _ => AtomicU8::from_ptr(at).store(from[0], Ordering::Release),
                }
            }
            done += width;
        }
    }

    /// Returns true if a copy of this many bytes is left to the processor.
    fn is_long(&self, length: usize) -> bool {
        length >= LONG_COPY && !self.is_device && cfg!(target_arch = "x86_64")
    }

    fn check(&self, offset: u64, length: usize) -> usize {
        let end = offset.checked_add(length as u64);
        assert!(
            end.is_some_and(|end| end <= self.length as u64),
            "{length} bytes at {offset:#x} of {}",
            self.length
        );
        offset as usize
    }

    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: `check` was called: the offset is in the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and nothing borrows from it.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// Copies with the processor's own instruction. Other programs may change the source meanwhile: the compiler cannot see what it does, and
/// so draws no conclusions.
///
/// # Safety
///
/// This many bytes must be readable at `from` and writable at `to`; nothing in this process may have a reference to those of them that
/// others change.
unsafe fn copy_long(to: *mut u8, from: *const u8, length: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's; the direction flag is clear, as the ABI says.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") length => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("{length} bytes from {from:p} to {to:p}: only called on x86-64");
}

/// Returns the widest word that starts (`down`: ends) at this offset, is aligned, and is not longer than `left`.
fn width(offset: usize, left: usize, down: bool) -> usize {
    debug_assert!(left > 0 && (!down || left <= offset));
    [8, 4, 2].into_iter().find(|width| offset.is_multiple_of(*width) && left >= *width).unwrap_or(1)
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

/// Makes stores to memory visible to a device before the store to its register that follows. A fence among processors orders memory alone:
/// Arm's (`dmb ish`) does not reach devices, which takes a `dsb` of the whole system. Tested on x86-64, where the fence suffices.
fn before_register() {
    fence(Ordering::SeqCst);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier touches neither memory nor registers.
    unsafe {
        std::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn copies_are_right_wherever_they_start_and_end() {
        let memory = Mapping::anonymous(4096).unwrap();
        for offset in 0..24u64 {
            for length in 0..40usize {
                let bytes: Vec<u8> = (0..length).map(|n| (n as u8) ^ (offset as u8) | 0x80).collect();
                memory.store(0, &[0; 80]);
                memory.store(offset, &bytes);
                let (mut same, mut all) = (vec![0; length], vec![0; 80]);
                memory.load(offset, &mut same);
                memory.load(0, &mut all);
                assert_eq!(same, bytes);
                assert_eq!(all.iter().filter(|byte| **byte != 0).count(), length, "nothing else was changed");
            }
        }
    }

    #[test]
    fn long_copies_are_right_too() {
        let memory = Mapping::anonymous(16 << 10).unwrap();
        for length in [LONG_COPY - 1, LONG_COPY, LONG_COPY + 1, 4096, 5003] {
            for offset in [0u64, 1, 8, 4095] {
                let bytes: Vec<u8> = (0..length).map(|n| (n * 7 + n / 256) as u8 | 1).collect();
                memory.store(0, &[0; 16 << 10]);
                memory.store(offset, &bytes);
                let (mut same, mut all) = (vec![0; length], vec![0; 16 << 10]);
                memory.load(offset, &mut same);
                memory.load(0, &mut all);
                assert_eq!(same, bytes);
                assert_eq!(all.iter().filter(|byte| **byte != 0).count(), length, "nothing else was changed");
            }
        }
    }

    /// Checks that a BAR is copied by words: the processor's own copy may access a device byte by byte, and in any order.
    #[test]
    fn a_bar_is_copied_by_words() {
        let file = rustix::fs::memfd_create("bar", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        let (bar, memory) = (
            Mapping::bar(file.as_fd(), 4096, 4096).unwrap(),
            Mapping::file(file.as_fd(), 4096, 4096, true).unwrap(),
        );
        assert!(!bar.is_long(4096) && memory.is_long(4096) == cfg!(target_arch = "x86_64"));
        let bytes: Vec<u8> = (0..4096).map(|at| (at * 7 + at / 256) as u8).collect();
        let (mut by_words, mut same) = (vec![0; 4096], vec![0; 4096]);
        bar.store(0, &bytes);
        bar.load(0, &mut by_words);
        memory.load(0, &mut same);
        assert!(by_words == bytes && same == bytes);
    }

    #[test]
    fn registers_are_words() {
        let memory = Mapping::anonymous(4096).unwrap();
        memory.write32(8, 0x0403_0201);
        memory.write64(16, 0x0807_0605_0403_0201);
        assert_eq!((memory.read64(8), memory.read32(20)), (0x0403_0201, 0x0807_0605));
    }

    #[test]
    fn a_word_is_not_torn() {
        assert_eq!((width(4, 4, false), width(8, 4, true), width(12, 12, true)), (4, 4, 4));
        assert_eq!(
            (width(8, 8, false), width(16, 16, true), width(6, 8, false), width(7, 7, true)),
            (8, 8, 2, 1)
        );
    }

    #[test]
    fn huge_or_not_there_is_as_much_as_was_asked_for() {
        let (memory, _) = Mapping::huge(HUGE + 1).unwrap();
        assert_eq!(memory.length(), 2 * HUGE);
        memory.store(HUGE - 1, &[1, 2]);
        // SAFETY: nothing else has the mapping.
        let bytes = unsafe { std::slice::from_raw_parts(memory.pointer(HUGE - 2, 4).as_ptr(), 4) };
        assert_eq!(bytes, [0, 1, 2, 0]);
        assert!(Mapping::huge(0).is_err() && Mapping::huge(u64::MAX).is_err());
    }

    #[test]
    #[should_panic(expected = "bytes at")]
    fn nothing_lies_behind_the_end() {
        Mapping::anonymous(4096).unwrap().load(4090, &mut [0; 8]);
    }

    #[test]
    #[should_panic(expected = "a register at")]
    fn a_register_is_aligned() {
        Mapping::anonymous(4096).unwrap().read32(6);
    }
}
