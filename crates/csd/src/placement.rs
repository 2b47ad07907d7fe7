//! Placement of chains in slots: the policy, the operators that each slot is bound to, and the slots of each
//! drive.
//!
//! Slots that are bound to the same operators are of one *kind*. Two kinds have no operator in common, so
//! that a chain belongs to at most one kind: the one that has all of its operators. With a static policy each
//! drive has one slot of each kind.

use std::collections::BTreeSet;
use std::fmt;

use dcs_abi::operator::{OPERATORS, Operator};
use dcs_slots::assignment;

/// Rule that selects the slots that may do a chain's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The drive's own slot; the drives with the highest loads share one.
    StaticWorst,
    /// The drive's own slot; the slots' loads are as equal as the drives allow.
    StaticBest,
    /// Any slot that is bound to the chain's operators.
    Dynamic,
    /// Any slot: it is loaded with other operators if necessary.
    #[default]
    Reconfiguration,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 4] =
        [Policy::StaticWorst, Policy::StaticBest, Policy::Dynamic, Policy::Reconfiguration];

    /// Returns the name that people type.
    pub fn name(self) -> &'static str {
        match self {
            Policy::StaticWorst => "static-worst",
            Policy::StaticBest => "static-best",
            Policy::Dynamic => "dynamic",
            Policy::Reconfiguration => "reconfiguration",
        }
    }

    /// Returns the policy with this name.
    pub fn from_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Returns true if each drive has slots of its own.
    pub fn is_static(self) -> bool {
        matches!(self, Policy::StaticWorst | Policy::StaticBest)
    }
}

/// The operators that a slot is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// All operators.
    #[default]
    Any,
    /// These operators, by number.
    Operators(BTreeSet<u8>),
}

/// The reason why a slot's operators are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// There is no operator with this name.
    #[error("{0:?} is not an operator: use {names} or module; or any alone", names = names())]
    Unknown(String),
    /// The same operator twice.
    #[error("{0} is named twice")]
    Twice(&'static str),
}

fn names() -> String {
    let names: Vec<&str> = OPERATORS.iter().map(|info| info.name).collect();
    names.join(", ")
}

impl Binding {
    /// Reads `md5,sha256`, or `any`.
    ///
    /// # Errors
    ///
    /// Fails if a name is not an operator's, or the same one comes twice.
    pub fn parse(text: &str) -> Result<Binding, BindingError> {
        if text == "any" {
            return Ok(Binding::Any);
        }
        let mut numbers = BTreeSet::new();
        for name in text.split(',') {
            let module = Some(Operator::Module).filter(|module| module.name() == name);
            let operator = Operator::from_name(name).or(module);
            let operator = operator.ok_or_else(|| BindingError::Unknown(name.to_owned()))?;
            if !numbers.insert(operator as u8) {
                return Err(BindingError::Twice(operator.name()));
            }
        }
        Ok(Binding::Operators(numbers))
    }

    /// Returns true if it includes the operator with this number.
    fn has(&self, number: u8) -> bool {
        match self {
            Binding::Any => true,
            Binding::Operators(numbers) => numbers.contains(&number),
        }
    }

    fn overlaps(&self, other: &Binding) -> bool {
        match (self, other) {
            (Binding::Operators(some), Binding::Operators(others)) => !some.is_disjoint(others),
            _ => true,
        }
    }

    /// Returns the names of its operators; `None` if it has all.
    pub fn names(&self) -> Option<impl Iterator<Item = &'static str>> {
        match self {
            Binding::Any => None,
            Binding::Operators(numbers) => {
                Some(numbers.iter().filter_map(|number| Operator::from_number(*number)).map(Operator::name))
            }
        }
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(names) = self.names() else { return f.write_str("any") };
        f.write_str(&names.collect::<Vec<_>>().join(","))
    }
}

/// The reason why slots and a policy do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No slots, or too many.
    #[error("{0} slots: give 1 to 4096")]
    Slots(usize),
    /// A chain could belong to either of two slots.
    #[error(
        "slot {first} ({one}) and slot {second} ({other}) share some operators but not all: a chain could belong to either"
    )]
    Overlap {
        /// A slot's number.
        first: usize,
        /// Its operators.
        one: Binding,
        /// Another slot's number.
        second: usize,
        /// Its operators.
        other: Binding,
    },
    /// It is for another number of slots.
    #[error("operators for {bound} slots, but there are {slots}")]
    Count {
        /// Number of existing slots.
        slots: usize,
        /// Number of slots that it is for.
        bound: usize,
    },
    /// With reconfiguration, slots are not bound to operators.
    #[error(
        "policy reconfiguration loads each slot with the operators that are needed: slots cannot be bound to some"
    )]
    Bound,
}

/// A policy, and the operators that each slot is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    policy: Policy,
    slots: Vec<Binding>,
    /// The slots of each kind.
    kinds: Vec<Vec<u16>>,
}

