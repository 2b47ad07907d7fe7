//! Unpacks a kernel's image. Under emulation a boot spends a quarter of its time on that, and QEMU boots what is
//! unpacked as well.
//! [Linux: Documentation/arch/x86/boot.rst; x86/HVM direct boot ABI]

use std::ops::Range;

/// The first bytes of a Zstandard frame and of an ELF file.
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
const ELF: &[u8] = b"\x7fELF";

/// Offsets in an image: the real-mode code's 512-byte sectors after the first one, where the packed kernel is behind
/// them, and its length.
const SETUP_SECTORS: usize = 0x1f1;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

/// A kernel is some 60 MB.
const LARGEST: usize = 256 << 20;

/// Unpacks the kernel of an image; `None` if it is not packed with Zstandard, or if QEMU could not start it.
pub(crate) fn unpacked(image: &[u8]) -> Option<Vec<u8>> {
    let packed = image.get(payload(image)?)?;
    // Its unpacked length follows the frame.
    let (frame, length) = packed.split_last_chunk()?;
    let length = u32::from_le_bytes(*length) as usize;
    if !frame.starts_with(ZSTD) || length > LARGEST {
        return None;
    }
    let mut kernel = vec![0; length];
    let whole = zstd_safe::decompress(&mut kernel[..], frame) == Ok(length);
    (whole && kernel.starts_with(ELF) && has_entry(&kernel)).then_some(kernel)
}

/// Returns where the packed kernel is.
fn payload(image: &[u8]) -> Option<Range<usize>> {
    let start = (usize::from(*image.get(SETUP_SECTORS)?) + 1) * 512 + number(image, PAYLOAD_OFFSET)?;
    Some(start..start.checked_add(number(image, PAYLOAD_LENGTH)?)?)
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
}

/// Returns true if there is a note with the address at which it is started directly: lengths of its name and of the
/// address, which has 32 bits or 64, and Xen's type 18.
fn has_entry(kernel: &[u8]) -> bool {
    const NOTE: &[u8] = b"\x04\0\0\0\x04\0\0\0\x12\0\0\0Xen\0";
    const LONGER: &[u8] = b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0";
    // Notes are aligned.
    kernel.windows(NOTE.len()).step_by(4).any(|window| window == NOTE || window == LONGER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: &[u8] = b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0\0\x0b\0\x01\0\0\0\0";
    const BODY: &[u8] = &[1; 5000];

    /// Returns an image of this kernel, as the kernel's build makes it.
    fn image(kernel: &[u8]) -> Vec<u8> {
        let mut packed = vec![0; zstd_safe::compress_bound(kernel.len())];
        let length = zstd_safe::compress(&mut packed[..], kernel, 3).unwrap();
        packed.truncate(length);
        packed.extend((kernel.len() as u32).to_le_bytes());
        let mut image = vec![0; 3 * 512 + 100];
        image[SETUP_SECTORS] = 2;
        image[PAYLOAD_OFFSET] = 100;
        image[PAYLOAD_LENGTH..][..4].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        image.extend(packed);
        image.extend([7; 50]);
        image
    }

    #[test]
    fn a_kernel_is_unpacked() {
        let kernel = [ELF, BODY, NOTE, &[2; 3000]].concat();
        assert!(unpacked(&image(&kernel)).unwrap() == kernel);
    }

    #[test]
    fn what_qemu_cannot_start_directly_is_left_packed() {
        assert_eq!(unpacked(&image(&[ELF, BODY].concat())), None, "no note");
        assert_eq!(unpacked(&image(&[BODY, NOTE].concat())), None, "no ELF file");
        let whole = image(&[ELF, BODY, NOTE].concat());
        for length in [0, PAYLOAD_LENGTH, whole.len() - 60] {
            assert_eq!(unpacked(&whole[..length]), None, "{length} bytes");
        }
        let mut other = whole.clone();
        other[3 * 512 + 100] ^= 1;
        assert_eq!(unpacked(&other), None, "not Zstandard");
        let mut damaged = whole;
        let length_at = damaged.len() - 50 - 4;
        damaged[length_at] ^= 1;
        assert_eq!(unpacked(&damaged), None, "another length");
    }
}
