//! Fault plans: rules in the users' syntax, and a report of those that never struck.

use crate::fabric::{Fabric, FunctionId};
use crate::fault::{Fault, Rule, When};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Syntax of a [`FaultPlan`], for a command's help.
pub const FAULT_HELP: &str = "\
DEVICE:OPERATION:WHICH:EFFECT injects a fault into a simulated device:

  ssd:read:3:late=20ms        the third read of each SSD completes 20 ms later
  ssd1:write:5+:status=0x281  SSD 1 fails its fifth write, and every one after it
  ssd:any:2%:drop             of all commands one in fifty is never completed
  nic0:transmit:all:twice     NIC 0 sends every frame twice
  nic:receive:10-12:drop      each NIC loses the frames 10 to 12 that come in
  ssd0:write:1:hang           SSD 0 stops at its first write, until it is reset

  DEVICE     ssd, nic: each of them; ssd0, nic1: one, counted from 0. Each device counts its own operations.
  OPERATION  ssd: read, write, flush, any.  nic: transmit, receive (frames).
  WHICH      3, 3-5, 3+ (the third and all after it), all, 2% (drawn; the same seed draws the same ones)

  EFFECT      of an SSD's command                                        of a NIC's frame
  drop        carried out, but no completion is written                  lost
  late=TIME   the completion comes TIME later (ns, us, ms, s)            comes TIME later; others pass it
  twice       the completion is written twice                            comes twice
  corrupt     one bit of its data is wrong; it succeeds                  one bit is wrong; the receiver drops it
  status=N    not carried out; fails with this NVMe status
  short=N     the last N bytes of its data are not moved; it succeeds
  hang        the device does nothing more until its controller is reset (both)
  hang=hard   as hang; only a reset of the function helps                (both)
  remove      the device is pulled out                                   (both)
";

/// Kind of device that a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// An NVMe SSD.
    Ssd,
    /// A NIC.
    Nic,
}

/// Operations that a plan counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operations {
    /// I/O commands of an SSD with this opcode, or all of them.
    Io(Option<u8>),
    Transmit,
    Receive,
}

/// All operations: device, name, and what is counted.
const OPERATIONS: [(Device, &str, Operations); 6] = [
    (Device::Ssd, "read", Operations::Io(Some(dcs_nvme::command::nvm::READ))),
    (Device::Ssd, "write", Operations::Io(Some(dcs_nvme::command::nvm::WRITE))),
    (Device::Ssd, "flush", Operations::Io(Some(dcs_nvme::command::nvm::FLUSH))),
    (Device::Ssd, "any", Operations::Io(None)),
    (Device::Nic, "transmit", Operations::Transmit),
    (Device::Nic, "receive", Operations::Receive),
];

/// Operations to strike, of those that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// From the first to the last, counted from 1; without a last one, all that follow.
    Span(u64, Option<u64>),
    /// A chance of this many out of 1,000.
    Chance(u16),
}

/// Effect on an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Drop,
    Late(Duration),
    Twice,
    Corrupt,
    Status(u16),
    Short(u64),
    Hang,
    HangHard,
    Remove,
}

/// A fault as users write it: `ssd:read:3:late=20ms`. [`FAULT_HELP`] has the syntax.
///
/// ```
/// let plan: dcs_fabric::FaultPlan = "ssd:read:3:late=20ms".parse().unwrap();
/// assert_eq!(plan.to_string(), "ssd:read:3:late=20ms");
/// let error = "ssd:read:0:late=20ms".parse::<dcs_fabric::FaultPlan>().unwrap_err();
/// assert!(error.to_string().contains("counted from 1"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    device: Device,
    number: Option<usize>,
    operations: Operations,
    which: Which,
    effect: Effect,
}

