// What a command does from its admission to its end: the Rust core's `admission`, `plan`,
// `dispatch`, `outcome` and `completion`, with `command`'s state.
//
// One event at a time, in a few cycles, as the Rust core takes its events: a verdict, a binding, an
// answer, a row that is ready, a block that came back. No event waits for a device: an operation is
// begun only when the one before it has been taken, so answers are always taken.

module sequencer
  import core_pkg::*;
  import dcs_pkg::*;
(
  input  logic          clk_i,
  input  logic          rst_ni,
  // Nanoseconds for results, milliseconds for timeouts.
  input  logic [63:0]   now_i,
  input  logic [39:0]   millis_i,

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
  // The operation of a row, or a command's flush, may stop.
  output logic          abort_valid_o,
  input  logic          abort_ready_i,
  output operation_id_t abort_id_o,
  // An outcome that belongs to no operation was ignored.
  output logic          stale_o,

  // A command is finished.
  output logic          finish_o,
  output command_t      finish_command_o,
  output posting_t      finish_posting_o,
  output address_t      finish_result_o,
  output logic [2:0][63:0] finish_times_o,
  output logic [63:0]   finish_bytes_in_o,
  output logic [63:0]   finish_bytes_out_o,
  output logic [ChainMax-1:0] finish_told_o,
  output places_t       finish_operators_o,
  output logic          idle_o
);

  // ---- A command's state ----

  typedef enum logic [3:0] {
    Nothing,
    Order,
    Admission,
    Bind,
    Run,
    Flush,
    Drain,
    Collect
  } phase_e;

  typedef struct packed {
    phase_e             phase;
    serial_t            generation;
    // Its binding is under way.
    logic               binding;
    logic               bound;
    // It has a block reserved.
    logic               charged;
    logic               flush;
    // The destination is being flushed.
    logic               flushing;
    logic               source_done;
    logic               source_short;
    logic               final_written;
    logic [63:0]        planned;
    sequence_t          number;
    // The block with which the source ended: later ones are dropped.
    sequence_t          last_block;
    logic [RowWidth:0]  reads;
    logic [RowWidth:0]  in_flight;
    logic [63:0]        bytes_in;
    logic [63:0]        bytes_out;
    // Digests that have told their values, those that are asked, and whether the flush is.
    logic [ChainMax-1:0] told;
    logic [ChainMax-1:0] asked;
    logic               failed;
    failure_t           failure;
    logic [63:0]        queued;
    logic [63:0]        started;
  } run_t;

  typedef struct packed {
    serial_t   serial;
    logic      last;
    // The first byte that the stage is not through with, the bytes in the block, the end of what is
    // to be read, and what the operation in flight was asked for.
    bytes_t    start;
    bytes_t    length;
    bytes_t    stop;
    bytes_t    asked;
    sequence_t number;
  } block_t;

  run_t      runs      [Commands];
  block_t    blocks    [Blocks];
  transfer_t transfers [Commands];
  unit_t     units     [Blocks];
  logic [39:0] deadlines [Commands];
  extent_t   extents   [Commands*Extents];

  // The command and the row that the event is about.
  command_t  command_q, command_d;
  row_t      row_q, row_d;
  run_t      run, run_d;
  block_t    block, block_d;
  transfer_t transfer;
  logic      run_write, block_write;
  row_t      block_at;

  assign run      = runs[command_q];
  assign block    = blocks[row_q];
  assign transfer = transfers[command_q];
  assign look_transfer_o = transfers[look_command_i];

  always_ff @(posedge clk_i) begin
    if (transfer_valid_i) transfers[checked_i] <= transfer_i;
    if (run_write) runs[command_q] <= run_d;
    if (block_write) blocks[block_at] <= block_d;
  end

  // ---- The event ----

  typedef enum logic [4:0] {
    Idle,
    Verdict,
    Cancelled,
    Bound,
    TimedOut,
    Admit,
    Start,
    Plan,
    Blockless,
    Dispatch,
    Search,
    Issue,
    Rename,
    Answer,
    AnswerBlockless,
    GiveUnit,
    Evaluate,
    Pass,
    WriteDone,
    Retire,
    RetireNext,
    RetireCount,
    Retired,
    Fail,
    Stop,
    StopForget,
    StopGrant,
    StopNext,
    Conclude,
    FreeRow,
    Finish
  } state_e;

  state_e        state_q, state_d;
  verdict_t      verdict_q;
  outcome_t      outcome_q;
  logic          bound_ok_q, bound_flush_q;
  failure_t      bound_failure_q;
  // The failure that is being told; that of a cancelled command names the stage farthest down.
  failure_t      failure_q, failure_d;
  logic          by_stage_q, by_stage_d;
  logic          issued_q, issued_d;
  stage_t        deepest_q, deepest_d;
  // Where the unit was given back, or the stage passed: what comes then.
  state_e        then_q, then_d;
  // The command was in line for a block.
  logic          line_q, line_d;
  logic          cancel_q, cancel_d;
  command_t      canceller_q, canceller_d;
  logic          cancel_found_q, cancel_found_d;
  logic [Commands-1:0] awaits_q, awaits_d, timed_q, timed_d;
  logic [Commands-1:0][ChainMax-1:0] snapshots_q, snapshots_d;
  logic [Commands-1:0] flushes_q, flushes_d, abort_flush_q, abort_flush_d;
  logic [Blocks-1:0]   aborts_q, aborts_d;
  logic          operation_valid_d, bind_valid_d, unbind_valid_d;
  operation_t    operation_d;

  // ---- The scoreboard, units, blocks, lines ----

  board_e              change;
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
  logic                to_positional, ordered;
  place_t              at;

  scoreboard u_scoreboard (
    .clk_i,
    .rst_ni,
    .change_i       (change),
    .row_i          (board_row),
    .command_i      (command_q),
    .stage_i        (next_stage),
    .ordered_i      (ordered),
    .grant_i        (grant_valid),
    .grant_row_i    (grant_row),
    .state_o        (row_state),
    .stage_o        (stage),
    .command_o      (row_command),
    .has_unit_o     (has_unit),
    .first_o        (first),
    .follower_o     (follower),
    .follower_row_o (follower_row),
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
    .Rows  (Blocks)
  ) u_renaming (
    .clk_i,
    .rst_ni,
    .rename_valid_i  (state_q == Rename),
    .rename_ready_o  (rename_ready),
    .rename_pool_i   (pool),
    .rename_row_i    (row_q),
    .release_valid_i (state_q == GiveUnit),
    .release_ready_o (release_ready),
    .release_pool_i  (pool),
    .release_unit_i  (units[row_q]),
    .forget_valid_i  (state_q == StopForget),
    .forget_ready_o  (forget_ready),
    .forget_found_o  (forget_found),
    .forget_pool_i   (pool),
    .forget_row_i    (row_q),
    .grant_valid_o   (grant_valid),
    .grant_ready_i   (1'b1),
    .grant_pool_o    (grant_pool),
    .grant_unit_o    (grant_unit),
    .grant_row_o     (grant_row),
    .all_free_o      (units_free)
  );

  always_ff @(posedge clk_i) begin
    if (grant_valid) units[grant_row] <= grant_unit;
  end

  logic [Queues-1:0]   open;
  logic                credit_start, credit_take, credit_granted, credit_leave, credit_give;
  logic                credit_finish, credit_idle;
  row_t                credit_block;
  logic [Commands-1:0] line;

  credit u_credit (
    .clk_i,
    .rst_ni,
    .open_o       (open),
    .start_i      (credit_start),
    .take_i       (credit_take),
    .turn_i       (line_q),
    .granted_o    (credit_granted),
    .block_o      (credit_block),
    .leave_i      (credit_leave),
    .give_i       (credit_give),
    .give_block_i (row_q),
    .finish_i     (credit_finish),
    .command_i    (command_q),
    .queue_i      (transfer.owner),
    .line_o       (line),
    .idle_o       (credit_idle)
  );

  logic                admission_join, admission_leave;
  logic [Commands-1:0] admission_there, admission_first, may_start;
  queue_t [Commands-1:0] queue_q;

  order #(
    .Commands (Commands),
    .KeyWidth (QueueWidth)
  ) u_admission (
    .clk_i,
    .rst_ni,
    .join_i          (admission_join),
    .join_command_i  (command_q),
    .join_key_i      (transfer.owner),
    .leave_i         (admission_leave),
    .leave_command_i (command_q),
    .there_o         (admission_there),
    .first_o         (admission_first)
  );

  always_ff @(posedge clk_i) begin
    if (transfer_valid_i) queue_q[checked_i] <= transfer_i.owner;
  end

  always_comb begin
    for (int unsigned i = 0; i < Commands; i++) begin
      may_start[i] = admission_first[i] && open[queue_q[i]];
    end
  end

  // Of those that may do the same, each in its turn.
  logic     line_valid, start_valid, admit_valid, blockless_valid;
  command_t line_command, start_command, admit_command, blockless_command;
  logic     line_take, start_take, admit_take, blockless_take;
  logic [Commands-1:0] blockless;

  always_comb begin
    for (int unsigned i = 0; i < Commands; i++) begin
      blockless[i] = flushes_q[i] || snapshots_q[i] != '0;
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
    .clk_i, .rst_ni, .ask_i (awaits_q & turn_i), .valid_o (admit_valid),
    .chosen_o (admit_command), .take_i (admit_take)
  );
  arbiter #(.Count (Commands)) u_blockless_turn (
    .clk_i, .rst_ni, .ask_i (blockless), .valid_o (blockless_valid),
    .chosen_o (blockless_command), .take_i (blockless_take)
  );

  logic unused;
  assign unused = ^{transfer, verdict_q, grant_pool};

  // ---- Timeouts: a command is looked at each cycle ----

  command_t scan_q;
  logic     due;
  assign due = timed_q[scan_q] && deadlines[scan_q] <= millis_i;

  // ---- What the row and the command say ----

  logic dropped, gathers, is_last_stage, may_read;
  logic [63:0] wanted, left;

  assign to_positional   = is_positional(transfer.destination_kind);
  assign ordered         = !(next_stage == StDestination && to_positional);
  assign gathers         = to_positional || transfer.operators != '0;
  assign dropped         = block.number > run.last_block;
  assign at              = place_t'(stage - 1'b1);
  assign pool            = transfer.chain[at];
  assign is_last_stage   = places_t'(stage) == transfer.operators;
  assign next_stage      = is_last_stage ? StDestination : stage + 1'b1;
  assign left            = transfer.length - run.planned;
  assign may_read        = run.phase == Run && !run.source_done
                           && (transfer.parallel_reads || run.reads == '0);
  assign credit_take     = state_q == Plan && may_read;
  assign wanted          = left > 64'(BlockSize) ? 64'(BlockSize) : left;

  // ---- A position: which extent, and what follows it there ----

  extent_t       extent_q;
  extent_index_t index_q, index_d;
  extent_count_t count_q, count_d;
  logic [63:0]   seek_q, seek_d, base;
  logic          prefix, looked_q, looked_d;
  bytes_t        most;
  logic [63:0]   follows;

  assign base    = {block.number, BlockShift'(0)} + 64'(block.start);
  assign most    = (stage == StSource ? block.stop : block.length) - block.start;
  assign follows = extent_q.length - seek_q;
  assign prefix  = stage == StSource && extent_count_t'(index_q) < transfer.prefix;

  always_ff @(posedge clk_i) begin
    if (extent_valid_i) extents[{checked_i, extent_index_i}] <= extent_i;
    extent_q <= extents[{command_q, index_d}];
  end

  function automatic failure_t failure_of(stage_t where, status_t status);
    unique case (where) inside
      StSource:      return '{stage: StageSource, at: '0, status: status};
      StDestination: return '{stage: StageDestination, at: '0, status: status};
      default:       return '{stage: StageOperator, at: place_t'(where - 1'b1), status: status};
    endcase
  endfunction

  function automatic logic [3:0] ones(logic [ChainMax-1:0] bits);
    ones = '0;
    for (int unsigned i = 0; i < ChainMax; i++) ones += 4'(bits[i]);
  endfunction

  logic [ChainMax-1:0] untold;
  always_comb begin
    for (int unsigned i = 0; i < ChainMax; i++) begin
      untold[i] = places_t'(i) < transfer.operators && is_digest(transfer.chain[i])
                  && !run.told[i];
    end
  end

  // The first digest that is to be asked.
  place_t asked_at;
  always_comb begin
    asked_at = '0;
    for (int unsigned i = ChainMax; i > 0; i--) begin
      if (snapshots_q[command_q][i-1]) asked_at = place_t'(i - 1);
    end
  end

  // An answer is one to what is in flight.
  logic known, known_blockless, sound;
  always_comb begin
    known           = row_state == Issued && block.serial == outcome_q.id.serial;
    known_blockless = run.generation == outcome_q.id.serial
        && (run.flushing || (run.asked[outcome_q.id.at]
                             && !snapshots_q[command_q][outcome_q.id.at]));
    unique case (outcome_q.kind)
      Moved:     sound = (stage == StSource && outcome_q.bytes <= block.asked)
                         || (stage == StDestination && outcome_q.bytes <= block.asked
                             && outcome_q.bytes != '0);
      Processed: sound = stage != StSource && stage != StDestination
                         && outcome_q.bytes == block.asked && !(is_digest(pool) && block.last);
      Digest:    sound = stage != StSource && stage != StDestination && is_digest(pool)
                         && block.last;
      default:   sound = 1'b0;
    endcase
  end

  // ---- Step by step ----

  assign board_row = state_q == Plan ? credit_block
                     : state_q == Idle && outcome_valid_i ? outcome_i.id.row
                     : state_q == Idle ? ready_row : row_q;
  assign block_at  = state_q == Plan ? credit_block : row_q;

  always_comb begin
    state_d           = state_q;
    command_d         = command_q;
    row_d             = row_q;
    run_d             = run;
    block_d           = block;
    run_write         = 1'b0;
    block_write       = 1'b0;
    change            = BoardNone;
    failure_d         = failure_q;
    by_stage_d        = by_stage_q;
    issued_d          = issued_q;
    deepest_d         = deepest_q;
    then_d            = then_q;
    line_d            = line_q;
    cancel_d          = cancel_q;
    canceller_d       = canceller_q;
    cancel_found_d    = cancel_found_q;
    awaits_d          = awaits_q;
    timed_d           = timed_q;
    snapshots_d       = snapshots_q;
    flushes_d         = flushes_q;
    abort_flush_d     = abort_flush_q;
    aborts_d          = aborts_q;
    operation_valid_d = operation_valid_o && !operation_ready_i;
    operation_d       = operation_o;
    bind_valid_d      = bind_valid_o && !bind_ready_i;
    unbind_valid_d    = unbind_valid_o && !unbind_ready_i;
    index_d           = index_q;
    count_d           = count_q;
    seek_d            = seek_q;
    looked_d          = looked_q;
    credit_start      = 1'b0;
    credit_leave      = 1'b0;
    credit_give       = 1'b0;
    credit_finish     = 1'b0;
    admission_join    = 1'b0;
    admission_leave   = 1'b0;
    ready_take        = 1'b0;
    line_take         = 1'b0;
    start_take        = 1'b0;
    admit_take        = 1'b0;
    blockless_take    = 1'b0;
    verdict_ready_o   = 1'b0;
    bound_ready_o     = 1'b0;
    outcome_ready_o   = 1'b0;
    stale_o           = 1'b0;
    finish_o          = 1'b0;

    if (abort_valid_o && abort_ready_i) begin
      if (abort_id_o.blockless) abort_flush_d[abort_id_o.command] = 1'b0;
      else aborts_d[abort_id_o.row] = 1'b0;
    end

    unique case (state_q)
      Idle: begin
        line_d     = 1'b0;
        by_stage_d = 1'b0;
        if (outcome_valid_i) begin
          outcome_ready_o = 1'b1;
          row_d           = outcome_i.id.row;
          command_d       = outcome_i.id.blockless ? outcome_i.id.command : row_command;
          state_d         = outcome_i.id.blockless ? AnswerBlockless : Answer;
        end else if (cancel_q) begin
          cancel_d  = 1'b0;
          command_d = canceller_q;
          state_d   = Cancelled;
        end else if (verdict_valid_i) begin
          verdict_ready_o = 1'b1;
          command_d       = verdict_i.command;
          state_d         = Verdict;
        end else if (bound_valid_i) begin
          bound_ready_o = 1'b1;
          command_d     = bound_command_i;
          state_d       = Bound;
        end else if (due) begin
          timed_d[scan_q] = 1'b0;
          command_d       = scan_q;
          state_d         = TimedOut;
        end else if (line_valid) begin
          line_take = 1'b1;
          line_d    = 1'b1;
          command_d = line_command;
          state_d   = Plan;
        end else if (admit_valid) begin
          admit_take = 1'b1;
          command_d  = admit_command;
          state_d    = Admit;
        end else if (start_valid && !bind_valid_o) begin
          start_take = 1'b1;
          command_d  = start_command;
          state_d    = Start;
        end else if (!operation_valid_o && ready_valid) begin
          ready_take = 1'b1;
          row_d      = ready_row;
          command_d  = row_command;
          state_d    = Dispatch;
        end else if (!operation_valid_o && blockless_valid) begin
          blockless_take = 1'b1;
          command_d      = blockless_command;
          state_d        = Blockless;
        end
      end

      // ---- A command's start ----

      Verdict: begin
        run_write           = 1'b1;
        run_d               = '0;
        run_d.generation    = run.generation + 1'b1;
        run_d.last_block    = '1;
        run_d.queued        = now_i;
        unique case (verdict_q.kind)
          Accepted: begin
            run_d.phase = Order;
            timed_d[command_q] = transfer.timeout != '0;
            state_d     = Idle;
            if (transfer.rid == '0 || turn_i[command_q]) state_d = Admit;
            else awaits_d[command_q] = 1'b1;
          end
          Cancels: begin
            run_d.phase    = Run;
            cancel_d       = 1'b1;
            canceller_d    = command_q;
            cancel_found_d = 1'b0;
            state_d        = Idle;
            if (verdict_q.found) begin
              command_d  = verdict_q.target;
              failure_d  = '{stage: StageQueue, at: '0, status: StatusCancelled};
              by_stage_d = 1'b1;
              state_d    = Fail;
            end
          end
          default: begin
            run_d.failed  = 1'b1;
            run_d.failure = '{stage: verdict_q.stage, at: verdict_q.at, status: verdict_q.status};
            state_d       = Finish;
          end
        endcase
      end

      Cancelled: begin
        run_write       = 1'b1;
        run_d.bytes_out = 64'({cancel_found_q, 16'h0});
        state_d         = Finish;
      end

      Admit: begin
        run_write           = 1'b1;
        run_d.phase         = Admission;
        awaits_d[command_q] = 1'b0;
        admission_join      = 1'b1;
        state_d             = Idle;
      end

      Start: begin
        run_write       = 1'b1;
        run_d.phase     = Bind;
        run_d.binding   = 1'b1;
        run_d.charged   = 1'b1;
        credit_start    = 1'b1;
        admission_leave = 1'b1;
        bind_valid_d    = 1'b1;
        state_d         = Idle;
      end

      Bound: begin
        run_write     = 1'b1;
        run_d.binding = 1'b0;
        run_d.bound   = bound_ok_q;
        if (run.failed) begin
          state_d = Conclude;
        end else if (bound_ok_q) begin
          run_d.phase       = Run;
          run_d.started     = now_i;
          run_d.flush       = bound_flush_q || transfer.durable || transfer.acknowledged;
          run_d.source_done = 1'b0;
          state_d           = Plan;
        end else begin
          failure_d = bound_failure_q;
          state_d   = Fail;
        end
      end

      TimedOut: begin
        failure_d  = '{stage: StageQueue, at: '0, status: StatusTimeout};
        by_stage_d = 1'b1;
        state_d    = Fail;
      end

      // ---- Blocks: as many as window and credits allow ----

      Plan: begin
        if (!may_read) begin
          credit_leave = 1'b1;
          state_d      = Idle;
        end else begin
          line_d = 1'b0;
          if (credit_granted) begin
            change            = BoardAdd;
            run_write         = 1'b1;
            run_d.planned     = run.planned + wanted;
            run_d.number    = run.number + 1'b1;
            run_d.reads       = run.reads + 1'b1;
            run_d.source_done = left <= 64'(BlockSize);
            block_write       = 1'b1;
            block_d           = '0;
            block_d.serial    = blocks[credit_block].serial;
            block_d.last      = left <= 64'(BlockSize);
            block_d.stop      = wanted[BlockShift:0];
            block_d.number  = run.number;
          end else begin
            state_d = Idle;
          end
        end
      end

      // ---- A row that waits for nothing ----

      Dispatch: begin
        looked_d = 1'b0;
        unique case (stage) inside
          StSource: begin
            index_d = '0;
            count_d = transfer.prefix + transfer.source;
            seek_d  = transfer.parallel_reads ? base : run.bytes_in;
            state_d = count_d == '0 ? Issue : Search;
            if (block.start == block.stop) begin
              run_write      = 1'b1;
              run_d.reads    = run.reads - 1'b1;
              block_write    = 1'b1;
              block_d.length = block.start;
              block_d.start  = '0;
              then_d         = Plan;
              state_d        = Pass;
            end
          end
          StDestination: begin
            index_d = extent_index_t'(transfer.prefix + transfer.source);
            count_d = transfer.prefix + transfer.source + transfer.destination;
            seek_d  = base;
            state_d = dropped || block.start == block.length ? WriteDone
                      : to_positional ? Search : Issue;
          end
          default: begin
            then_d = Idle;
            if ((block.length == '0 && !block.last) || dropped) begin
              then_d  = Pass;
              state_d = has_unit ? GiveUnit : Pass;
            end else begin
              state_d = has_unit ? Issue : Rename;
            end
          end
        endcase
      end

      Search: begin
        if (seek_q < extent_q.length) begin
          looked_d = 1'b1;
          state_d  = Issue;
        end else begin
          seek_d  = seek_q - extent_q.length;
          index_d = index_q + 1'b1;
          state_d = extent_count_t'(index_q) + 1'b1 == count_q ? Issue : Search;
        end
      end

      Issue: begin
        block_write    = 1'b1;
        block_d.serial = block.serial + 1'b1;
        run_write      = 1'b1;
        run_d.in_flight = run.in_flight + 1'b1;
        operation_valid_d = 1'b1;
        operation_d = '{
          kind:    stage == StSource ? DoRead : stage == StDestination ? DoWrite : DoProcess,
          id:      '{blockless: 1'b0, serial: block.serial + 1'b1, row: row_q,
                     command: command_q, at: at},
          prefix:  looked_q && prefix,
          offset:  looked_q ? extent_q.offset + seek_q : '0,
          start:   block.start,
          length:  most,
          pool:    pool,
          unit:    units[row_q],
          last:    block.last,
          more:    block.last ? transfer.more : transfer.length != LengthToEnd
        };
        if (looked_q && follows < 64'(most)) operation_d.length = follows[BlockShift:0];
        block_d.asked = operation_d.length;
        change        = BoardIssue;
        state_d       = Idle;
        // The destination is full: all that comes before is written first.
        if (stage == StDestination && to_positional && !looked_q) begin
          block_write       = 1'b0;
          run_write         = 1'b0;
          operation_valid_d = operation_valid_o && !operation_ready_i;
          change            = first ? BoardStop : BoardWait;
          if (first) begin
            failure_d = failure_of(StDestination, StatusCapacityExceeded);
            state_d   = Fail;
          end
        end
      end

      Rename: begin
        if (rename_ready) begin
          change  = BoardLine;
          state_d = Idle;
        end
      end

      Blockless: begin
        operation_valid_d = 1'b1;
        operation_d       = '0;
        operation_d.id    = '{blockless: 1'b1, serial: run.generation, row: '0,
                              command: command_q, at: asked_at};
        operation_d.kind  = DoSnapshot;
        operation_d.pool  = transfer.chain[asked_at];
        state_d           = Idle;
        if (flushes_q[command_q]) begin
          operation_d.kind     = DoFlush;
          operation_d.id.at    = '0;
          flushes_d[command_q] = 1'b0;
          run_write            = 1'b1;
          run_d.flushing       = 1'b1;
        end else begin
          snapshots_d[command_q][asked_at] = 1'b0;
        end
      end

      // ---- An answer ----

      Answer: begin
        aborts_d[row_q] = 1'b0;
        then_d          = Evaluate;
        state_d         = has_unit ? GiveUnit : Evaluate;
        if (!known) begin
          aborts_d[row_q] = aborts_q[row_q];
          stale_o         = 1'b1;
          state_d         = Idle;
        end else begin
          run_write       = 1'b1;
          run_d.in_flight = run.in_flight - 1'b1;
        end
      end

      GiveUnit: begin
        if (release_ready) begin
          change  = BoardRelease;
          state_d = then_q;
        end
      end

      Evaluate: begin
        run_write   = 1'b1;
        block_write = 1'b1;
        state_d     = Idle;
        if (run.failed) begin
          // What it did is still told.
          change = BoardStop;
          if (outcome_q.kind == Digest && sound) run_d.told[at] = 1'b1;
          if (outcome_q.kind == Moved && outcome_q.bytes <= block.asked) begin
            if (stage == StSource) begin
              run_d.bytes_in = run.bytes_in + 64'(outcome_q.bytes);
            end
            if (stage == StDestination) begin
              block_d.start = block.start + outcome_q.bytes;
              if (first && !dropped) run_d.bytes_out = run.bytes_out + 64'(outcome_q.bytes);
              if (block.start + outcome_q.bytes == block.length) change = BoardDone;
            end
          end
          state_d = Retire;
        end else if (!sound) begin
          change    = BoardStop;
          failure_d = failure_of(stage, outcome_q.kind != Failed ? StatusInternalError
                                        : outcome_q.status == StatusSuccess ? StatusInternalError
                                        : outcome_q.status);
          state_d   = Fail;
        end else if (stage == StSource) begin
          change         = BoardReady;
          run_d.bytes_in = run.bytes_in + 64'(outcome_q.bytes);
          block_d.start  = block.start + outcome_q.bytes;
          if (outcome_q.bytes == '0) begin
            // The source gave no more: this block is the last one, whatever was planned.
            block_d.last       = 1'b1;
            block_d.stop       = block.start;
            run_d.source_done  = 1'b1;
            run_d.source_short = transfer.length != LengthToEnd;
            if (block.number < run.last_block) run_d.last_block = block.number;
          end else if (!transfer.parallel_reads && !gathers && block_d.start != block.stop) begin
            // What a stream has is passed on; the rest of the block's plan is taken back.
            run_d.planned     = run.planned - 64'(block.stop - block_d.start);
            run_d.source_done = 1'b0;
            block_d.last      = 1'b0;
            block_d.stop      = block_d.start;
          end
        end else if (stage == StDestination) begin
          change        = BoardReady;
          block_d.start = block.start + outcome_q.bytes;
          if (first && !dropped) run_d.bytes_out = run.bytes_out + 64'(outcome_q.bytes);
        end else begin
          if (outcome_q.kind == Digest) run_d.told[at] = 1'b1;
          then_d  = Idle;
          state_d = Pass;
        end
      end

      AnswerBlockless: begin
        state_d = Idle;
        if (!known_blockless) begin
          stale_o = 1'b1;
        end else begin
          run_write                = 1'b1;
          run_d.in_flight          = run.in_flight - 1'b1;
          run_d.flushing           = 1'b0;
          run_d.asked              = run.asked & ~(ChainMax'(1) << outcome_q.id.at);
          abort_flush_d[command_q] = 1'b0;
          if (run.failed) begin
            if (outcome_q.kind == Digest && !run.flushing) run_d.told[outcome_q.id.at] = 1'b1;
            state_d = Conclude;
          end else if (outcome_q.kind == Flushed) begin
            state_d = Finish;
          end else begin
            failure_d = failure_of(StDestination,
                                   outcome_q.kind == Failed && outcome_q.status != StatusSuccess
                                   ? outcome_q.status : StatusInternalError);
            state_d   = Fail;
          end
        end
      end

      Pass: begin
        change  = BoardPass;
        state_d = then_q == Plan ? Plan : Idle;
      end

      // ---- Writes that are done, in their order ----

      WriteDone: begin
        run_write = 1'b1;
        change    = BoardDone;
        if (block.last && !dropped) run_d.final_written = 1'b1;
        state_d   = Retire;
      end

      Retire: begin
        row_d   = heads[command_q];
        state_d = there[command_q] ? RetireNext : Retired;
      end

      RetireNext: begin
        state_d = Retired;
        if (row_state == Done) begin
          change      = BoardRetire;
          credit_give = 1'b1;
          if (follower) begin
            row_d   = follower_row;
            state_d = RetireCount;
          end
        end else if (row_state == Wait && stage == StDestination && !run.failed) begin
          // It found no room, and nothing is before it any more.
          change = BoardReady;
        end
      end

      // What the next one has written so far counts as delivered.
      RetireCount: begin
        run_write = stage == StDestination && !dropped;
        run_d.bytes_out = run.bytes_out + 64'(block.start);
        state_d   = RetireNext;
      end

      Retired: begin
        state_d = Plan;
        if (run.failed) state_d = Conclude;
        else if (run.final_written && !there[command_q] && run.phase == Run) begin
          run_write = 1'b1;
          if (run.source_short) begin
            failure_d = failure_of(StSource, StatusEndOfSource);
            state_d   = Fail;
          end else if (run.flush) begin
            run_d.phase          = Flush;
            run_d.in_flight      = run.in_flight + 1'b1;
            flushes_d[command_q] = 1'b1;
            state_d              = Idle;
          end else begin
            state_d              = Finish;
          end
        end
      end

      // ---- A failure: nothing more is issued, what is in flight is aborted ----

      Fail: begin
        issued_d       = 1'b0;
        deepest_d      = StSource;
        state_d        = Idle;
        if (by_stage_q && cancel_q) cancel_found_d = run.phase != Nothing;
        if (!run.failed && run.phase != Nothing) begin
          run_write     = 1'b1;
          run_d.failed  = 1'b1;
          run_d.failure = failure_q;
          if (!run.binding) begin
            run_d.phase         = Drain;
            awaits_d[command_q] = 1'b0;
            admission_leave     = run.phase == Admission;
            row_d               = heads[command_q];
            state_d             = there[command_q] ? Stop : Conclude;
            if (flushes_q[command_q]) begin
              flushes_d[command_q] = 1'b0;
              run_d.in_flight      = run.in_flight - 1'b1;
            end else if (run.phase == Flush) begin
              abort_flush_d[command_q] = run.in_flight != '0;
              issued_d                 = run.in_flight != '0;
              deepest_d                = StDestination;
              state_d                  = StopNext;
            end
          end
        end
      end

      Stop: begin
        unique case (row_state)
          Issued: begin
            issued_d  = 1'b1;
            deepest_d = !issued_q || stage > deepest_q ? stage : deepest_q;
            // Where the destination is full, writes that are in flight had room: they go on.
            if (!(stage == StDestination && failure_q.stage == StageDestination
                  && failure_q.status == StatusCapacityExceeded)) begin
              aborts_d[row_q] = 1'b1;
            end
            state_d = StopNext;
          end
          Line: state_d = StopForget;
          Ready, Wait: begin
            then_d = Stop;
            if (has_unit) begin
              state_d = GiveUnit;
            end else begin
              change  = BoardStop;
              state_d = StopNext;
            end
          end
          default: state_d = StopNext;
        endcase
      end

      StopForget: begin
        if (forget_ready) begin
          if (forget_found) begin
            change  = BoardStop;
            state_d = StopNext;
          end else begin
            state_d = StopGrant;
          end
        end
      end

      // The row is being granted a unit.
      StopGrant: if (has_unit) state_d = Stop;

      StopNext: begin
        row_d   = follower_row;
        state_d = there[command_q] && follower ? Stop : Conclude;
        if (state_d == Conclude && by_stage_q && issued_q) begin
          run_write     = 1'b1;
          run_d.failure = failure_of(deepest_q, failure_q.status);
        end
      end

      // ---- The end ----

      Conclude: begin
        state_d = Idle;
        if (run.failed && !run.binding && run.in_flight == '0) begin
          row_d   = heads[command_q];
          state_d = there[command_q] ? FreeRow : Finish;
          if (run.bound && run.phase != Collect) begin
            run_write   = 1'b1;
            run_d.phase = Collect;
            if (untold != '0) begin
              run_d.in_flight        = (RowWidth+1)'(ones(untold));
              run_d.asked            = untold;
              snapshots_d[command_q] = untold;
              state_d                = Idle;
            end
          end
        end
      end

      FreeRow: begin
        change      = BoardRetire;
        credit_give = 1'b1;
        row_d       = follower_row;
        state_d     = follower ? FreeRow : Finish;
      end

      Finish: begin
        if (!unbind_valid_o || unbind_ready_i) begin
          run_write          = 1'b1;
          run_d.phase        = Nothing;
          finish_o           = 1'b1;
          timed_d[command_q] = 1'b0;
          credit_finish      = run.charged;
          unbind_valid_d     = run.bound;
          state_d            = Idle;
        end
      end

      default: state_d = Idle;
    endcase
  end

  assign finish_command_o   = command_q;
  assign finish_result_o    = transfer.result;
  assign finish_times_o     = {now_i, run.started, run.queued};
  assign finish_bytes_in_o  = run.bytes_in;
  assign finish_bytes_out_o = run.bytes_out;
  assign finish_told_o      = run.told;
  assign finish_operators_o = transfer.operators;
  assign finish_posting_o   = '{
    owner:       transfer.owner,
    cid:         transfer.cid,
    status:      run.failed ? run.failure.status : StatusSuccess,
    stage:       run.failed ? run.failure.stage : StageNone,
    stage_index: run.failed ? 8'(run.failure.at) : '0,
    delivered:   run.bytes_out[63:48] != '0 ? '1 : run.bytes_out[47:0]
  };

  // ---- Aborts ----

  logic     abort_row_valid, abort_flush_valid;
  row_t     abort_row;
  command_t abort_command;

  arbiter #(.Count (Blocks)) u_abort_turn (
    .clk_i, .rst_ni, .ask_i (aborts_q), .valid_o (abort_row_valid), .chosen_o (abort_row),
    .take_i (abort_valid_o && abort_ready_i && !abort_flush_valid)
  );
  arbiter #(.Count (Commands)) u_abort_flush_turn (
    .clk_i, .rst_ni, .ask_i (abort_flush_q), .valid_o (abort_flush_valid),
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
      state_q           <= Idle;
      operation_valid_o <= 1'b0;
      bind_valid_o      <= 1'b0;
      unbind_valid_o    <= 1'b0;
      cancel_q          <= 1'b0;
      awaits_q          <= '0;
      timed_q           <= '0;
      snapshots_q       <= '0;
      flushes_q         <= '0;
      aborts_q          <= '0;
      abort_flush_q     <= '0;
      scan_q            <= '0;
    end else begin
      state_q           <= state_d;
      operation_valid_o <= operation_valid_d;
      bind_valid_o      <= bind_valid_d;
      unbind_valid_o    <= unbind_valid_d;
      cancel_q          <= cancel_d;
      awaits_q          <= awaits_d;
      timed_q           <= timed_d;
      snapshots_q       <= snapshots_d;
      flushes_q         <= flushes_d;
      aborts_q          <= aborts_d;
      abort_flush_q     <= abort_flush_d;
      if (!due) scan_q  <= command_t'(32'(scan_q) + 1 == Commands ? 0 : 32'(scan_q) + 1);
    end
  end

  always_ff @(posedge clk_i) begin
    command_q      <= command_d;
    row_q          <= row_d;
    failure_q      <= failure_d;
    by_stage_q     <= by_stage_d;
    issued_q       <= issued_d;
    deepest_q      <= deepest_d;
    then_q         <= then_d;
    line_q         <= line_d;
    canceller_q    <= canceller_d;
    cancel_found_q <= cancel_found_d;
    operation_o    <= operation_d;
    index_q        <= index_d;
    count_q        <= count_d;
    seek_q         <= seek_d;
    looked_q       <= looked_d;
    if (state_q == Idle) begin
      verdict_q       <= verdict_i;
      outcome_q       <= outcome_i;
      bound_ok_q      <= bound_ok_i;
      bound_flush_q   <= bound_flush_i;
      bound_failure_q <= bound_failure_i;
    end
    if (state_q == Issue || state_q == Blockless) operation_command_o <= command_q;
    if (state_q == Start) bind_command_o <= command_q;
    if (finish_o && run.bound) unbind_command_o <= command_q;
    if (state_q == Verdict) deadlines[command_q] <= millis_i + 40'(transfer.timeout) + 40'd1;
  end

  assign idle_o = state_q == Idle && board_idle && units_free && credit_idle && !cancel_q
                  && awaits_q == '0 && admission_there == '0 && blockless == '0
                  && !operation_valid_o && !bind_valid_o && !unbind_valid_o;

endmodule
