//! The card: one command each.

use super::{Asked, Mover, open, request_id};
use crate::server::task::{Direction, Item};
use dcs::card::Options;
use dcs::card::net::Connection;
use dcs::{Backend, Driver, Engine, Op, Session, Sink, Source};
use std::io;
use std::net::SocketAddrV4;
use std::time::Instant;

pub struct Card {
    connection: Option<Connection>,
    session: Session,
    engine: Engine,
    rid: u32,
}

impl Card {
    pub fn new(in_flight: usize) -> io::Result<Card> {
        let options = Options::from_environment().map_err(io::Error::other)?;
        // Who waits drives: no thread is woken to wake another.
        let builder = Engine::builder().backend(Backend::Card).driver(Driver::Caller).card(options);
        let engine = builder.start().map_err(io::Error::other)?;
        let session = engine.session().map_err(io::Error::other)?;
        Ok(Card { connection: None, session, engine, rid: request_id(in_flight) })
    }

    fn connection(&self) -> io::Result<&Connection> {
        self.connection.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Mover for Card {
    fn connect(&mut self, client: SocketAddrV4) -> io::Result<()> {
        self.connection = Some(self.engine.connect(client).map_err(io::Error::other)?);
        Ok(())
    }

    fn ask(&mut self, item: Item, ops: Vec<Op>) -> io::Result<Asked> {
        let start = Instant::now();
        let (file, connection) = (open(item)?, self.connection()?);
        let request = match item.direction {
            Direction::Send => {
                self.session.request(Source::file(&file, ..), ops, Sink::connection(connection))
            }
            Direction::Receive => {
                self.session.request(Source::connection(connection), ops, Sink::file(&file, 0)).durable()
            }
        };
        let transfer = request.length(item.length).rid(self.rid).submit().map_err(io::Error::other)?;
        // The library drops what the kernel has cached.
        Ok(Asked::Flying { transfer, start, written: None })
    }

    fn end(&mut self) -> io::Result<()> {
        super::hear_the_end(&self.session, self.connection()?)
    }

    fn submissions(&self) -> u64 {
        self.engine.statistics().fetched
    }
}
