//! Operator chains as users write them: `md5,aes256-ctr,gzip:9`, `grep:-i:error`.

use crate::args::Choice;
use crate::failure::Failure;
use crate::keys::{Counters, Keys};
use crate::modules;
use crate::units;
use dcs::op::{Bitmap, BitmapOperation, Element, ExpressionError, Knn};
use dcs::{AwsChunked, Grep, Mode, Op, Operator};
use dcs_abi::CHAIN_MAX;
use dcs_abi::operator::{OPERATORS, OperatorKind};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// Bytes of an XTS data unit by default.
const XTS_UNIT: u32 = 4096;

/// Bytes of Blowfish's key by default.
const BLOWFISH_KEY: u64 = 32;

/// Most bytes read of a query's file: more than any query has.
const QUERY_READ: u64 = 4096;

/// Checksums that S3's trailers may carry.
const CHECKSUMS: [Operator; 5] =
    [Operator::Crc32, Operator::Crc32c, Operator::Crc64Nvme, Operator::Sha1, Operator::Sha256];

/// One operator as written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spec {
    operator: Operator,
    on_gpu: bool,
    words: Vec<String>,
    /// Name as written, and file, of a module.
    module: Option<(String, PathBuf)>,
}

/// A chain with its keys and counters.
#[derive(Debug)]
pub struct Chain {
    pub ops: Vec<Op>,
    pub names: Vec<&'static str>,
    pub counters: Vec<Counter>,
}

/// GPU that a chain needs.
#[derive(Clone, Copy, Debug)]
pub struct Gpu {
    pub device: u32,
    /// Mode of reading files by the GPU itself.
    pub storage: Mode,
    /// Operator that runs on it.
    pub operator: &'static str,
}

/// First counter block of a cipher, which the other side needs. It is not secret.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Counter {
    pub place: usize,
    pub operator: &'static str,
    pub value: String,
    pub random: bool,
}

impl Chain {
    /// Parses a chain, and gives its ciphers their keys and counters, in order.
    pub fn new(words: &[String], keys: &Keys, mut counters: Counters) -> Result<Chain, Failure> {
        let specs = specs(words)?;
        if specs.len() > CHAIN_MAX {
            let line =
                format!("--through names {} operators; a chain may have at most {CHAIN_MAX}", specs.len());
            return Err(Failure::usage(line).advise("do it in two steps, with a pipe between them"));
        }
        let mut chain = Chain { ops: Vec::new(), names: Vec::new(), counters: Vec::new() };
        let mut ciphers = 0;
        for (place, spec) in specs.iter().enumerate() {
            ciphers += usize::from(spec.takes_key());
            let op = match spec.operator {
                Operator::Aes256Ctr => {
                    let key = keys.key(ciphers, spec.operator.name())?;
                    Op::Aes256Ctr { key, counter: chain.counter(place, spec, &mut counters)? }
                }
                Operator::BlowfishCtr => {
                    let key = spec.blowfish_key(ciphers, keys)?;
                    Op::BlowfishCtr { key, counter: chain.counter(place, spec, &mut counters)? }
                }
                _ => spec.op(ciphers, keys)?,
            };
            let on_gpu = spec.operator.info().gpu.filter(|_| spec.on_gpu);
            chain.names.push(on_gpu.unwrap_or_else(|| spec.name()));
            chain.ops.push(if on_gpu.is_some() { op.on_gpu() } else { op });
        }
        keys.all_used(ciphers)?;
        counters.all_used()?;
        Ok(chain)
    }

    /// Takes the next counter, and records it for the report.
    fn counter<const N: usize>(
        &mut self,
        place: usize,
        spec: &Spec,
        counters: &mut Counters,
    ) -> Result<[u8; N], Failure> {
        let operator = spec.operator.name();
        let (value, random) = counters.next(operator)?;
        self.counters.push(Counter { place, operator, value: units::to_hex(&value), random });
        Ok(value)
    }

