// A round of AES's encryption but the last one, in two cycles.

module aes_round
  import aes_pkg::*;
(
  input  logic   clk_i,
  input  logic   enable_i,
  input  block_t key_i,
  input  block_t block_i,
  output block_t block_o
);

  block_t substituted;

  aes_sub u_sub (
    .clk_i,
    .enable_i,
    .block_i,
    .block_o (substituted)
  );

  always_ff @(posedge clk_i) begin
    if (enable_i) block_o <= mix_columns(shift_rows(substituted)) ^ key_i;
  end

endmodule
