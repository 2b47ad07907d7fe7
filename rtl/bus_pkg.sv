// AXI4 as the engine's modules speak it: bursts of incrementing addresses, 128 bits of data, no
// burst across 4 KiB. A module has a pair of ports for each bus that it masters (`bus_o` of
// `request_t`, `bus_i` of `response_t`).

// verilator lint_off UNUSEDPARAM
package bus_pkg;

  localparam int unsigned DataWidth = 128;
  localparam int unsigned IdWidth   = 4;
  // Bytes of a beat, and the longest burst.
  localparam int unsigned BeatBytes = DataWidth / 8;
  localparam int unsigned MostBeats = 4096 / BeatBytes;

  localparam logic [1:0] BurstIncrement = 2'b01;
  localparam logic [1:0] ResponseOkay   = 2'b00;

  typedef logic [IdWidth-1:0] id_t;
  // One of several buses: see bus_split.
  typedef logic [IdWidth-1:0] way_t;

  typedef struct packed {
    logic [63:0] addr;
    id_t         id;
    // Beats of the burst, less one.
    logic [7:0]  len;
    // Bytes of a beat, as a power of two.
    logic [2:0]  size;
    logic [1:0]  burst;
  } address_t;

  typedef struct packed {
    logic [DataWidth-1:0] data;
    logic [BeatBytes-1:0] strb;
    logic                 last;
  } write_t;

  typedef struct packed {
    id_t        id;
    logic [1:0] resp;
  } written_t;

  typedef struct packed {
    id_t                  id;
    logic [DataWidth-1:0] data;
    logic [1:0]           resp;
    logic                 last;
  } read_t;

  typedef struct packed {
    address_t aw;
    logic     aw_valid;
    write_t   w;
    logic     w_valid;
    logic     b_ready;
    address_t ar;
    logic     ar_valid;
    logic     r_ready;
  } request_t;

  typedef struct packed {
    logic     aw_ready;
    logic     w_ready;
    written_t b;
    logic     b_valid;
    logic     ar_ready;
    read_t    r;
    logic     r_valid;
  } response_t;

endpackage
// verilator lint_on UNUSEDPARAM
