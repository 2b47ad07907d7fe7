//! S3's framing: the examples that Amazon publishes, signatures by another library, cuts and damage of every
//! kind.

use crate::common::{Cut, context, resize, sample, whole};
use dcs_abi::operator::Operator;
use dcs_ndp::parameter::{AwsChunked, AwsSignature};
use dcs_ndp::{Context, OperatorError, sequential};
use hex_literal::hex;
use openssl::hash::{MessageDigest, hash};
use openssl::pkey::PKey;
use openssl::sign::Signer;
use proptest::prelude::*;

const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";
const TIMESTAMP: [u8; 16] = *b"20130524T000000Z";

fn hmac(key: &[u8], data: &[u8]) -> Vec<u8> {
    let key = PKey::hmac(key).unwrap();
    Signer::new(MessageDigest::sha256(), &key).unwrap().sign_oneshot_to_vec(data).unwrap()
}

/// The signing key of Amazon's examples.
fn key() -> [u8; 32] {
    let mut key = b"AWS4wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_vec();
    for part in SCOPE.split('/') {
        key = hmac(&key, part.as_bytes());
    }
    key.try_into().unwrap()
}

fn signature(seed: [u8; 32]) -> Option<AwsSignature> {
    Some(AwsSignature { key: key(), seed, timestamp: TIMESTAMP, scope: SCOPE.into() })
}

/// Writes the framing as a client does: an independent implementation, on openssl.
struct Client {
    previous: Option<String>,
    stream: Vec<u8>,
}

impl Client {
    fn new(parameter: &AwsChunked) -> Client {
        let previous = parameter.signature.as_ref().map(|signature| dcs_testkit::hex(&signature.seed));
        Client { previous, stream: Vec::new() }
    }

    fn sign(&mut self, algorithm: &str, hashes: &[&[u8]]) -> Option<String> {
        let hashes =
            hashes.iter().map(|data| dcs_testkit::hex(&hash(MessageDigest::sha256(), data).unwrap()));
        let timestamp = String::from_utf8(TIMESTAMP.to_vec()).unwrap();
        let mut lines = vec![algorithm.to_string(), timestamp, SCOPE.to_string(), self.previous.clone()?];
        lines.extend(hashes);
        self.previous = Some(dcs_testkit::hex(&hmac(&key(), lines.join("\n").as_bytes())));
        self.previous.clone()
    }

    fn chunk(&mut self, data: &[u8]) {
        let signature = self.sign("AWS4-HMAC-SHA256-PAYLOAD", &[b"", data]);
        let extension = signature.map_or(String::new(), |digits| format!(";chunk-signature={digits}"));
        self.stream.extend(format!("{:x}{extension}\r\n", data.len()).bytes());
        self.stream.extend(data);
        if !data.is_empty() {
            self.stream.extend(b"\r\n");
        }
    }

    /// Writes a stream. `before_signature`: bytes between the trailers and their signature.
    fn trailers(&mut self, trailers: &[(&str, &str)], line_end: &str, before_signature: &str) {
        let mut signed = String::new();
        for (name, value) in trailers {
            signed += &format!("{name}:{value}\n");
            self.stream.extend(format!("{name}:{value}{line_end}").bytes());
        }
        if let Some(digits) = self.sign("AWS4-HMAC-SHA256-TRAILER", &[signed.as_bytes()]) {
            self.stream.extend(format!("{before_signature}x-amz-trailer-signature:{digits}\r\n").bytes());
        }
    }

    fn end(mut self) -> Vec<u8> {
        self.stream.extend(b"\r\n");
        self.stream
    }
}

fn decode(parameter: &AwsChunked, stream: &[u8], cut: &Cut) -> (Vec<u8>, Result<(), OperatorError>) {
    resize(Operator::AwsChunked, &parameter.block(), stream, cut)
}

/// The value after the whole stream.
fn value(parameter: &AwsChunked, stream: &[u8]) -> Option<String> {
    let outcome = sequential::run(&[(Operator::AwsChunked, parameter.block())], stream).unwrap();
    outcome.digests[0].map(|value| value.to_string())
}

