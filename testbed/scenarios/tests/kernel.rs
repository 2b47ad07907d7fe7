//! The scenarios on the kernel backend.

use dcs::{Backend, Engine};
use dcs_scenarios::{Flow, World, loopback};
use std::fs::File;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

struct Kernel {
    engine: Engine,
    folder: tempfile::TempDir,
}

impl World for Kernel {
    fn engine(&self) -> &Engine {
        &self.engine
    }
    fn folder(&self) -> &Path {
        self.folder.path()
    }
    fn connect(&self) -> (Box<dyn Flow>, TcpStream) {
        loopback(Duration::from_secs(60))
    }
    fn prepare(&self, _: &File, _: u64) {}
}

#[test]
fn every_scenario_on_the_kernel() {
    let engine = Engine::builder().backend(Backend::Kernel).start().unwrap();
    let world = Kernel { engine, folder: tempfile::tempdir().unwrap() };
    for (name, scenario) in dcs_scenarios::all() {
        println!("{name}");
        scenario(&world);
    }
}
