//! Streams through good modules.

use crate::texts::{self, XOR, load, run};
use dcs_abi::operator::Operator;
use dcs_ndp::{module, parameter, sequential};
use dcs_testkit::random::bytes as random_bytes;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cuts_do_not_matter(
        length in 0usize..40_000,
        pieces in prop::collection::vec(prop_oneof![1usize..10, 1usize..10_000], 1..5),
        room in prop_oneof![1usize..10, 100usize..70_000],
        key: u8,
    ) {
        let data = random_bytes(length, u64::from(key));
        let expected: Vec<u8> = data.iter().map(|byte| byte ^ key).collect();
        let module = load(XOR).unwrap();
        prop_assert_eq!(run(&module, &[key], &data, &pieces, room).unwrap(), (expected, None));
        let passing = load(&texts::passing()).unwrap();
        prop_assert_eq!(run(&passing, &[], &data, &pieces, room).unwrap(), (data, None));
    }
}

#[test]
fn a_chain_has_modules_among_the_others() {
    let module = load(XOR).unwrap();
    let name = *module.name();
    assert!(module.install());
    let (key, data) = ([7; 32], random_bytes(200_000, 1));
    let xor = (Operator::Module, module::parameter(&name, &[0x5a]));
    let aes = (Operator::Aes256Ctr, parameter::aes256_ctr(&key, &[0; 16]).to_vec());
    let gzip = |operator| (operator, vec![]);
    let there = [(Operator::Md5, vec![]), xor.clone(), aes.clone(), gzip(Operator::Gzip)];
    let there = sequential::run(&there, &data).unwrap();
    assert_ne!(there.output, data);
    let back = [gzip(Operator::Gunzip), aes, xor, (Operator::Md5, vec![])];
    let back = sequential::run(&back, &there.output).unwrap();
    assert_eq!(back.output, data);
    assert_eq!(back.digests[3], there.digests[0]);
}

#[test]
fn streams_of_one_module_share_nothing() {
    // Returns the number of calls in its value.
    let counting = texts::stepping(
        "(i32.store (i32.const 28) (i32.const 1))
        (i32.store8 (i32.const 32) (i32.add (i32.load8_u (i32.const 32)) (i32.const 1)))
        (i32.store (i32.const 20) (local.get $n)) (local.get $last)",
    );
    let module = load(&counting).unwrap();
    for calls in [1u8, 3] {
        let data = vec![0; usize::from(calls) * 100];
        let (output, value) = run(&module, &[], &data, &[100], 50).unwrap();
        assert!(output.is_empty());
        assert_eq!(value.unwrap().as_bytes(), [calls]);
    }
}