#[test]
fn amazons_example_without_trailers() {
    let seed = hex!("4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9");
    let parameter =
        AwsChunked { decoded_length: 66560, trailers: false, checksum: None, signature: signature(seed) };
    let stream = [
        &b"10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n"[..],
        &[b'a'; 65536],
        b"\r\n400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n",
        &[b'a'; 1024],
        b"\r\n0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n",
    ]
    .concat();
    assert_eq!(stream.len(), 66824, "the published Content-Length");
    let mut client = Client::new(&parameter);
    [&[b'a'; 65536][..], &[b'a'; 1024], b""].iter().for_each(|data| client.chunk(data));
    assert!(client.end() == stream, "the client here writes what Amazon's does");
    for cut in [whole(), Cut { pieces: vec![1], room: 7, empty_end: true }] {
        let (output, result) = decode(&parameter, &stream, &cut);
        assert_eq!(result, Ok(()));
        assert!(output == [b'a'; 66560]);
    }
    assert_eq!(value(&parameter, &stream), None, "no checksum was announced");
}

#[test]
fn amazons_example_with_trailers() {
    let seed = hex!("106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e");
    let checksum = Some(Operator::Crc32c);
    let parameter =
        AwsChunked { decoded_length: 66560, trailers: true, checksum, signature: signature(seed) };
    let stream = [
        &b"10000;chunk-signature=b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2\r\n"[..],
        &[b'a'; 65536],
        b"\r\n400;chunk-signature=1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7\r\n",
        &[b'a'; 1024],
        b"\r\n0;chunk-signature=2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\n",
        b"x-amz-checksum-crc32c:sOO8/Q==\r\n",
        b"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n",
    ]
    .concat();
    assert_eq!(stream.len(), 66946, "the published Content-Length");
    let (output, result) = decode(&parameter, &stream, &whole());
    assert_eq!(result, Ok(()));
    assert_eq!(value(&parameter, &stream), Some(crate::common::digest(Operator::Crc32c, &output)));
    // Some clients send what the string to sign suggests: LF after the trailer, and an empty line.
    let mut client = Client::new(&parameter);
    [&[b'a'; 65536][..], &[b'a'; 1024], b""].iter().for_each(|data| client.chunk(data));
    client.trailers(&[("x-amz-checksum-crc32c", "sOO8/Q==")], "\n", "\r\n");
    assert_eq!(decode(&parameter, &client.end(), &whole()).1, Ok(()));
}

fn unsigned(decoded_length: u64, checksum: Option<Operator>) -> AwsChunked {
    AwsChunked { decoded_length, trailers: checksum.is_some(), checksum, signature: None }
}

#[test]
fn every_checksum_comes_out_decoded() {
    let data = sample(3, 10_000);
    for (operator, name) in [
        (Operator::Crc32, "x-amz-checksum-crc32"),
        (Operator::Crc32c, "x-amz-checksum-crc32c"),
        (Operator::Crc64Nvme, "x-amz-checksum-crc64nvme"),
        (Operator::Sha1, "X-Amz-Checksum-SHA1"),
        (Operator::Sha256, "x-amz-checksum-sha256"),
    ] {
        let digits = crate::common::digest(operator, &data);
        let bytes: Vec<u8> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect();
        let parameter = unsigned(10_000, Some(operator));
        let mut client = Client::new(&parameter);
        client.chunk(&data);
        client.chunk(b"");
        let trailers = [("x-amz-meta-other", "a: b"), (name, &openssl::base64::encode_block(&bytes))];
        client.trailers(&trailers, "\r\n", "");
        assert_eq!(value(&parameter, &client.end()), Some(digits));
    }
}