impl Placement {
    /// Makes a policy for slots with these operators.
    ///
    /// # Errors
    ///
    /// Fails if the slots do not fit the policy, or each other.
    pub fn new(policy: Policy, slots: Vec<Binding>) -> Result<Placement, PlacementError> {
        if !(1..=4096).contains(&slots.len()) {
            return Err(PlacementError::Slots(slots.len()));
        }
        if policy == Policy::Reconfiguration && slots.iter().any(|slot| *slot != Binding::Any) {
            return Err(PlacementError::Bound);
        }
        let mut kinds: Vec<Vec<u16>> = Vec::new();
        for (second, other) in slots.iter().enumerate() {
            let first = |kind: &&mut Vec<u16>| slots[usize::from(kind[0])].overlaps(other);
            match kinds.iter_mut().find(first) {
                Some(kind) if slots[usize::from(kind[0])] == *other => kind.push(second as u16),
                Some(kind) => {
                    let first = usize::from(kind[0]);
                    let (one, other) = (slots[first].clone(), other.clone());
                    return Err(PlacementError::Overlap { first, one, second, other });
                }
                None => kinds.push(vec![second as u16]),
            }
        }
        Ok(Placement { policy, slots, kinds })
    }

    /// Returns the policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns the operators that each slot is bound to.
    pub fn slots(&self) -> &[Binding] {
        &self.slots
    }

    /// Returns true if some slot may do the work of modules.
    pub fn takes_modules(&self) -> bool {
        self.slots.iter().any(|slot| slot.has(Operator::Module as u8))
    }

    /// Returns the groups of slots that share a queue of work: each slot alone with a static policy,
    /// otherwise the slots of a kind, or all.
    pub(crate) fn groups(&self) -> Vec<Vec<u16>> {
        match self.policy {
            Policy::StaticWorst | Policy::StaticBest => {
                (0..self.slots.len() as u16).map(|slot| vec![slot]).collect()
            }
            Policy::Dynamic | Policy::Reconfiguration => self.kinds.clone(),
        }
    }

    /// Returns the kind of slots that has all operators of a chain. A copy without operators belongs to the
    /// first kind.
    pub(crate) fn kind_of(&self, chain: [u8; 8]) -> Option<usize> {
        let has = |kind: &Vec<u16>| {
            let slot = &self.slots[usize::from(kind[0])];
            chain.iter().filter(|number| **number > 0).all(|number| slot.has(*number))
        };
        self.kinds.iter().position(has)
    }

    /// Returns the slot of each drive in each kind, by the drives' loads; `None` if drives have no slots of
    /// their own.
    pub(crate) fn assign(&self, loads: &[f64]) -> Option<Vec<Vec<u16>>> {
        let of = match self.policy {
            Policy::StaticWorst => assignment::worst,
            Policy::StaticBest => assignment::best,
            Policy::Dynamic | Policy::Reconfiguration => return None,
        };
        let assigned = |kind: &Vec<u16>| -> Vec<u16> {
            of(loads, kind.len()).into_iter().map(|place| kind[usize::from(place)]).collect()
        };
        Some(self.kinds.iter().map(assigned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(texts: &[&str]) -> Vec<Binding> {
        texts.iter().map(|text| Binding::parse(text).unwrap()).collect()
    }

    fn chain(operators: &[Operator]) -> [u8; 8] {
        let mut chain = [0; 8];
        operators.iter().zip(&mut chain).for_each(|(operator, place)| *place = *operator as u8);
        chain
    }

    #[test]
    fn a_chain_belongs_to_the_kind_that_has_all_of_it() {
        let bound = slots(&["md5,sha256", "grep", "sha256,md5", "module"]);
        let placement = Placement::new(Policy::Dynamic, bound).unwrap();
        assert_eq!(placement.groups(), [vec![0, 2], vec![1], vec![3]]);
        for (operators, kind) in [
            (&[][..], Some(0)),
            (&[Operator::Md5], Some(0)),
            (&[Operator::Sha256, Operator::Md5], Some(0)),
            (&[Operator::Grep], Some(1)),
            (&[Operator::Module], Some(2)),
            (&[Operator::Grep, Operator::Md5], None),
            (&[Operator::Gzip], None),
        ] {
            assert_eq!(placement.kind_of(chain(operators)), kind, "{operators:?}");
        }
        let any = Placement::new(Policy::Dynamic, slots(&["any", "any"])).unwrap();
        assert_eq!(any.kind_of(chain(&[Operator::Grep, Operator::Md5])), Some(0));
        assert_eq!(any.slots()[0].to_string(), "any");
    }

    #[test]
    fn each_drive_has_a_slot_of_each_kind() {
        let loads = [4.0, 1.0, 4.0, 1.0];
        let bound = || slots(&["md5", "grep", "md5"]);
        let assigned = |policy| Placement::new(policy, bound()).unwrap().assign(&loads);
        assert_eq!(assigned(Policy::StaticWorst), Some(vec![vec![0, 2, 0, 2], vec![1; 4]]));
        assert_eq!(assigned(Policy::StaticBest), Some(vec![vec![0, 0, 2, 2], vec![1; 4]]));
        assert_eq!(assigned(Policy::Dynamic), None);
    }

    #[test]
    fn slots_that_cannot_be_are_refused() {
        let refused = |policy, texts: &[&str]| Placement::new(policy, slots(texts)).unwrap_err().to_string();
        let open = refused(Policy::Dynamic, &["grep", "md5,sha256", "md5"]);
        assert!(open.contains("slot 1 (md5,sha256) and slot 2 (md5)"), "{open}");
        assert!(refused(Policy::StaticBest, &["any", "md5"]).contains("slot 0 (any) and slot 1 (md5)"));
        assert!(refused(Policy::Reconfiguration, &["md5"]).contains("cannot be bound to some"));
        assert!(refused(Policy::Dynamic, &[]).contains("1 to 4096"));
        for (text, said) in
            [("", "not an operator"), ("md5,md5", "md5 is named twice"), ("md5, grep", "\" grep\"")]
        {
            let error = Binding::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
