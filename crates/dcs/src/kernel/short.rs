//! Short commands ([`Short`]): taken through their stages in one go, as far as nothing has to wait.

use super::through::Owner;
use super::{Bound, KernelLoop, is_secret};
use crate::kernel::wipe;
use dcs_abi::status::{Stage, Status};
use dcs_engine::{Binding, Event, Failure, Passage, Progress, Ran, Short};

impl KernelLoop {
    pub(super) fn run_short(&mut self, short: Short) {
        let Short { command, queue, spec, operation, block, until } = short;
        let Some(Some(open)) = self.queues.get(queue.0 as usize) else {
            let refusal = (Stage::Frontend, 0, Failure::new(Status::QueueDeleted));
            return self.handle(Event::Bound { command, binding: Err(refusal) });
        };
        let mut owner = Owner {
            pair: &open.pair,
            controller: &mut self.controller,
            chain: &mut self.chain,
            spare_chains: &mut self.spare_chains,
            bound: &mut self.bound,
            found: None,
            unshielded: self.gets_signals.then_some(&mut self.shield),
        };
        let mut ran = Ran::new(Binding::default(), self.now);
        let until = Some(until);
        let passage = Passage { command, queue, spec: &spec, operation, block, until };
        let went = owner.run::<false>(&passage, &mut ran);
        if is_secret(&spec) {
            self.chain.unload();
            wipe::stack();
        }
        // The core reuses its memory, if it is the core's alone when the command ends.
        drop(spec);
        match went {
            Progress::Ran(at) => {
                self.now = at;
                self.handle(Event::Ran { command, ran: &ran });
            }
            Progress::Bound(binding) => self.handle(Event::Bound { command, binding }),
        }
    }

    /// Lets go of a command's endpoints and operators.
    #[inline]
    pub(super) fn unbind(&mut self, Bound { route, mut chain, secret, .. }: Bound) {
        route.into_endpoints().for_each(|endpoint| self.controller.let_go(endpoint));
        chain.unload();
        self.spare_chains.push(chain);
        if secret {
            wipe::stack();
        }
    }
}