/// Errors of a plan that cannot be parsed, or names something that does not exist. Messages say what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultPlanError {
    /// The text does not have four parts.
    #[error("{0:?} is not a fault; write DEVICE:OPERATION:WHICH:EFFECT, such as ssd:read:3:late=20ms")]
    Parts(String),
    /// No such device.
    #[error("{0:?} is not a device; write ssd, nic, or one of them by its number, such as ssd0")]
    Device(String),
    /// No such operation of this device.
    #[error("{1:?} is not an operation of {0}: its operations are {2}")]
    Operation(&'static str, String, String),
    /// The operations to strike cannot be parsed.
    #[error(
        "{0:?} does not select operations; write 3, 3-5, 3+, all, or a share such as 2% (0.1% to 100%); they are counted from 1"
    )]
    Which(String),
    /// No such effect, or its value cannot be parsed.
    #[error(
        "{0:?} is not an effect; write drop, late=20ms, twice, corrupt, status=0x281, short=512, hang, hang=hard or remove"
    )]
    Effect(String),
    /// The effect does not exist for this device.
    #[error("{0} is not possible for a frame, only for an SSD's command")]
    OnFrame(String),
    /// The effect is not possible for devices that are not models.
    #[error("{plan}: {why}")]
    Unfit {
        /// The plan.
        plan: String,
        /// The reason, and what to write instead.
        why: &'static str,
    },
    /// The server has fewer devices.
    #[error("{plan}: there is no such device; this server has {count}, counted from 0")]
    Missing {
        /// The plan.
        plan: String,
        /// Number of devices of its kind.
        count: usize,
    },
}

impl Device {
    fn name(self) -> &'static str {
        match self {
            Device::Ssd => "ssd",
            Device::Nic => "nic",
        }
    }
}

impl FaultPlan {
    /// Returns the kind of device that it is for.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the number of its device among those of its kind, from 0; `None` for all of them.
    pub fn number(&self) -> Option<usize> {
        self.number
    }

    /// Returns the rule for one device. The seed decides the draws of a plan with a share.
    pub fn rule(&self, seed: u64) -> Rule {
        let (when, fault) = (self.when(), self.fault());
        match self.which {
            Which::Span(first, last) => {
                let times = last.map_or(u64::MAX, |last| last - first + 1);
                Rule::once(when, fault).after(first - 1).times(times)
            }
            Which::Chance(share) => Rule::sometimes(when, fault, share, seed),
        }
    }

    /// Returns true if a struck operation succeeds with wrong data, which no host can detect: a digest has to find it.
    pub fn corrupts_silently(&self) -> bool {
        self.device == Device::Ssd && matches!(self.effect, Effect::Corrupt | Effect::Short(_))
    }

    /// Checks that an [`Interposer`](crate::Interposer) can carry it out.
    pub(crate) fn fits_an_interposer(&self) -> Result<(), FaultPlanError> {
        let is_read = matches!(self.operations, Operations::Io(Some(dcs_nvme::command::nvm::READ)));
        let why = match self.effect {
            _ if self.device == Device::Nic => "frames cannot be struck here: its plans are for an ssd",
            Effect::HangHard => "a reset of the SSD's function is not visible here: write hang",
            Effect::Short(_) if !is_read => "only a read can be short here: write ssd:read",
            _ => return Ok(()),
        };
        Err(FaultPlanError::Unfit { plan: self.to_string(), why })
    }

    fn when(&self) -> When {
        match self.operations {
            Operations::Io(opcode) => When::Io(opcode),
            Operations::Transmit => When::Transmit,
            Operations::Receive => When::Receive,
        }
    }

    fn fault(&self) -> Fault {
        let is_frame = self.device == Device::Nic;
        match self.effect {
            Effect::Drop if is_frame => Fault::DropFrame,
            Effect::Drop => Fault::DropCompletion,
            Effect::Late(time) if is_frame => Fault::DelayFrame(time),
            Effect::Late(time) => Fault::DelayCompletion(time),
            Effect::Twice if is_frame => Fault::DuplicateFrame,
            Effect::Twice => Fault::DuplicateCompletion,
            Effect::Corrupt if is_frame => Fault::CorruptFrame { undetected: false },
            Effect::Corrupt => Fault::CorruptDma,
            Effect::Status(status) => Fault::BadStatus(status),
            Effect::Short(bytes) => Fault::ShortDma(bytes),
            Effect::Hang => Fault::Hang,
            Effect::HangHard => Fault::HangHard,
            Effect::Remove => Fault::Remove,
        }
    }
}

