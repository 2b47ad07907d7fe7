//! The slots of `dcs csd run`: their number, policy and bindings, and the checks of what a drive asks of
//! them.

use crate::args::Run;
use crate::refused::Refused;
use dcs_console::failure::Failure;
use dcs_csd::placement::{Binding, Placement, PlacementError, Policy};
use dcs_csd_cli::spec::{Configuration, Drive};

/// Maximum number of slots.
const SLOTS_MAX: usize = 64;

/// Returns the slots that the options ask for, else the configuration; `None` for none.
pub fn placement(options: &Run, file: &Configuration) -> Result<Option<Placement>, Failure> {
    let policy = options.policy.or(file.policy);
    // Options about slots replace everything that the configuration says about them.
    let (bound, count) = match options.slot.is_empty() && options.slots.is_none() {
        true => (&file.slot, file.slots),
        false => (&options.slot, options.slots),
    };
    let count = count.map(usize::from);
    if bound.len().max(count.unwrap_or_default()) > SLOTS_MAX {
        let count = bound.len().max(count.unwrap_or_default());
        return Err(Failure::usage(format!("{count} slots")).advise(format!("give 0 to {SLOTS_MAX}")));
    }
    if let Some(count) = count.filter(|count| !bound.is_empty() && *count != bound.len()) {
        let why = format!("{count} slots, and operators for {}", bound.len());
        return Err(Failure::usage(why).advise("leave --slots out: each --slot is one"));
    }
    let bound = match bound.is_empty() {
        false => bound.clone(),
        true => vec![Binding::Any; count.unwrap_or_else(|| usual().max(policy.is_some().into()))],
    };
    if bound.is_empty() {
        return match policy {
            None => Ok(None),
            Some(policy) => {
                let why = format!("policy {} without a slot", policy.name());
                Err(Failure::usage(why).advise("give operators threads of their own: --slots 1"))
            }
        };
    }
    Placement::new(policy.unwrap_or_default(), bound).map(Some).map_err(|error| {
        let advice = match error {
            PlacementError::Bound => {
                "name one that leaves them as they are: --policy dynamic, static-best or static-worst"
            }
            _ => "give slots the same operators, or none in common: --slot grep --slot md5,sha256",
        };
        Failure::usage(error.to_string()).advise(advice)
    })
}

/// Returns the default number of slots: the thread that serves the drives needs a processor, too.
fn usual() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (processors - 1).min(SLOTS_MAX)
}

/// Checks that the slots can do what a drive asks for.
pub fn check(slots: Option<&Placement>, spec: &Drive) -> Result<(), Refused> {
    let (name, policy) = (&spec.name, slots.map(Placement::policy));
    match spec.load {
        Some(load) if !(1..=1000).contains(&load) => {
            return Err(Refused::new(format!("load must be 1 to 1000, not {load}")));
        }
        Some(_) if !policy.is_some_and(Policy::is_static) => {
            return Err(Refused::new(format!("{name} has a load, but drives have no slots of their own"))
                .advise("use --policy static-best or static-worst, or leave load out"));
        }
        _ => {}
    }
    // A guest's own program must not hold up others.
    match (spec.load_programs, spec.programs, slots) {
        (false, ..) => Ok(()),
        (true, false, _) => Err(Refused::new(format!("{name} has load-programs without programs"))
            .advise("add programs, or leave load-programs out")),
        (true, true, None) => {
            Err(Refused::new(format!("there are no slots for programs that the guest of {name} loads"))
                .advise("give operators threads of their own: dcs csd run --slots 1"))
        }
        (true, true, Some(slots)) if !slots.takes_modules() => {
            Err(Refused::new(format!("no slot is bound to programs that the guest of {name} loads"))
                .advise("bind one to modules: dcs csd run --slot module"))
        }
        (true, true, Some(_)) => Ok(()),
    }
}
