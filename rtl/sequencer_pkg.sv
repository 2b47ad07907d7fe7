// What the sequencer's modules tell each other: a command's and a block's state, the event that is
// under way, and a step of it.

package sequencer_pkg;
  import core_pkg::*;
  import dcs_pkg::*;

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
    logic [15:0]        path;
    // Stages that have issued an operation.
    logic [TimedStages-1:0] seen;
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

  typedef enum logic [5:0] {
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
    FreeCount,
    Finish,
    Forsake,
    Orphaned
  } state_e;

  // The event that is under way, and what is left to do.
  typedef struct packed {
    state_e      state;
    // The command and the row that it is about.
    command_t    command;
    row_t        row;
    // The failure that is being told; that of a cancelled command names the stage farthest down.
    failure_t    failure;
    logic        by_stage;
    logic        issued;
    stage_t      deepest;
    // All rows of the command before this one were written.
    logic        whole;
    // Where the unit was given back, or the stage passed: what comes then.
    state_e      after;
    // The command was in line for a block.
    logic        line;
    // The answer was one to an operation without a block.
    logic        blockless;
    logic        cancel;
    command_t    canceller;
    logic        cancel_found;
    logic [Commands-1:0] awaits;
    logic [Commands-1:0] timed;
    // Commands that have not ended or failed; and those that have ended, and of which a device
    // still has an operation.
    logic [Commands-1:0] alive;
    logic [Commands-1:0] forsaken;
    logic [Commands-1:0][ChainMax-1:0] snapshots;
    logic [Commands-1:0] flushes;
    logic [Commands-1:0] abort_flush;
    logic [Blocks-1:0]   aborts;
    logic          operation_valid;
    logic          bind_valid;
    logic          unbind_valid;
    operation_t    operation;
    // The search for a position: extent, end of the extents, bytes to go.
    extent_index_t index;
    extent_count_t count;
    logic [63:0]   seek;
    logic          looked;
  } event_t;

  // What is so now.
  typedef struct packed {
    logic [63:0]  now;
    run_t         run;
    block_t       block;
    transfer_t    transfer;
    // What the event brought.
    verdict_t     verdict;
    outcome_t     outcome;
    logic         bound_ok;
    logic         bound_flush;
    failure_t     bound_failure;
    // The row, its unit, and the command's first row.
    row_state_e   row_state;
    stage_t       stage;
    stage_t       next_stage;
    logic         has_unit;
    unit_t        unit;
    logic         first;
    logic         follower;
    row_t         follower_row;
    // The row must not be written before the one behind it is through the chain.
    logic         withheld;
    logic         there;
    row_t         head;
    logic         held;
    pool_t        pool;
    place_t       at;
    // The block lies behind the source's end. Blocks are filled before they go on.
    logic         dropped;
    logic         gathers;
    logic         to_positional;
    // Blocks that may be read: bytes left to plan, and how many of them the next one takes.
    logic         may_read;
    logic [63:0]  left;
    logic [63:0]  wanted;
    logic         credit_granted;
    serial_t      free_serial;
    // The position.
    logic [63:0]  base;
    bytes_t       most;
    logic [63:0]  follows;
    logic         prefix;
    extent_t      extent;
    logic         turn;
    logic         rename_ready;
    logic         release_ready;
    logic         forget_ready;
    logic         forget_found;
    logic         unbind_ready;
  } facts_t;

  typedef struct packed {
    event_t       next;
    run_t         run;
    block_t       block;
    logic         run_write;
    logic         block_write;
    board_e       change;
    logic         credit_start;
    logic         credit_leave;
    logic         credit_give;
    logic         credit_orphan;
    logic         credit_back;
    logic         credit_finish;
    // From now it waits for its devices as long as it may, and no longer.
    logic         grace;
    logic         admission_join;
    logic         admission_leave;
    logic         stale;
    logic         finish;
    // An operation of a stage is issued, or done; the place of its operator, if it has no block.
    times_e       times;
    timed_t       timed;
    place_t       timed_at;
  } step_t;

  // An operation that is in flight: that of a row, or one without a block.
  localparam int unsigned ContextWidth = CommandWidth + 3;
  localparam int unsigned FlightWidth  = ContextWidth > RowWidth ? ContextWidth : RowWidth;

  typedef struct packed {
    logic                   blockless;
    logic [FlightWidth-1:0] number;
  } flight_at_t;

  function automatic failure_t failure_of(stage_t where, status_t status);
    unique case (where) inside
      StSource:      return failure_at(StageSource, '0, status);
      StDestination: return failure_at(StageDestination, '0, status);
      default:       return failure_at(StageOperator, place_t'(where - 1'b1), status);
    endcase
  endfunction

  // What a device told, at a stage: a failure of its own, or nonsense.
  function automatic failure_t failure_told(stage_t where, outcome_e kind, status_t status,
                                            errno_t errno);
    logic is_own;
    is_own             = kind == Failed && status != StatusSuccess;
    failure_told       = failure_of(where, is_own ? status : StatusInternalError);
    failure_told.errno = kind == Failed ? errno : '0;
  endfunction

  // A stage's place among the times.
  function automatic timed_t timed_of(stage_t where);
    unique case (where) inside
      StSource:      return '0;
      StDestination: return timed_t'(1);
      default:       return where + 1'b1;
    endcase
  endfunction

  function automatic logic [3:0] ones(logic [ChainMax-1:0] bits);
    ones = '0;
    for (int unsigned i = 0; i < ChainMax; i++) ones += 4'(bits[i]);
  endfunction

endpackage
