//! Random streams against implementations that share no code with ours: OpenSSL, the zlib and gzip of
//! Python's standard library, ruzstd, and CRCs bit by bit.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::common::{digest, in_place, resized, sample};
use dcs_abi::operator::Operator;
use dcs_ndp::parameter;
use openssl::hash::MessageDigest;
use openssl::symm;

/// Lengths around every block size, and some large.
const LENGTHS: [usize; 18] =
    [0, 1, 15, 16, 17, 55, 56, 63, 64, 65, 111, 127, 128, 129, 1000, 4096, 65_537, 1_000_003];

#[test]
fn digests_against_openssl() {
    let pairs = [
        (Operator::Md5, MessageDigest::md5()),
        (Operator::Sha1, MessageDigest::sha1()),
        (Operator::Sha256, MessageDigest::sha256()),
        (Operator::Sha512, MessageDigest::sha512()),
    ];
    for length in LENGTHS {
        let data = sample(length as u64 + 1, length);
        for (operator, theirs) in pairs {
            let value = openssl::hash::hash(theirs, &data).unwrap();
            let value = dcs_testkit::hex(&value);
            assert_eq!(digest(operator, &data), value, "{operator:?} over {length} bytes");
        }
    }
}

#[test]
fn ctr_against_openssl() {
    let cipher = symm::Cipher::aes_256_ctr();
    for length in LENGTHS {
        let data = sample(length as u64 + 2, length);
        let key: [u8; 32] = sample(3, 32).try_into().unwrap();
        let mut near_wrap = [0xff; 16];
        near_wrap[15] = 0xfd;
        let random: [u8; 16] = sample(length as u64, 16).try_into().unwrap();
        for counter in [random, near_wrap] {
            let ours = in_place(Operator::Aes256Ctr, &parameter::aes256_ctr(&key, &counter), &data);
            assert!(ours == symm::encrypt(cipher, &key, Some(&counter), &data).unwrap(), "{length} bytes");
        }
    }
}

/// Runs Blowfish of OpenSSL's legacy provider on counters: the mode is put together here.
#[test]
fn blowfish_against_openssl() {
    let legacy = openssl::provider::Provider::try_load(None, "legacy", true);
    let Ok(_legacy) = legacy else {
        println!("skipped: OpenSSL has no legacy provider, which has Blowfish");
        return;
    };
    let cipher = symm::Cipher::bf_ecb();
    for length in LENGTHS {
        let data = sample(length as u64 + 5, length);
        let near_wrap = u64::MAX - 3;
        let random = u64::from_be_bytes(sample(length as u64 + 6, 8).try_into().unwrap());
        for (counter, key) in [(random, sample(7, 16)), (near_wrap, sample(length as u64, 16))] {
            let blocks = length.div_ceil(8) as u64;
            let counters: Vec<u8> =
                (0..blocks).flat_map(|block| counter.wrapping_add(block).to_be_bytes()).collect();
            let mut crypter = symm::Crypter::new(cipher, symm::Mode::Encrypt, &key, None).unwrap();
            crypter.pad(false);
            let mut stream = vec![0; counters.len() + 8];
            let made = crypter.update(&counters, &mut stream).unwrap();
            assert_eq!(made, counters.len());
            let theirs: Vec<u8> = data.iter().zip(&stream).map(|(byte, key)| byte ^ key).collect();
            let block = parameter::blowfish_ctr(&key, &counter.to_be_bytes());
            assert!(in_place(Operator::BlowfishCtr, &block, &data) == theirs, "{length} bytes");
        }
    }
}

fn xts_by_openssl(key: &[u8; 64], unit_size: usize, first_unit: u64, data: &[u8]) -> Vec<u8> {
    let numbered = data.chunks(unit_size).zip(u128::from(first_unit)..);
    let encrypt = |(unit, number): (&[u8], u128)| {
        symm::encrypt(symm::Cipher::aes_256_xts(), key, Some(&number.to_le_bytes()), unit).unwrap()
    };
    numbered.flat_map(encrypt).collect()
}

/// Every length of a last unit that ciphertext stealing allows, and units up to the largest.
#[test]
fn xts_against_openssl() {
    let key: [u8; 64] = sample(4, 64).try_into().unwrap();
    let small =
        (16..=80).map(|length| (64, length)).filter(|(unit, length)| !(1..16).contains(&(length % unit)));
    let large = [(512, 40 * 512 + 17), (4096, 100_000), (65_536, 65_536), (65_536, 200_001)];
    for (unit_size, length) in small.chain(large) {
        let data = sample(length as u64, length);
        for first_unit in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            let parameter = parameter::aes256_xts(&key, unit_size as u32, first_unit);
            let ours = in_place(Operator::Aes256Xts, &parameter, &data);
            assert!(ours == xts_by_openssl(&key, unit_size, first_unit, &data), "{length} in {unit_size}");
            assert!(in_place(Operator::Aes256XtsDecrypt, &parameter, &ours) == data);
        }
    }
}

