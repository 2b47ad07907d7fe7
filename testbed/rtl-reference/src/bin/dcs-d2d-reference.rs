//! The reference of the D2D modules in SystemVerilog: a function of `dcs-d2d` that the bench drives step by step. Each line of standard
//! input is a request as JSON, each line of standard output its answer.
#![forbid(unsafe_code)]

use dcs_d2d::nic::Received;
use dcs_d2d::ssd::MediumError;
use dcs_d2d::{Action, Nic, Origin, Ssd, Token, nic, ssd};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, Write};

/// The function to make. The other settings are the usual ones.
#[derive(Deserialize)]
struct Settings {
    kind: String,
    streams: u16,
    window: u32,
    places: u8,
    payload: u32,
    /// Bytes of a stream's Tx queue.
    queue: u32,
    /// Blocks of an SSD.
    blocks: u64,
    epoch: u16,
}

/// A step.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Request {
    /// Writes a register, or a half of one.
    Write { at: u64, bytes: String },
    /// Reads registers.
    Read { at: u64, length: usize },
    /// Takes a write to the aperture.
    Data { at: u64, bytes: String },
    /// Returns the next action.
    Poll,
    /// Ends a read, or, without bytes, fails it.
    ReadDone { token: u64, bytes: Option<String> },
    /// Ends a store.
    StoreDone { token: u64, good: bool },
    /// A write could not be delivered.
    WriteFailed { stream: u16, run: u32 },
    /// The wire is free: returns a frame.
    Frame,
    /// Queues a frame of the legacy function.
    Legacy { bytes: String },
    /// Receives a frame.
    Receive { bytes: String },
    /// The link of a NIC comes or goes.
    Link { up: bool },
    /// Resets the function.
    Reset,
}

/// A request and its time.
#[derive(Deserialize)]
struct Line {
    now: u64,
    #[serde(flatten)]
    request: Request,
}

enum Function {
    Ssd(Box<Ssd>),
    Nic(Box<Nic>),
}

struct Reference {
    function: Function,
    /// Operations in progress by the number that the bench knows.
    tokens: BTreeMap<u64, Token>,
    operations: u64,
}

fn bytes(hexadecimal: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let pairs = hexadecimal.as_bytes().chunks_exact(2);
    pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Reference {
    fn new(settings: &Settings) -> Result<Reference, Box<dyn Error>> {
        let Settings { streams, window, places, payload, epoch, .. } = *settings;
        let function = if settings.kind == "ssd" {
            let queue = settings.queue;
            let config = ssd::Config {
                window,
                places,
                payload,
                epoch,
                tasks: 16,
                transfer: 8192,
                read_ahead: queue,
                ..ssd::Config::new(streams, settings.blocks)
            };
            Function::Ssd(Box::new(Ssd::new(config)?))
        } else {
            let queue = settings.queue;
            let config = nic::Config { window, places, payload, epoch, queue, ..nic::Config::new(streams) };
            Function::Nic(Box::new(Nic::new(config)?))
        };
        Ok(Reference { function, tokens: BTreeMap::new(), operations: 0 })
    }

    fn name(&mut self, token: Token) -> u64 {
        self.operations += 1;
        self.tokens.insert(self.operations, token);
        self.operations
    }

    fn tell(&mut self, action: Action) -> Value {
        match action {
            Action::Read { token, lba, blocks } => {
                json!({"kind": "read", "token": self.name(token), "lba": lba, "blocks": blocks})
            }
            Action::Store { token, lba, data } => {
                json!({"kind": "store", "token": self.name(token), "lba": lba, "data": hexadecimal(&data)})
            }
            Action::Write { origin, address, data } => json!({
                "kind": "write", "stream": origin.stream, "run": origin.run, "address": address,
                "data": hexadecimal(&data),
            }),
            Action::Interrupt { stream } => json!({"kind": "interrupt", "stream": stream}),
            Action::Legacy { frame } => json!({"kind": "legacy", "data": hexadecimal(&frame)}),
        }
    }

    fn answer(&mut self, line: Line) -> Result<Value, Box<dyn Error>> {
        let now = line.now;
        match (line.request, &mut self.function) {
            (Request::Write { at, bytes: data }, Function::Ssd(ssd)) => ssd.write(at, &bytes(&data)?, now),
            (Request::Write { at, bytes: data }, Function::Nic(nic)) => nic.write(at, &bytes(&data)?, now),
            (Request::Read { at, length }, function) => {
                let mut read = vec![0; length];
                match function {
                    Function::Ssd(ssd) => ssd.read(at, &mut read),
                    Function::Nic(nic) => nic.read(at, &mut read),
                }
                return Ok(json!(hexadecimal(&read)));
            }
            (Request::Data { at, bytes: data }, Function::Ssd(ssd)) => ssd.data(at, &bytes(&data)?, now),
            (Request::Data { at, bytes: data }, Function::Nic(nic)) => nic.data(at, &bytes(&data)?, now),
            (Request::Poll, function) => {
                let action = match function {
                    Function::Ssd(ssd) => ssd.poll(now),
                    Function::Nic(nic) => nic.poll(now),
                };
                return Ok(action.map_or(Value::Null, |action| self.tell(action)));
            }
            (Request::ReadDone { token, bytes: data }, Function::Ssd(ssd)) => {
                let token = self.tokens.remove(&token).ok_or("no such read")?;
                ssd.read_done(token, data.map(|data| bytes(&data)).transpose()?.ok_or(MediumError), now);
            }
            (Request::StoreDone { token, good }, Function::Ssd(ssd)) => {
                let token = self.tokens.remove(&token).ok_or("no such store")?;
                ssd.store_done(token, if good { Ok(()) } else { Err(MediumError) }, now);
            }
            (Request::WriteFailed { stream, run }, Function::Ssd(ssd)) => {
                ssd.write_failed(Origin { stream, run });
            }
            (Request::WriteFailed { stream, run }, Function::Nic(nic)) => {
                nic.write_failed(Origin { stream, run });
            }
            (Request::Frame, Function::Nic(nic)) => {
                let frame = nic.next_frame(now);
                return Ok(frame.map_or(
                    Value::Null,
                    |frame| json!({"stream": frame.stream, "data": hexadecimal(&frame.bytes)}),
                ));
            }
            (Request::Legacy { bytes: data }, Function::Nic(nic)) => {
                nic.send_legacy(bytes(&data)?).map_err(|_| "the queue of legacy frames is full")?;
            }
            (Request::Receive { bytes: data }, Function::Nic(nic)) => {
                return Ok(json!(nic.receive(&bytes(&data)?, now) == Received::Legacy));
            }
            (Request::Link { up }, Function::Nic(nic)) => nic.set_link(up),
            (Request::Reset, Function::Ssd(ssd)) => ssd.reset(),
            (Request::Reset, Function::Nic(nic)) => nic.reset(),
            _ => return Err("the function has no such step".into()),
        }
        Ok(Value::Null)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut lines = std::io::stdin().lock().lines();
    let settings: Settings = serde_json::from_str(&lines.next().ok_or("no settings")??)?;
    let mut reference = Reference::new(&settings)?;
    let mut output = std::io::stdout().lock();
    for line in lines {
        let answer = reference.answer(serde_json::from_str(&line?)?)?;
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}