/// Checks that each of these is refused, with the right error.
#[test]
fn broken_framing_is_named() {
    let plain = unsigned(5, None);
    let summed = unsigned(5, Some(Operator::Crc32));
    let framing = Err(OperatorError::Framing);
    let truncated = Err(OperatorError::TruncatedData);
    let long = format!("5;{}\r\n", "x=y;".repeat(70));
    let trailers = format!("5\r\nhello\r\n0\r\n{}", "x-trailer: some value\r\n".repeat(50));
    for (parameter, stream, expected) in [
        (&plain, "5\r\nhello\r\n0\r\n\r\n", Ok(())),
        (&plain, "05;other=ext;x=\r\nhello\r\n0\r\n\r\n", Ok(())),
        (&plain, "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", Ok(())),
        (&plain, "5\nhello\r\n0\r\n\r\n", framing),
        (&plain, "5\r\nhello\n0\r\n\r\n", framing),
        (&plain, "5\r\nhellooo\r\n0\r\n\r\n", framing),
        (&plain, "6\r\nhelloo\r\n0\r\n\r\n", framing),
        (&plain, "4\r\nhell\r\n0\r\n\r\n", framing),
        (&plain, "5\r\nhello\r\n0\r\n\r\nx", framing),
        (&plain, "5\r\nhello\r\n0\r\n\r\n\r\n", framing),
        (&plain, "5\r\nhello\r\n0\r\nname:value\r\n\r\n", framing),
        (&plain, "g\r\nhello\r\n0\r\n\r\n", framing),
        (&plain, "+5\r\nhello\r\n0\r\n\r\n", framing),
        (&plain, " 5\r\nhello\r\n0\r\n\r\n", framing),
        (&plain, "\r\nhello\r\n0\r\n\r\n", framing),
        (&plain, "10000000000000005\r\nhello\r\n0\r\n\r\n", framing),
        (&plain, "ffffffffffffffff\r\nhello\r\n0\r\n\r\n", framing),
        (&plain, "5;extension\r\nhello\r\n0\r\n\r\n", framing),
        (&plain, &long, framing),
        (&plain, "", truncated),
        (&plain, "5\r\nhel", truncated),
        (&plain, "5\r\nhello\r\n0\r\n", truncated),
        (&plain, "5\r\nhello\r\n", truncated),
        (&summed, "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", Ok(())),
        (&summed, "5\r\nhello\r\n0\r\nx-amz-checksum-crc32: NhCmhg== \r\n\r\n", Ok(())),
        (&summed, "5\r\nhello\r\n0\r\n\r\n", framing),
        (&summed, "5\r\nhello\r\n0\r\nx-amz-checksum-crc32c:NhCmhg==\r\n\r\n", framing),
        (&summed, "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg\r\n\r\n", framing),
        (&summed, "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhoY=\r\n\r\n", framing),
        (&summed, "5\r\nhello\r\n0\r\nno colon\r\n\r\n", framing),
        (&summed, "5\r\nhello\r\n0\r\n:value\r\n\r\n", framing),
        (&summed, &trailers, framing),
    ] {
        for cut in [whole(), Cut { pieces: vec![1], room: 1, empty_end: true }] {
            let (output, result) = decode(parameter, stream.as_bytes(), &cut);
            assert_eq!(result, expected, "{stream:?}");
            assert!(result.is_err() || output == b"hello");
        }
    }
    // Two of the same name.
    let twice = "x-amz-checksum-crc32:NhCmhg==\r\n".repeat(2);
    let stream = format!("5\r\nhello\r\n0\r\n{twice}\r\n");
    assert_eq!(decode(&summed, stream.as_bytes(), &whole()).1, framing);
    // The checksum of "hello" in base64, by another library.
    assert_eq!(crate::common::digest(Operator::Crc32, b"hello"), "3610a686");
}

#[test]
fn parameters_that_contradict_themselves_are_refused() {
    let refused = |block: &[u8]| {
        assert_eq!(Context::new(Operator::AwsChunked, block).err(), Some(OperatorError::BadParameter));
    };
    let good = AwsChunked {
        decoded_length: 5,
        trailers: true,
        checksum: Some(Operator::Sha256),
        signature: signature([1; 32]),
    };
    context(Operator::AwsChunked, &good.block());
    let with = |change: &dyn Fn(&mut AwsChunked)| {
        let mut other = good.clone();
        change(&mut other);
        other.block()
    };
    refused(&with(&|it| it.trailers = false));
    refused(&with(&|it| it.checksum = Some(Operator::Md5)));
    for scope in ["", "two\nlines", &"x".repeat(129)] {
        refused(&with(&|it| it.signature.as_mut().unwrap().scope = scope.into()));
    }
    refused(&with(&|it| it.signature.as_mut().unwrap().timestamp[3] = b'\n'));
    for (at, byte) in [(0, 7), (1, 0xff), (2, 1), (7, 1), (0, 2)] {
        let mut block = good.block();
        block[at] = byte;
        refused(&block);
    }
}

