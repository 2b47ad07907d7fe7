//! Tests of datagrams cut from blocks.

use crate::rig::pair::{address, config};
use crate::rig::{Faults, MS, Pair, Plan, SECOND, fill};
use dcs_net::SendError;

const PORT: u16 = 9;

fn pair() -> Pair {
    let mut pair = Pair::cards(6, MS, Faults::none(), [config(0), config(1)]);
    (0..2).for_each(|side| pair.card(side).stack.open_udp(PORT).unwrap());
    pair
}

/// Returns the datagrams that have arrived at the second card, without the senders.
fn came(pair: &mut Pair) -> Vec<Vec<u8>> {
    std::mem::take(&mut pair.card(1).datagrams).into_iter().map(|(_, _, bytes)| bytes).collect()
}

#[test]
fn a_block_is_cut_into_datagrams_and_free_when_all_are_sent() {
    for (length, payload) in [(0, 10), (1, 1), (5000, 1472), (2944, 1472), (65_536, 1000), (99, 100)] {
        let mut pair = pair();
        let block = pair.card(0).send_datagrams(PORT, address(1, PORT), 77, length, payload).unwrap();
        let next = pair.card(0).send_datagrams(PORT, address(1, PORT), 78, 10, payload).unwrap();
        assert!(block != next && pair.card(0).stack.usage().pending == 2);
        pair.run_for(SECOND);
        let datagrams = came(&mut pair);
        let cut = |seed, length| {
            let mut bytes = vec![0; length as usize];
            fill(seed, 0, &mut bytes);
            match length {
                0 => vec![Vec::new()],
                _ => bytes.chunks(payload.into()).map(<[u8]>::to_vec).collect::<Vec<_>>(),
            }
        };
        assert!(datagrams == [cut(77, length), cut(78, 10)].concat(), "{length} by {payload}, in order");
        assert!(pair.card(0).unsent.is_empty());
        (0..2).for_each(|side| pair.card(side).assert_idle());
    }
}

#[test]
fn a_connection_s_frames_go_between_datagrams() {
    let mut pair = pair();
    pair.card(1).stack.listen(80).unwrap();
    let plan = Plan::new(100_000);
    pair.card(1).accepts = Some(plan.reversed(0));
    let now = pair.now;
    let flow = pair.card(0).connect(address(1, 80), plan, now);
    for _ in 0..20 {
        pair.card(0).send_datagrams(PORT, address(1, PORT), 77, 60_000, 100).unwrap();
    }
    let all = 20 * 600;
    assert!(pair.run_until(100 * SECOND, |pair| pair.card(0).apps[&flow].acknowledged == 100_000));
    assert!(pair.run_until(100 * SECOND, |pair| pair.card(1).datagrams.len() == all));
    assert_eq!(pair.card(0).stack.statistics().timeouts, 0, "the connection did not wait for its turn");
}

#[test]
fn what_reaches_nobody_is_said() {
    let mut pair = pair();
    let nobody = "10.0.0.77:9".parse().unwrap();
    let lost: Vec<u64> =
        (0..20).map(|_| pair.card(0).send_datagrams(PORT, nobody, 77, 5000, 1000).unwrap()).collect();
    pair.card(0).send_datagrams(PORT, address(1, PORT), 78, 5000, 1000).unwrap();
    pair.run_for(SECOND);
    assert_eq!((came(&mut pair).len(), pair.card(0).unsent.len()), (5, 0), "others do not wait for it");
    pair.run_for(10 * SECOND);
    assert_eq!(pair.card(0).unsent, lost);
    assert_eq!(pair.card(0).stack.statistics().pending_dropped, 20);
    (0..2).for_each(|side| pair.card(side).assert_idle());
}

#[test]
fn what_is_recalled_or_its_port_closed_goes_no_further() {
    let mut pair = pair();
    let to = address(1, PORT);
    let first = pair.card(0).send_datagrams(PORT, to, 77, 5000, 1000).unwrap();
    let second = pair.card(0).send_datagrams(PORT, to, 78, 5000, 1000).unwrap();
    // Nothing was sent: the neighbour is not known.
    assert!(pair.card(0).stack.recall(PORT, to, first) && !pair.card(0).stack.recall(PORT, to, first));
    assert!(!pair.card(0).stack.recall(PORT, address(1, 10), second));
    pair.run_for(SECOND);
    assert_eq!((came(&mut pair).len(), pair.card(0).unsent.len()), (5, 1));
    assert!(!pair.card(0).stack.recall(PORT, to, second), "it is gone");
    let third = pair.card(0).send_datagrams(PORT, to, 79, 5000, 1000).unwrap();
    // One datagram stays at the NIC.
    let frame = pair.card(0).stack.next_frame(SECOND).unwrap();
    pair.card(0).stack.close_udp(PORT);
    let is_third =
        |event: &dcs_net::Event| matches!(event, dcs_net::Event::Unsent { block, .. } if *block == third);
    assert!(pair.card(0).stack.next_event().is_some_and(|event| is_third(&event)));
    assert_eq!(pair.card(0).stack.next_event(), None, "the NIC has its block still");
    pair.card(0).stack.frame_sent(frame.id);
    pair.run_for(SECOND);
    assert_eq!(pair.card(0).send_datagrams(PORT, to, 79, 10, 10), Err(SendError::Closed));
    (0..2).for_each(|side| pair.card(side).assert_idle());
}

#[test]
fn payloads_that_cannot_be_are_refused() {
    let mut pair = pair();
    for payload in [0, 1473, u16::MAX] {
        let refused = pair.card(0).send_datagrams(PORT, address(1, PORT), 77, 5000, payload);
        assert_eq!(refused, Err(SendError::Length), "{payload}");
    }
    assert_eq!(pair.card(0).send_datagrams(10, address(1, PORT), 77, 5, 5), Err(SendError::Closed));
    assert_eq!(pair.card(0).send_datagrams(PORT, address(1, 0), 77, 5, 5), Err(SendError::Closed));
    let broadcast = "255.255.255.255:9".parse().unwrap();
    assert!(matches!(pair.card(0).send_datagrams(PORT, broadcast, 77, 5, 5), Err(SendError::Unreachable(_))));
    pair.card(0).assert_idle();
}
