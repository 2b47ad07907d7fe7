//! Request ids: commands of one tenant with the same `rid` go one after the other (FlexCSV section 4.3.1).

use crate::interface::CommandId;
use alloc::collections::{BTreeMap, VecDeque};

/// Lines of commands, by tenant (with its function in the upper half) and request id. The front of each line may run.
#[derive(Debug, Default)]
pub(crate) struct Order {
    lines: BTreeMap<(u32, u32), VecDeque<CommandId>>,
}

impl Order {
    /// Adds a command to its line. `rid` 0 has no line.
    pub fn join(&mut self, tenant: u32, rid: u32, command: CommandId) {
        if rid != 0 {
            self.lines.entry((tenant, rid)).or_default().push_back(command);
        }
    }

    /// Returns true if nothing is before the command.
    pub fn may_start(&self, tenant: u32, rid: u32, command: CommandId) -> bool {
        rid == 0 || self.lines.get(&(tenant, rid)).and_then(VecDeque::front) == Some(&command)
    }

    /// Returns true if all lines are empty.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Takes a finished command out of its line; tells who is first now, if that changed.
    pub fn leave(&mut self, tenant: u32, rid: u32, command: CommandId) -> Option<CommandId> {
        let line = self.lines.get_mut(&(tenant, rid))?;
        let was_first = line.front() == Some(&command);
        line.retain(|other| *other != command);
        let first = line.front().copied();
        if first.is_none() {
            self.lines.remove(&(tenant, rid));
        }
        first.filter(|_| was_first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(index: u16) -> CommandId {
        CommandId { index, generation: 1 }
    }

    #[test]
    fn each_line_lets_its_front_run_and_rid_zero_has_none() {
        let mut order = Order::default();
        for (tenant, rid, index) in [(1, 5, 0), (1, 5, 1), (1, 5, 2), (2, 5, 3), (1, 6, 4), (1, 0, 5)] {
            order.join(tenant, rid, command(index));
        }
        let runs = [(1, 5, 0), (2, 5, 3), (1, 6, 4), (1, 0, 5), (1, 0, 9)];
        assert!(runs.iter().all(|(tenant, rid, index)| order.may_start(*tenant, *rid, command(*index))));
        assert!(!order.may_start(1, 5, command(1)) && !order.may_start(1, 5, command(2)));
        assert_eq!(order.leave(1, 5, command(1)), None, "who leaves from the middle moves nobody up");
        assert_eq!(order.leave(1, 5, command(0)), Some(command(2)));
        assert_eq!(order.leave(1, 0, command(5)), None);
        assert_eq!(
            [(1, 5, 2), (2, 5, 3), (1, 6, 4)].map(|(t, r, c)| order.leave(t, r, command(c))),
            [None; 3]
        );
        assert!(order.is_empty(), "no empty line is kept");
    }
}
