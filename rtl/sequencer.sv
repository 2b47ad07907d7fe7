// What a command does from its admission to its end: the Rust core's `admission`, `plan`,
// `dispatch`, `outcome` and `completion`, with `command`'s state.
//
// One event at a time, in a few cycles, as the Rust core takes its events: a verdict, a binding, an
// answer, a row that is ready, a block that came back. No event waits for a device: an operation is
// begun only when the one before it has been taken, so answers are always taken. Which event is
// next is decided here; what its steps do, in `sequencer_start`, `sequencer_issue`,
// `sequencer_answer` and `sequencer_end`.

module sequencer
  import core_pkg::*;
  import dcs_pkg::*;
  import sequencer_pkg::*;
(
  input  logic          clk_i,
  input  logic          rst_ni,
  // Nanoseconds for results, milliseconds for timeouts.
  input  logic [63:0]   now_i,
  input  logic [39:0]   millis_i,
  // Milliseconds that a command which has failed waits for its devices.
  input  logic [31:0]   grace_i,

  // From `validate`.
  input  logic          verdict_valid_i,
  output logic          verdict_ready_o,
  input  verdict_t      verdict_i,
  input  command_t      checked_i,
  input  logic          transfer_valid_i,
  input  transfer_t     transfer_i,
  input  logic          extent_valid_i,
  input  extent_index_t extent_index_i,
  input  extent_t       extent_i,
  // Commands whose turn it is by their request ids.
  input  logic [Commands-1:0] turn_i,

  // Endpoints are found, access and ranges checked, operators loaded.
  output logic          bind_valid_o,
  input  logic          bind_ready_i,
  output command_t      bind_command_o,
  input  logic          bound_valid_i,
  output logic          bound_ready_o,
  input  command_t      bound_command_i,
  input  logic          bound_ok_i,
  input  logic          bound_flush_i,
  input  failure_t      bound_failure_i,
  // A command that was bound is finished. Always taken soon.
  output logic          unbind_valid_o,
  input  logic          unbind_ready_i,
  output command_t      unbind_command_o,
  // The transfer and the extents of any command.
  input  command_t      look_command_i,
  output transfer_t     look_transfer_o,

  output logic          operation_valid_o,
  input  logic          operation_ready_i,
  output operation_t    operation_o,
  output command_t      operation_command_o,
  input  logic          outcome_valid_i,
  output logic          outcome_ready_o,
  input  outcome_t      outcome_i,
  // Rows whose blocks a device still has after the outcome (a connection, until its peer has
  // acknowledged them): they are not given back. One that has no device any more is told.
  input  logic [Blocks-1:0] held_i,
  input  logic          released_valid_i,
  output logic          released_ready_o,
  input  row_t          released_row_i,
  // Queues that there are, the function of each, and the functions' weights.
  input  logic [Queues-1:0]      there_i,
  input  function_t [Queues-1:0] func_i,
  input  logic [Functions-1:0][8:0] weight_i,
  // Commands of these queues are stopped.
  input  logic [Queues-1:0] deleting_i,
  // A command is to stop, asked for beside the queues: the one with the identifier, if there is.
  input  logic          stop_valid_i,
  output logic          stop_ready_o,
  input  logic          stop_found_i,
  input  command_t      stop_command_i,
  // An entry is being checked.
  input  logic          checking_i,
  // The operation of a row, or a command's flush, may stop.
  output logic          abort_valid_o,
  input  logic          abort_ready_i,
  output operation_id_t abort_id_o,
  // An outcome that belongs to no operation was ignored.
  output logic          stale_o,
  // A slot is to be loaded with a pool's operator: stable until it is.
  output logic          load_valid_o,
  input  logic          load_ready_i,
  output unit_t         load_unit_o,
  output pool_t         load_pool_o,

  // A command is finished.
  output logic          finish_o,
  output command_t      finish_command_o,
  output posting_t      finish_posting_o,
  output address_t      finish_result_o,
  output logic [2:0][63:0] finish_times_o,
  output logic [63:0]   finish_bytes_in_o,
  output logic [63:0]   finish_bytes_out_o,
  output logic [15:0]   finish_path_o,
  output logic [ChainMax-1:0] finish_told_o,
  output logic [TimedStages-1:0] finish_seen_o,
  output errno_t        finish_errno_o,
  output places_t       finish_operators_o,
  // The times of a finished command's stage, in the cycle after one with `ready`.
  output logic          times_ready_o,
  input  times_at_t     times_at_i,
  output times_t        times_o,
  // Commands that are finished, and of which a device still has an operation.
  output logic [Commands-1:0] forsaken_o,
  output logic          idle_o,
  // Nothing will happen by itself; but commands may have timeouts, and some may be short of blocks.
  output logic          quiet_o,
  output logic          timed_o,
  output logic          short_o,
  output logic [Blocks-1:0] free_o
);
  run_t      runs      [Commands];
  block_t    blocks    [Blocks];
  transfer_t transfers [Commands];
  unit_t     units     [Blocks];
  logic [39:0] deadlines [Commands];
  extent_t   extents   [Commands*Extents];

  // The command and the row that the event is about.
  event_t    event_q, event_d;
  run_t      run;
  block_t    block;
  transfer_t transfer;
  step_t     step;
  row_t      block_at;

  assign run      = runs[event_q.command];
  assign block    = blocks[event_q.row];
  assign transfer = transfers[event_q.command];
  assign look_transfer_o = transfers[look_command_i];

  always_ff @(posedge clk_i) begin
    if (transfer_valid_i) transfers[checked_i] <= transfer_i;
    if (step.run_write) runs[event_q.command] <= step.run;
    if (step.block_write) blocks[block_at] <= step.block;
  end

  // ---- The scoreboard, units, blocks, lines ----

  verdict_t            verdict_q;
  outcome_t            outcome_q;
  logic                bound_ok_q, bound_flush_q;
  failure_t            bound_failure_q;
  logic [Commands-1:0] doomed;
  row_t                board_row;
  stage_t              next_stage;
  row_state_e          row_state;
  stage_t              stage;
  command_t            row_command;
  logic                has_unit, first, follower, board_idle;
  row_t                follower_row;
  logic [Commands-1:0] there;
  row_t [Commands-1:0] heads;
  logic [Blocks-1:0]   ready;
  logic                ready_valid, ready_take;
  row_t                ready_row;
  logic                grant_valid;
  unit_t               grant_unit;
  pool_t               grant_pool;
  row_t                grant_row;
  logic                rename_ready, release_ready, forget_ready, forget_found, units_free;
  pool_t               pool;
  function_t           func;
  logic                to_positional, ordered, hold, follower_writes;
  place_t              at;

  scoreboard u_scoreboard (
    .clk_i,
    .rst_ni,
    .change_i       (step.change),
    .row_i          (board_row),
    .command_i      (event_q.command),
    .stage_i        (next_stage),
    .ordered_i      (ordered),
    .hold_i         (hold),
    .grant_i        (grant_valid),
    .grant_row_i    (grant_row),
    .state_o        (row_state),
    .stage_o        (stage),
    .command_o      (row_command),
    .has_unit_o     (has_unit),
    .first_o        (first),
    .follower_o     (follower),
    .follower_row_o (follower_row),
    .follower_writes_o (follower_writes),
    .there_o        (there),
    .head_o         (heads),
    .ready_o        (ready),
    .idle_o         (board_idle)
  );

  arbiter #(
    .Count (Blocks)
  ) u_ready (
    .clk_i,
    .rst_ni,
    .ask_i    (ready),
    .valid_o  (ready_valid),
    .chosen_o (ready_row),
    .take_i   (ready_take)
  );

  renaming #(
    .Pools (Pools),
    .Units (Units),
    .Rows  (Blocks),
    .Functions (Functions),
    .Slots (Slots != 0),
    .Lag (Lag),
    .Linger (Linger)
  ) u_renaming (
    .clk_i,
    .rst_ni,
    .weight_i,
    .rename_valid_i  (event_q.state == Rename),
    .rename_ready_o  (rename_ready),
    .rename_pool_i   (pool),
    .rename_row_i    (event_q.row),
    .rename_func_i   (func),
    .release_valid_i (event_q.state == GiveUnit),
    .release_ready_o (release_ready),
    .release_pool_i  (pool),
    .release_unit_i  (units[event_q.row]),
    .release_func_i  (func),
    .forget_valid_i  (event_q.state == StopForget),
    .forget_ready_o  (forget_ready),
    .forget_found_o  (forget_found),
    .forget_pool_i   (pool),
    .forget_row_i    (event_q.row),
    .forget_func_i   (func),
    .grant_valid_o   (grant_valid),
    .grant_ready_i   (1'b1),
    .grant_pool_o    (grant_pool),
    .grant_unit_o    (grant_unit),
    .grant_row_o     (grant_row),
    .load_valid_o,
    .load_ready_i,
    .load_unit_o,
    .load_pool_o,
    .all_free_o      (units_free)
  );

  always_ff @(posedge clk_i) begin
    if (grant_valid) units[grant_row] <= grant_unit;
  end

  // Queues that may start a command, and those whose next one needs two blocks for that.
  logic [Queues-1:0]   start_open, pairs;
  logic                credit_take, credit_granted, credit_back, credit_idle, settled;
  row_t                credit_block;
  logic [Commands-1:0] line, credit_waits;

  credit u_credit (
    .clk_i,
    .rst_ni,
    .there_i,
    .func_i,
    .weight_i,
    .settled_o    (settled),
    .start_i      (step.credit_start),
    .pair_i       (transfer.withholds),
    .pairs_i      (pairs),
    .start_o      (start_open),
    .take_i       (credit_take),
    .turn_i       (event_q.line),
    .granted_o    (credit_granted),
    .block_o      (credit_block),
    .leave_i      (step.credit_leave),
    .give_i       (step.credit_give),
    .give_block_i (event_q.row),
    .finish_i     (step.credit_finish),
    .orphan_i     (step.credit_orphan),
    .back_i       (credit_back || step.credit_back),
    .back_block_i (credit_back ? released_row_i : event_q.row),
    .command_i    (event_q.command),
    .queue_i      (transfer.owner),
    .line_o       (line),
    .waits_o      (credit_waits),
    .free_o,
    .idle_o       (credit_idle)
  );

  logic [Commands-1:0] admission_there, admission_first, may_start;
  queue_t [Commands-1:0] queue_q;
  logic [Commands-1:0] withholds_q;

  order #(
    .Commands (Commands),
    .KeyWidth (QueueWidth)
  ) u_admission (
    .clk_i,
    .rst_ni,
    .join_i          (step.admission_join),
    .join_command_i  (event_q.command),
    .join_key_i      (transfer.owner),
    .leave_i         (step.admission_leave),
    .leave_command_i (event_q.command),
    .there_o         (admission_there),
    .first_o         (admission_first)
  );

  always_ff @(posedge clk_i) begin
    if (transfer_valid_i) begin
      queue_q[checked_i]     <= transfer_i.owner;
      withholds_q[checked_i] <= transfer_i.withholds;
    end
  end

  always_comb begin
    pairs = '0;
    for (int unsigned i = 0; i < Commands; i++) begin
      may_start[i] = admission_first[i] && start_open[queue_q[i]];
      if (admission_first[i] && withholds_q[i]) pairs[queue_q[i]] = 1'b1;
    end
  end

  // Of those that may do the same, each in its turn.
  logic     line_valid, start_valid, admit_valid, blockless_valid;
  command_t line_command, start_command, admit_command, blockless_command;
  logic     line_take, start_take, admit_take, blockless_take, doomed_valid, doomed_take;
  command_t doomed_command;
  logic [Commands-1:0] blockless;

  always_comb begin
    for (int unsigned i = 0; i < Commands; i++) begin
      blockless[i] = event_q.flushes[i] || event_q.snapshots[i] != '0;
      doomed[i]    = event_q.alive[i] && deleting_i[queue_q[i]];
    end
  end

  arbiter #(.Count (Commands)) u_line_turn (
    .clk_i, .rst_ni, .ask_i (line), .valid_o (line_valid), .chosen_o (line_command),
    .take_i (line_take)
  );
  arbiter #(.Count (Commands)) u_start_turn (
    .clk_i, .rst_ni, .ask_i (may_start), .valid_o (start_valid), .chosen_o (start_command),
    .take_i (start_take)
  );
  arbiter #(.Count (Commands)) u_admit_turn (
    .clk_i, .rst_ni, .ask_i (event_q.awaits & turn_i), .valid_o (admit_valid),
    .chosen_o (admit_command), .take_i (admit_take)
  );
  arbiter #(.Count (Commands)) u_doomed_turn (
    .clk_i, .rst_ni, .ask_i (doomed), .valid_o (doomed_valid), .chosen_o (doomed_command),
    .take_i (doomed_take)
  );
  arbiter #(.Count (Commands)) u_blockless_turn (
    .clk_i, .rst_ni, .ask_i (blockless), .valid_o (blockless_valid),
    .chosen_o (blockless_command), .take_i (blockless_take)
  );

  logic unused;
  assign unused = ^{transfer, grant_pool};

  // ---- Timeouts: a command is looked at each cycle ----

  command_t scan_q;
  logic     due;
  assign due = event_q.timed[scan_q] && deadlines[scan_q] <= millis_i;

  // ---- What the row and the command say ----

  logic dropped, gathers, is_last_stage, may_read;
  logic [63:0] wanted, left;

  assign to_positional   = is_positional(transfer.destination_kind);
  assign ordered         = !(next_stage == StDestination && to_positional);
  assign hold            = transfer.withholds
                           && (next_stage == StDestination || stage == StDestination);
  assign gathers         = to_positional || transfer.operators != '0;
  assign dropped         = block.number > run.last_block;
  assign at              = place_t'(stage - 1'b1);
  assign pool            = transfer.chain[at];
  assign func            = func_i[transfer.owner];
  assign is_last_stage   = places_t'(stage) == transfer.operators;
  assign next_stage      = is_last_stage ? StDestination : stage + 1'b1;
  assign left            = transfer.length - run.planned;
  assign may_read        = run.phase == Run && !run.source_done
                           && (transfer.parallel_reads || run.reads == '0);
  assign credit_take     = event_q.state == Plan && may_read;
  assign wanted          = left > 64'(BlockSize) ? 64'(BlockSize) : left;

  // ---- A position: which extent, and what follows it there ----

  extent_t       extent_q;
  logic [63:0]   base;
  logic          prefix;
  bytes_t        most;
  logic [63:0]   follows;

  assign base    = {block.number, BlockShift'(0)} + 64'(block.start);
  assign most    = (stage == StSource ? block.stop : block.length) - block.start;
  assign follows = extent_q.length - event_q.seek;
  assign prefix  = stage == StSource && extent_count_t'(event_q.index) < transfer.prefix;

  always_ff @(posedge clk_i) begin
    if (extent_valid_i) extents[{checked_i, extent_index_i}] <= extent_i;
    extent_q <= extents[{event_q.command, event_d.index}];
  end

  // ---- Step by step ----

  logic     abort_row_valid, abort_flush_valid;
  row_t     abort_row;
  command_t abort_command;

  facts_t facts;
  step_t  base_step, idle_step, start_step, issue_step, answer_step, end_step;

  assign facts = '{
    now:            now_i,
    run:            run,
    block:          block,
    transfer:       transfer,
    verdict:        verdict_q,
    outcome:        outcome_q,
    bound_ok:       bound_ok_q,
    bound_flush:    bound_flush_q,
    bound_failure:  bound_failure_q,
    row_state:      row_state,
    stage:          stage,
    next_stage:     next_stage,
    has_unit:       has_unit,
    unit:           units[event_q.row],
    first:          first,
    follower:       follower,
    follower_row:   follower_row,
    withheld:       transfer.withholds && !block.last && !follower_writes,
    there:          there[event_q.command],
    head:           heads[event_q.command],
    held:           held_i[event_q.row],
    pool:           pool,
    at:             at,
    dropped:        dropped,
    gathers:        gathers,
    to_positional:  to_positional,
    may_read:       may_read,
    left:           left,
    wanted:         wanted,
    credit_granted: credit_granted,
    free_serial:    blocks[credit_block].serial,
    base:           base,
    most:           most,
    follows:        follows,
    prefix:         prefix,
    extent:         extent_q,
    turn:           turn_i[event_q.command],
    rename_ready:   rename_ready,
    release_ready:  release_ready,
    forget_ready:   forget_ready,
    forget_found:   forget_found,
    unbind_ready:   unbind_ready_i
  };

  // Nothing happens but that what is offered may be taken.
  always_comb begin
    base_step       = '0;
    base_step.next  = event_q;
    base_step.run   = run;
    base_step.block = block;
    if (operation_ready_i) base_step.next.operation_valid = 1'b0;
    if (bind_ready_i) base_step.next.bind_valid = 1'b0;
    if (unbind_ready_i) base_step.next.unbind_valid = 1'b0;
    if (abort_valid_o && abort_ready_i) begin
      if (abort_flush_valid) base_step.next.abort_flush[abort_command] = 1'b0;
      else base_step.next.aborts[abort_row] = 1'b0;
    end
  end

  // ---- The next event ----

  always_comb begin
    idle_step               = base_step;
    idle_step.next.line     = 1'b0;
    idle_step.next.by_stage = 1'b0;
    ready_take              = 1'b0;
    line_take               = 1'b0;
    start_take              = 1'b0;
    admit_take              = 1'b0;
    blockless_take          = 1'b0;
    doomed_take             = 1'b0;
    released_ready_o        = 1'b0;
    stop_ready_o            = 1'b0;
    credit_back             = 1'b0;
    verdict_ready_o         = 1'b0;
    bound_ready_o           = 1'b0;
    outcome_ready_o         = 1'b0;
    if (event_q.state == Idle) begin
      if (outcome_valid_i) begin
        outcome_ready_o        = 1'b1;
        idle_step.next.row     = outcome_i.id.row;
        idle_step.next.blockless = outcome_i.id.blockless;
        idle_step.next.command = outcome_i.id.blockless ? outcome_i.id.command : row_command;
        idle_step.next.state   = outcome_i.id.blockless ? AnswerBlockless : Answer;
      end else if (released_valid_i) begin
        released_ready_o       = 1'b1;
        credit_back            = row_state == Free;
        idle_step.next.row     = released_row_i;
        idle_step.next.command = row_command;
        idle_step.next.state   = row_state inside {Done, Stopped} ? Retire : Idle;
      end else if (event_q.cancel) begin
        idle_step.next.cancel  = 1'b0;
        idle_step.next.command = event_q.canceller;
        idle_step.next.state   = Cancelled;
      end else if (verdict_valid_i) begin
        verdict_ready_o        = 1'b1;
        idle_step.next.command = verdict_i.command;
        idle_step.next.state   = Verdict;
      end else if (bound_valid_i) begin
        bound_ready_o          = 1'b1;
        idle_step.next.command = bound_command_i;
        idle_step.next.state   = Bound;
      end else if (stop_valid_i && !checking_i) begin
        stop_ready_o            = 1'b1;
        idle_step.next.command  = stop_command_i;
        idle_step.next.failure  = failure_at(StageQueue, '0, StatusCancelled);
        idle_step.next.by_stage = 1'b1;
        idle_step.next.state    = stop_found_i ? Fail : Idle;
      end else if (doomed_valid) begin
        doomed_take             = 1'b1;
        idle_step.next.command  = doomed_command;
        idle_step.next.failure  = failure_at(StageQueue, '0, StatusQueueDeleted);
        idle_step.next.by_stage = 1'b1;
        idle_step.next.state    = Fail;
      end else if (due) begin
        idle_step.next.timed[scan_q] = 1'b0;
        idle_step.next.command       = scan_q;
        idle_step.next.state         = TimedOut;
      end else if (line_valid) begin
        line_take              = 1'b1;
        idle_step.next.line    = 1'b1;
        idle_step.next.command = line_command;
        idle_step.next.state   = Plan;
      end else if (admit_valid) begin
        admit_take             = 1'b1;
        idle_step.next.command = admit_command;
        idle_step.next.state   = Admit;
      end else if (start_valid && !event_q.bind_valid) begin
        start_take             = 1'b1;
        idle_step.next.command = start_command;
        idle_step.next.state   = Start;
      end else if (!event_q.operation_valid && ready_valid) begin
        ready_take             = 1'b1;
        idle_step.next.row     = ready_row;
        idle_step.next.command = row_command;
        idle_step.next.state   = Dispatch;
      end else if (!event_q.operation_valid && blockless_valid) begin
        blockless_take         = 1'b1;
        idle_step.next.command = blockless_command;
        idle_step.next.state   = Blockless;
      end
    end
  end

  sequencer_start u_start (
    .event_i (event_q),
    .facts_i (facts),
    .base_i  (base_step),
    .step_o  (start_step)
  );

  sequencer_issue u_issue (
    .event_i (event_q),
    .facts_i (facts),
    .base_i  (base_step),
    .step_o  (issue_step)
  );

  sequencer_answer u_answer (
    .event_i (event_q),
    .facts_i (facts),
    .base_i  (base_step),
    .step_o  (answer_step)
  );

  sequencer_end u_end (
    .event_i (event_q),
    .facts_i (facts),
    .base_i  (base_step),
    .step_o  (end_step)
  );

  always_comb begin
    unique case (event_q.state)
      Idle:                                                         step = idle_step;
      Verdict, Cancelled, Bound, TimedOut, Admit, Start, Plan:      step = start_step;
      Blockless, Dispatch, Search, Issue, Rename:                   step = issue_step;
      Answer, AnswerBlockless, GiveUnit, Evaluate, Pass, WriteDone,
      Retire, RetireNext, RetireCount, Retired:                     step = answer_step;
      default:                                                      step = end_step;
    endcase
  end

  assign event_d  = step.next;
  assign stale_o  = step.stale;
  assign finish_o = step.finish;

  assign board_row = event_q.state == Plan ? credit_block
                     : event_q.state != Idle ? event_q.row
                     : outcome_valid_i ? outcome_i.id.row
                     : released_valid_i ? released_row_i : ready_row;
  assign block_at  = event_q.state == Plan ? credit_block : event_q.row;

  assign finish_command_o   = event_q.command;
  assign finish_result_o    = transfer.result;
  assign finish_times_o     = {now_i, run.started, run.queued};
  assign finish_bytes_in_o  = run.bytes_in;
  assign finish_bytes_out_o = run.bytes_out;
  assign finish_path_o      = run.path;
  assign finish_told_o      = run.told;
  assign finish_seen_o      = run.seen;
  assign finish_errno_o     = run.failed ? run.failure.errno : '0;
  assign finish_operators_o = transfer.operators;
  assign finish_posting_o   = '{
    owner:       transfer.owner,
    cid:         transfer.cid,
    status:      run.failed ? run.failure.status : StatusSuccess,
    stage:       run.failed ? run.failure.stage : StageNone,
    stage_index: run.failed ? 8'(run.failure.at) : '0,
    delivered:   run.bytes_out[63:48] != '0 ? '1 : run.bytes_out[47:0]
  };

  // ---- Times of stages ----

  flight_at_t flight;

  always_comb begin
    flight                        = '0;
    flight.blockless              = event_q.state inside {Blockless, AnswerBlockless};
    flight.number[RowWidth-1:0]   = event_q.row;
    if (flight.blockless) begin
      flight.number[ContextWidth-1:0] = {event_q.command, step.timed_at};
    end
  end

  stage_times u_times (
    .clk_i,
    .rst_ni,
    .now_i,
    .event_i      (step.times),
    .first_i      (!run.seen[step.timed]),
    .at_i         ('{command: event_q.command, stage: step.timed}),
    .flight_i     (flight),
    .read_ready_o (times_ready_o),
    .read_at_i    (times_at_i),
    .read_o       (times_o)
  );

  // ---- Aborts ----

  arbiter #(.Count (Blocks)) u_abort_turn (
    .clk_i, .rst_ni, .ask_i (event_q.aborts), .valid_o (abort_row_valid), .chosen_o (abort_row),
    .take_i (abort_valid_o && abort_ready_i && !abort_flush_valid)
  );
  arbiter #(.Count (Commands)) u_abort_flush_turn (
    .clk_i, .rst_ni, .ask_i (event_q.abort_flush), .valid_o (abort_flush_valid),
    .chosen_o (abort_command), .take_i (abort_valid_o && abort_ready_i)
  );

  assign abort_valid_o = abort_row_valid || abort_flush_valid;
  assign abort_id_o    = '{
    blockless: abort_flush_valid,
    serial:    abort_flush_valid ? runs[abort_command].generation : blocks[abort_row].serial,
    row:       abort_flush_valid ? '0 : abort_row,
    command:   abort_command,
    at:        '0
  };

  // ---- Registers ----

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      event_q <= '0;
      scan_q  <= '0;
    end else begin
      event_q <= event_d;
      if (!due) scan_q <= command_t'(32'(scan_q) + 1 == Commands ? 0 : 32'(scan_q) + 1);
    end
  end

  always_ff @(posedge clk_i) begin
    if (event_q.state == Idle) begin
      verdict_q       <= verdict_i;
      outcome_q       <= outcome_i;
      bound_ok_q      <= bound_ok_i;
      bound_flush_q   <= bound_flush_i;
      bound_failure_q <= bound_failure_i;
    end
    if (event_q.state inside {Issue, Blockless}) operation_command_o <= event_q.command;
    if (event_q.state == Start) bind_command_o <= event_q.command;
    if (finish_o && run.bound) unbind_command_o <= event_q.command;
    if (event_q.state == Verdict) begin
      deadlines[event_q.command] <= millis_i + 40'(transfer.timeout) + 40'd1;
    end else if (step.grace) begin
      deadlines[event_q.command] <= millis_i + 40'(grace_i) + 40'd1;
    end
  end

  assign forsaken_o        = event_q.forsaken;
  assign operation_o       = event_q.operation;
  assign operation_valid_o = event_q.operation_valid;
  assign bind_valid_o      = event_q.bind_valid;
  assign unbind_valid_o    = event_q.unbind_valid;

  assign quiet_o = event_q.state == Idle && !event_q.cancel && !due && !line_valid && !admit_valid
                   && !start_valid && !ready_valid && !blockless_valid && !doomed_valid
                   && settled && (Slots == 0 || units_free || load_valid_o);
  assign timed_o = event_q.timed != '0;
  assign short_o = admission_there != '0 || credit_waits != '0;
  assign idle_o = event_q.state == Idle && board_idle && units_free && credit_idle
                  && !event_q.cancel && event_q.awaits == '0 && admission_there == '0
                  && blockless == '0 && !operation_valid_o && !bind_valid_o && !unbind_valid_o;

endmodule
