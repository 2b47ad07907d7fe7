//! Programs of the host: futures that are polled after every event in the server. No waker, no real time.

use crate::cpu::{Component, Cpu, ThreadId};
use crate::server::Server;
use dcs_engine::Nanos;
use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A machine in virtual time.
pub trait World {
    /// Advances to the next event; returns false if there is none.
    fn step(&mut self) -> bool;

    /// Returns the time since the start.
    fn now(&self) -> Nanos;

    /// Makes time stop at `at`, if not before.
    fn remind(&mut self, at: Nanos);

    /// Returns the flag of events that software may be waiting for.
    fn dirty(&mut self) -> &mut bool;

    /// Returns the processor.
    fn cpu(&mut self) -> &mut Cpu;

    /// Records a component's work, if enabled.
    fn note(&mut self, from: Nanos, what: Component);
}

impl World for Server {
    fn step(&mut self) -> bool {
        Server::step(self)
    }

    fn now(&self) -> Nanos {
        Server::now(self)
    }

    fn remind(&mut self, at: Nanos) {
        Server::remind(self, at);
    }

    fn dirty(&mut self) -> &mut bool {
        &mut self.dirty
    }

    fn cpu(&mut self) -> &mut Cpu {
        &mut self.cpu
    }

    fn note(&mut self, from: Nanos, what: Component) {
        Server::note(self, from, what);
    }
}

struct Inner<W> {
    server: RefCell<W>,
    tasks: RefCell<Vec<Task>>,
}

/// A server and the programs that run on it.
pub struct Executor<W: World = Server>(Handle<W>);

impl<W: World> Executor<W> {
    /// Returns a server without programs.
    pub fn new(server: W) -> Executor<W> {
        Executor(Handle(Rc::new(Inner { server: RefCell::new(server), tasks: RefCell::default() })))
    }

    /// Returns a handle for programs.
    pub fn handle(&self) -> Handle<W> {
        self.0.clone()
    }

    /// Runs until `main` ends.
    ///
    /// # Panics
    ///
    /// If it waits for an event that never happens.
    pub fn run<F: Future>(&self, main: F) -> F::Output {
        let mut main = pin!(main);
        let inner = &*self.0.0;
        let mut context = Context::from_waker(Waker::noop());
        loop {
            *inner.server.borrow_mut().dirty() = false;
            if let Poll::Ready(result) = main.as_mut().poll(&mut context) {
                return result;
            }
            let mut tasks = inner.tasks.take();
            tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
            // Tasks spawned meanwhile are appended.
            let spawned = inner.tasks.replace(tasks);
            inner.tasks.borrow_mut().extend(spawned);
            let mut server = inner.server.borrow_mut();
            while !*server.dirty() {
                assert!(server.step(), "the programs wait for something that will never happen");
            }
        }
    }
}

impl<W: World> Drop for Executor<W> {
    /// Breaks the cycle: programs hold the server, and the server holds them.
    fn drop(&mut self) {
        self.0.0.tasks.take();
    }
}

/// A program's view of the server.
pub struct Handle<W: World = Server>(Rc<Inner<W>>);

impl<W: World> Clone for Handle<W> {
    fn clone(&self) -> Handle<W> {
        Handle(Rc::clone(&self.0))
    }
}

impl<W: World> Handle<W> {
    /// Acts on the server at once.
    pub fn with<T>(&self, act: impl FnOnce(&mut W) -> T) -> T {
        let mut server = self.0.server.borrow_mut();
        *server.dirty() = true;
        act(&mut server)
    }

    /// Waits until `look` finds something. The wait itself costs nothing: a program that busy-waits on a core must charge for it.
    pub async fn until<T>(&self, mut look: impl FnMut(&mut W) -> Option<T>) -> T {
        std::future::poll_fn(|_| {
            let mut server = self.0.server.borrow_mut();
            match look(&mut server) {
                Some(found) => {
                    *server.dirty() = true;
                    Poll::Ready(found)
                }
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Returns the time since the start.
    pub fn now(&self) -> Nanos {
        self.0.server.borrow().now()
    }

    /// Waits until a time.
    pub async fn sleep_until(&self, at: Nanos) {
        if self.now() < at {
            self.with(|server| server.remind(at));
            self.until(|server| (server.now() >= at).then_some(())).await;
        }
    }

    /// Returns a program's output, or `None` if it has not ended by the limit; the program is dropped then.
    pub async fn within<F: Future>(&self, limit: Nanos, program: F) -> Option<F::Output> {
        let end = self.now() + limit;
        self.with(|server| server.remind(end));
        let mut program = pin!(program);
        std::future::poll_fn(|context| match program.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.now() >= end => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Starts another program.
    pub fn spawn(&self, program: impl Future<Output = ()> + 'static) {
        self.0.tasks.borrow_mut().push(Box::pin(program));
        *self.0.server.borrow_mut().dirty() = true;
    }

    /// Adds a thread of the host.
    pub fn thread(&self) -> ThreadId {
        self.with(|server| server.cpu().thread())
    }

    /// Works on a thread, for this much of a core's time.
    pub async fn work(&self, thread: ThreadId, what: Component, time: Nanos) {
        if time > 0 {
            let from = self.now();
            let job = self.with(|server| server.cpu().work(thread, what, time));
            self.until(|server| server.cpu().take(job).then_some(())).await;
            self.with(|server| server.note(from, what));
        }
    }

    /// Works on a core as an interrupt does.
    pub async fn interrupt(&self, core: usize, what: Component, time: Nanos) {
        if time > 0 {
            let from = self.now();
            let job = self.with(|server| server.cpu().interrupt(core, what, time));
            self.until(|server| server.cpu().take(job).then_some(())).await;
            self.with(|server| server.note(from, what));
        }
    }
}
