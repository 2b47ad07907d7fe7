//! Real operators on a stream's way: a cipher, and a digest of what is sent.

use crate::rig::{MS, SECOND};
use crate::streams::{TASKS, rig};
use dcs_abi::operator::Operator as Number;
use dcs_d2d::Operator;
use dcs_d2d::driver::Send;
use dcs_ndp::{Context, DigestValue};
use std::sync::{Arc, Mutex};

const BYTES: u64 = 33 * 4096 + 5;
/// The key and the first counter.
const PARAMETER: [u8; 48] = [7; 48];

/// aes256-ctr, then md5.
struct Chain {
    cipher: Context,
    digest: Context,
    told: Arc<Mutex<Option<DigestValue>>>,
}

fn contexts() -> (Context, Context) {
    (Context::new(Number::Aes256Ctr, &PARAMETER).unwrap(), Context::new(Number::Md5, &[]).unwrap())
}

impl Operator for Chain {
    fn start(&mut self) {
        (self.cipher, self.digest) = contexts();
    }

    fn update(&mut self, bytes: &mut [u8]) {
        self.cipher.in_place(bytes, false).unwrap();
        self.digest.absorb(bytes);
        *self.told.lock().unwrap() = self.digest.value();
    }
}

#[test]
fn a_stream_is_encrypted_and_its_digest_is_that_of_what_was_sent() {
    let mut rig = rig(3);
    let told = Arc::default();
    let (cipher, digest) = contexts();
    rig.ssd.set_operator(0, Some(Box::new(Chain { cipher, digest, told: Arc::clone(&told) })));
    // The first run is cut off: the second begins with the first counter again, and with an empty digest.
    for _ in 0..2 {
        rig.start(0, BYTES, &Send::default());
        rig.run(MS / 2);
    }
    assert!(rig.run(10 * SECOND));
    let mut received = rig.received(0);
    assert_eq!(received.len() as u64, BYTES);
    let (mut cipher, mut digest) = contexts();
    digest.absorb(&received);
    assert_eq!(*told.lock().unwrap(), digest.value());
    let plain = &rig.content(&TASKS)[..BYTES as usize];
    assert!(received != plain);
    cipher.in_place(&mut received, true).unwrap();
    assert!(received == plain);
}
