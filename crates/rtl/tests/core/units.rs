//! The units in SystemVerilog beside the operators in software: the same bytes, digests, refusals, for several commands in turns.

use dcs_abi::CHAIN_MAX;
use dcs_abi::operator::Operator::{self, Aes256Ctr, Aes256Xts, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use dcs_abi::status::Status;
use dcs_engine::{
    BlockId, CommandId, Failure, Operation, OperationId, OperationKind, OperatorSpec, Outcome, TransferSpec,
    Units as _,
};
use dcs_ndp::Chains;
use dcs_rtl::Units;
use dcs_testkit::Random;

const OPERATORS: [Operator; 8] = [Md5, Sha1, Sha256, Crc32, Crc32c, Crc64Nvme, Aes256Ctr, Aes256Xts];
const BLOCK: usize = 4096;
const COMMANDS: u16 = 5;

/// A command whose blocks go through both.
struct Running {
    command: CommandId,
    spec: TransferSpec,
    data: Vec<u8>,
    at: usize,
}

/// What the commands met, so that a run without it shows.
#[derive(Debug, Default)]
struct Met {
    refused: usize,
    mismatched: usize,
    truncated: usize,
    digests: usize,
    ciphers: usize,
}

fn operation(command: CommandId, kind: OperationKind) -> Operation {
    Operation { id: OperationId::from_bits(0), command, kind }
}

/// The digest of the data in software.
fn digest(operator: Operator, data: &[u8]) -> Vec<u8> {
    let mut context = dcs_ndp::Context::new(operator, &[]).unwrap();
    context.absorb(data);
    context.value().unwrap().as_bytes().to_vec()
}

fn parameter(random: &mut Random, operator: Operator, now: &[u8]) -> Vec<u8> {
    match operator {
        Aes256Ctr => random.bytes(operator.info().parameter.1),
        Aes256Xts => {
            let mut block = random.bytes(operator.info().parameter.1);
            if random.one_in(10) {
                block.copy_within(0..32, 32);
            }
            let unit = if random.one_in(10) { 24 } else { 16 << random.index(9) };
            block[64..68].copy_from_slice(&u32::to_le_bytes(unit));
            block[68..72].fill(0);
            block
        }
        _ if random.one_in(2) => Vec::new(),
        _ if random.one_in(20) => random.bytes(operator.digest_size() - 1),
        _ if random.one_in(4) => random.bytes(operator.digest_size()),
        _ => digest(operator, now),
    }
}

impl Running {
    /// A command with random operators. What is expected of a digest is mostly right where no cipher comes before it.
    fn random(random: &mut Random, command: CommandId) -> Running {
        let length = [0, 1, 16, BLOCK, random.index(3 * BLOCK)][random.index(5)];
        let data = random.bytes(length);
        let chain = (0..1 + random.index(CHAIN_MAX))
            .map(|_| {
                let operator = *random.pick(&OPERATORS);
                OperatorSpec::new(operator, parameter(random, operator, &data).into())
            })
            .collect();
        Running { command, spec: TransferSpec { chain, ..TransferSpec::default() }, data, at: 0 }
    }

    /// The next block through the whole chain in both. Returns false when the command is over.
    fn step(&mut self, random: &mut Random, both: (&mut Units, &mut Chains), met: &mut Met) -> bool {
        let end = (self.at + BLOCK).min(self.data.len());
        let last = end == self.data.len();
        let mut block = self.data[self.at..end].to_vec();
        self.at = end;
        for (operator, spec) in self.spec.chain.iter().enumerate() {
            let operator = operator as u8;
            let (unit, length) = (random.index(2) as u16, block.len() as u32);
            let kind = OperationKind::Process { unit, operator, block: BlockId(7), length, last };
            let asked = operation(self.command, kind);
            let mut other = block.clone();
            let outcome = both.1.process(&asked, &mut other);
            assert_eq!(both.0.process(&asked, &mut block), outcome, "{spec:?} of {length} bytes");
            if let Outcome::Failed(Failure { status, .. }) = outcome {
                met.mismatched += usize::from(status == Status::DigestMismatch);
                met.truncated += usize::from(status == Status::TruncatedData);
                return self.end(both, met);
            }
            assert_eq!(block, other, "{spec:?} of {length} bytes");
            met.ciphers += usize::from(spec.operator.digest_size() == 0);
        }
        if last || random.one_in(20) {
            return self.end(both, met);
        }
        true
    }

    /// Its digests, of what they have had.
    fn end(&self, both: (&mut Units, &mut Chains), met: &mut Met) -> bool {
        for (operator, spec) in self.spec.chain.iter().enumerate() {
            if spec.operator.digest_size() > 0 {
                let asked = operation(self.command, OperationKind::Snapshot { operator: operator as u8 });
                assert_eq!(both.0.snapshot(&asked), both.1.snapshot(&asked), "{spec:?}");
                met.digests += 1;
            }
        }
        both.0.unload(self.command);
        both.1.unload(self.command);
        false
    }
}

#[test]
fn units_do_what_the_operators_in_software_do() {
    let mut random = Random(0x0dd5);
    let (mut units, mut chains, mut met) = (Units::new(), Chains::new(COMMANDS), Met::default());
    let mut running: Vec<Option<Running>> = (0..COMMANDS).map(|_| None).collect();
    for number in 0..600 {
        let slot = random.index(running.len());
        if let Some(command) = &mut running[slot] {
            if !command.step(&mut random, (&mut units, &mut chains), &mut met) {
                running[slot] = None;
            }
            continue;
        }
        let command = Running::random(&mut random, CommandId::new(slot as u16, number));
        let loaded = chains.load(command.command, &command.spec);
        assert_eq!(units.load(command.command, &command.spec), loaded, "{:?}", command.spec);
        met.refused += usize::from(loaded.is_err());
        running[slot] = loaded.is_ok().then_some(command);
    }
    println!("{met:?} in {} cycles", units.cycles());
    let Met { refused, mismatched, truncated, digests, ciphers } = met;
    assert!([refused, mismatched, truncated].iter().all(|count| *count > 5), "{met:?}");
    assert!([digests, ciphers].iter().all(|count| *count > 100), "{met:?}");
}

#[test]
fn an_operator_without_units_is_refused() {
    let spec = OperatorSpec::new(Operator::Sha512, [].into());
    let spec = TransferSpec { chain: vec![spec], ..TransferSpec::default() };
    let refused = Units::new().load(CommandId::new(0, 0), &spec);
    assert_eq!(refused, Err((0, Failure::new(Status::UnknownOperator))));
}
