//! Request ids: commands of one tenant with the same `rid` go one after the other (FlexCSV section 4.3.1).

use crate::message::CommandId;
use alloc::collections::{BTreeMap, VecDeque};

/// Lines of commands, by tenant and request id. The front of each line may run.
#[derive(Debug, Default)]
pub(crate) struct Order {
    lines: BTreeMap<(u16, u32), VecDeque<CommandId>>,
}

impl Order {
    /// Adds a command to its line. `rid` 0 has no line.
    pub fn join(&mut self, tenant: u16, rid: u32, command: CommandId) {
        if rid != 0 {
            self.lines.entry((tenant, rid)).or_default().push_back(command);
        }
    }

    /// True where nothing is before the command.
    pub fn may_start(&self, tenant: u16, rid: u32, command: CommandId) -> bool {
        rid == 0 || self.lines.get(&(tenant, rid)).and_then(VecDeque::front) == Some(&command)
    }

    /// True where nobody is in any line.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Takes a finished command out of its line; tells who is first now, if that changed.
    pub fn leave(&mut self, tenant: u16, rid: u32, command: CommandId) -> Option<CommandId> {
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
