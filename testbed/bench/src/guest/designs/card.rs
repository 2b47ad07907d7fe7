//! The card: one command per transfer.

use super::{Design, Submission, at, open, request_id};
use crate::guest::task::{Item, Stream};
use crate::harness::data::Direction;
use dcs::card::Options;
use dcs::net::Connection;
use dcs::{Backend, Driver, Engine, Op, Session, Sink, Source};
use std::io;
use std::time::Instant;

pub struct Card {
    connections: Vec<(Connection, Stream)>,
    session: Session,
    engine: Engine,
    in_flight: usize,
}

impl Card {
    /// Opens the card on the first `sets` sets of an SSD and a NIC.
    pub fn new(in_flight: usize, sets: usize) -> io::Result<Card> {
        let mut options = Options::from_environment().map_err(io::Error::other)?;
        options.disks.truncate(sets);
        options.nics.truncate(sets);
        // The waiting thread drives the engine: no thread has to wake another.
        let builder = Engine::builder().backend(Backend::Card).driver(Driver::Caller).card(options);
        let engine = builder.start().map_err(io::Error::other)?;
        let session = engine.session().map_err(io::Error::other)?;
        Ok(Card { connections: Vec::new(), session, engine, in_flight })
    }
}

impl Design for Card {
    fn connect(&mut self, stream: Stream) -> io::Result<()> {
        // Connects by the NIC on the client's network.
        let connection = self.engine.connect(stream.client).map_err(io::Error::other)?;
        self.connections.push((connection, stream));
        Ok(())
    }

    fn submit(&mut self, connection: usize, item: Item, ops: Vec<Op>) -> io::Result<Submission> {
        let start = Instant::now();
        let rid = request_id(self.in_flight, connection);
        let (connection, stream) = at(&self.connections, connection)?;
        let file = open(stream.set, item)?;
        let request = match item.direction {
            Direction::Send => {
                self.session.request(Source::file(&file, ..), ops, Sink::connection(connection))
            }
            Direction::Receive => {
                self.session.request(Source::connection(connection), ops, Sink::file(&file, 0)).durable()
            }
        };
        let transfer = request.length(item.length).rid(rid).submit().map_err(io::Error::other)?;
        // The library drops the kernel's cached pages.
        Ok(Submission::Flying { transfer, start, written: None })
    }

    fn wait_any(&self) {
        self.session.wait_any();
    }

    fn end(&mut self, connection: usize) -> io::Result<()> {
        super::hear_the_end(&self.session, &at(&self.connections, connection)?.0)
    }

    fn submissions(&self) -> u64 {
        self.engine.statistics().fetched
    }
}
