//! A virtual drive compared with the device without virtualization: SSD and operator by block size (figure 15).

use super::Setting;
use crate::drives::Operator;
use crate::drives::design::{Design, Request, Server};
use crate::drives::machine::Build;
use crate::experiments::figure::{Figure, Reach};
use std::cell::RefCell;
use std::rc::Rc;

/// Block sizes in bytes.
pub const BLOCKS: [u64; 4] = [4 << 10, 16 << 10, 64 << 10, 128 << 10];

/// A point of the figure.
#[derive(Clone, Debug)]
pub struct Row {
    /// Native, or FlexCSV.
    pub design: Design,
    /// Operator, without the SSD; `None` for reads of the SSD.
    pub operator: Option<Operator>,
    /// Block size in bytes.
    pub block: u64,
    /// Concurrent requests.
    pub depth: usize,
    /// Bytes per second.
    pub rate: f64,
}

/// Measures one point, with `depth` concurrent requests.
pub fn one(setting: &Setting, design: Design, operator: Option<Operator>, block: u64, depth: usize) -> Row {
    let build = Build {
        ssd_bytes: 4 << 20,
        slots: vec![Some(Operator::Encryption), Some(Operator::Decryption)],
        ..Build::new(setting.parameters, setting.timings, design.drives())
    };
    let bytes = build.ssd_bytes;
    let server = Server::new(design, build);
    let handle = server.handle();
    let left = Rc::new(RefCell::new(setting.count.max(depth as u64)));
    let under_way = Rc::new(RefCell::new(depth));
    let total = *left.borrow();
    for _ in 0..depth {
        let place = server.place(0, 0, block);
        let (left, under_way) = (Rc::clone(&left), Rc::clone(&under_way));
        handle.spawn(async move {
            loop {
                let at = *left.borrow();
                if at == 0 {
                    break;
                }
                *left.borrow_mut() -= 1;
                let from = operator.is_none().then_some(at * 37 * block % bytes / block * block);
                place.run(Request { from, operator, to: None, length: block }).await;
            }
            *under_way.borrow_mut() -= 1;
        });
    }
    let time = server.executor.run(async {
        let from = handle.now();
        handle.until(|_| (*under_way.borrow() == 0).then_some(())).await;
        handle.now() - from
    });
    Row { design, operator, block, depth, rate: (total * block) as f64 * 1e9 / time as f64 }
}

/// Measures both designs.
pub fn measure(setting: &Setting) -> Vec<Row> {
    let designs = [Design::Native, Design::FlexCsv];
    let operators = [None, Some(Operator::Encryption), Some(Operator::Decryption)];
    let one_at_once = operators.into_iter().flat_map(|operator| {
        BLOCKS
            .into_iter()
            .flat_map(move |block| designs.map(move |design| one(setting, design, operator, block, 1)))
    });
    let deep = [(4 << 10, 32), (128 << 10, 8)];
    let deep = deep.into_iter().flat_map(|(block, depth)| {
        let more = Setting { count: setting.count * 8, ..*setting };
        designs.map(move |design| one(&more, design, None, block, depth))
    });
    one_at_once.chain(deep).collect()
}

/// Returns the figures of [`measure`].
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let rate = |design, operator, block, depth| {
        let is =
            |row: &&Row| (row.design, row.operator, row.block, row.depth) == (design, operator, block, depth);
        rows.iter().find(is).expect("it was measured").rate
    };
    let ratio = |operator, block, depth| {
        rate(Design::FlexCsv, operator, block, depth) / rate(Design::Native, operator, block, depth)
    };
    let figure = |what, ours, paper, reach: Option<f64>, why| Figure {
        what,
        ours,
        paper,
        reach: reach.map(Reach::AtLeast),
        why,
    };
    let encryption = Some(Operator::Encryption);
    vec![
        figure(
            "reads of 4 KiB, 32 at once, virtual / native",
            ratio(None, 4 << 10, 32),
            Some(1.0),
            Some(0.95),
            "The paper says near native.",
        ),
        figure(
            "reads of 128 KiB, 8 at once, virtual / native",
            ratio(None, 128 << 10, 8),
            Some(1.0),
            Some(0.98),
            "",
        ),
        figure(
            "reads of 4 KiB, one at once, virtual / native",
            ratio(None, 4 << 10, 1),
            Some(1.0),
            None,
            "The interrupt has to wake the guest's processor, which sleeps: where one request is under way that is seen.",
        ),
        figure(
            "encryption of 4 KiB, one at once, virtual / native",
            ratio(encryption, 4 << 10, 1),
            Some(1.0),
            None,
            "As above.",
        ),
        figure(
            "encryption of 128 KiB, one at once, virtual / native",
            ratio(encryption, 128 << 10, 1),
            Some(1.0),
            Some(0.98),
            "",
        ),
        figure(
            "encryption of 128 KiB, one at once, of the slot's 211 MB/s",
            rate(Design::FlexCsv, encryption, 128 << 10, 1) / 211e6,
            Some(1.0),
            Some(0.95),
            "",
        ),
    ]
}
