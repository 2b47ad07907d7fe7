//! The latency of 4 KiB from the SSD to the far end of the wire, without an operator, with MD5 and with AES-256, by component
//! (dissertation, figures 2.8 and 3.11).

use crate::breakdown::breakdown;
use crate::cpu::Component;
use crate::design::{Design, Job, bring_up, build};
use crate::experiments::figure::{Figure, Reach};
use crate::host::Waiting;
use crate::parameters::Parameters;
use dcs_abi::operator::Operator;
use dcs_engine::Nanos;

/// Bytes of the transfer.
pub const LENGTH: u64 = 4096;

/// One design.
#[derive(Clone, Debug)]
pub struct Row {
    /// Design.
    pub design: Design,
    /// Software's way of waiting for devices.
    pub waiting: Waiting,
    /// Operator that the data pass.
    pub operator: Option<Operator>,
    /// Time from the application's call to the last bit at the far end.
    pub total: Nanos,
    /// The same time by component.
    pub parts: Vec<(Component, Nanos)>,
    /// Time from the call to its return.
    pub returned: Nanos,
}

impl Row {
    fn sum(&self, of: impl Fn(Component) -> bool) -> Nanos {
        self.parts.iter().filter(|(what, _)| of(*what)).map(|(_, time)| time).sum()
    }

    /// Returns the host software's time.
    pub fn software(&self) -> Nanos {
        self.sum(Component::is_software)
    }

    /// Returns the time of the host's software and of the card's own control: everything but devices' time.
    pub fn control(&self) -> Nanos {
        self.sum(|what| !what.is_device())
    }
}

/// Runs one transfer: the second one, so that neighbours are known and windows are open.
///
/// # Panics
///
/// If a byte or a digest is wrong.
pub fn measure(design: Design, waiting: Waiting, operator: Option<Operator>, parameters: Parameters) -> Row {
    let mut made = build(design, parameters);
    made.ssd_bytes = 1 << 20;
    made.checks = true;
    let (executor, program) = bring_up(design, made, waiting, 1);
    let handle = executor.handle();
    let (row, done) = executor.run(async {
        let thread = handle.thread();
        let mut row = None;
        for position in [64 << 10, 0] {
            let job = Job { connection: 0, position, length: LENGTH, operator };
            handle.with(|server| {
                server.stream(0).expect(position, LENGTH);
                let changes = operator.filter(|operator| operator.digest_size() == 0);
                server.stream(0).undo(changes.map(back));
                server.trace = Some(Vec::new());
            });
            let (begun, before) = (handle.now(), handle.with(|server| server.stream(0).received));
            let done = program.send(thread, job).await;
            let returned = handle.now();
            let sent = done.sent;
            handle.until(|server| (server.stream(0).received == before + LENGTH).then_some(())).await;
            let (last, wrong, trace) = handle.with(|server| {
                let stream = server.stream(0);
                let (last, wrong) = (stream.last, stream.wrong);
                (last, wrong, server.trace.take().unwrap_or_default())
            });
            assert!(!wrong, "a byte was wrong");
            // Waits for acknowledgements and other late packets.
            handle.sleep_until(handle.now() + 1_000_000).await;
            // Work of the host after the NIC has the data does not count.
            let mut parts = breakdown(&trace, begun, sent.min(last));
            let rest = last - sent.min(last);
            match parts.iter_mut().find(|(what, _)| *what == Component::Network) {
                Some((_, time)) => *time += rest,
                None => parts.push((Component::Network, rest)),
            }
            let returned = returned - begun;
            row = Some((Row { design, waiting, operator, total: last - begun, parts, returned }, done));
        }
        row.expect("two transfers")
    });
    if let Some(operator) = operator.filter(|operator| operator.digest_size() > 0) {
        let mut context = dcs_ndp::Context::new(operator, &[]).expect("a digest has no parameter");
        context.absorb(&handle.with(|server| server.pattern.bytes(0, LENGTH as usize)));
        assert_eq!(
            Some(&done.digest[..]),
            context.value().as_ref().map(|value| value.as_bytes()),
            "the digest"
        );
    }
    row
}

/// Returns what undoes an operator that changes the data.
fn back(operator: Operator) -> dcs_ndp::Context {
    dcs_ndp::Context::new(operator, &crate::kernels::parameter(operator)).expect("the parameter is right")
}