    /// Returns true if as many bytes come out as go in.
    pub fn keeps_length(&self) -> bool {
        let resizes = |op: &Op| {
            let operator = Operator::from_chain(op.number());
            operator.is_none_or(|(operator, _)| operator.kind() == OperatorKind::Resize)
        };
        !self.ops.iter().any(resizes)
    }

    /// Returns true if the same bytes come out as go in, because all operators are digests.
    pub fn keeps_data(&self) -> bool {
        let changes = |op: &Op| {
            let operator = Operator::from_chain(op.number());
            operator.is_none_or(|(operator, _)| !matches!(operator.kind(), OperatorKind::Digest { .. }))
        };
        !self.ops.iter().any(changes)
    }

    /// Returns the GPU that its operators need, with the first of them; `None` if they need none.
    pub fn gpu(&self, device: u32, storage: Choice) -> Option<Gpu> {
        let on_gpu = |name: &&&str| Operator::from_chain_name(name).is_some_and(|(_, on_gpu)| on_gpu);
        self.names.iter().find(on_gpu).map(|operator| Gpu { device, storage: storage.into(), operator })
    }
}

/// Returns the named operators, with the parameters that need no key.
#[cfg(test)]
pub fn operators(words: &[String]) -> Result<Vec<Operator>, Failure> {
    Ok(specs(words)?.iter().map(|spec| spec.operator).collect())
}

fn specs(words: &[String]) -> Result<Vec<Spec>, Failure> {
    words.iter().flat_map(|word| split(word)).map(|word| Spec::parse(&word)).collect()
}

/// Splits an argument at commas. A backslash before a comma makes it part of the parameter, and is removed; all other
/// backslashes stay.
fn split(argument: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = argument.chars();
    while let Some(character) = characters.next() {
        let word = words.len() - 1;
        match character {
            ',' => words.push(String::new()),
            '\\' => match characters.next() {
                Some(',') => words[word].push(','),
                next => words[word].extend(['\\'].into_iter().chain(next)),
            },
            _ => words[word].push(character),
        }
    }
    words
}

impl Spec {
    fn parse(word: &str) -> Result<Spec, Failure> {
        let word = word.trim_start();
        let (on_gpu, own) = word.strip_prefix("gpu:").map_or((false, word), |own| (true, own));
        let (name, rest) = match own.find([':', '=']) {
            Some(at) => (&own[..at], Some(&own[at + 1..])),
            None => (own.trim_end(), None),
        };
        if !on_gpu
            && Operator::from_name(name).is_none()
            && let Some(path) = modules::find(name)
        {
            // A module takes the whole parameter, in any form.
            let (words, module) =
                (rest.map(str::to_string).into_iter().collect(), Some((name.to_string(), path)));
            return Ok(Spec { operator: Operator::Module, on_gpu, words, module });
        }
        let operator = Operator::from_name(name).ok_or_else(|| {
            let names: Vec<_> = OPERATORS.iter().map(|info| info.name).collect();
            let all = format!(
                "one of: {} (see dcs ops), or a module (dcs ops --load); a comma inside a parameter is written \\,",
                names.join(", ")
            );
            Failure::usage(format!("--through: there is no operator {name:?}")).advise(all)
        })?;
        if on_gpu && operator.info().gpu.is_none() {
            let names: Vec<_> = OPERATORS.iter().filter_map(|info| info.gpu).collect();
            return Err(Failure::usage(format!("--through: no GPU does {name}"))
                .advise(format!("GPUs do: {}", names.join(", "))));
        }
        let words: Vec<_> = match (operator, rest) {
            // Spaces, colons and equals signs belong to the expression.
            (Operator::Grep | Operator::Filter | Operator::Aggregate, Some(rest)) => vec![rest.to_string()],
            // A file's name may contain both.
            (Operator::Knn, Some(rest)) => rest.splitn(3, ':').map(str::to_string).collect(),
            (_, Some(rest)) => rest.trim_end().split([':', '=']).map(str::to_string).collect(),
            (_, None) => Vec::new(),
        };
        let spec = Spec { operator, on_gpu, words, module: None };
        if spec.words.len() > spec.most_words() {
            let line = format!("--through: too many parameters for {name}");
            return Err(Failure::usage(line).advise(usage_of(operator)));
        }
        Ok(spec)
    }

