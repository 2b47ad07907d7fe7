//! Assigns tenants to slots permanently: the worst and the best assignment (FlexCSV, sections 3.3 and 5.5: a slot is shared by
//! two tenants of equal load, or by one of each load).

use alloc::vec;
use alloc::vec::Vec;

/// Returns each tenant's slot, with the heaviest tenants together.
pub fn worst(loads: &[f64], slots: usize) -> Vec<u16> {
    let each = loads.len().div_ceil(slots).max(1);
    let mut assignment = vec![0; loads.len()];
    for (rank, tenant) in heaviest_first(loads).into_iter().enumerate() {
        assignment[tenant] = (rank / each) as u16;
    }
    assignment
}

/// Returns each tenant's slot: the heaviest tenants first, each in the slot with the least load so far.
pub fn best(loads: &[f64], slots: usize) -> Vec<u16> {
    let mut sums = vec![(0.0, 0); slots.max(1)];
    let mut assignment = vec![0; loads.len()];
    for tenant in heaviest_first(loads) {
        let least = |one: &&mut (f64, u32), other: &&mut (f64, u32)| {
            one.0.total_cmp(&other.0).then(one.1.cmp(&other.1))
        };
        let (slot, sum) = sums
            .iter_mut()
            .enumerate()
            .min_by(|(_, one), (_, other)| least(one, other))
            .expect("there is a slot");
        assignment[tenant] = slot as u16;
        *sum = (sum.0 + loads[tenant], sum.1 + 1);
    }
    assignment
}

fn heaviest_first(loads: &[f64]) -> Vec<usize> {
    let mut tenants: Vec<usize> = (0..loads.len()).collect();
    tenants.sort_by(|one, other| loads[*other].total_cmp(&loads[*one]));
    tenants
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_loads_together_are_the_worst_and_mixed_ones_the_best() {
        let loads = [1.0, 0.2, 1.0, 0.2];
        assert_eq!(worst(&loads, 2), [0, 1, 0, 1]);
        assert_eq!(best(&loads, 2), [0, 0, 1, 1]);
        assert_eq!(best(&[1.0, 1.0, 1.0], 1), [0, 0, 0]);
        assert_eq!(worst(&[], 2), []);
        assert_eq!(worst(&[3.0, 2.0, 1.0], 2), [0, 0, 1]);
    }
}
