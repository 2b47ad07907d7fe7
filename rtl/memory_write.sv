// The writes of a memory endpoint: from block memory to the bus.

module memory_write
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

  // Channels AW, W and B of it, and which way they go.
  output bus_pkg::way_t      way_o,
  output bus_pkg::request_t  bus_o,
  input  bus_pkg::response_t bus_i,

  output logic               read_valid_o,
  input  logic               read_ready_i,
  output word_at_t           read_at_o,
  input  logic               read_done_i,
  input  block_word_t        read_data_i
);

  typedef enum logic [1:0] {
    Idle,
    Move,
    Answers,
    Tell
  } state_e;

  localparam int unsigned CountWidth = BlockShift - WordShift + 2;

  state_e            state_q;
  logic              there, begin_move, bad_q, unused;
  operation_id_t     id;
  address_t          address;
  bytes_t            start, length;
  logic              burst_valid, asked, answered;
  bus_pkg::address_t burst;
  logic [CountWidth-1:0] words_in, unused_out;
  logic              fetched, fetched_ready, beat, beat_ready, last;
  block_word_t       fetched_word;

  assign begin_move = state_q == Idle && there;
  assign unused     = ^{bus_i, address, start, burst.id, unused_out, words_in};

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
    .burst_valid_o (burst_valid),
    .burst_take_i  (asked),
    .burst_o       (burst)
  );

  block_fetch u_fetch (
    .clk_i,
    .rst_ni,
    .start_i (begin_move),
    .at_i    ('{row: id.row, word: word_index_t'(start[BlockShift-1:WordShift])}),
    .words_i (words_in[BlockShift-WordShift:0]),
    .read_valid_o,
    .read_ready_i,
    .read_at_o,
    .read_done_i,
    .read_data_i,
    .valid_o (fetched),
    .ready_i (fetched_ready),
    .word_o  (fetched_word)
  );

  realign u_realign (
    .clk_i,
    .rst_ni,
    .start_i     (begin_move),
    .from_i      (start[WordShift-1:0]),
    .to_i        (address[WordShift-1:0]),
    .length_i    (length),
    .words_in_o  (words_in),
    .words_out_o (unused_out),
    .valid_i     (fetched),
    .ready_o     (fetched_ready),
    .word_i      (fetched_word),
    .valid_o     (beat),
    .ready_i     (beat_ready),
    .word_o      (bus_o.w.data),
    .keep_o      (bus_o.w.strb),
    .last_o      (last)
  );

  // ---- A burst is begun when the one before has all its beats ----

  logic [8:0] beats_q;
  logic [1:0] unanswered_q;

  assign asked         = bus_o.aw_valid && bus_i.aw_ready;
  assign beat_ready    = beats_q != '0 && bus_i.w_ready;
  assign answered      = bus_i.b_valid && bus_o.b_ready;

  always_comb begin
    bus_o.aw       = burst;
    bus_o.aw.id    = Id;
    bus_o.aw_valid = burst_valid && beats_q == '0;
    bus_o.w.last   = beats_q == 9'd1;
    bus_o.w_valid  = beat && beats_q != '0;
    bus_o.b_ready  = 1'b1;
    bus_o.ar       = '0;
    bus_o.ar_valid = 1'b0;
    bus_o.r_ready  = 1'b0;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q      <= Idle;
      beats_q      <= '0;
      unanswered_q <= '0;
    end else begin
      if (asked) beats_q <= 9'(burst.len) + 9'd1;
      else if (bus_o.w_valid && bus_i.w_ready) beats_q <= beats_q - 9'd1;
      unanswered_q <= unanswered_q + 2'(asked) - 2'(answered);
      unique case (state_q)
        Idle:    if (there) state_q <= Move;
        Move:    if (beat && beat_ready && last) state_q <= Answers;
        Answers: if (unanswered_q == 2'(answered)) state_q <= Tell;
        Tell:    if (outcome_ready_i) state_q <= Idle;
        default: state_q <= Idle;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (begin_move) bad_q <= 1'b0;
    else if (answered && bus_i.b.resp != bus_pkg::ResponseOkay) bad_q <= 1'b1;
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
