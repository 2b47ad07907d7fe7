//! VFIO's calls to the kernel. [linux/vfio.h]
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub const TYPE1V2_IOMMU: u64 = 3;
pub const MSIX: u32 = 2;
pub const CONFIG: u32 = 7;

const SET_IOMMU: u64 = 0x3b66;
const GROUP_GET_STATUS: u64 = 0x3b67;
const GROUP_SET_CONTAINER: u64 = 0x3b68;
const GROUP_GET_DEVICE_FD: u64 = 0x3b6a;
const GET_REGION_INFO: u64 = 0x3b6c;
const GET_IRQ_INFO: u64 = 0x3b6d;
const SET_IRQS: u64 = 0x3b6e;
const RESET: u64 = 0x3b6f;
const MAP_DMA: u64 = 0x3b71;
const UNMAP_DMA: u64 = 0x3b72;

/// `struct vfio_region_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RegionInfo {
    argsz: u32,
    pub flags: u32,
    index: u32,
    cap_offset: u32,
    pub size: u64,
    pub offset: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IrqInfo {
    argsz: u32,
    flags: u32,
    index: u32,
    count: u32,
}

#[repr(C)]
struct MapDma {
    argsz: u32,
    flags: u32,
    vaddr: u64,
    iova: u64,
    size: u64,
}

#[repr(C)]
struct UnmapDma {
    argsz: u32,
    flags: u32,
    iova: u64,
    size: u64,
}

pub fn set_iommu(container: BorrowedFd<'_>, kind: u64) -> io::Result<()> {
    // SAFETY: this call takes a number.
    check(unsafe { libc::ioctl(container.as_raw_fd(), SET_IOMMU as _, kind) }).map(|_| ())
}

/// Returns true if the group can be used: none of its functions has a kernel driver.
pub fn group_is_viable(group: BorrowedFd<'_>) -> io::Result<bool> {
    let mut status = [8u32, 0];
    // SAFETY: `struct vfio_group_status` is these two numbers.
    check(unsafe { libc::ioctl(group.as_raw_fd(), GROUP_GET_STATUS as _, status.as_mut_ptr()) })?;
    Ok(status[1] & 1 != 0)
}

pub fn set_container(group: BorrowedFd<'_>, container: BorrowedFd<'_>) -> io::Result<()> {
    let container = container.as_raw_fd();
    // SAFETY: this call takes a pointer to a file descriptor.
    check(unsafe { libc::ioctl(group.as_raw_fd(), GROUP_SET_CONTAINER as _, &raw const container) })
        .map(|_| ())
}

pub fn device(group: BorrowedFd<'_>, address: &std::ffi::CStr) -> io::Result<OwnedFd> {
    // SAFETY: this call takes a string with a zero at its end.
    let fd = check(unsafe { libc::ioctl(group.as_raw_fd(), GROUP_GET_DEVICE_FD as _, address.as_ptr()) })?;
    // SAFETY: a new file descriptor, which nothing else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub fn region(device: BorrowedFd<'_>, index: u32) -> io::Result<RegionInfo> {
    let mut info = RegionInfo { argsz: size_of::<RegionInfo>() as u32, index, ..Default::default() };
    // SAFETY: the structure that this call fills, with its size in it.
    check(unsafe { libc::ioctl(device.as_raw_fd(), GET_REGION_INFO as _, &raw mut info) })?;
    Ok(info)
}

pub fn vectors(device: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = IrqInfo { argsz: size_of::<IrqInfo>() as u32, index: MSIX, ..Default::default() };
    // SAFETY: the structure that this call fills, with its size in it.
    check(unsafe { libc::ioctl(device.as_raw_fd(), GET_IRQ_INFO as _, &raw mut info) })?;
    Ok(info.count)
}

/// Has vector *n* signal the *n*th eventfd; no eventfds switch MSI-X off.
pub fn set_vectors(device: BorrowedFd<'_>, events: &[BorrowedFd<'_>]) -> io::Result<()> {
    const NONE: u32 = 1;
    const EVENTFD: u32 = 1 << 2;
    const TRIGGER: u32 = 1 << 5;
    let data = if events.is_empty() { NONE } else { EVENTFD };
    let size = 20 + 4 * events.len() as u32;
    let mut words = vec![size, data | TRIGGER, MSIX, 0, events.len() as u32];
    words.extend(events.iter().map(|event| event.as_raw_fd() as u32));
    // SAFETY: `struct vfio_irq_set` is five numbers and as many file descriptors as the last of them says.
    check(unsafe { libc::ioctl(device.as_raw_fd(), SET_IRQS as _, words.as_ptr()) }).map(|_| ())
}

pub fn reset(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: this call takes nothing.
    check(unsafe { libc::ioctl(device.as_raw_fd(), RESET as _) }).map(|_| ())
}

/// Lets functions reach `size` bytes of this process's memory from `vaddr` on. The caller keeps them mapped until [`unmap`].
pub fn map(
    container: BorrowedFd<'_>,
    vaddr: u64,
    iova: u64,
    size: u64,
    read: bool,
    write: bool,
) -> io::Result<()> {
    let flags = u32::from(read) | u32::from(write) << 1;
    let map = MapDma { argsz: size_of::<MapDma>() as u32, flags, vaddr, iova, size };
    // SAFETY: the structure that this call reads; the kernel checks the range, and pins its pages.
    check(unsafe { libc::ioctl(container.as_raw_fd(), MAP_DMA as _, &raw const map) }).map(|_| ())
}

pub fn unmap(container: BorrowedFd<'_>, iova: u64, size: u64) -> io::Result<()> {
    let mut unmap = UnmapDma { argsz: size_of::<UnmapDma>() as u32, flags: 0, iova, size };
    // SAFETY: the structure that this call reads and writes.
    check(unsafe { libc::ioctl(container.as_raw_fd(), UNMAP_DMA as _, &raw mut unmap) }).map(|_| ())
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