impl FromStr for FaultPlan {
    type Err = FaultPlanError;

    fn from_str(text: &str) -> Result<FaultPlan, FaultPlanError> {
        let parts: Vec<&str> = text.split(':').collect();
        let &[device, operation, which, effect] = parts.as_slice() else {
            return Err(FaultPlanError::Parts(text.into()));
        };
        let (device, number) = read_device(device).ok_or_else(|| FaultPlanError::Device(device.into()))?;
        let mine = OPERATIONS.iter().filter(|(of, ..)| *of == device);
        let Some((.., operations)) = mine.clone().find(|(_, name, _)| *name == operation) else {
            let names: Vec<&str> = mine.map(|(_, name, _)| *name).collect();
            return Err(FaultPlanError::Operation(device.name(), operation.into(), names.join(", ")));
        };
        let which = read_which(which).ok_or_else(|| FaultPlanError::Which(which.into()))?;
        let effect = read_effect(effect).ok_or_else(|| FaultPlanError::Effect(effect.into()))?;
        if device == Device::Nic && matches!(effect, Effect::Status(_) | Effect::Short(_)) {
            return Err(FaultPlanError::OnFrame(effect.to_string()));
        }
        Ok(FaultPlan { device, number, operations: *operations, which, effect })
    }
}

fn read_device(text: &str) -> Option<(Device, Option<usize>)> {
    [Device::Ssd, Device::Nic].into_iter().find_map(|device| match text.strip_prefix(device.name())? {
        "" => Some((device, None)),
        number => Some((device, Some(read_number(number)?.try_into().ok()?))),
    })
}

/// Parses digits only: no sign, no space.
fn read_number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn read_which(text: &str) -> Option<Which> {
    if let Some(share) = text.strip_suffix('%') {
        let (whole, tenth) = share.split_once('.').unwrap_or((share, "0"));
        let tenth = read_number(tenth).filter(|_| tenth.len() == 1)?;
        let share = read_number(whole).filter(|whole| *whole <= 100)? * 10 + tenth;
        return (1..=1000).contains(&share).then_some(Which::Chance(share as u16));
    }
    let (first, last) = match text.split_once('-') {
        _ if text == "all" => (1, None),
        Some((first, last)) => (read_number(first)?, Some(read_number(last)?)),
        None => match text.strip_suffix('+') {
            Some(first) => (read_number(first)?, None),
            None => (read_number(text)?, Some(read_number(text)?)),
        },
    };
    (first > 0 && last.is_none_or(|last| last >= first)).then_some(Which::Span(first, last))
}

fn read_effect(text: &str) -> Option<Effect> {
    Some(match text.split_once('=') {
        None => match text {
            "drop" => Effect::Drop,
            "twice" => Effect::Twice,
            "corrupt" => Effect::Corrupt,
            "hang" => Effect::Hang,
            "remove" => Effect::Remove,
            _ => return None,
        },
        Some(("late", time)) => Effect::Late(read_time(time)?),
        Some(("status", status)) => Effect::Status(read_status(status)?),
        Some(("short", bytes)) => Effect::Short(read_number(bytes).filter(|bytes| *bytes > 0)?),
        Some(("hang", "hard")) => Effect::HangHard,
        Some(_) => return None,
    })
}

/// Units of time, the largest first, in nanoseconds.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];

fn read_time(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let time = read_number(number)?.checked_mul(*nanos).filter(|time| *time > 0)?;
    Some(Duration::from_nanos(time))
}

