// Reads consecutive words of block memory, a few ahead of whoever takes them.

module block_fetch
  import core_pkg::*;
#(
  localparam int unsigned Ahead      = 4,
  localparam int unsigned AheadWidth = $clog2(Ahead)
) (
  input  logic        clk_i,
  input  logic        rst_ni,

  // The first word and how many there are, when the last ones have been taken.
  input  logic        start_i,
  input  word_at_t    at_i,
  input  logic [BlockShift-WordShift:0] words_i,

  // See block_memory.
  output logic        read_valid_o,
  input  logic        read_ready_i,
  output word_at_t    read_at_o,
  input  logic        read_done_i,
  input  block_word_t read_data_i,

  output logic        valid_o,
  input  logic        ready_i,
  output block_word_t word_o
);

  (* ram_style = "distributed" *)
  block_word_t           words_q [Ahead];
  logic [AheadWidth-1:0] put_q, get_q;
  // Words that may be asked for, and those that are there.
  logic [AheadWidth:0]   room_q, there_q;
  logic [BlockShift-WordShift:0] unasked_q;
  word_at_t              at_q;
  logic                  ask, take;

  assign read_valid_o = unasked_q != '0 && room_q != '0;
  assign read_at_o    = at_q;
  assign ask          = read_valid_o && read_ready_i;
  assign valid_o      = there_q != '0;
  assign take         = valid_o && ready_i;
  assign word_o       = words_q[get_q];

  always_ff @(posedge clk_i) begin
    if (read_done_i) words_q[put_q] <= read_data_i;
    if (start_i) at_q <= at_i;
    else if (ask) at_q.word <= at_q.word + 1'b1;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      put_q     <= '0;
      get_q     <= '0;
      room_q    <= (AheadWidth+1)'(Ahead);
      there_q   <= '0;
      unasked_q <= '0;
    end else begin
      put_q     <= put_q + AheadWidth'(read_done_i);
      get_q     <= get_q + AheadWidth'(take);
      room_q    <= room_q + (AheadWidth+1)'(take) - (AheadWidth+1)'(ask);
      there_q   <= there_q + (AheadWidth+1)'(read_done_i) - (AheadWidth+1)'(take);
      unasked_q <= start_i ? words_i : unasked_q - (BlockShift-WordShift+1)'(ask);
    end
  end

endmodule
