// Sizes of the engine core, and what its modules tell each other.
//
// The proofs make the sizes smaller: each stands on a line of its own.

// verilator lint_off UNUSEDPARAM
package core_pkg;

  localparam int unsigned Queues     = 4;
  // Functions that have queues at once.
  localparam int unsigned Functions  = Queues;
  localparam int unsigned Commands   = 16;
  localparam int unsigned Blocks     = 32;
  localparam int unsigned BlockShift = 12;
  // Blocks that a command may hold at once.
  localparam int unsigned Window     = 4;
  // Units of each pool; with slots, slots of all pools, which change operators: see `slots`.
  localparam int unsigned Units      = 2;
  localparam int unsigned Slots      = 0;
  localparam int unsigned Lag        = 16;
  localparam int unsigned Linger     = 4096;
  // Extents of a command: those of prefix, source and destination together.
  localparam int unsigned Extents    = 16;
  // Longest descriptor that is kept.
  localparam int unsigned DescriptorBytes = 4096;

  localparam int unsigned BlockSize    = 1 << BlockShift;
  localparam int unsigned QueueWidth   = $clog2(Queues);
  localparam int unsigned FunctionWidth = $clog2(Functions);
  localparam int unsigned CommandWidth = $clog2(Commands);
  localparam int unsigned RowWidth     = $clog2(Blocks);
  localparam int unsigned UnitWidth    = $clog2(Units);
  localparam int unsigned ExtentWidth  = $clog2(Extents);

  typedef logic [QueueWidth-1:0]   queue_t;
  typedef logic [FunctionWidth-1:0] function_t;
  typedef logic [CommandWidth-1:0] command_t;
  // A row of the scoreboard, which is a block.
  typedef logic [RowWidth-1:0]     row_t;
  typedef logic [UnitWidth-1:0]    unit_t;
  typedef logic [ExtentWidth-1:0]  extent_index_t;
  typedef logic [ExtentWidth:0]    extent_count_t;
  // Bytes of a block, or a place in it.
  typedef logic [BlockShift:0]     bytes_t;
  typedef logic [63:0]             address_t;
  // A block's place in its command.
  typedef logic [63-BlockShift:0]  sequence_t;
  typedef logic [14:0]             status_t;
  // An errno of Linux, of which 4095 is the highest; 0 is none.
  typedef logic [11:0]             errno_t;
  typedef logic [7:0]              serial_t;

  // ---- Operators ----

  localparam int unsigned Pools     = 8;
  localparam int unsigned PoolWidth = $clog2(Pools);
  typedef logic [PoolWidth-1:0] pool_t;
  // A place in a chain, and how many there are.
  typedef logic [2:0] place_t;
  typedef logic [3:0] places_t;

  // The operator that the units of each pool compute.
  localparam logic [Pools-1:0][7:0] PoolOperator = '{
    7: dcs_pkg::OpAes256Xts,
    6: dcs_pkg::OpAes256Ctr,
    5: dcs_pkg::OpCrc64Nvme,
    4: dcs_pkg::OpCrc32c,
    3: dcs_pkg::OpCrc32,
    2: dcs_pkg::OpSha256,
    1: dcs_pkg::OpSha1,
    0: dcs_pkg::OpMd5
  };

  // Bytes of the parameter blocks that each takes: fewest and most. A digest's is the value
  // that is expected.
  localparam logic [Pools-1:0][7:0] PoolFewest = '{7: 80, 6: 48, default: 0};
  localparam logic [Pools-1:0][7:0] PoolMost = '{
    7: 80, 6: 48, 5: 8, 4: 4, 3: 4, 2: 32, 1: 20, 0: 16
  };

  // ---- A queue pair ----

  typedef struct packed {
    address_t    submission;
    address_t    completion;
    // 2 to 32768.
    logic [15:0] depth;
    // 1 to 256.
    logic [8:0]  weight;
    // The function whose host has it: its owner numbers those that have queues.
    function_t   func;
    // The function's, 1 to 256: the same for all of its queues.
    logic [8:0]  func_weight;
    logic [15:0] tenant;
    // The number by which its host knows it.
    logic [15:0] number;
    logic        interrupts;
    logic [10:0] vector;
  } queue_config_t;

  // ---- A transfer, checked ----

  typedef struct packed {
    queue_t            owner;
    logic [15:0]       cid;
    logic [31:0]       rid;
    address_t          result;
    logic [31:0]       timeout;
    logic [63:0]       length;
    logic              durable;
    logic              acknowledged;
    logic              more;
    logic [7:0]        source_kind;
    logic [31:0]       source_handle;
    logic [7:0]        destination_kind;
    logic [31:0]       destination_handle;
    logic [31:0]       prefix_handle;
    // When what goes to a paced destination is due.
    logic [7:0]        pacing;
    logic [63:0]       rate;
    logic [31:0]       window_us;
    logic              parallel_reads;
    // Extents: those of the prefix are first, those of the destination are last.
    extent_count_t     prefix;
    extent_count_t     source;
    extent_count_t     destination;
    places_t           operators;
    pool_t [dcs_pkg::ChainMax-1:0] chain;
    // A block is written only when the one behind it is through the chain: so the last one of a
    // source that ends by itself waits for the digests that are expected.
    logic              withholds;
    // Places with a parameter block, and those where it is a digest's, but of another length.
    logic [dcs_pkg::ChainMax-1:0] given;
    logic [dcs_pkg::ChainMax-1:0] misfit;
  } transfer_t;

  function automatic logic is_positional(logic [7:0] kind);
    return kind inside {
      dcs_pkg::EndpointFile, dcs_pkg::EndpointBlock, dcs_pkg::EndpointMemory,
      dcs_pkg::EndpointDeviceMemory
    };
  endfunction

  function automatic logic is_digest(pool_t pool);
    return PoolOperator[pool] < dcs_pkg::OpAes256Ctr;
  endfunction

  typedef struct packed {
    logic [7:0] stage;
    place_t     at;
    status_t    status;
    errno_t     errno;
  } failure_t;

  // Of no system call.
  function automatic failure_t failure_at(logic [7:0] stage, place_t at, status_t status);
    return '{stage: stage, at: at, status: status, errno: '0};
  endfunction

  // What came of an entry. A cancel names the command that it is for, if that is in flight.
  typedef enum logic [1:0] {
    Accepted,
    Refused,
    Cancels
  } verdict_e;

  typedef struct packed {
    verdict_e   kind;
    command_t   command;
    failure_t   failure;
    logic       found;
    command_t   target;
  } verdict_t;

  // ---- The scoreboard ----

  // Stages in their order: the source, the operators, the destination.
  typedef logic [3:0] stage_t;
  localparam stage_t StSource      = 4'd0;
  localparam stage_t StDestination = 4'd9;

  typedef enum logic [2:0] {
    Free,
    // For the row before it to pass the stage.
    Wait,
    // For nothing: it is dispatched in its turn.
    Ready,
    // In line for a unit.
    Line,
    // With its device.
    Issued,
    // All its stages are done.
    Done,
    // Its command failed before that.
    Stopped,
    // Its command is over, and its device has it still.
    Orphan
  } row_state_e;

  typedef enum logic [3:0] {
    BoardNone,
    // A block begins its way.
    BoardAdd,
    // A row is through with its stage.
    BoardPass,
    // A row is through with its last stage.
    BoardDone,
    BoardReady,
    BoardWait,
    BoardLine,
    BoardIssue,
    BoardStop,
    // The row's unit is free.
    BoardRelease,
    // The first row of a command goes; or it leaves its command, and stays with its device.
    BoardRetire,
    BoardOrphan,
    // The device of such a row is through with it.
    BoardFree
  } board_e;

  // ---- Operations and outcomes ----

  typedef enum logic [2:0] {
    DoRead,
    DoWrite,
    DoProcess,
    DoSnapshot,
    DoFlush
  } operation_e;

  // Names an operation: its row, or, where it has no block, its command and place; and which of all
  // that were issued for that it is.
  typedef struct packed {
    logic     blockless;
    serial_t  serial;
    row_t     row;
    command_t command;
    place_t   at;
  } operation_id_t;

  typedef struct packed {
    operation_e    kind;
    operation_id_t id;
    // Read: from the prefix.
    logic          prefix;
    // Position on the device; 0 for a stream.
    address_t      offset;
    bytes_t        start;
    bytes_t        length;
    pool_t         pool;
    unit_t         unit;
    // Process: the stream's last block. Write: more bytes follow on the stream.
    logic          last;
    logic          more;
  } operation_t;

  typedef enum logic [2:0] {
    Moved,
    Processed,
    Digest,
    Flushed,
    Failed
  } outcome_e;

  typedef struct packed {
    operation_id_t id;
    outcome_e      kind;
    // Moved or processed.
    bytes_t        bytes;
    // Moved: PATH bits, of the path that they took.
    logic [15:0]   path;
    // Failed.
    status_t       status;
    errno_t        errno;
  } outcome_t;

  // ---- Block memory: a row of the scoreboard is a block ----

  localparam int unsigned WordBytes = 16;
  localparam int unsigned WordShift = $clog2(WordBytes);

  // Bytes in memory's order, and which of them are there.
  typedef logic [8*WordBytes-1:0] block_word_t;
  typedef logic [WordBytes-1:0]   keep_t;

  // A word's place in its block; a word of the memory.
  typedef logic [BlockShift-WordShift-1:0] word_index_t;

  typedef struct packed {
    row_t        row;
    word_index_t word;
  } word_at_t;

  // ---- Contexts: the operators of commands, by command and place ----

  typedef struct packed {
    command_t command;
    place_t   at;
  } context_t;

  // A word of 32 bits of a context.
  typedef struct packed {
    context_t   of;
    logic [4:0] word;
  } context_at_t;

  // What a unit is asked for.
  typedef struct packed {
    operation_id_t id;
    bytes_t        length;
    // Bytes of the stream, those of this job among them.
    logic [60:0]   covered;
    // It ends its stream; it is not the stream's first one; a value is expected of it.
    logic          ends;
    logic          begun;
    logic          expects;
    // The stream has ended before: its digest is there.
    logic          told;
  } job_t;

  // ---- Times of a command's stages ----

  // Stages as the result area has them: source, destination, then the operators.
  localparam int unsigned TimedStages = 2 + dcs_pkg::ChainMax;
  typedef logic [3:0] timed_t;

  typedef struct packed {
    command_t command;
    timed_t   stage;
  } times_at_t;

  // In nanoseconds: struct dcs_stage_times.
  typedef struct packed {
    logic [39:0] operations;
    logic [63:0] busy;
    logic [63:0] last;
    logic [63:0] first;
  } times_t;

  typedef enum logic [1:0] {
    TimesNone,
    TimesIssue,
    TimesDone
  } times_e;

  // ---- A completion ----

  typedef struct packed {
    queue_t      owner;
    logic [15:0] cid;
    status_t     status;
    logic [7:0]  stage;
    logic [7:0]  stage_index;
    logic [47:0] delivered;
  } posting_t;

endpackage
