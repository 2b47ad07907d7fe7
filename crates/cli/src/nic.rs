//! A NIC that the engine drives itself, as users name it: `--nic 0000:02:00.0 --address 10.0.2.15/24 --gateway
//! 10.0.2.2`.

use crate::args::NicOptions;
use crate::failure::Failure;
use crate::report::Report;
use dcs::{Engine, Nic};
use serde_json::json;
use std::net::Ipv4Addr;

/// Returns the NIC that the options name, if they name one.
pub fn requested(options: &NicOptions) -> Result<Option<Nic>, Failure> {
    let Some(text) = &options.nic else { return Ok(None) };
    let function = dcs_vfio::address(text.strip_prefix("nic:").unwrap_or(text)).ok_or_else(|| {
        Failure::usage(format!("--nic {text}: not the address of a PCI function"))
            .advise("for example 0000:02:00.0; dcs doctor lists the NICs of this machine")
    })?;
    let text = options.address.as_deref().unwrap_or_default();
    let (address, prefix) = address(text).ok_or_else(|| {
        Failure::usage(format!("--address {text}: not an IPv4 address with a prefix length"))
            .advise("for example 10.0.2.15/24")
    })?;
    Ok(Some(Nic { function, address, prefix, gateway: options.gateway }))
}

fn address(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
    Some((address.parse().ok()?, prefix))
}

/// Prints the NIC and its address.
pub fn say(engine: &Engine, report: &Report) {
    let Some(interface) = engine.interface() else { return };
    let mac: Vec<String> = interface.mac.iter().map(|byte| format!("{byte:02x}")).collect();
    let (mac, nic) = (mac.join(":"), &interface.options);
    report.remark(format_args!(
        "dcs: {} (Intel {}, {mac}) has {}/{} and its own TCP and UDP in this process",
        nic.function, interface.model, nic.address, nic.prefix
    ));
    report.object(&json!({
        "event": "nic", "function": nic.function, "model": format!("{:?}", interface.model).to_lowercase(), "mac": mac,
        "address": nic.address, "prefix": nic.prefix, "gateway": nic.gateway, "huge_pages": interface.huge_pages,
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(nic: &str, address: &str) -> NicOptions {
        NicOptions { nic: Some(nic.into()), address: Some(address.into()), gateway: None }
    }

    #[test]
    fn a_nic_has_a_function_and_an_address() {
        let nic = requested(&options("2:0.0", "10.0.2.15/24")).ok().flatten().unwrap();
        assert_eq!((nic.function.as_str(), nic.prefix), ("0000:02:00.0", 24));
        assert_eq!(nic.address, Ipv4Addr::new(10, 0, 2, 15));
        let none = NicOptions { nic: None, address: None, gateway: None };
        assert!(matches!(requested(&none), Ok(None)));
    }

    #[test]
    fn what_is_none_is_said() {
        for (nic, address, what) in [
            ("eth0", "10.0.2.15/24", "eth0: not the address of a PCI function"),
            ("02:00.0", "10.0.2.15", "--address 10.0.2.15"),
            ("02:00.0", "10.0.2.15/33", "--address"),
            ("02:00.0", "fe80::1/64", "--address"),
            ("02:00.0", "", "--address"),
        ] {
            let failure = requested(&options(nic, address)).unwrap_err();
            assert!(failure.line.contains(what), "{}", failure.line);
        }
    }
}
