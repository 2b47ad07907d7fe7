// The sequencer's steps from an answer to the row's next stage, and to writes that are done in
// their order.

module sequencer_answer
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
  outcome_t   outcome;
  stage_t     stage;
  pool_t      pool;
  place_t     at;
  row_state_e row_state;

  assign run       = facts_i.run;
  assign block     = facts_i.block;
  assign transfer  = facts_i.transfer;
  assign outcome   = facts_i.outcome;
  assign stage     = facts_i.stage;
  assign pool      = facts_i.pool;
  assign at        = facts_i.at;
  assign row_state = facts_i.row_state;

  // An answer is one to what is in flight.
  logic known, known_blockless, sound;
  always_comb begin
    known           = row_state inside {Issued, Orphan} && block.serial == outcome.id.serial;
    known_blockless = run.generation == outcome.id.serial
        && (run.flushing || (run.asked[outcome.id.at]
                             && !event_i.snapshots[event_i.command][outcome.id.at]));
    unique case (outcome.kind)
      Moved:     sound = (stage == StSource && outcome.bytes <= block.asked)
                         || (stage == StDestination && outcome.bytes <= block.asked
                             && outcome.bytes != '0);
      Processed: sound = stage != StSource && stage != StDestination
                         && outcome.bytes == block.asked && !(is_digest(pool) && block.last);
      Digest:    sound = stage != StSource && stage != StDestination && is_digest(pool)
                         && block.last;
      default:   sound = 1'b0;
    endcase
  end

  function automatic failure_t told(stage_t where);
    return failure_told(where, outcome.kind, outcome.status, outcome.errno);
  endfunction

  event_t next;
  run_t   run_d;
  block_t block_d;
  // What the row writes counts as delivered at once.
  logic counts;
  assign counts = facts_i.first && !facts_i.dropped;

  logic unused;
  assign unused = ^{event_i, facts_i, run, block, transfer, outcome, stage, pool, at, row_state};

  always_comb begin
    step_o  = base_i;
    next    = base_i.next;
    run_d   = base_i.run;
    block_d = base_i.block;
    unique case (event_i.state)
      // ---- An answer ----

      Answer: begin
        next.aborts[event_i.row] = 1'b0;
        next.after               = row_state == Orphan ? Orphaned : Evaluate;
        next.state               = facts_i.has_unit ? GiveUnit : next.after;
        if (!known) begin
          next.aborts[event_i.row] = event_i.aborts[event_i.row];
          step_o.stale             = 1'b1;
          next.state               = Idle;
        end else begin
          step_o.run_write = 1'b1;
          run_d.in_flight  = run.in_flight - 1'b1;
        end
      end

      GiveUnit: begin
        if (facts_i.release_ready) begin
          step_o.change = BoardRelease;
          next.state    = event_i.after;
        end
      end

      Evaluate: begin
        step_o.run_write   = 1'b1;
        step_o.block_write = 1'b1;
        step_o.times       = TimesDone;
        step_o.timed       = timed_of(stage);
        next.state         = Idle;
        if (outcome.kind == Moved) run_d.path = run.path | outcome.path;
        if (run.failed) begin
          // What it did is still told.
          step_o.change = BoardStop;
          if (outcome.kind == Digest && sound) run_d.told[at] = 1'b1;
          if (outcome.kind == Moved && outcome.bytes <= block.asked) begin
            if (stage == StSource) begin
              run_d.bytes_in = run.bytes_in + 64'(outcome.bytes);
            end
            if (stage == StDestination) begin
              block_d.start = block.start + outcome.bytes;
              if (counts) run_d.bytes_out = run.bytes_out + 64'(outcome.bytes);
              if (block.start + outcome.bytes == block.length) step_o.change = BoardDone;
            end
          end
          next.state = Retire;
        end else if (!sound) begin
          step_o.change = BoardStop;
          next.failure  = told(stage);
          next.state    = Fail;
        end else if (stage == StSource) begin
          step_o.change  = BoardReady;
          run_d.bytes_in = run.bytes_in + 64'(outcome.bytes);
          block_d.start  = block.start + outcome.bytes;
          if (outcome.bytes == '0) begin
            // The source gave no more: this block is the last one, whatever was planned.
            block_d.last       = 1'b1;
            block_d.stop       = block.start;
            run_d.source_done  = 1'b1;
            run_d.source_short = transfer.length != LengthToEnd;
            if (block.number < run.last_block) run_d.last_block = block.number;
          end else if (!transfer.parallel_reads && !facts_i.gathers
                       && block_d.start != block.stop) begin
            // What a stream has is passed on; the rest of the block's plan is taken back.
            run_d.planned     = run.planned - 64'(block.stop - block_d.start);
            run_d.source_done = 1'b0;
            block_d.last      = 1'b0;
            block_d.stop      = block_d.start;
          end
        end else if (stage == StDestination) begin
          step_o.change = BoardReady;
          block_d.start = block.start + outcome.bytes;
          if (counts) run_d.bytes_out = run.bytes_out + 64'(outcome.bytes);
        end else begin
          if (outcome.kind == Digest) run_d.told[at] = 1'b1;
          next.after = Idle;
          next.state = Pass;
        end
      end

      AnswerBlockless: begin
        next.state = Idle;
        if (!known_blockless) begin
          step_o.stale = 1'b1;
        end else begin
          step_o.run_write                  = 1'b1;
          step_o.times                      = TimesDone;
          step_o.timed_at                   = outcome.id.at;
          step_o.timed                      = run.flushing ? timed_of(StDestination)
                                              : timed_t'(outcome.id.at) + timed_t'(2);
          run_d.in_flight                   = run.in_flight - 1'b1;
          run_d.flushing                    = 1'b0;
          run_d.asked                       = run.asked & ~(ChainMax'(1) << outcome.id.at);
          next.abort_flush[event_i.command] = 1'b0;
          if (run.phase == Nothing) begin
            step_o.times = TimesNone;
            next.state   = Orphaned;
          end else if (run.failed) begin
            if (outcome.kind == Digest && !run.flushing) run_d.told[outcome.id.at] = 1'b1;
            next.state = Conclude;
          end else if (outcome.kind == Flushed) begin
            next.row   = facts_i.head;
            next.whole = 1'b1;
            next.state = facts_i.there ? FreeRow : Finish;
          end else begin
            next.failure = told(StDestination);
            next.state   = Fail;
          end
        end
      end

      Pass: begin
        step_o.change = BoardPass;
        next.state    = event_i.after == Plan ? Plan
                        : transfer.withholds && facts_i.next_stage == StDestination ? Retire : Idle;
      end

      // ---- Writes that are done, in their order ----

      WriteDone: begin
        step_o.run_write = 1'b1;
        step_o.change    = BoardDone;
        if (block.last && !facts_i.dropped) run_d.final_written = 1'b1;
        next.state = Retire;
      end

      Retire: begin
        next.whole = 1'b0;
        next.row   = facts_i.head;
        next.state = facts_i.there ? RetireNext : Retired;
      end

      RetireNext: begin
        next.state = Retired;
        if (row_state == Done && (facts_i.held || event_i.whole)) begin
          // A device still has its block, or that of one before it.
          next.whole = 1'b1;
          if (facts_i.follower) begin
            next.row   = facts_i.follower_row;
            next.state = RetireNext;
          end
        end else if (row_state != Done) begin
          next.whole = 1'b0;
          // It found no room or was withheld, and nothing is to be written before it any more.
          if (row_state == Wait && stage == StDestination && !run.failed && !facts_i.withheld) begin
            step_o.change = BoardReady;
          end
        end else begin
          step_o.change      = BoardRetire;
          step_o.credit_give = 1'b1;
          if (facts_i.follower) begin
            next.row   = facts_i.follower_row;
            next.state = RetireCount;
          end
        end
      end

      // What the next one has written so far counts as delivered.
      RetireCount: begin
        step_o.run_write = stage == StDestination && !facts_i.dropped;
        run_d.bytes_out  = run.bytes_out + 64'(block.start);
        next.state       = RetireNext;
      end

      Retired: begin
        next.state = Plan;
        if (run.failed) next.state = Conclude;
        else if (run.final_written && (!facts_i.there || event_i.whole) && run.phase == Run) begin
          step_o.run_write = 1'b1;
          if (run.source_short) begin
            next.failure = failure_of(StSource, StatusEndOfSource);
            next.state   = Fail;
          end else if (run.flush) begin
            run_d.phase                   = Flush;
            run_d.in_flight               = run.in_flight + 1'b1;
            next.flushes[event_i.command] = 1'b1;
            next.state                    = Idle;
          end else begin
            next.row   = facts_i.head;
            next.state = facts_i.there ? FreeRow : Finish;
          end
        end
      end

      default: ;
    endcase
    step_o.next  = next;
    step_o.run   = run_d;
    step_o.block = block_d;
  end

endmodule
