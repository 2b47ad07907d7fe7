//! The time of one transfer by component: each moment counts for the component that keeps the others waiting.

use crate::cpu::Component;
use dcs_engine::Nanos;

/// Returns the precedence of concurrent components: the host's software, then devices, then those that started them.
fn rank(what: Component) -> usize {
    match what {
        Component::Card => 3,
        Component::Network => 2,
        what if what.is_device() => 1,
        _ => 0,
    }
}

/// Returns the time from `from` to `to` by component; time that no component noted is the NIC's and the wire's.
pub fn breakdown(trace: &[(Nanos, Nanos, Component)], from: Nanos, to: Nanos) -> Vec<(Component, Nanos)> {
    let mut times: Vec<Nanos> = trace.iter().flat_map(|(begin, end, _)| [*begin, *end]).collect();
    times.extend([from, to]);
    times.retain(|time| (from..=to).contains(time));
    times.sort_unstable();
    times.dedup();
    let mut sums = vec![0; Component::ALL.len()];
    for pair in times.windows(2) {
        let at_work = trace.iter().filter(|(begin, end, _)| *begin <= pair[0] && pair[1] <= *end);
        let counts = at_work.map(|(.., what)| *what).min_by_key(|what| (rank(*what), *what));
        sums[counts.unwrap_or(Component::Network) as usize] += pair[1] - pair[0];
    }
    Component::ALL.into_iter().zip(sums).filter(|(_, sum)| *sum > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_moment_is_counted_once_for_whoever_is_waited_for() {
        let trace = [
            (0, 10, Component::Control),
            (5, 100, Component::Ssd),
            (90, 95, Component::Crossing),
            (0, 130, Component::Card),
        ];
        let found = breakdown(&trace, 0, 150);
        let of = |what| found.iter().find(|(other, _)| *other == what).map_or(0, |(_, time)| *time);
        assert_eq!(of(Component::Control), 10);
        assert_eq!(of(Component::Ssd), 85);
        assert_eq!(of(Component::Crossing), 5);
        assert_eq!(of(Component::Card), 30);
        assert_eq!(of(Component::Network), 20);
        assert_eq!(found.iter().map(|(_, time)| time).sum::<Nanos>(), 150);
    }
}
