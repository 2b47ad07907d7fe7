//! The scenarios on the kernel backend.

use dcs::{Backend, Engine, Sink, Source};
use dcs_scenarios::{Flow, World};
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

struct Kernel {
    engine: Engine,
    folder: tempfile::TempDir,
}

struct Socket(TcpStream);

impl Flow for Socket {
    fn source(&self) -> Source {
        Source::socket(&self.0)
    }
    fn sink(&self) -> Sink {
        Sink::socket(&self.0)
    }
}

impl World for Kernel {
    fn engine(&self) -> &Engine {
        &self.engine
    }
    fn folder(&self) -> &Path {
        self.folder.path()
    }
    fn connect(&self) -> (Box<dyn Flow>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        (Box::new(Socket(listener.accept().unwrap().0)), peer)
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
