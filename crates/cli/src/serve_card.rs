//! `dcs card`: serves the card to QEMUs, each of its functions at a vfio-user socket.

use crate::args;
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::names::{add_name, shown};
use crate::report::Report;
use crate::units::human;
use dcs_card::card::{CardError, Config};
use dcs_card::serve::{ServeError, serve_functions};
use serde_json::json;
use std::path::{Path, PathBuf};

pub fn run(options: &args::Card, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let mut key = [0; 16];
    getrandom::fill(&mut key)
        .map_err(|error| Failure::new(Exit::Failed, format!("no randomness: {error}")))?;
    let config = Config { key, ..Config::for_functions(options.sockets.len()) };
    let mut config = with_core(options.engine, config)?;
    if !options.weights.is_empty() {
        config.engine.weights = weights(options)?;
    }
    if !options.memory.is_power_of_two() {
        let line = format!("--memory {}: a card's memory must be a power of two", options.memory);
        return Err(Failure::usage(line).advise("for example 16MiB"));
    }
    let sockets: Vec<&Path> = options.sockets.iter().map(PathBuf::as_path).collect();
    let serve = || serve_functions(&sockets, options.memory, config);
    let (served, _leftovers) =
        interrupt::leftovers_of(&options.sockets, serve).map_err(|error| refusal(&error))?;
    for (function, socket) in options.sockets.iter().enumerate() {
        let mut object = json!({ "event": "listening", "command": "card", "function": function });
        add_name(&mut object, "socket", socket);
        report.object(&object);
        let what = match function {
            0 => format!("a card with {}", human(options.memory)),
            _ => format!("its function {function}"),
        };
        let socket = shown(socket);
        report.remark(format_args!(
            "dcs: {what} at {socket}; attach it to QEMU with\n\
             -device '{{\"driver\":\"vfio-user-pci\",\"socket\":{{\"type\":\"unix\",\"path\":\"{socket}\"}},\"rombar\":0}}'"
        ));
    }
    // Serves until a signal ends the process.
    loop {
        std::thread::park();
        let _ = &served;
    }
}

/// Returns the functions' weights, of which there is one for each.
fn weights(options: &args::Card) -> Result<Vec<u16>, Failure> {
    let (weights, functions) = (options.weights.len(), options.sockets.len());
    if weights != functions {
        let line = format!("--weights: {weights} of them, and {functions} sockets");
        return Err(Failure::usage(line).advise("give a weight for each socket, for example --weights 2,1"));
    }
    Ok(options.weights.clone())
}

/// The reason why the card is not served, with what to do.
fn refusal(error: &ServeError) -> Failure {
    let failure = Failure::new(Exit::Failed, error.to_string());
    match error {
        ServeError::Card(CardError::Memory { blocks, .. }) => {
            let least = blocks.saturating_mul(2).next_power_of_two();
            failure.advise(format!("--memory {}MiB", least >> 20))
        }
        ServeError::Card(CardError::Functions { .. }) => failure.advise("give fewer sockets"),
        _ => failure,
    }
}

/// The settings with the core, the units, and the controllers of SSDs and NICs that were asked for.
fn with_core(engine: args::CardEngine, config: Config) -> Result<Config, Failure> {
    match engine {
        args::CardEngine::Rust => Ok(config),
        #[cfg(feature = "rtl")]
        args::CardEngine::Rtl => Ok(Config { hardware: Some(dcs_rtl::HARDWARE), ..config }),
        #[cfg(not(feature = "rtl"))]
        args::CardEngine::Rtl => {
            let line = "--engine rtl: this dcs was built without the core in SystemVerilog";
            Err(Failure::usage(line).advise("cargo build -p dcs-cli --features rtl, see docs/rtl.md"))
        }
    }
}
