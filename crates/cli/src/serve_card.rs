//! `dcs card`: serves the card to a QEMU at a vfio-user socket.

use crate::args;
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::names::{add_name, shown};
use crate::report::Report;
use crate::units::human;
use dcs_card::card::Config;
use dcs_card::serve::serve;
use serde_json::json;

pub fn run(options: &args::Card, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let mut key = [0; 16];
    getrandom::fill(&mut key)
        .map_err(|error| Failure::new(Exit::Failed, format!("no randomness: {error}")))?;
    let config = with_core(options.engine, Config { key, ..Config::default() })?;
    let socket = shown(&options.socket);
    if !options.memory.is_power_of_two() {
        let line = format!("--memory {}: a card's memory must be a power of two", options.memory);
        return Err(Failure::usage(line).advise("for example 16MiB"));
    }
    let serve = || serve(&options.socket, options.memory, config);
    let (served, _leftover) = interrupt::leftover_of(&options.socket, serve)
        .map_err(|error| Failure::new(Exit::Failed, format!("{socket}: {error}")))?;
    let mut object = json!({ "event": "listening", "command": "card" });
    add_name(&mut object, "socket", &options.socket);
    report.object(&object);
    report.remark(format_args!(
        "dcs: a card with {} at {socket}; attach it to QEMU with\n\
         -device '{{\"driver\":\"vfio-user-pci\",\"socket\":{{\"type\":\"unix\",\"path\":\"{socket}\"}},\"rombar\":0}}'",
        human(options.memory)
    ));
    // Serves until a signal ends the process.
    loop {
        std::thread::park();
        let _ = &served;
    }
}

/// The settings with the core that was asked for.
fn with_core(engine: args::CardEngine, config: Config) -> Result<Config, Failure> {
    match engine {
        args::CardEngine::Rust => Ok(config),
        #[cfg(feature = "rtl")]
        args::CardEngine::Rtl => Ok(Config { core: Some(|| Box::new(dcs_rtl::Body::new())), ..config }),
        #[cfg(not(feature = "rtl"))]
        args::CardEngine::Rtl => {
            let line = "--engine rtl: this dcs was built without the core in SystemVerilog";
            Err(Failure::usage(line).advise("cargo build -p dcs-cli --features rtl, see docs/rtl.md"))
        }
    }
}