    /// Returns its name, a module's as written. Leaks it, which lasts as long as the command.
    fn name(&self) -> &'static str {
        match &self.module {
            Some((name, _)) => Box::leak(name.clone().into_boxed_str()),
            None => self.operator.name(),
        }
    }

    fn module(&self) -> Result<Op, Failure> {
        let (_, path) = self.module.as_ref().ok_or_else(|| self.refused("name the module itself"))?;
        let parameter = self.words.concat().into_bytes();
        Ok(Op::Module { name: modules::load(path, &parameter)?, parameter })
    }

    /// Returns its parameter at that place, if there is one.
    fn number(&self, at: usize) -> Result<Option<u64>, Failure> {
        let number = self.words.get(at).map(|word| word.parse()).transpose();
        number.map_err(|_| {
            Failure::usage(format!("--through: the parameters of {} must be numbers", self.operator.name()))
                .advise(usage_of(self.operator))
        })
    }

    fn most_words(&self) -> usize {
        match self.operator {
            Operator::Gzip | Operator::Zstd | Operator::Grep | Operator::Filter | Operator::Aggregate => 1,
            Operator::BlowfishCtr => 1,
            Operator::Aes256Xts | Operator::Aes256XtsDecrypt | Operator::AwsChunked | Operator::Slice => 2,
            Operator::Bitmap => 2,
            Operator::Knn => 3,
            digest if digest.digest_size() > 0 => 1,
            _ => 0,
        }
    }

    fn takes_key(&self) -> bool {
        use Operator::{Aes256Ctr, Aes256Xts, Aes256XtsDecrypt, BlowfishCtr};
        matches!(self.operator, Aes256Ctr | Aes256Xts | Aes256XtsDecrypt | BlowfishCtr)
    }

    /// Makes the operator. Ciphers in counter mode are handled elsewhere, because their counters are printed.
    fn op(&self, cipher: usize, keys: &Keys) -> Result<Op, Failure> {
        let name = self.operator.name();
        if self.operator.digest_size() > 0 && !self.words.is_empty() {
            return self.expecting();
        }
        Ok(match self.operator {
            Operator::Md5 => Op::Md5,
            Operator::Sha1 => Op::Sha1,
            Operator::Sha256 => Op::Sha256,
            Operator::Sha512 => Op::Sha512,
            Operator::Crc32 => Op::Crc32,
            Operator::Crc32c => Op::Crc32c,
            Operator::Crc64Nvme => Op::Crc64Nvme,
            Operator::Gunzip => Op::Gunzip,
            Operator::Unzstd => Op::Unzstd,
            Operator::Gzip => Op::Gzip { level: self.level(0..=9, 1)? },
            Operator::Zstd => Op::Zstd { level: self.level(1..=19, 3)? },
            Operator::Aes256Ctr | Operator::BlowfishCtr => {
                return Err(self.refused("it has no counter"));
            }
            Operator::Aes256Xts | Operator::Aes256XtsDecrypt => self.xts(keys.xts_key(cipher, name)?)?,
            Operator::AwsChunked => self.aws_chunked()?,
            Operator::Grep => self.grep()?,
            Operator::Filter => Op::Filter(self.expression(dcs::op::check_filter)?),
            Operator::Aggregate => Op::Aggregate(self.expression(dcs::op::check_aggregate)?),
            Operator::Knn => self.knn()?,
            Operator::Bitmap => self.bitmap()?,
            Operator::Module => self.module()?,
            Operator::Slice => match (self.number(0)?, self.number(1)?) {
                (Some(skip), Some(take)) if skip.checked_add(take).is_some() => Op::Slice { skip, take },
                _ => {
                    let line = "--through: slice needs the bytes to skip and to take";
                    return Err(Failure::usage(line).advise(usage_of(self.operator)));
                }
            },
        })
    }

    fn level(&self, allowed: std::ops::RangeInclusive<u64>, default: u8) -> Result<u8, Failure> {
        match self.number(0)? {
            None => Ok(default),
            Some(level) if allowed.contains(&level) => Ok(level as u8),
            Some(level) => {
                let name = self.operator.name();
                Err(Failure::usage(format!("--through: {name} has no level {level}"))
                    .advise(usage_of(self.operator)))
            }
        }
    }

    fn xts(&self, key: [u8; 64]) -> Result<Op, Failure> {
        let unit = self.number(0)?.unwrap_or(u64::from(XTS_UNIT));
        let unit_size = u32::try_from(unit)
            .ok()
            .filter(|unit| (16..=65536).contains(unit) && unit.is_power_of_two())
            .ok_or_else(|| {
                Failure::usage(format!(
                    "--through: {} does not take data units of {unit} bytes",
                    self.operator.name()
                ))
                .advise(usage_of(self.operator))
            })?;
        let first_unit = self.number(1)?.unwrap_or(0);
        Ok(match self.operator {
            Operator::Aes256Xts => Op::Aes256Xts { key, unit_size, first_unit },
            _ => Op::Aes256XtsDecrypt { key, unit_size, first_unit },
        })
    }

    /// Makes a digest with its expected value.
    fn expecting(&self) -> Result<Op, Failure> {
        let (digest, digits) = (self.operator, &self.words[0]);
        let value = units::from_hex(digits.as_bytes()).filter(|value| value.len() == digest.digest_size());
        let value = value.ok_or_else(|| {
            Failure::usage(format!("--through: {digits} is not a value of {}", digest.name()))
                .advise(usage_of(digest))
        })?;
        Ok(Op::Expect { digest, value })
    }

    /// Parses a pattern, after its options if it has any: `ERROR`, `-iv:error`.
    fn grep(&self) -> Result<Op, Failure> {
        let refused =
            |what: &str| Failure::usage(format!("--through: {what}")).advise(usage_of(self.operator));
        let text = self.words.first().ok_or_else(|| refused("grep needs a pattern"))?;
        let (options, pattern) = match text.strip_prefix('-') {
            Some(rest) => rest.split_once(':').ok_or_else(|| refused("grep's options end with a colon"))?,
            None => ("", text.as_str()),
        };
        let mut grep = Grep { pattern: pattern.to_string(), ..Grep::default() };
        for option in options.chars() {
            match option {
                'i' => grep.ignore_case = true,
                'v' => grep.invert = true,
                'c' => grep.count = true,
                _ => return Err(refused(&format!("grep has no option {option:?}"))),
            }
        }
        grep.check().map_err(|error| refused(&format!("grep: {pattern:?}: {error}")))?;
        Ok(Op::Grep(grep))
    }

    fn refused(&self, what: &str) -> Failure {
        Failure::usage(format!("--through: {}: {what}", self.operator.name())).advise(usage_of(self.operator))
    }

    /// Reads a key of the written size.
    fn blowfish_key(&self, cipher: usize, keys: &Keys) -> Result<Vec<u8>, Failure> {
        let size = self.number(0)?.unwrap_or(BLOWFISH_KEY);
        if !(4..=56).contains(&size) {
            return Err(self.refused(&format!("a key can't have {size} bytes")));
        }
        keys.key_of(cipher, self.operator.name(), size as usize)
    }

    /// Parses `10:f32:0.5;-1;2`, `10:u8:@FILE`.
    fn knn(&self) -> Result<Op, Failure> {
        let [k, element, query] = &self.words[..] else {
            return Err(self.refused("it needs a number, a type and a vector"));
        };
        let k = k.parse().map_err(|_| self.refused(&format!("{k:?} is not a number of neighbours")))?;
        let element =
            Element::from_name(element).ok_or_else(|| self.refused(&format!("unknown type {element:?}")))?;
        let query = match query.strip_prefix('@') {
            Some(path) => query_of(path)?,
            None => {
                let numbers = query.split(';').map(|number| element_of(element, number.trim()));
                let numbers: Option<Vec<_>> = numbers.collect();
                numbers
                    .ok_or_else(|| self.refused(&format!("{query:?} is not a vector of that type")))?
                    .concat()
            }
        };
        let knn = Knn { element, k, query };
        knn.check().map_err(|error| self.refused(&error.to_string()))?;
        Ok(Op::Knn(knn))
    }

    /// Parses `bitmap`, `bitmap:and`, `bitmap:or:count`.
    fn bitmap(&self) -> Result<Op, Failure> {
        let mut bitmap = Bitmap::default();
        for word in &self.words {
            match word.as_str() {
                "and" if bitmap.operation == BitmapOperation::One => bitmap.operation = BitmapOperation::And,
                "or" if bitmap.operation == BitmapOperation::One => bitmap.operation = BitmapOperation::Or,
                "count" if !bitmap.count => bitmap.count = true,
                _ => {
                    return Err(
                        self.refused(&format!("{word:?} is unknown, or conflicts with the word before it"))
                    );
                }
            }
        }
        Ok(Op::Bitmap(bitmap))
    }

    fn expression(&self, check: fn(&str) -> Result<(), ExpressionError>) -> Result<String, Failure> {
        let (name, text) = (self.operator.name(), self.words.first().map_or("", String::as_str));
        check(text).map_err(|error| {
            Failure::usage(format!("--through: {name}: {text:?}: {error}")).advise(usage_of(self.operator))
        })?;
        Ok(text.to_string())
    }

    /// Parses chunks without signatures: the signing key is not typed by people.
    fn aws_chunked(&self) -> Result<Op, Failure> {
        let refused =
            |what: &str| Failure::usage(format!("--through: {what}")).advise(usage_of(self.operator));
        let length = self.number(0)?.ok_or_else(|| refused("aws-chunked needs the length of the data"))?;
        let named = |name: &String| {
            let operator = Operator::from_name(name).filter(|operator| CHECKSUMS.contains(operator));
            operator.ok_or_else(|| refused(&format!("no trailer carries {name:?}")))
        };
        let checksum = self.words.get(1).map(named).transpose()?;
        let trailers = checksum.is_some();
        let parameter = AwsChunked { decoded_length: length, trailers, checksum, signature: None };
        Ok(Op::AwsChunked(Box::new(parameter)))
    }
}

