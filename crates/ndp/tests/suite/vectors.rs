//! Published vectors, and streams made by hand.

use crate::common::{Cut, context, digest, in_place, resize, resized, sample, whole};
use dcs_abi::operator::{OPERATORS, Operator, OperatorKind};
use dcs_abi::status::Status;
use dcs_ndp::{Context, OperatorError, parameter, sequential};
use hex_literal::hex;

#[test]
fn md5_rfc_1321_a5() {
    let suite = [
        ("", "d41d8cd98f00b204e9800998ecf8427e"),
        ("a", "0cc175b9c0f1b6a831c399e269772661"),
        ("abc", "900150983cd24fb0d6963f7d28e17f72"),
        ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
        ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
        (
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
            "d174ab98d277d9f5a5611c2c9f419d9f",
        ),
        (
            "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
            "57edf4a22be3c955ac49da2e2107b67a",
        ),
    ];
    for (message, value) in suite {
        assert_eq!(digest(Operator::Md5, message.as_bytes()), value, "{message:?}");
    }
}

/// The NIST examples for FIPS 180: "abc", nothing, two blocks, a million times "a".
#[test]
fn sha_fips_180_4() {
    let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    let two_long_blocks = b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu";
    let million = vec![b'a'; 1_000_000];
    let cases: [(Operator, &[u8], &str); 12] = [
        (Operator::Sha1, b"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        (Operator::Sha1, b"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        (Operator::Sha1, two_blocks, "84983e441c3bd26ebaae4aa1f95129e5e54670f1"),
        (Operator::Sha1, &million, "34aa973cd4c4daa4f61eeb2bdbad27316534016f"),
        (Operator::Sha256, b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (Operator::Sha256, b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (Operator::Sha256, two_blocks, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"),
        (Operator::Sha256, &million, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
        (
            Operator::Sha512,
            b"abc",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
        (
            Operator::Sha512,
            b"",
            "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
        ),
        (
            Operator::Sha512,
            two_long_blocks,
            "8e959b75dae313da8cf4f72814fc143f8f7779c6eb9f7fa17299aeadb6889018501d289e4900f7e4331b99dec4b5433ac7d329eeb6dd26545e96e55b874be909",
        ),
        (
            Operator::Sha512,
            &million,
            "e718483d0ce769644e2e42c7bc15b4638e1f98b13b2044285632a803afa973ebde0ff244877ea60a4cb0432ce577c31beb009c5c2c49aa2e4eadb217ad8cc09b",
        ),
    ];
    for (operator, message, value) in cases {
        assert_eq!(digest(operator, message), value, "{operator:?} over {} bytes", message.len());
    }
}

/// The check values of the CRC catalogue, most significant byte first.
#[test]
fn crc_check_values() {
    assert_eq!(digest(Operator::Crc32, b"123456789"), "cbf43926");
    assert_eq!(digest(Operator::Crc32c, b"123456789"), "e3069283");
    assert_eq!(digest(Operator::Crc64Nvme, b"123456789"), "ae8b14860a799888");
}

/// RFC 3720 appendix B.4, as numbers (the RFC prints them byte by byte as they are sent).
#[test]
fn crc32c_rfc_3720_b4() {
    assert_eq!(digest(Operator::Crc32c, &[0; 32]), "8a9136aa");
    assert_eq!(digest(Operator::Crc32c, &[0xff; 32]), "62a8ab43");
    assert_eq!(digest(Operator::Crc32c, &(0..32).collect::<Vec<u8>>()), "46dd794e");
    assert_eq!(digest(Operator::Crc32c, &(0..32).rev().collect::<Vec<u8>>()), "113fdb5c");
}

/// SP 800-38A F.5.5 (encryption) and F.5.6 (decryption).
#[test]
fn ctr_aes256_sp_800_38a() {
    let key = hex!("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
    let counter = hex!("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
    let plain = hex!(
        "6bc1bee22e409f96e93d7e117393172a ae2d8a571e03ac9c9eb76fac45af8e51"
        "30c81c46a35ce411e5fbc1191a0a52ef f69f2445df4f9b17ad2b417be66c3710"
    );
    let cipher = hex!(
        "601ec313775789a5b7a7f504bbf3d228 f443e3ca4d62b59aca84e990cacaf5c5"
        "2b0930daa23de94ce87017ba2d84988d dfc9c58db67aada613c2dd08457941a6"
    );
    let parameter = parameter::aes256_ctr(&key, &counter);
    assert_eq!(in_place(Operator::Aes256Ctr, &parameter, &plain), cipher);
    assert_eq!(in_place(Operator::Aes256Ctr, &parameter, &cipher), plain);
}

/// After the counter of all ones comes the counter of all zeros.
#[test]
fn ctr_counter_wraps_over_128_bits() {
    let stream = |counter, length| {
        let parameter = parameter::aes256_ctr(&[7; 32], &counter);
        in_place(Operator::Aes256Ctr, &parameter, &vec![0; length])
    };
    assert_eq!(stream([0xff; 16], 16 + 4096)[16..], stream([0; 16], 4096));
    // And the carry goes through all of it.
    let mut low_full = [0xff; 16];
    low_full[0] = 0;
    let mut carried = [0; 16];
    carried[0] = 1;
    assert_eq!(stream(low_full, 48)[16..], stream(carried, 32));
}

/// Eric Young's vectors for Blowfish (https://www.schneier.com/code/vectors.txt): key, clear bytes, cipher bytes. In
/// counter mode the clear bytes are the counter, and the cipher bytes what zeros become.
#[test]
fn blowfish_of_eric_young() {
    for (key, clear, cipher) in [
        (&hex!("0000000000000000")[..], hex!("0000000000000000"), hex!("4ef997456198dd78")),
        (&hex!("ffffffffffffffff"), hex!("ffffffffffffffff"), hex!("51866fd5b85ecb8a")),
        (&hex!("3000000000000000"), hex!("1000000000000001"), hex!("7d856f9a613063f2")),
        (&hex!("0123456789abcdef"), hex!("1111111111111111"), hex!("61f9c3802281b096")),
        (&hex!("fedcba9876543210"), hex!("0123456789abcdef"), hex!("0aceab0fc6a0a28d")),
        (&hex!("f0e1d2c3"), hex!("fedcba9876543210"), hex!("be1e639408640f05")),
        (&hex!("f0e1d2c3b4a5968778695a4b3c2d1e0f"), hex!("fedcba9876543210"), hex!("93142887ee3be15c")),
    ] {
        let parameter = parameter::blowfish_ctr(key, &clear);
        assert_eq!(in_place(Operator::BlowfishCtr, &parameter, &[0; 8]), cipher);
    }
    // After the counter of all ones comes the counter of all zeros.
    let stream = |counter, length| {
        in_place(Operator::BlowfishCtr, &parameter::blowfish_ctr(&[7; 16], &counter), &vec![0; length])
    };
    assert_eq!(stream([0xff; 8], 8 + 800)[8..], stream([0; 8], 800));
}

const XTS_KEY: [u8; 64] = hex!(
    "2718281828459045235360287471352662497757247093699959574966967627"
    "3141592653589793238462643383279502884197169399375105820974944592"
);

/// IEEE 1619-2007 annex B, vectors 10 to 14: data units of 512 bytes whose plaintext counts up.
#[test]
fn xts_aes256_ieee_1619() {
    let plain: Vec<u8> = (0..512).map(|byte| byte as u8).collect();
    let lines: Vec<&str> = include_str!("xts-aes-256.txt").lines().collect();
    assert_eq!(lines.len(), 10, "five vectors of two lines");
    for vector in lines.chunks(2) {
        let unit = u64::from_str_radix(vector[0], 16).unwrap();
        let parameter = parameter::aes256_xts(&XTS_KEY, 512, unit);
        let cipher = in_place(Operator::Aes256Xts, &parameter, &plain);
        let printed = dcs_testkit::hex(&cipher);
        assert_eq!(printed, vector[1], "data unit {unit:x}");
        assert_eq!(in_place(Operator::Aes256XtsDecrypt, &parameter, &cipher), plain);
    }
}

#[test]
fn xts_data_units_must_be_whole_but_for_the_last() {
    let parameter = parameter::aes256_xts(&XTS_KEY, 512, 0);
    for operator in [Operator::Aes256Xts, Operator::Aes256XtsDecrypt] {
        let attempt = |length, last| context(operator, &parameter).in_place(&mut vec![0; length], last);
        assert_eq!(attempt(0, true), Ok(()));
        assert_eq!(attempt(1024, false), Ok(()));
        assert_eq!(attempt(1024 + 16, true), Ok(()));
        assert_eq!(attempt(1024 + 31, true), Ok(()));
        assert_eq!(attempt(1024 + 15, true), Err(OperatorError::TruncatedData));
        assert_eq!(attempt(1, true), Err(OperatorError::TruncatedData));
        assert_eq!(attempt(1024 + 16, false), Err(OperatorError::InternalError));
    }
}

/// The number of the data unit goes on past 2^64: no tweak is used twice.
#[test]
fn xts_unit_number_does_not_wrap() {
    let stream = |first| in_place(Operator::Aes256Xts, &parameter::aes256_xts(&XTS_KEY, 16, first), &[0; 32]);
    assert_ne!(stream(u64::MAX)[16..], stream(0)[..16]);
    assert_eq!(stream(u64::MAX - 1)[16..], stream(u64::MAX)[..16]);
}

#[test]
fn parameters_are_checked() {
    let refused = |operator, parameter: &[u8]| {
        assert_eq!(Context::new(operator, parameter).err(), Some(OperatorError::BadParameter));
    };
    for info in OPERATORS {
        let (least, most) = info.parameter;
        refused(info.operator, &vec![1; most + 1]);
        if least > 0 {
            refused(info.operator, &vec![1; least - 1]);
        }
    }
    let mut equal_halves = [0; 64];
    equal_halves[..32].copy_from_slice(&XTS_KEY[..32]);
    equal_halves[32..].copy_from_slice(&XTS_KEY[..32]);
    for operator in [Operator::Aes256Xts, Operator::Aes256XtsDecrypt] {
        for unit in [0, 8, 15, 24, 513, 131072, u32::MAX] {
            refused(operator, &parameter::aes256_xts(&XTS_KEY, unit, 0));
        }
        for unit in [16, 512, 4096, 65536] {
            context(operator, &parameter::aes256_xts(&XTS_KEY, unit, 0));
        }
        refused(operator, &parameter::aes256_xts(&equal_halves, 512, 0));
        let mut reserved = parameter::aes256_xts(&XTS_KEY, 512, 0);
        reserved[71] = 1;
        refused(operator, &reserved);
    }
    refused(Operator::Slice, &parameter::slice(1, u64::MAX));
    for operator in [Operator::Md5, Operator::Crc32, Operator::Sha512] {
        refused(operator, &vec![0; operator.digest_size() - 1]);
        context(operator, &vec![0; operator.digest_size()]);
    }
    refused(Operator::BlowfishCtr, &[0; 11]);
    refused(Operator::BlowfishCtr, &[0; 65]);
    refused(Operator::Gzip, &parameter::level(10));
    refused(Operator::Zstd, &parameter::level(0));
    refused(Operator::Zstd, &parameter::level(20));
}

/// Every operator in the table can be made, and responds only to the calls of its kind.
#[test]
fn misuse_is_an_error() {
    for info in OPERATORS {
        let parameter: Vec<u8> = (0..info.parameter.0 as u8).collect();
        let parameter = match info.operator {
            Operator::Aes256Xts | Operator::Aes256XtsDecrypt => {
                parameter::aes256_xts(&XTS_KEY, 16, 0).to_vec()
            }
            Operator::AwsChunked => crate::common::unsigned_chunks(16),
            Operator::Slice => parameter::slice(0, 16).to_vec(),
            Operator::Grep => crate::common::grep("^[0-9]").block(),
            Operator::Filter => b"price>100".to_vec(),
            Operator::Aggregate => b"count".to_vec(),
            Operator::Knn => parameter::Knn { element: parameter::Element::U8, k: 1, query: vec![1] }.block(),
            _ => parameter,
        };
        let mut context = context(info.operator, &parameter);
        assert_eq!(context.operator(), info.operator);
        context.absorb(b"0123456789abcdef");
        let size = context.value().map_or(0, |value| value.as_bytes().len());
        assert_eq!(size, info.operator.digest_size());
        let in_place = context.in_place(&mut [0; 16], true);
        let resized = context.resize(b"", &mut [0; 16], false).map(|_| ());
        let refused = Err(OperatorError::InternalError);
        match info.kind {
            OperatorKind::Digest { .. } => assert_eq!((in_place, resized), (refused, refused)),
            OperatorKind::InPlace { .. } => {
                assert_eq!((in_place, resized), (Ok(()), refused));
                assert_eq!(context.in_place(&mut [0; 16], true), refused, "data after the last");
            }
            OperatorKind::Resize => assert_eq!((in_place, resized), (refused, Ok(()))),
        }
    }
}

#[test]
fn errors_have_their_status() {
    assert_eq!(OperatorError::BadParameter.status(), Status::BadParameter);
    assert_eq!(OperatorError::CorruptData.status(), Status::CorruptData);
    assert_eq!(OperatorError::TruncatedData.status(), Status::TruncatedData);
    assert_eq!(OperatorError::Framing.status(), Status::FramingError);
    assert_eq!(OperatorError::Signature.status(), Status::SignatureMismatch);
    assert_eq!(OperatorError::Mismatch.status(), Status::DigestMismatch);
    assert_eq!(OperatorError::InternalError.status(), Status::InternalError);
}

/// A member with every optional field of RFC 1952 section 2.3.1 around our own deflate data.
fn member_with_everything(data: &[u8]) -> Vec<u8> {
    let plain = resized(Operator::Gzip, &[], data);
    let mut member = plain[..10].to_vec();
    member[3] = 0x1f; // FTEXT, FHCRC, FEXTRA, FNAME, FCOMMENT
    member.extend(b"\x06\x00AB\x02\x00xyname\0comment\0");
    let crc = u32::from_str_radix(&digest(Operator::Crc32, &member), 16).unwrap();
    member.extend(&(crc as u16).to_le_bytes());
    member.extend(&plain[10..]);
    member
}

fn gunzip(stream: &[u8]) -> Result<Vec<u8>, OperatorError> {
    let (output, result) = resize(Operator::Gunzip, &[], stream, &whole());
    result.map(|()| output)
}

#[test]
fn gunzip_takes_every_header_field() {
    let data = sample(1, 3000);
    let member = member_with_everything(&data);
    assert_eq!(gunzip(&member), Ok(data));
    for at in [3, 17, 26, 37] {
        let mut damaged = member.clone();
        damaged[at] ^= 0x20; // a reserved flag, or a byte that the header's CRC covers
        assert_eq!(gunzip(&damaged), Err(OperatorError::CorruptData), "byte {at}");
    }
    for length in 0..60 {
        assert_eq!(gunzip(&member[..length]), Err(OperatorError::TruncatedData), "cut to {length}");
    }
}

#[test]
fn gunzip_takes_members_in_a_row_and_zero_padding() {
    let (one, two) = (sample(1, 3000), sample(2, 70_000));
    let both = [one.clone(), two.clone()].concat();
    let stream =
        [resized(Operator::Gzip, &[], &one), resized(Operator::Gzip, &[], &[]), member_with_everything(&two)]
            .concat();
    assert_eq!(gunzip(&stream), Ok(both.clone()));
    let with = |end: &[u8]| gunzip(&[&stream, end].concat());
    assert_eq!(with(&[0]), Ok(both.clone()));
    assert_eq!(with(&[0; 1000]), Ok(both));
    assert_eq!(with(b"x"), Err(OperatorError::CorruptData));
    assert_eq!(with(b"\x1fx"), Err(OperatorError::CorruptData));
    assert_eq!(with(b"\x1f"), Err(OperatorError::TruncatedData));
    assert_eq!(with(b"\x1f\x8b"), Err(OperatorError::TruncatedData));
    assert_eq!(with(b"\0\0x"), Err(OperatorError::CorruptData));
    assert_eq!(with(&[&[0], &stream[..]].concat()), Err(OperatorError::CorruptData));
    assert_eq!(gunzip(b"\0"), Err(OperatorError::CorruptData));
    assert_eq!(gunzip(b""), Err(OperatorError::TruncatedData));
    assert_eq!(gunzip(b"BZh9"), Err(OperatorError::CorruptData));
}

/// RFC 1952: no flags, no time.
#[test]
fn gzip_header_tells_nothing() {
    assert_eq!(resized(Operator::Gzip, &[], b"some data")[..8], hex!("1f8b08 00 00000000"));
}

#[test]
fn gunzip_checks_crc_and_length() {
    let stream = resized(Operator::Gzip, &[], b"some data");
    for at in stream.len() - 8..stream.len() {
        let mut damaged = stream.clone();
        damaged[at] ^= 1;
        assert_eq!(gunzip(&damaged), Err(OperatorError::CorruptData));
    }
}

fn unzstd(stream: &[u8]) -> Result<Vec<u8>, OperatorError> {
    let (output, result) = resize(Operator::Unzstd, &[], stream, &whole());
    result.map(|()| output)
}

#[test]
fn unzstd_takes_frames_in_a_row_and_skippable_ones() {
    let (one, two) = (sample(1, 3000), sample(2, 300_000));
    let both = [one.clone(), two.clone()].concat();
    let skippable = b"\x5a\x2a\x4d\x18\x05\x00\x00\x00hello";
    let stream = [
        skippable.to_vec(),
        resized(Operator::Zstd, &[], &one),
        resized(Operator::Zstd, &[], &[]),
        skippable.to_vec(),
        resized(Operator::Zstd, &parameter::level(1), &two),
    ]
    .concat();
    assert_eq!(unzstd(&stream), Ok(both.clone()));
    let with = |end: &[u8]| unzstd(&[&stream, end].concat());
    assert_eq!(with(skippable), Ok(both));
    assert_eq!(with(&skippable[..skippable.len() - 1]), Err(OperatorError::TruncatedData));
    assert_eq!(with(b"x"), Err(OperatorError::CorruptData));
    assert_eq!(with(b"\0"), Err(OperatorError::CorruptData));
    assert_eq!(with(b"\x28\xb5"), Err(OperatorError::TruncatedData));
    assert_eq!(unzstd(b""), Err(OperatorError::TruncatedData));
    assert_eq!(unzstd(&skippable[..]), Ok(vec![]));
}

/// RFC 8878 by hand: a raw block of three bytes, then one of run-length encoding, no checksum.
#[test]
fn unzstd_reads_a_frame_made_by_hand() {
    let frame = hex!("28b52ffd 20 08 180000 616263 2b0000 7a");
    assert_eq!(unzstd(&frame), Ok(b"abczzzzz".to_vec()));
    // The largest window that is accepted, and the next.
    let window = |descriptor: u8| [&hex!("28b52ffd 00")[..], &[descriptor], &hex!("190000 616263")].concat();
    assert_eq!(unzstd(&window(17 << 3)), Ok(b"abc".to_vec()));
    assert_eq!(unzstd(&window(18 << 3)), Err(OperatorError::CorruptData));
    // The content size in its header is wrong.
    let frame = hex!("28b52ffd 20 07 180000 616263 2b0000 7a");
    assert_eq!(unzstd(&frame), Err(OperatorError::CorruptData));
}

/// Output from before the damage is handed out before the error.
#[test]
fn output_before_an_error_is_kept() {
    let data = sample(3, 600_000);
    for (compress, decompress) in [(Operator::Gzip, Operator::Gunzip), (Operator::Zstd, Operator::Unzstd)] {
        let mut stream = resized(compress, &[], &data);
        let end = stream.len() - 4;
        stream[end] ^= 1; // in the last checksum, after all of the data
        for room in [1, 1000, 1 << 20] {
            let cut = Cut { room, ..whole() };
            let (output, result) = resize(decompress, &[], &stream, &cut);
            assert_eq!(result, Err(OperatorError::CorruptData));
            assert!(output == data, "{decompress:?} lost output, room {room}");
        }
    }
}

/// A raw block of 100 bytes, then a block of the reserved type: the library fails in a call that could also
/// have handed out the first block.
#[test]
fn output_before_a_bad_block_is_kept() {
    let block = [7; 100];
    let stream = [&hex!("28b52ffd 00 58 200300")[..], &block, &hex!("060000 0000")].concat();
    for room in [1, 7, 99, 100, 101, 1 << 20] {
        let (output, result) = resize(Operator::Unzstd, &[], &stream, &Cut { room, ..whole() });
        assert_eq!((output, result), (block.to_vec(), Err(OperatorError::CorruptData)), "room {room}");
    }
}

/// Data in which whole blocks vanish: the libraries take input and output nothing.
#[test]
fn long_runs_are_restored() {
    let data = vec![0; 1_000_000];
    for level in 1..=9 {
        for (compress, decompress) in [(Operator::Gzip, Operator::Gunzip), (Operator::Zstd, Operator::Unzstd)]
        {
            let stream = resized(compress, &parameter::level(level), &data);
            assert!(stream.len() < 10_000 && resized(decompress, &[], &stream) == data, "level {level}");
        }
    }
}

#[test]
fn sequential_says_which_operator_failed() {
    let xts = parameter::aes256_xts(&XTS_KEY, 512, 0).to_vec();
    let chain = [(Operator::Md5, vec![]), (Operator::Aes256Xts, xts), (Operator::Sha1, vec![])];
    assert_eq!(sequential::run(&chain, b"short"), Err((1, OperatorError::TruncatedData)));
    let outcome = sequential::run(&chain, &[0; 512]).unwrap();
    assert_eq!(outcome.output.len(), 512);
    assert_eq!(outcome.digests[0].unwrap().to_string(), digest(Operator::Md5, &[0; 512]));
    assert_eq!(outcome.digests[1], None);
    assert_eq!(outcome.digests[2].unwrap().to_string(), digest(Operator::Sha1, &outcome.output));
}
