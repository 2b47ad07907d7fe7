// The reads of a memory endpoint: from the bus to block memory.

module memory_read
  import core_pkg::*;
#(
  parameter bus_pkg::id_t Id   = '0,
  // PATH bits that it tells of the bytes.
  parameter logic [15:0]  Path = '0
) (
  input  logic               clk_i,
  input  logic               rst_ni,

  input  logic               operation_valid_i,
  input  operation_t         operation_i,
  input  address_t           address_i,
  input  bus_pkg::way_t      way_i,
  output logic               outcome_valid_o,
  input  logic               outcome_ready_i,
  output outcome_t           outcome_o,

  // Channels AR and R of it, and which way they go.
  output bus_pkg::way_t      way_o,
  output bus_pkg::request_t  bus_o,
  input  bus_pkg::response_t bus_i,

  output logic               write_valid_o,
  input  logic               write_ready_i,
  output word_at_t           write_at_o,
  output block_word_t        write_data_o,
  output keep_t              write_keep_o
);

  typedef enum logic [1:0] {
    Idle,
    Move,
    Tell
  } state_e;

  state_e            state_q;
  logic              there, begin_move, take, put, last, bad_q, unused;
  operation_id_t     id;
  address_t          address;
  bytes_t            start, length;
  bus_pkg::address_t burst;
  word_index_t       word_q;
  logic [BlockShift-WordShift+1:0] unused_in, unused_out;

  assign begin_move = state_q == Idle && there;
  assign unused     = ^{bus_i, address, start, burst.id, unused_in, unused_out};

  memory_line u_line (
    .clk_i,
    .rst_ni,
    .operation_valid_i,
    .operation_i,
    .address_i,
    .way_i,
    .there_o       (there),
    .begin_i       (begin_move),
    .end_i         (state_q == Tell && outcome_ready_i),
    .id_o          (id),
    .address_o     (address),
    .way_o,
    .start_o       (start),
    .length_o      (length),
    .burst_valid_o (bus_o.ar_valid),
    .burst_take_i  (bus_o.ar_valid && bus_i.ar_ready),
    .burst_o       (burst)
  );

  realign u_realign (
    .clk_i,
    .rst_ni,
    .start_i     (begin_move),
    .from_i      (address[WordShift-1:0]),
    .to_i        (start[WordShift-1:0]),
    .length_i    (length),
    .words_in_o  (unused_in),
    .words_out_o (unused_out),
    .valid_i     (bus_i.r_valid),
    .ready_o     (bus_o.r_ready),
    .word_i      (bus_i.r.data),
    .valid_o     (write_valid_o),
    .ready_i     (write_ready_i),
    .word_o      (write_data_o),
    .keep_o      (write_keep_o),
    .last_o      (last)
  );

  assign take       = bus_i.r_valid && bus_o.r_ready;
  assign put        = write_valid_o && write_ready_i;
  assign write_at_o = '{row: id.row, word: word_q};

  always_comb begin
    bus_o.ar       = burst;
    bus_o.ar.id    = Id;
    bus_o.aw       = '0;
    bus_o.aw_valid = 1'b0;
    bus_o.w        = '0;
    bus_o.w_valid  = 1'b0;
    bus_o.b_ready  = 1'b0;
  end

  always_ff @(posedge clk_i) begin
    if (begin_move) word_q <= word_index_t'(start[BlockShift-1:WordShift]);
    else if (put) word_q <= word_q + 1'b1;
    if (begin_move) bad_q <= 1'b0;
    else if (take && bus_i.r.resp != bus_pkg::ResponseOkay) bad_q <= 1'b1;
  end

  // The last word that comes out needs the last one that went in.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Idle;
    end else begin
      unique case (state_q)
        Idle:    if (there) state_q <= Move;
        Move:    if (put && last) state_q <= Tell;
        Tell:    if (outcome_ready_i) state_q <= Idle;
        default: state_q <= Idle;
      endcase
    end
  end

  assign outcome_valid_o = state_q == Tell;
  assign outcome_o       = '{
    id:     id,
    kind:   bad_q ? Failed : Moved,
    bytes:  bad_q ? '0 : length,
    path:   bad_q ? '0 : Path,
    status: bad_q ? dcs_pkg::StatusDataTransferError : '0,
    errno:  '0
  };

endmodule