/// Reads the vector in a file. Of a file that is too long, reads just enough to refuse it.
fn query_of(path: &str) -> Result<Vec<u8>, Failure> {
    let mut query = Vec::new();
    let read = File::open(path).and_then(|file| file.take(QUERY_READ).read_to_end(&mut query));
    read.map_err(|error| Failure::io(format!("query {path}"), &error))?;
    Ok(query)
}

/// Parses a vector's element.
fn element_of(element: Element, number: &str) -> Option<Vec<u8>> {
    match element {
        Element::U8 => number.parse().ok().map(|number: u8| vec![number]),
        Element::F32 => number.parse().ok().map(|number: f32| number.to_le_bytes().to_vec()),
    }
}

/// Returns the notation of an operator, with its parameters.
pub fn usage_of(operator: Operator) -> String {
    let name = operator.name();
    match operator {
        Operator::Gzip => format!("{name}[:LEVEL], LEVEL 0 to 9, 1 by default"),
        Operator::Zstd => format!("{name}[:LEVEL], LEVEL 1 to 19, 3 by default"),
        Operator::Aes256Xts | Operator::Aes256XtsDecrypt => format!(
            "{name}[:UNIT[:FIRST]], bytes of a data unit (16 to 65536, a power of two; {XTS_UNIT}) and number \
             of the first (0); key of 64 bytes"
        ),
        Operator::Aes256Ctr => format!("{name}; key of 32 bytes, first counter block by --iv"),
        Operator::BlowfishCtr => format!(
            "{name}[:BYTES], of its key (4 to 56; {BLOWFISH_KEY}); first counter block, 16 digits, by --iv"
        ),
        Operator::Knn => format!(
            "{name}:K:TYPE:QUERY, the K rows nearest to a vector; TYPE u8 or f32, QUERY its elements with ; between them, or \
             @FILE, which has it as it lies in a row"
        ),
        Operator::Bitmap => format!(
            "{name}[:and|:or][:count], of Roaring bitmaps: the bits of one, or those set in all of them or in any; or how many"
        ),
        Operator::Slice => format!("{name}:SKIP:TAKE, bytes before the range and bytes of it"),
        Operator::Grep => format!(
            "{name}:[-OPTIONS:]PATTERN, a regular expression on bytes; options: i (letters in either case), v (lines \
             that do not match), c (the lines' number); in it \\, is a comma, and \\- a - at its beginning"
        ),
        Operator::Filter => format!(
            "{name}:[-OPTIONS:]COLUMN=CONSTANT, rows of CSV; also != < <= > >=; COLUMN: its name in the header, or #NUMBER; \
             options: n (no header), t (tabs), dC (C between fields); binary rows of N bytes: {name}:-wN:TYPE@OFFSET=CONSTANT, TYPE \
             u8 to u64, i8 to i64, f32, f64, with be where big-endian, or textN"
        ),
        Operator::Aggregate => format!(
            "{name}:[-OPTIONS:]FUNCTION[;FUNCTION...], of CSV: count, count(COLUMN), sum, min, max, mean; columns and options \
             as for filter"
        ),
        digest if digest.digest_size() > 0 => {
            format!("{name}[=HEX], its expected value; it takes no other parameters")
        }
        Operator::AwsChunked => format!(
            "{name}:LENGTH[:CHECKSUM], bytes of the data without framing, and the operator whose checksum a trailer \
             brings (crc32, crc32c, crc64-nvme, sha1, sha256)"
        ),
        _ => format!("{name}; it takes no parameters"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grep(word: &str) -> Result<Op, Failure> {
        Spec::parse(word)?.grep()
    }

    #[test]
    fn a_comma_behind_a_backslash_divides_nothing() {
        assert_eq!(split("md5,gzip:9"), ["md5", "gzip:9"]);
        assert_eq!(split(r"grep:a{1\,3},md5"), ["grep:a{1,3}", "md5"]);
        assert_eq!(split(r"grep:\\,grep:\d\\\,x"), [r"grep:\\", r"grep:\d\\,x"]);
        assert_eq!(split(r"grep:a\"), [r"grep:a\"]);
    }

    #[test]
    fn a_pattern_is_all_that_stands_behind_its_options() {
        let plain = |pattern: &str| Grep { pattern: pattern.to_string(), ..Grep::default() };
        for (word, expected) in [
            ("grep:ERROR", plain("ERROR")),
            ("grep:a:b=c ", plain("a:b=c ")),
            (r"grep:\-i:x", plain(r"\-i:x")),
            ("grep:-i:x", Grep { ignore_case: true, ..plain("x") }),
            ("grep:-cv:-", Grep { count: true, invert: true, ..plain("-") }),
            ("grep:-:-x", plain("-x")),
        ] {
            assert_eq!(grep(word).unwrap(), Op::Grep(expected), "{word}");
        }
        let (knn, bitmap) = (|word: &str| Spec::parse(word)?.knn(), |word: &str| Spec::parse(word)?.bitmap());
        let query = vec![0, 0, 0, 63, 0, 0, 128, 191];
        let knn_of = Op::Knn(Knn { element: Element::F32, k: 10, query });
        assert_eq!(knn("knn:10:f32:0.5; -1").unwrap(), knn_of);
        let both = Bitmap { operation: BitmapOperation::And, count: true };
        assert_eq!(bitmap("bitmap:and:count").unwrap(), Op::Bitmap(both));
        for wrong in
            ["knn", "knn:0:u8:1", "knn:1:u9:1", "knn:1:u8:", "knn:1:u8:256", "knn:1:u8:-1", "knn:1:f32:inf"]
        {
            assert!(knn(wrong).is_err(), "{wrong}");
        }
        for wrong in ["bitmap:xor", "bitmap:and:or", "bitmap:count:count"] {
            assert!(bitmap(wrong).is_err(), "{wrong}");
        }
        for wrong in ["grep", "grep:", "grep:-i", "grep:-x:a", "grep:(", "grep:-i:"] {
            assert!(grep(wrong).is_err(), "{wrong}");
        }
    }
}