/// Measures all designs.
pub fn run(parameters: Parameters) -> Vec<Row> {
    let (sleep, poll) = (Waiting::Interrupt, Waiting::Poll);
    let plain = [
        (Design::HostCentric, sleep),
        (Design::Software { gpu: true }, sleep),
        (Design::Integrated, sleep),
        (Design::Card, sleep),
        (Design::Software { gpu: true }, poll),
        (Design::Card, poll),
    ];
    let processed = [
        (Design::HostCentric, sleep),
        (Design::Software { gpu: false }, sleep),
        (Design::Software { gpu: true }, sleep),
        (Design::PeerToPeer, sleep),
        (Design::Card, sleep),
        (Design::Software { gpu: true }, poll),
        (Design::PeerToPeer, poll),
        (Design::Card, poll),
    ];
    let of = |designs: &[(Design, Waiting)], operator| {
        designs
            .iter()
            .map(|(design, waiting)| measure(*design, *waiting, operator, parameters))
            .collect::<Vec<_>>()
    };
    [of(&plain, None), of(&processed, Some(Operator::Md5)), of(&processed, Some(Operator::Aes256Ctr))]
        .concat()
}

fn of(rows: &[Row], design: Design, waiting: Waiting, operator: Option<Operator>) -> &Row {
    let is = |row: &&Row| (row.design, row.waiting, row.operator) == (design, waiting, operator);
    rows.iter().find(is).expect("it was measured")
}

/// Returns the figures of [`run`].
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let ratio = |one: Nanos, other: Nanos| one as f64 / other as f64;
    let software = Design::Software { gpu: true };
    let (sleep, poll, md5) = (Waiting::Interrupt, Waiting::Poll, Some(Operator::Md5));
    let row = |design, waiting, operator| of(rows, design, waiting, operator);
    let host = |one: &Row, other: &Row| ratio(one.software(), other.software());
    let all = |one: &Row, other: &Row| ratio(one.control(), other.software());
    let (card, other) = (row(Design::Card, sleep, None), row(software, sleep, None));
    let (card_polls, other_polls) = (row(Design::Card, poll, None), row(software, poll, None));
    let (card_md5, peer) = (row(Design::Card, sleep, md5), row(Design::PeerToPeer, sleep, md5));
    let (card_md5_polls, peer_polls) = (row(Design::Card, poll, md5), row(Design::PeerToPeer, poll, md5));
    let aes = Some(Operator::Aes256Ctr);
    let (card_aes, peer_aes) = (row(Design::Card, sleep, aes), row(Design::PeerToPeer, sleep, aes));
    let kernel = row(Design::HostCentric, sleep, None);
    let figure = |what, ours, paper, reach, why| Figure { what, ours, paper, reach, why };
    let most = |most| Some(Reach::AtMost(most));
    vec![
        figure(
            "SSD -> NIC, host software, card / software-optimised",
            host(card, other),
            Some(0.58),
            most(0.5),
            "The paper's software-optimised design is in the kernel; this one is in user space, and leaner. The card's host submits and is not waited for again.",
        ),
        figure(
            "the same, the card's own control counted as software",
            all(card, other),
            Some(0.58),
            most(0.5),
            "Control of the card is fetching entry and descriptor over PCIe and the scoreboard; the paper calls it minimal and gives no figure.",
        ),
        figure(
            "the same, where both poll",
            all(card_polls, other_polls),
            None,
            None,
            "A user-space driver that polls has nearly nothing left to save: the card's library and its fetches take longer than an NVMe command by SPDK.",
        ),
        figure(
            "SSD -> NIC, card's control and host software / host-centric",
            all(card, kernel),
            None,
            None,
            "",
        ),
        figure(
            "SSD -> MD5 -> NIC, host software, card / software-controlled P2P",
            host(card_md5, peer),
            Some(0.28),
            most(0.2),
            "Launching kernels and fetching the digest are calls of the GPU's driver; the card has neither.",
        ),
        figure(
            "the same, the card's own control counted as software",
            all(card_md5, peer),
            Some(0.28),
            most(0.2),
            "As above.",
        ),
        figure(
            "the same, where both poll",
            all(card_md5_polls, peer_polls),
            None,
            None,
            "Polling takes the interrupts from P2P's side.",
        ),
        figure(
            "SSD -> AES256 -> NIC, host software, card / software-controlled P2P",
            host(card_aes, peer_aes),
            None,
            most(0.2),
            "The paper's text has a number for MD5 alone; its drawing of AES256 looks the same.",
        ),
        figure(
            "SSD -> AES256 -> NIC, of the time of SSD -> MD5 -> NIC, card",
            ratio(card_aes.total, card_md5.total),
            None,
            None,
            "A unit of AES-256 takes less time for 4 KiB than one of MD5.",
        ),
    ]
}
