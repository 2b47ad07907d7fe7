// The substitution of a block's bytes, a cycle later.

module aes_sub
  import aes_pkg::*;
(
  input  logic   clk_i,
  input  logic   enable_i,
  input  block_t block_i,
  output block_t block_o
);

  for (genvar i = 0; i < 16; i += 2) begin : gen_byte
    aes_sub_ram u_ram (
      .clk_i,
      .enable_i,
      .a_i (block_i[i]),
      .b_i (block_i[i+1]),
      .a_o (block_o[i]),
      .b_o (block_o[i+1])
    );
  end

endmodule
