//! Binary data: rows of a fixed width and vectors compared with numpy, bitmaps with CRoaring (by pyroaring), Blowfish
//! with OpenSSL. Each file has about [`SIZE`](super::SIZE) bytes.

use super::{Answer, SIZE, compare, ours, python, random, title};
use dcs_abi::operator::Operator;
use dcs_ndp::parameter::{self, Element};
use std::path::Path;
use std::process::Command;

/// A question, with the program that answers it: `file` is the data's name in it.
struct Question {
    name: &'static str,
    chain: Vec<(Operator, Vec<u8>)>,
    python: &'static str,
    answer: Answer,
}

/// Beginning of every program.
const NUMPY: &str = "import sys, numpy as np\nfile = sys.argv[1]\n\
    rows = lambda: np.memmap(file, [('id', '<u8'), ('amount', '<u4'), ('price', '<f4')], 'r')\n\
    def nearest(kind, size, wide, query):\n\
    \x20a = np.memmap(file, kind, 'r').reshape(-1, size)\n\
    \x20found = []\n\
    \x20for at in range(0, len(a), 4096):\n\
    \x20\x20d = a[at:at + 4096].astype(wide) - query\n\
    \x20\x20d = np.einsum('ij,ij->i', d, d)\n\
    \x20\x20found += [(d[i], at + i) for i in np.argpartition(d, 10)[:10]]\n\
    \x20print(sorted(found)[0][1])\n";

/// Beginning of every program with bitmaps.
const ROARING: &str = "import sys\nfrom pyroaring import BitMap\ndata = memoryview(open(sys.argv[1], 'rb').read())\n\
    size = int.from_bytes(data[-4:], 'little')\n\
    all = [BitMap.deserialize(bytes(data[at:at + size])) for at in range(0, len(data) - size + 1, size)]\n";

pub fn measure(path: &Path) {
    let file = path.to_str().unwrap();
    let text = |text: &str| text.as_bytes().to_vec();
    std::fs::write(path, rows()).unwrap();
    let questions = [
        Question {
            name: "filter:-w16:u32@8>3865470566 (a tenth)",
            chain: vec![(Operator::Filter, text("-w16:u32@8>3865470566"))],
            python: "a = rows()\nsys.stdout.buffer.write(a[a['amount'] > 3865470566].data)",
            answer: Answer::Bytes,
        },
        Question {
            name: "filter:-w16:f32@12<=0.5 (a half)",
            chain: vec![(Operator::Filter, text("-w16:f32@12<=0.5"))],
            python: "a = rows()\nsys.stdout.buffer.write(a[a['price'] <= 0.5].data)",
            answer: Answer::Bytes,
        },
        Question {
            name: "aggregate:-w16:sum(u32@8)",
            chain: vec![(Operator::Aggregate, text("-w16:sum(u32@8)"))],
            python: "print(rows()['amount'].sum(dtype='u8'))",
            answer: Answer::Number,
        },
        Question {
            name: "aggregate:-w16:mean(f32@12)",
            chain: vec![(Operator::Aggregate, text("-w16:mean(f32@12)"))],
            python: "print(rows()['price'].mean(dtype='f8'))",
            answer: Answer::Near,
        },
        Question {
            name: "aggregate:-w8:max(u64@0)",
            chain: vec![(Operator::Aggregate, text("-w8:max(u64@0)"))],
            python: "print(np.memmap(file, '<u8', 'r').max())",
            answer: Answer::Number,
        },
        Question {
            name: "knn:10:u8, 128 elements",
            chain: vec![knn(Element::U8, &[100; 128])],
            python: "nearest('u1', 128, 'i4', np.full(128, 100, 'i4'))",
            answer: Answer::First,
        },
    ];
    title("GiB of binary rows per CPU second", &["dcs", "numpy"]);
    questions.iter().for_each(|asked| ask(asked, "numpy", NUMPY, file));
    std::fs::write(path, floats()).unwrap();
    let vectors = Question {
        name: "knn:10:f32, 96 elements",
        chain: vec![knn(Element::F32, &0.5f32.to_le_bytes().repeat(96))],
        python: "nearest('<f4', 96, '<f4', np.full(96, 0.5, '<f4'))",
        answer: Answer::First,
    };
    ask(&vectors, "numpy", NUMPY, file);
    bitmaps(path);
    blowfish(file);
}