/// Computes a reflected CRC by its definition, one bit after the other.
fn crc_bit_by_bit(polynomial: u64, width: u32, data: &[u8]) -> String {
    let reflected = polynomial.reverse_bits() >> (64 - width);
    let ones = u64::MAX >> (64 - width);
    let value = data.iter().fold(ones, |value, byte| {
        (0..8).fold(value ^ u64::from(*byte), |value, _| (value >> 1) ^ ((value & 1) * reflected))
    });
    format!("{:0digits$x}", value ^ ones, digits = width as usize / 4)
}

#[test]
fn crcs_against_their_definition() {
    for length in LENGTHS {
        let data = sample(length as u64 + 5, length);
        assert_eq!(digest(Operator::Crc32, &data), crc_bit_by_bit(0x04c1_1db7, 32, &data));
        assert_eq!(digest(Operator::Crc32c, &data), crc_bit_by_bit(0x1edc_6f41, 32, &data));
        assert_eq!(digest(Operator::Crc64Nvme, &data), crc_bit_by_bit(0xad93_d235_94c9_3659, 64, &data));
    }
}

/// Returns the output of a Python program that reads `input`.
fn python(program: &str, input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("python3")
        .args(["-c", &format!("import sys, zlib, gzip\ndata = sys.stdin.buffer.read()\n{program}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is needed for this test");
    // The program reads everything before it writes anything.
    child.stdin.take().unwrap().write_all(input).unwrap();
    let mut output = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    assert!(child.wait().unwrap().success());
    output
}

#[test]
fn crc32_against_zlib() {
    let data = sample(6, 1_000_003);
    let theirs = python("sys.stdout.write('%08x' % zlib.crc32(data))", &data);
    assert_eq!(digest(Operator::Crc32, &data).as_bytes(), theirs);
}

#[test]
fn gzip_is_opened_by_zlib() {
    for level in 0..=9 {
        for length in [0, 1, 70_000, 400_000] {
            let data = sample(u64::from(level) + 7, length);
            let stream = resized(Operator::Gzip, &parameter::level(level), &data);
            let theirs = python("sys.stdout.buffer.write(gzip.decompress(data))", &stream);
            assert!(theirs == data, "level {level}, {length} bytes");
        }
    }
}

#[test]
fn gunzip_opens_what_zlib_and_gzip_write() {
    let programs = [
        "sys.stdout.buffer.write(gzip.compress(data, 9))",
        "sys.stdout.buffer.write(gzip.compress(data, 0))",
        // A file name in the header.
        "with gzip.GzipFile('name.txt', 'wb', 6, sys.stdout.buffer) as file: file.write(data)",
        // A member for each 10000 bytes, and padding.
        "for at in range(0, len(data) + 1, 10000): sys.stdout.buffer.write(gzip.compress(data[at:at + 10000]))\n\
         sys.stdout.buffer.write(bytes(512))",
        // Flushes of every kind in the middle, a small window.
        "c = zlib.compressobj(6, zlib.DEFLATED, 16 + 9)\n\
         for at in range(0, len(data), 5000):\n  \
           sys.stdout.buffer.write(c.compress(data[at:at + 5000]))\n  \
           sys.stdout.buffer.write(c.flush([zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH, zlib.Z_BLOCK][at % 3]))\n\
         sys.stdout.buffer.write(c.flush())",
    ];
    for program in programs {
        for length in [0, 1, 70_000, 400_000] {
            let data = sample(length as u64 + 8, length);
            let stream = python(program, &data);
            assert!(resized(Operator::Gunzip, &[], &stream) == data, "{length} bytes by {program}");
        }
    }
}

#[test]
fn zstd_is_opened_by_ruzstd() {
    for (level, length) in [(1, 0), (1, 1), (1, 400_000), (3, 400_000), (9, 400_000), (19, 150_000)] {
        let data = sample(level + 9, length);
        let stream = resized(Operator::Zstd, &parameter::level(level as u8), &data);
        let mut theirs = Vec::new();
        ruzstd::decoding::StreamingDecoder::new(&stream[..]).unwrap().read_to_end(&mut theirs).unwrap();
        assert!(theirs == data, "level {level}, {length} bytes");
    }
}

#[test]
fn unzstd_opens_what_ruzstd_writes() {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    for length in [0, 1, 1000, 400_000] {
        let data = sample(length as u64 + 10, length);
        for level in [CompressionLevel::Uncompressed, CompressionLevel::Fastest] {
            let stream = compress_to_vec(&data[..], level);
            assert!(resized(Operator::Unzstd, &[], &stream) == data, "{length} bytes");
        }
    }
}
