// What the card's endpoints are, as software says it.

package card_pkg;

  import core_pkg::*;

  // Whoever uses the package does not use all of it.
  // verilator lint_off UNUSEDPARAM

  // Numbers by which a function's commands name endpoints: 0 up to this.
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
    // Memory on the card's own bus, not of the function's host.
    logic       own;
    logic       readable;
    logic       writable;
    // Memory's addresses and an SSD's bytes that may be accessed: from the first to the last one.
    // A part of an SSD begins at 0 for who names it.
    address_t   first;
    address_t   last;
  } target_t;

  // What an end of a command names, with the number of bytes that may be accessed, less one, and
  // the bus of memory: see bus_split.
  typedef struct packed {
    target_e       kind;
    logic [3:0]    number;
    bus_pkg::way_t way;
    address_t      first;
    address_t      most;
  } end_t;

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
