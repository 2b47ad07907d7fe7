// Memory on the bus as a source and a destination (MEMORY and DEVICE_MEMORY): DoRead moves bytes
// from there to block memory, DoWrite back, of any alignment and length.
//
// Operations come with the address of their first byte, which their owner has checked, and with the
// bus that it is on. They are always
// taken: each row has one at most. Reads and writes go beside each other, each kind in its order,
// one at a time on the bus. Answers are Moved, with all bytes that were asked for, or Failed with
// DATA_TRANSFER_ERROR, where the bus reports an error: some bytes may have been moved then. A write
// is answered when the bus has answered all of it. An abort would gain nothing: it is left out.

module memory_endpoint
  import core_pkg::*;
#(
  // Of its bursts.
  parameter bus_pkg::id_t Id   = '0,
  // PATH bits that it tells of the bytes.
  parameter logic [15:0]  Path = '0
) (
  input  logic               clk_i,
  input  logic               rst_ni,

  input  logic               operation_valid_i,
  output logic               operation_ready_o,
  input  operation_t         operation_i,
  input  address_t           address_i,
  // Of several buses the one that the address is on.
  input  bus_pkg::way_t      way_i,
  output logic               outcome_valid_o,
  input  logic               outcome_ready_i,
  output outcome_t           outcome_o,

  // What it does on the bus now is on these ways: see bus_split.
  output bus_pkg::way_t      read_way_o,
  output bus_pkg::way_t      write_way_o,
  output bus_pkg::request_t  bus_o,
  input  bus_pkg::response_t bus_i,

  // See block_memory.
  output logic               read_valid_o,
  input  logic               read_ready_i,
  output word_at_t           read_at_o,
  input  logic               read_done_i,
  input  block_word_t        read_data_i,
  output logic               write_valid_o,
  input  logic               write_ready_i,
  output word_at_t           write_at_o,
  output block_word_t        write_data_o,
  output keep_t              write_keep_o
);

  logic       reads, writes, read_tells, write_tells, chosen;
  logic [1:0] heard;
  outcome_t   read_outcome, write_outcome;
  bus_pkg::request_t of_reads, of_writes;
  logic       unused;

  assign reads             = operation_valid_i && operation_i.kind == DoRead;
  assign writes            = operation_valid_i && operation_i.kind == DoWrite;
  assign operation_ready_o = 1'b1;
  assign unused            = ^{of_reads, of_writes};

  memory_read #(
    .Id   (Id),
    .Path (Path)
  ) u_read (
    .clk_i,
    .rst_ni,
    .operation_valid_i (reads),
    .operation_i,
    .address_i,
    .way_i,
    .outcome_valid_o   (read_tells),
    .outcome_ready_i   (heard[0]),
    .outcome_o         (read_outcome),
    .way_o             (read_way_o),
    .bus_o             (of_reads),
    .bus_i,
    .write_valid_o,
    .write_ready_i,
    .write_at_o,
    .write_data_o,
    .write_keep_o
  );

  memory_write #(
    .Id   (Id),
    .Path (Path)
  ) u_write (
    .clk_i,
    .rst_ni,
    .operation_valid_i (writes),
    .operation_i,
    .address_i,
    .way_i,
    .outcome_valid_o   (write_tells),
    .outcome_ready_i   (heard[1]),
    .outcome_o         (write_outcome),
    .way_o             (write_way_o),
    .bus_o             (of_writes),
    .bus_i,
    .read_valid_o,
    .read_ready_i,
    .read_at_o,
    .read_done_i,
    .read_data_i
  );

  arbiter #(.Count (2)) u_outcome_turn (
    .clk_i, .rst_ni, .ask_i ({write_tells, read_tells}), .valid_o (outcome_valid_o),
    .chosen_o (chosen), .take_i (outcome_valid_o && outcome_ready_i)
  );

  assign outcome_o = chosen ? write_outcome : read_outcome;
  assign heard     = {outcome_ready_i && chosen && outcome_valid_o,
                      outcome_ready_i && !chosen && outcome_valid_o};

  always_comb begin
    bus_o          = of_writes;
    bus_o.ar       = of_reads.ar;
    bus_o.ar_valid = of_reads.ar_valid;
    bus_o.r_ready  = of_reads.r_ready;
  end

endmodule
