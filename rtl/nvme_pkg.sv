// NVMe, as far as a queue pair needs it: NVM Express Base Specification 2.0, NVM Command Set 1.0.

package nvme_pkg;

  // Entries of both rings.
  localparam int unsigned Entries    = 16;
  localparam int unsigned EntryWidth = $clog2(Entries);

  localparam logic [7:0] OpcodeFlush = 8'h00;
  localparam logic [7:0] OpcodeWrite = 8'h01;
  localparam logic [7:0] OpcodeRead  = 8'h02;

  // Statuses: type and code.
  typedef logic [10:0] status_t;
  localparam status_t Success         = {3'd0, 8'h00};
  localparam status_t AbortRequested  = {3'd0, 8'h07};
  localparam status_t LbaOutOfRange   = {3'd0, 8'h80};
  localparam status_t CapacityExceeded = {3'd0, 8'h81};
  localparam status_t AccessDenied    = {3'd2, 8'h86};

  // What software says of an SSD that it has started, with a queue pair that begins at `own`.
  typedef struct packed {
    logic [63:0] tail_doorbell;
    logic [63:0] head_doorbell;
    // Bus addresses of block memory, and of the controller's own memory.
    logic [63:0] blocks;
    logic [63:0] own;
    logic [31:0] name_space;
    // Of a logical block, 9 to 12.
    logic [3:0]  shift;
    // The submission queue's number.
    logic [15:0] number;
    // Milliseconds that a command may take.
    logic [31:0] patience;
  } config_t;

  // ---- A submission entry: words of 16 bytes ----

  typedef struct packed {
    logic [15:0] identifier;
    logic [7:0]  flags;
    logic [7:0]  opcode;
  } head_t;

  // ---- A completion entry ----

  typedef struct packed {
    logic        do_not_retry;
    logic [2:0]  other;
    status_t     status;
    logic        phase;
    logic [15:0] identifier;
    logic [15:0] number;
    logic [15:0] head;
    logic [63:0] result;
  } completion_t;

endpackage