/// Parses a status code type and status code, as in NVMe's completion without the phase bit. Rejects 0, a success.
fn read_status(text: &str) -> Option<u16> {
    let status = match text.strip_prefix("0x") {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None => read_number(text),
    };
    status.filter(|status| (1..=0x7ff).contains(status)).map(|status| status as u16)
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.device.name())?;
        if let Some(number) = self.number {
            write!(f, "{number}")?;
        }
        let known = OPERATIONS.iter().find(|(.., operations)| *operations == self.operations);
        let name = known.map_or("", |(_, name, _)| *name);
        write!(f, ":{name}:{}:{}", self.which, self.effect)
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Which::Span(1, None) => f.write_str("all"),
            Which::Span(first, None) => write!(f, "{first}+"),
            Which::Span(first, Some(last)) if first == last => write!(f, "{first}"),
            Which::Span(first, Some(last)) => write!(f, "{first}-{last}"),
            Which::Chance(share) if share % 10 == 0 => write!(f, "{}%", share / 10),
            Which::Chance(share) => write!(f, "{}.{}%", share / 10, share % 10),
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Drop => f.write_str("drop"),
            Effect::Late(time) => {
                let nanos = time.as_nanos() as u64;
                let fits = UNITS.iter().find(|(_, unit)| nanos.is_multiple_of(*unit));
                fits.map_or(Ok(()), |(name, unit)| write!(f, "late={}{name}", nanos / unit))
            }
            Effect::Twice => f.write_str("twice"),
            Effect::Corrupt => f.write_str("corrupt"),
            Effect::Status(status) => write!(f, "status={status:#x}"),
            Effect::Short(bytes) => write!(f, "short={bytes}"),
            Effect::Hang => f.write_str("hang"),
            Effect::HangHard => f.write_str("hang=hard"),
            Effect::Remove => f.write_str("remove"),
        }
    }
}

/// Plans in force at the devices of a fabric.
#[derive(Debug, Default)]
pub struct Faults {
    /// Plans, each with its rules: the function, and the number of the rule.
    plans: Vec<(FaultPlan, Vec<(FunctionId, usize)>)>,
}

impl Faults {
    /// Puts plans into force at these SSDs and NICs, each numbered by its position.
    ///
    /// # Errors
    ///
    /// [`FaultPlanError::Missing`] if a plan names a device that does not exist. No plan is in force then.
    pub fn inject(
        fabric: &mut Fabric,
        plans: &[FaultPlan],
        ssds: &[FunctionId],
        nics: &[FunctionId],
        seed: u64,
    ) -> Result<Faults, FaultPlanError> {
        let mut found = Vec::new();
        for plan in plans {
            let all = if plan.device == Device::Ssd { ssds } else { nics };
            let functions = match plan.number {
                Some(number) => all.get(number..=number),
                None => Some(all).filter(|all| !all.is_empty()),
            };
            let missing = || FaultPlanError::Missing { plan: plan.to_string(), count: all.len() };
            found.push((*plan, functions.ok_or_else(missing)?));
        }
        let mut faults = Faults::default();
        for (plan, functions) in found {
            let rules = functions.iter().map(|function| {
                let at = fabric.rules(*function).len();
                fabric.inject(*function, plan.rule(seed.wrapping_add(at as u64 + function.0 as u64 * 1000)));
                (*function, at)
            });
            faults.plans.push((plan, rules.collect()));
        }
        Ok(faults)
    }

    /// Returns the strikes of each plan.
    pub fn struck(&self, fabric: &Fabric) -> Vec<Struck> {
        let count = |(plan, rules): &(FaultPlan, Vec<(FunctionId, usize)>)| {
            let rules: Vec<&Rule> = rules.iter().filter_map(|(of, at)| fabric.rules(*of).get(*at)).collect();
            Struck {
                plan: *plan,
                met: rules.iter().map(|rule| rule.met()).max().unwrap_or(0),
                struck: rules.iter().map(|rule| rule.struck()).sum(),
            }
        };
        self.plans.iter().map(count).collect()
    }

    /// Returns a sentence for each plan that struck nothing: its user did not get the intended fault.
    pub fn report_unused(&self, fabric: &Fabric) -> Vec<String> {
        self.struck(fabric).iter().filter_map(Struck::never).collect()
    }
}

/// Strikes of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Struck {
    /// The plan.
    pub plan: FaultPlan,
    /// Matching operations at the device that had most of them.
    pub met: u64,
    /// Operations that it struck, over all devices.
    pub struck: u64,
}

