//! Planning: which blocks a command gets, and how their rows go from stage to stage.

use crate::EndpointRole;
use crate::command::Phase;
use crate::engine::Engine;
use crate::scoreboard::{Device, RowId, State};

impl Engine {
    /// Plans as many reads as window and credits allow.
    pub(crate) fn plan(&mut self, index: u16) {
        loop {
            let command = self.commands.at(index);
            if command.phase != Phase::Run || command.source_done {
                return;
            }
            if command.direct && command.read_at.role == EndpointRole::Source {
                return self.plan_direct(index);
            }
            if !command.parallel_reads && command.reads_in_flight > 0 {
                return;
            }
            let Some(block) = self.take_block(index, 0) else { return };
            self.plan_read(index, block);
        }
    }

    #[inline]
    fn plan_read(&mut self, index: u16, id: RowId) {
        let command = self.commands.at(index);
        let spec = &*command.spec;
        let mut wanted = u64::from(self.config.block_size).min(spec.length - command.planned);
        if command.direct {
            // Only the prefix goes by blocks; the source follows by itself.
            let prefix = spec.prefix.as_ref().map_or(0, |prefix| prefix.length());
            wanted = wanted.min(prefix - command.planned);
        }
        command.planned += wanted;
        command.source_done = command.planned == spec.length;
        command.reads_in_flight += 1;
        let row = self.board.get_mut(id);
        (row.device, row.end, row.last) = (Device::Source, wanted as u32, command.source_done);
        if command.parallel_reads {
            row.from = command.read_at;
            command.read_at = row.from.advance(spec, wanted);
            if command.segment_count == 1 {
                // Reads of blocks may overtake each other: each block's place at the destination is fixed
                // now.
                row.to = Some(command.write_at);
                command.write_at = command.write_at.advance(spec, wanted);
            }
        }
        self.join_segment(index, id);
        self.make_ready(id);
    }

    /// A block that an operator filled begins its way.
    #[inline]
    pub(crate) fn start_filled(&mut self, index: u16, id: RowId) {
        self.join_segment(index, id);
        let segment = &self.commands.at(index).segments[self.board.get(id).segment as usize];
        let first =
            if segment.first < segment.end { Device::Operator(segment.first) } else { Device::Destination };
        self.enter_stage(id, first);
    }

    #[inline]
    pub(crate) fn join_segment(&mut self, index: u16, id: RowId) {
        let segment = &mut self.commands.at(index).segments[self.board.get(id).segment as usize];
        let previous = segment.tail.replace(id);
        self.board.get_mut(id).previous = previous;
        match previous {
            Some(previous) => self.board.get_mut(previous).next = Some(id),
            None => segment.head = Some(id),
        }
    }

    /// Takes the first row out of its segment.
    #[inline]
    pub(crate) fn leave_segment(&mut self, id: RowId) {
        let row = self.board.get(id);
        let (command, segment, next) = (row.command, row.segment, row.next);
        let segment = &mut self.commands.at(command).segments[segment as usize];
        debug_assert_eq!(segment.head, Some(id));
        segment.head = next;
        match next {
            Some(next) => self.board.get_mut(next).previous = None,
            None => segment.tail = None,
        }
    }

    /// A row comes to a stage. Operators, and writes to a stream, take rows in their order.
    #[inline]
    fn enter_stage(&mut self, id: RowId, device: Device) {
        let row = self.board.get_mut(id);
        (row.device, row.start, row.state) = (device, 0, State::Wait);
        let (index, previous) = (row.command, row.previous);
        if device == Device::Destination && self.commands.at(index).withholds {
            return self.enter_withheld(id);
        }
        let ordered = device != Device::Destination || !self.commands.at(index).parallel_writes;
        if !ordered || previous.is_none_or(|previous| self.board.get(previous).device > device) {
            self.make_ready(id);
        }
    }

    /// A row comes to its write where blocks are withheld: it may have to wait for the next one, as the one
    /// before it has waited for this one.
    #[cold]
    fn enter_withheld(&mut self, id: RowId) {
        let row = self.board.get(id);
        let (index, previous) = (row.command, row.previous);
        let parallel = self.commands.at(index).parallel_writes;
        for id in previous.into_iter().chain([id]) {
            let row = self.board.get(id);
            let in_turn = parallel || row.previous.is_none();
            let waits = row.device == Device::Destination && row.state == State::Wait;
            if waits && in_turn && !self.is_withheld(id) {
                self.make_ready(id);
            }
        }
    }

    /// Returns true if a row must not be written before the one behind it has passed the chain.
    #[inline(never)]
    pub(crate) fn is_withheld(&mut self, id: RowId) -> bool {
        let row = self.board.get(id);
        let follows = row.next.is_some_and(|next| self.board.get(next).device == Device::Destination);
        let (index, last) = (row.command, row.last);
        self.commands.at(index).withholds && !last && !follows
    }

    /// A row is through with its stage: it goes on to the next one, and the row behind it may take its place.
    #[inline]
    pub(crate) fn next_stage(&mut self, id: RowId) {
        let row = self.board.get(id);
        let (done, follower, index) = (row.device, row.next, row.command);
        let end = self.commands.at(index).segments[row.segment as usize].end;
        let is_last = row.segment + 1 == self.commands.at(index).segment_count;
        let next = match done {
            Device::Source if end > 0 => Some(Device::Operator(0)),
            Device::Operator(at) if at + 1 < end => Some(Device::Operator(at + 1)),
            _ => is_last.then_some(Device::Destination),
        };
        if let Some(next) = next {
            self.enter_stage(id, next);
        }
        self.wake_follower(follower, done);
    }

    /// A row may have waited for the one before it to pass a stage.
    #[inline]
    pub(crate) fn wake_follower(&mut self, follower: Option<RowId>, passed: Device) {
        if let Some(id) = follower {
            let row = self.board.get(id);
            let waits = row.state == State::Wait && row.device == passed;
            if waits && !(passed == Device::Destination && self.is_withheld(id)) {
                self.make_ready(id);
            }
        }
    }

    /// Nothing holds a row up any more: it is dispatched in its turn.
    #[inline]
    pub(crate) fn make_ready(&mut self, id: RowId) {
        self.board.get_mut(id).state = State::Ready;
        self.ready.push_back(id);
    }

    /// The source follows by the direct path once the prefix is through.
    fn plan_direct(&mut self, index: u16) {
        let command = self.commands.at(index);
        if command.in_flight > 0 || command.reads_in_flight > 0 || command.segments[0].head.is_some() {
            return;
        }
        command.source_done = true;
        let row = self.board.add_blockless(index, Device::Direct);
        self.make_ready(row);
    }
}
