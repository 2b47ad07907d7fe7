// The sequencer's steps from a failure, or from success, to a command's end: nothing more is
// issued, what is in flight is aborted, digests tell what they have, and all that it had is given
// back.

module sequencer_end
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
  transfer_t  transfer;
  stage_t     stage;
  row_state_e row_state;

  assign run       = facts_i.run;
  assign transfer  = facts_i.transfer;
  assign stage     = facts_i.stage;
  assign row_state = facts_i.row_state;

  logic [ChainMax-1:0] untold, unasked;
  assign unasked = event_i.snapshots[event_i.command];

  always_comb begin
    for (int unsigned i = 0; i < ChainMax; i++) begin
      untold[i] = places_t'(i) < transfer.operators && is_digest(transfer.chain[i])
                  && !run.told[i];
    end
  end


  event_t next;
  run_t   run_d;
  block_t block_d;
  logic unused;
  assign unused = ^{event_i, facts_i, run, transfer, stage, row_state};

  always_comb begin
    step_o  = base_i;
    next    = base_i.next;
    run_d   = base_i.run;
    block_d = base_i.block;
    unique case (event_i.state)
      // ---- A failure: nothing more is issued, what is in flight is aborted ----

      Fail: begin
        next.issued                 = 1'b0;
        next.alive[event_i.command] = 1'b0;
        next.deepest                = StSource;
        next.state                  = Idle;
        if (event_i.by_stage && event_i.cancel) next.cancel_found = run.phase != Nothing;
        if (!run.failed && run.phase != Nothing) begin
          step_o.run_write = 1'b1;
          run_d.failed     = 1'b1;
          run_d.failure    = event_i.failure;
          next.timed[event_i.command] = 1'b0;
          if (!run.binding) begin
            run_d.phase                  = Drain;
            next.awaits[event_i.command] = 1'b0;
            step_o.admission_leave       = run.phase == Admission;
            next.row                     = facts_i.head;
            next.state                   = facts_i.there ? Stop : Conclude;
            if (event_i.flushes[event_i.command]) begin
              next.flushes[event_i.command] = 1'b0;
              run_d.in_flight               = run.in_flight - 1'b1;
            end else if (run.phase == Flush) begin
              next.abort_flush[event_i.command] = run.in_flight != '0;
              next.issued                       = run.in_flight != '0;
              next.deepest                      = StDestination;
              next.state                        = StopNext;
            end
            step_o.grace                = run_d.in_flight != '0;
            next.timed[event_i.command] = step_o.grace;
          end
        end
      end

      Stop: begin
        unique case (row_state)
          Issued: begin
            next.issued  = 1'b1;
            next.deepest = !event_i.issued || stage > event_i.deepest ? stage : event_i.deepest;
            // Where the destination is full, writes that are in flight had room: they go on.
            if (!(stage == StDestination && event_i.failure.stage == StageDestination
                  && event_i.failure.status == StatusCapacityExceeded)) begin
              next.aborts[event_i.row] = 1'b1;
            end
            next.state = StopNext;
          end
          Line: next.state = StopForget;
          Ready, Wait: begin
            next.after = Stop;
            if (facts_i.has_unit) begin
              next.state = GiveUnit;
            end else begin
              step_o.change = BoardStop;
              next.state    = StopNext;
            end
          end
          default: next.state = StopNext;
        endcase
      end

      StopForget: begin
        if (facts_i.forget_ready) begin
          if (facts_i.forget_found) begin
            step_o.change = BoardStop;
            next.state    = StopNext;
          end else begin
            next.state = StopGrant;
          end
        end
      end

      // The row is being granted a unit.
      StopGrant: if (facts_i.has_unit) next.state = Stop;

      StopNext: begin
        next.row   = facts_i.follower_row;
        next.state = facts_i.there && facts_i.follower ? Stop : Conclude;
        if (next.state == Conclude && event_i.by_stage && event_i.issued) begin
          step_o.run_write = 1'b1;
          run_d.failure    = failure_of(event_i.deepest, event_i.failure.status);
        end
      end

      // ---- The end ----

      Conclude: begin
        next.state = Idle;
        if (run.failed && !run.binding && run.in_flight == '0) begin
          next.row   = facts_i.head;
          next.whole = 1'b1;
          next.state = facts_i.there ? FreeRow : Finish;
          if (run.bound && run.phase != Collect) begin
            step_o.run_write = 1'b1;
            run_d.phase      = Collect;
            if (untold != '0) begin
              run_d.in_flight                 = (RowWidth+1)'(ones(untold));
              run_d.asked                     = untold;
              next.snapshots[event_i.command] = untold;
              next.timed[event_i.command]     = 1'b1;
              step_o.grace                    = 1'b1;
              next.state                      = Idle;
            end
          end
        end
      end

      // Its devices hang: their answers will find orphans. Digests that were not asked yet are not.
      Forsake: begin
        step_o.run_write                = 1'b1;
        run_d.in_flight                 = run.in_flight - (RowWidth+1)'(ones(unasked));
        run_d.asked                     = run.asked & ~unasked;
        next.snapshots[event_i.command] = '0;
        next.row                        = facts_i.head;
        next.whole                      = 1'b1;
        next.state                      = facts_i.there ? FreeRow : Finish;
      end

      // A block that a device still has comes back by itself.
      FreeRow: begin
        step_o.change        = row_state == Issued ? BoardOrphan : BoardRetire;
        step_o.credit_orphan = facts_i.held || row_state == Issued;
        step_o.credit_give   = !step_o.credit_orphan;
        next.row             = facts_i.follower_row;
        next.whole           = event_i.whole && row_state == Done;
        next.state           = !facts_i.follower ? Finish : next.whole ? FreeCount : FreeRow;
      end

      // What was written behind a block that a device still has counts as delivered.
      FreeCount: begin
        step_o.run_write = stage == StDestination && !facts_i.dropped;
        run_d.bytes_out  = run.bytes_out + 64'(facts_i.block.start);
        next.state       = FreeRow;
      end

      Finish: begin
        if (!event_i.unbind_valid || facts_i.unbind_ready) begin
          step_o.run_write            = 1'b1;
          run_d.phase                 = Nothing;
          step_o.finish               = 1'b1;
          next.timed[event_i.command] = 1'b0;
          next.alive[event_i.command] = 1'b0;
          next.forsaken[event_i.command] = run.in_flight != '0;
          step_o.credit_finish        = run.charged;
          next.unbind_valid           = run.bound;
          next.state                  = Idle;
        end
      end

      // A device has answered what its command no longer waited for.
      Orphaned: begin
        step_o.change                  = event_i.blockless ? BoardNone : BoardFree;
        step_o.credit_back             = !event_i.blockless && !facts_i.held;
        next.forsaken[event_i.command] = run.in_flight != '0;
        next.state                     = Idle;
      end

      default: ;
    endcase
    step_o.next  = next;
    step_o.run   = run_d;
    step_o.block = block_d;
  end

endmodule