impl Struck {
    /// Returns a sentence if the plan struck nothing.
    pub fn never(&self) -> Option<String> {
        let Struck { plan, met, struck } = self;
        (*struck == 0).then(|| match met {
            0 => format!("{plan} never struck: no device had such an operation"),
            most => format!("{plan} never struck: the most such operations that a device had were {most}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Operation;
    use crate::link::{Rate, Timing};
    use proptest::prelude::*;

    fn plan(text: &str) -> FaultPlan {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn any_plan() -> impl Strategy<Value = FaultPlan> {
        let which = prop_oneof![
            (1u64.., 0u64..1000, any::<bool>()).prop_map(|(first, more, open)| Which::Span(
                first,
                (!open).then_some(first.saturating_add(more))
            )),
            (1u16..=1000).prop_map(Which::Chance),
        ];
        let effect = prop_oneof![
            prop::sample::select(vec![
                Effect::Drop,
                Effect::Twice,
                Effect::Corrupt,
                Effect::Hang,
                Effect::HangHard,
                Effect::Remove
            ]),
            (1u64.., prop::sample::select(vec![1, 1000, 1_000_000, 1_000_000_000u64])).prop_map(
                |(number, unit)| { Effect::Late(Duration::from_nanos((number / unit).max(1) * unit)) }
            ),
            (1u16..=0x7ff).prop_map(Effect::Status),
            (1u64..).prop_map(Effect::Short),
        ];
        let meant = |plan: &FaultPlan| {
            plan.device == Device::Ssd || !matches!(plan.effect, Effect::Status(_) | Effect::Short(_))
        };
        (prop::sample::select(OPERATIONS.to_vec()), prop::option::of(0usize..), which, effect)
            .prop_map(|((device, _, operations), number, which, effect)| FaultPlan {
                device,
                number,
                operations,
                which,
                effect,
            })
            .prop_filter("effects on frames", meant)
    }

    proptest! {
        #[test]
        fn a_plan_is_read_as_it_is_written_and_makes_a_rule(plan in any_plan(), seed: u64) {
            prop_assert_eq!(plan.to_string().parse(), Ok(plan));
            let _ = plan.rule(seed);
        }

        #[test]
        fn whatever_is_written_is_read_or_refused(text in "(ssd|nic)?[0-9]{0,3}(:[a-z0-9+%.=-]{0,12}){0,5}|.{0,40}") {
            if let Ok(plan) = text.parse::<FaultPlan>() {
                let _ = plan.rule(0);
                prop_assert_eq!(plan.to_string().parse(), Ok(plan));
            }
        }
    }

    #[test]
    fn every_example_of_the_help_is_one() {
        let examples =
            FAULT_HELP.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
        let examples: Vec<&str> = examples.filter(|word| word.matches(':').count() == 3).collect();
        assert_eq!(examples.len(), 6);
        examples.iter().for_each(|example| assert_eq!(plan(example).to_string(), **example));
    }

    #[test]
    fn what_is_wrong_with_a_plan_is_said() {
        for (text, expected) in [
            ("", "is not a fault"),
            ("ssd:read:3", "write DEVICE:OPERATION:WHICH:EFFECT"),
            ("ssd:read:3:drop:drop", "is not a fault"),
            ("disk:read:3:drop", "\"disk\" is not a device"),
            ("ssdx:read:3:drop", "\"ssdx\" is not a device"),
            ("ssd-1:read:3:drop", "is not a device"),
            (
                "ssd:transmit:3:drop",
                "\"transmit\" is not an operation of ssd: its operations are read, write, flush, any",
            ),
            ("nic:read:3:drop", "its operations are transmit, receive"),
            ("ssd:read:0:drop", "counted from 1"),
            ("ssd:read:5-3:drop", "does not select operations"),
            ("ssd:read:+3:drop", "does not select operations"),
            ("ssd:read:0%:drop", "does not select operations"),
            ("ssd:read:101%:drop", "does not select operations"),
            ("ssd:read:1.25%:drop", "does not select operations"),
            ("ssd:read:99999999999999999999:drop", "does not select operations"),
            ("ssd:read:3:vanish", "\"vanish\" is not an effect"),
            ("ssd:read:3:late", "is not an effect"),
            ("ssd:read:3:late=20", "is not an effect"),
            ("ssd:read:3:late=0ms", "is not an effect"),
            ("ssd:read:3:late=99999999999999999s", "is not an effect"),
            ("ssd:read:3:status=0", "is not an effect"),
            ("ssd:read:3:status=0x800", "is not an effect"),
            ("ssd:read:3:short=-1", "is not an effect"),
            ("nic:transmit:3:status=0x281", "status=0x281 is not possible for a frame"),
            ("nic:receive:3:short=1", "short=1 is not possible for a frame"),
        ] {
            let error = text.parse::<FaultPlan>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    /// A fabric with two endpoints that stand for SSDs, and one for a NIC.
    fn fabric() -> (Fabric, [FunctionId; 2], FunctionId) {
        let mut fabric = Fabric::new(Timing::default(), 4096, 1);
        let ssds = ["one", "two"].map(|name| fabric.add_endpoint(name, Rate::GEN3_X4, &[4096]));
        let nic = fabric.add_endpoint("nic", Rate::GEN3_X4, &[4096]);
        (fabric, ssds, nic)
    }

    fn command(queue: u16, opcode: u8) -> Operation {
        Operation::Command { queue, opcode, blocks: 0..8 }
    }

    #[test]
    fn a_plan_strikes_its_operations_at_its_devices_alone() {
        let (mut fabric, ssds, nic) = fabric();
        let plans = [plan("ssd1:read:2-3:status=0x281"), plan("nic:transmit:all:twice")];
        let faults = Faults::inject(&mut fabric, &plans, &ssds, &[nic], 1).expect("they are there");
        let mut strike = |function: FunctionId, operation: Operation| {
            fabric.functions[function.0].faults.strike(&operation)
        };
        let (read, write) = (dcs_nvme::command::nvm::READ, dcs_nvme::command::nvm::WRITE);
        // Reads are counted, not writes, and not the admin queue's commands with the same opcode.
        let operations = [(1, read), (0, read), (1, write), (2, read), (1, read), (1, read)];
        let expected = [false, false, false, true, true, false];
        let struck = operations.map(|(queue, opcode)| strike(ssds[1], command(queue, opcode)));
        assert_eq!(struck, expected.map(|hit| hit.then_some(Fault::BadStatus(0x281))));
        assert!(operations.iter().all(|(queue, opcode)| strike(ssds[0], command(*queue, *opcode)).is_none()));
        assert_eq!(strike(nic, Operation::Transmit), Some(Fault::DuplicateFrame));
        assert_eq!(strike(nic, Operation::Receive), None);
        assert!(faults.report_unused(&fabric).is_empty());
    }

    #[test]
    fn a_plan_that_never_struck_is_told_with_the_reason() {
        let (mut fabric, ssds, nic) = fabric();
        let plans = [plan("ssd:read:3:drop"), plan("ssd0:flush:1:drop"), plan("ssd:any:1:late=1ms")];
        let faults = Faults::inject(&mut fabric, &plans, &ssds, &[nic], 1).expect("they are there");
        for _ in 0..2 {
            let _ = fabric.functions[ssds[1].0].faults.strike(&command(1, dcs_nvme::command::nvm::READ));
        }
        let told = [
            "ssd:read:3:drop never struck: the most such operations that a device had were 2",
            "ssd0:flush:1:drop never struck: no device had such an operation",
        ];
        assert_eq!(faults.report_unused(&fabric), told);
    }

    #[test]
    fn a_plan_for_a_device_that_is_not_there_is_refused_before_any_is_in_force() {
        let (mut fabric, ssds, nic) = fabric();
        for (missing, count) in [("ssd2:read:1:drop", 2), ("nic1:receive:1:drop", 1)] {
            let plans = [plan("ssd:read:1:drop"), plan(missing)];
            let error = Faults::inject(&mut fabric, &plans, &ssds, &[nic], 1).expect_err(missing);
            assert_eq!(error, FaultPlanError::Missing { plan: missing.into(), count });
            assert!(ssds.iter().all(|ssd| fabric.rules(*ssd).is_empty()));
        }
        assert!(Faults::inject(&mut fabric, &[plan("nic:receive:1:drop")], &ssds, &[], 1).is_err());
    }
}
