// What the card's endpoints are, as software says it.

package card_pkg;

  import core_pkg::*;

  // Whoever uses the package does not use all of it.
  // verilator lint_off UNUSEDPARAM

  // Numbers by which commands name endpoints: 0 up to this.
  localparam int unsigned Handles     = 32;
  localparam int unsigned HandleWidth = $clog2(Handles);
  typedef logic [HandleWidth-1:0] handle_t;

  typedef enum logic [1:0] {
    NoTarget,
    MemoryTarget,
    SsdTarget,
    NicTarget
  } target_e;

  // What a handle names: memory, an SSD, or a connection of the NIC.
  typedef struct packed {
    target_e    kind;
    // Of the SSD, or of the connection.
    logic [3:0] number;
    logic       readable;
    logic       writable;
    // Memory's addresses and an SSD's bytes that may be accessed: from the first to the last one.
    address_t   first;
    address_t   last;
  } target_t;

  // The ends of a command.
  typedef enum logic [1:0] {
    Source,
    Destination,
    Prefix
  } role_e;

  // A command that uses a connection: software need not tell.
  typedef struct packed {
    logic       writes;
    logic [3:0] connection;
    command_t   command;
  } assignment_t;

  // verilator lint_on UNUSEDPARAM

endpackage