fn ask(asked: &Question, program: &str, before: &str, file: &str) {
    let of = |contender: &str| match contender {
        "dcs" => ours(file, &asked.chain),
        _ => {
            let mut command = python();
            command.args(["-c", &[before, asked.python].concat(), file]);
            command
        }
    };
    compare(asked.name, &["dcs", program], &of, asked.answer);
}

fn knn(element: Element, query: &[u8]) -> (Operator, Vec<u8>) {
    (Operator::Knn, parameter::Knn { element, k: 10, query: query.to_vec() }.block())
}

/// Makes rows of an id, an amount and a price at random, with prices below one.
fn rows() -> Vec<u8> {
    let mut next = random();
    let mut rows = Vec::with_capacity(SIZE);
    while rows.len() < SIZE {
        rows.extend((next(1 << 31) << 31 | next(1 << 31)).to_le_bytes());
        rows.extend(((next(1 << 16) << 16 | next(1 << 16)) as u32).to_le_bytes());
        rows.extend((next(1 << 24) as f32 / (1 << 24) as f32).to_le_bytes());
    }
    rows
}

/// Makes numbers from 0 to 1, in rows of 96.
fn floats() -> Vec<u8> {
    let mut next = random();
    let numbers = SIZE / 384 * 96;
    (0..numbers).flat_map(|_| (next(1 << 24) as f32 / (1 << 24) as f32).to_le_bytes()).collect()
}

/// Makes bitmaps of 1,024 containers of plain bits, an eighth of them set; all have the same size.
fn bitmaps(path: &Path) {
    let mut next = random();
    let mut stream: Vec<u8> = Vec::with_capacity(SIZE + (16 << 20));
    let mut size = 0;
    while stream.len() < SIZE {
        let start = stream.len();
        let bits = (0..1u32 << 23).map(|at| at * 8 + next(8) as u32);
        roaring::RoaringBitmap::from_sorted_iter(bits).unwrap().serialize_into(&mut stream).unwrap();
        assert!(size == 0 || size == stream.len() - start);
        size = stream.len() - start;
    }
    std::fs::write(path, &stream).unwrap();
    let program =
        |what: &str| ROARING.replace("int.from_bytes(data[-4:], 'little')", &size.to_string()) + what;
    title("GiB of Roaring bitmaps per CPU second", &["dcs", "pyroaring"]);
    for (name, operation, what) in [
        ("bitmap:or:count", 2, "print(len(BitMap.union(*all)))"),
        ("bitmap:and:count", 1, "print(len(BitMap.intersection(*all)))"),
    ] {
        let asked = Question {
            name,
            chain: vec![(Operator::Bitmap, vec![operation, 1])],
            python: "",
            answer: Answer::Number,
        };
        ask(&asked, "pyroaring", &program(what), path.to_str().unwrap());
    }
}

/// OpenSSL has no counter mode for Blowfish. OFB encrypts as many blocks, but one after the other: the processor cannot
/// begin the next one early.
fn blowfish(file: &str) {
    let key = [7; 16];
    title("GiB per CPU second", &["dcs", "openssl"]);
    let of = |contender: &str| match contender {
        "dcs" => ours(file, &[(Operator::BlowfishCtr, parameter::blowfish_ctr(&key, &[0; 8]))]),
        _ => {
            let mut command = Command::new("openssl");
            let digits = "07".repeat(16);
            command.args(["enc", "-bf-ofb", "-K", &digits, "-iv", "0000000000000000", "-in", file]);
            command.args(["-provider", "legacy", "-provider", "default"]);
            command
        }
    };
    compare("blowfish-ctr; openssl enc -bf-ofb", &["dcs", "openssl"], &of, Answer::Length);
}
