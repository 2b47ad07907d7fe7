// The sequencer's steps from a command's verdict to its blocks: order, admission, binding, as many
// blocks as window and credits allow.

module sequencer_start
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

  assign run       = facts_i.run;
  assign transfer  = facts_i.transfer;

  event_t next;
  run_t   run_d;
  block_t block_d;
  logic unused;
  assign unused = ^{event_i, facts_i, run, transfer};

  always_comb begin
    step_o  = base_i;
    next    = base_i.next;
    run_d   = base_i.run;
    block_d = base_i.block;
    unique case (event_i.state)
      // ---- A command's start ----

      Verdict: begin
        step_o.run_write            = 1'b1;
        run_d                       = '0;
        run_d.generation            = run.generation + 1'b1;
        run_d.last_block            = '1;
        run_d.queued                = facts_i.now;
        next.alive[event_i.command] = facts_i.verdict.kind == Accepted;
        unique case (facts_i.verdict.kind)
          Accepted: begin
            run_d.phase                 = Order;
            next.timed[event_i.command] = transfer.timeout != '0;
            next.state                  = Idle;
            if (transfer.rid == '0 || facts_i.turn) next.state = Admit;
            else next.awaits[event_i.command] = 1'b1;
          end
          Cancels: begin
            run_d.phase       = Run;
            next.cancel       = 1'b1;
            next.canceller    = event_i.command;
            next.cancel_found = 1'b0;
            next.state        = Idle;
            if (facts_i.verdict.found) begin
              next.command  = facts_i.verdict.target;
              next.failure  = failure_at(StageQueue, '0, StatusCancelled);
              next.by_stage = 1'b1;
              next.state    = Fail;
            end
          end
          default: begin
            run_d.failed  = 1'b1;
            run_d.failure = facts_i.verdict.failure;
            next.state    = Finish;
          end
        endcase
      end

      Cancelled: begin
        step_o.run_write = 1'b1;
        run_d.bytes_out  = 64'({event_i.cancel_found, 16'h0});
        next.state       = Finish;
      end

      Admit: begin
        step_o.run_write             = 1'b1;
        run_d.phase                  = Admission;
        next.awaits[event_i.command] = 1'b0;
        step_o.admission_join        = 1'b1;
        next.state                   = Idle;
      end

      Start: begin
        step_o.run_write       = 1'b1;
        run_d.phase            = Bind;
        run_d.binding          = 1'b1;
        run_d.charged          = 1'b1;
        step_o.credit_start    = 1'b1;
        step_o.admission_leave = 1'b1;
        next.bind_valid        = 1'b1;
        next.state             = Idle;
      end

      Bound: begin
        step_o.run_write = 1'b1;
        run_d.binding    = 1'b0;
        run_d.bound      = facts_i.bound_ok;
        if (run.failed) begin
          next.state = Conclude;
        end else if (facts_i.bound_ok) begin
          run_d.phase       = Run;
          run_d.started     = facts_i.now;
          run_d.flush       = facts_i.bound_flush || transfer.durable || transfer.acknowledged;
          run_d.source_done = 1'b0;
          next.state        = Plan;
        end else begin
          next.failure = facts_i.bound_failure;
          next.state   = Fail;
        end
      end

      TimedOut: begin
        next.failure  = failure_at(StageQueue, '0, StatusTimeout);
        next.by_stage = 1'b1;
        next.state    = run.failed ? Forsake : Fail;
      end

      // ---- Blocks: as many as window and credits allow ----

      Plan: begin
        if (!facts_i.may_read) begin
          step_o.credit_leave = 1'b1;
          next.state          = Idle;
        end else begin
          next.line = 1'b0;
          if (facts_i.credit_granted) begin
            step_o.change      = BoardAdd;
            step_o.run_write   = 1'b1;
            run_d.planned      = run.planned + facts_i.wanted;
            run_d.number       = run.number + 1'b1;
            run_d.reads        = run.reads + 1'b1;
            run_d.source_done  = facts_i.left <= 64'(BlockSize);
            step_o.block_write = 1'b1;
            block_d            = '0;
            block_d.serial     = facts_i.free_serial;
            block_d.last       = facts_i.left <= 64'(BlockSize);
            block_d.stop       = facts_i.wanted[BlockShift:0];
            block_d.number     = run.number;
          end else begin
            next.state = Idle;
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