#[test]
fn signatures_must_be_there() {
    let data = [7; 100];
    let parameter =
        AwsChunked { decoded_length: 100, trailers: true, checksum: None, signature: signature([1; 32]) };
    let stream = |trailers: bool, end: bool| {
        let mut client = Client::new(&parameter);
        client.chunk(&data);
        client.chunk(b"");
        if trailers {
            client.trailers(&[("x-other", "value")], "\r\n", "");
        }
        if end { client.end() } else { client.stream }
    };
    assert_eq!(decode(&parameter, &stream(true, true), &whole()).1, Ok(()));
    assert_eq!(decode(&parameter, &stream(false, true), &whole()).1, Err(OperatorError::Framing));
    assert_eq!(decode(&parameter, &stream(true, false), &whole()).1, Err(OperatorError::TruncatedData));
    // A signature does not cover a trailer after it.
    let mut late = stream(true, false);
    late.extend(b"x-amz-late:1\r\n\r\n");
    assert_eq!(decode(&parameter, &late, &whole()).1, Err(OperatorError::Framing));
    // Chunks without signatures, or with those of another key.
    let mut bare = Client::new(&unsigned(100, None));
    bare.chunk(&data);
    assert_eq!(decode(&parameter, &bare.stream, &whole()).1, Err(OperatorError::Framing));
    let mut other = parameter.clone();
    other.signature.as_mut().unwrap().key[0] ^= 1;
    assert_eq!(decode(&other, &stream(true, true), &whole()).1, Err(OperatorError::Signature));
    other = parameter.clone();
    other.signature.as_mut().unwrap().seed[31] ^= 1;
    assert_eq!(decode(&other, &stream(true, true), &whole()).1, Err(OperatorError::Signature));
}

/// A stream with its data, parameters and framing.
fn streams() -> impl Strategy<Value = (AwsChunked, Vec<u8>, Vec<u8>)> {
    let chunks = prop::collection::vec(1..3000usize, 0..8);
    (any::<u64>(), chunks, any::<bool>(), any::<bool>()).prop_map(|(seed, chunks, signed, trailers)| {
        let data = sample(seed, chunks.iter().sum());
        let parameter = AwsChunked {
            decoded_length: data.len() as u64,
            trailers,
            checksum: trailers.then_some(Operator::Crc32),
            signature: signature([seed as u8; 32]).filter(|_| signed),
        };
        let mut client = Client::new(&parameter);
        let mut rest = &data[..];
        for size in chunks {
            client.chunk(&rest[..size]);
            rest = &rest[size..];
        }
        client.chunk(b"");
        if trailers {
            client.trailers(&[("x-amz-checksum-crc32", "NhCmhg=="), ("x-amz-b", "c")], "\r\n", "");
        }
        (parameter, data, client.end())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cuts_do_not_matter(
        (parameter, data, stream) in streams(),
        pieces in prop::collection::vec(prop_oneof![1..4usize, 1..3000usize], 1..8),
        room in prop_oneof![Just(1usize), 2..50usize, 100..10_000usize],
        empty_end in any::<bool>(),
    ) {
        let (output, result) = decode(&parameter, &stream, &Cut { pieces, room, empty_end });
        prop_assert_eq!(result, Ok(()));
        prop_assert!(output == data);
        let expected = parameter.trailers.then(|| "3610a686".to_string());
        prop_assert_eq!(value(&parameter, &stream), expected);
    }

    /// Checks that any change is found or changes nothing; bytes removed or inserted are always found.
    #[test]
    fn damage_is_found(
        (parameter, data, stream) in streams(),
        at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
        piece in 1..500usize,
    ) {
        let cut = Cut { pieces: vec![piece], room: 1000, empty_end: false };
        let at = at.index(stream.len());
        let mut damaged = stream.clone();
        damaged[at] ^= flip;
        let (output, result) = decode(&parameter, &damaged, &cut);
        if parameter.signature.is_some() {
            prop_assert!(result.is_err() || output == data, "byte {at} of {}", stream.len());
        } else {
            prop_assert!(result.is_err() || output.len() == data.len());
        }
        let same = decode(&parameter, &damaged, &whole());
        prop_assert!(same.1 == result && same.0 == output, "what comes of damage depends on the cut");
        prop_assert_eq!(decode(&parameter, &stream[..at], &cut).1, Err(OperatorError::TruncatedData));
        let longer = [&stream[..], &[flip]].concat();
        prop_assert_eq!(decode(&parameter, &longer, &cut).1, Err(OperatorError::Framing));
    }

    #[test]
    fn garbage_does_no_harm(
        block in prop::collection::vec(any::<u8>(), 16..225),
        stream in "[0-9a-f;:=\r\n]{0,300}",
    ) {
        if Context::new(Operator::AwsChunked, &block).is_ok() {
            _ = resize(Operator::AwsChunked, &block, stream.as_bytes(), &whole());
        }
        _ = decode(&unsigned(3, None), stream.as_bytes(), &whole());
    }
}
