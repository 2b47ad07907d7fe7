// AES-256's encryption of one block, a round in two cycles: 29 cycles from start to done.
//
// It asks for the rounds' keys, as from a memory.

module aes_block
  import aes_pkg::*;
(
  input  logic       clk_i,
  input  logic       rst_ni,

  // Drops the block on its way, and the outcome.
  input  logic       clear_i,
  // Ready for a block where it is neither at work nor done.
  input  logic       start_i,
  input  block_t     block_i,
  output logic [3:0] round_o,
  input  block_t     key_i,
  // The outcome, until it is taken.
  output logic       done_o,
  input  logic       take_i,
  output block_t     block_o
);

  localparam logic [3:0] Rounds = 4'd14;

  logic       busy_q, mix_q, last;
  logic [3:0] round_q;
  block_t     substituted, doubled, shifted, step;

  aes_sub u_sub (
    .clk_i,
    .enable_i  (1'b1),
    .block_i   (block_o),
    .block_o   (substituted),
    .multiple_o(doubled)
  );

  assign last    = round_q == Rounds;
  assign round_o = round_q;
  assign shifted = shift_rows(substituted);

  always_comb begin
    step = last ? shifted : mix_columns(shifted, shift_rows(doubled));
    if (!busy_q) step = block_i;
  end

  always_ff @(posedge clk_i) begin
    if (!busy_q || mix_q) begin
      if (!done_o) block_o <= step ^ key_i;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      busy_q  <= 1'b0;
      mix_q   <= 1'b0;
      done_o  <= 1'b0;
      round_q <= '0;
    end else if (clear_i) begin
      busy_q  <= 1'b0;
      mix_q   <= 1'b0;
      done_o  <= 1'b0;
      round_q <= '0;
    end else if (busy_q) begin
      mix_q <= !mix_q;
      if (mix_q) begin
        round_q <= last ? 4'd0 : round_q + 4'd1;
        busy_q  <= !last;
        done_o  <= last;
      end
    end else if (done_o) begin
      done_o <= !take_i;
    end else if (start_i) begin
      busy_q  <= 1'b1;
      round_q <= 4'd1;
    end
  end

endmodule
