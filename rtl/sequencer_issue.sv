// The sequencer's steps from a row that waits for nothing to its operation.

module sequencer_issue
  import core_pkg::*;
  import dcs_pkg::*;
  import sequencer_pkg::*;
(
  input  event_t event_i,
  input  facts_t facts_i,
  // The step in which nothing happens.
  input  step_t  base_i,
  output step_t  step_o
);

  run_t       run;
  block_t     block;
  transfer_t  transfer;
  stage_t     stage;
  pool_t      pool;
  place_t     at;

  assign run       = facts_i.run;
  assign block     = facts_i.block;
  assign transfer  = facts_i.transfer;
  assign stage     = facts_i.stage;
  assign pool      = facts_i.pool;
  assign at        = facts_i.at;

  event_t next;
  run_t   run_d;
  block_t block_d;
  // The first digest that is to be asked.
  place_t asked_at;
  always_comb begin
    asked_at = '0;
    for (int unsigned i = ChainMax; i > 0; i--) begin
      if (event_i.snapshots[event_i.command][i-1]) asked_at = place_t'(i - 1);
    end
  end

  logic unused;
  assign unused = ^{event_i, facts_i, run, block, transfer, stage, pool, at};

  always_comb begin
    step_o  = base_i;
    next    = base_i.next;
    run_d   = base_i.run;
    block_d = base_i.block;
    unique case (event_i.state)
      // ---- A row that waits for nothing ----

      Dispatch: begin
        next.looked = 1'b0;
        unique case (stage) inside
          StSource: begin
            next.index = '0;
            next.count = transfer.prefix + transfer.source;
            next.seek  = transfer.parallel_reads ? facts_i.base : run.bytes_in;
            next.state = next.count == '0 ? Issue : Search;
            if (block.start == block.stop) begin
              step_o.run_write   = 1'b1;
              run_d.reads        = run.reads - 1'b1;
              step_o.block_write = 1'b1;
              block_d.length     = block.start;
              block_d.start      = '0;
              next.after         = Plan;
              next.state         = Pass;
            end
          end
          StDestination: begin
            next.index = extent_index_t'(transfer.prefix + transfer.source);
            next.count = transfer.prefix + transfer.source + transfer.destination;
            next.seek  = facts_i.base;
            next.state = facts_i.dropped || block.start == block.length ? WriteDone
                      : facts_i.to_positional ? Search : Issue;
          end
          default: begin
            next.after = Idle;
            if ((block.length == '0 && !block.last) || facts_i.dropped) begin
              next.after = Pass;
              next.state = facts_i.has_unit ? GiveUnit : Pass;
            end else begin
              next.state = facts_i.has_unit ? Issue : Rename;
            end
          end
        endcase
      end

      Search: begin
        if (event_i.seek < facts_i.extent.length) begin
          next.looked = 1'b1;
          next.state  = Issue;
        end else begin
          next.seek  = event_i.seek - facts_i.extent.length;
          next.index = event_i.index + 1'b1;
          next.state = extent_count_t'(event_i.index) + 1'b1 == event_i.count ? Issue : Search;
        end
      end

      Issue: begin
        step_o.block_write   = 1'b1;
        block_d.serial       = block.serial + 1'b1;
        step_o.run_write     = 1'b1;
        run_d.in_flight      = run.in_flight + 1'b1;
        next.operation_valid = 1'b1;
        next.operation       = '{
          kind:    stage == StSource ? DoRead : stage == StDestination ? DoWrite : DoProcess,
          id:      '{blockless: 1'b0, serial: block.serial + 1'b1, row: event_i.row,
                     command: event_i.command, at: at},
          prefix:  event_i.looked && facts_i.prefix,
          offset:  event_i.looked ? facts_i.extent.offset + event_i.seek : '0,
          start:   block.start,
          length:  facts_i.most,
          pool:    pool,
          unit:    facts_i.unit,
          last:    block.last,
          // What nothing follows yet goes out: the next block may be one that waits for this one's.
          more:    block.last ? transfer.more
                   : transfer.length != LengthToEnd && facts_i.follower
        };
        if (event_i.looked && facts_i.follows < 64'(facts_i.most)) begin
          next.operation.length = facts_i.follows[BlockShift:0];
        end
        block_d.asked = next.operation.length;
        step_o.change = BoardIssue;
        step_o.times  = TimesIssue;
        step_o.timed  = timed_of(stage);
        run_d.seen[step_o.timed] = 1'b1;
        next.state    = Idle;
        // The destination is full: all that comes before is written first.
        if (stage == StDestination && facts_i.to_positional && !event_i.looked) begin
          step_o.block_write   = 1'b0;
          step_o.run_write     = 1'b0;
          step_o.times         = TimesNone;
          next.operation_valid = base_i.next.operation_valid;
          step_o.change        = facts_i.first ? BoardStop : BoardWait;
          if (facts_i.first) begin
            next.failure = failure_of(StDestination, StatusCapacityExceeded);
            next.state   = Fail;
          end
        end
      end

      Rename: begin
        if (facts_i.rename_ready) begin
          step_o.change = BoardLine;
          next.state    = Idle;
        end
      end

      Blockless: begin
        next.operation_valid = 1'b1;
        next.operation       = '0;
        next.operation.id    = '{blockless: 1'b1, serial: run.generation, row: '0,
                              command: event_i.command, at: asked_at};
        next.operation.kind = DoSnapshot;
        next.operation.pool = transfer.chain[asked_at];
        next.state          = Idle;
        step_o.run_write    = 1'b1;
        step_o.times        = TimesIssue;
        step_o.timed        = timed_t'(asked_at) + timed_t'(2);
        step_o.timed_at     = asked_at;
        if (event_i.flushes[event_i.command]) begin
          next.operation.kind           = DoFlush;
          next.operation.id.at          = '0;
          next.flushes[event_i.command] = 1'b0;
          step_o.timed                  = timed_of(StDestination);
          step_o.timed_at               = '0;
          run_d.flushing                = 1'b1;
        end else begin
          next.snapshots[event_i.command][asked_at] = 1'b0;
        end
        run_d.seen[step_o.timed] = 1'b1;
      end

      default: ;
    endcase
    step_o.next  = next;
    step_o.run   = run_d;
    step_o.block = block_d;
  end

endmodule
