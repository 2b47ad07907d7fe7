// The substitution of a block's bytes, a cycle later.

module aes_sub
  import aes_pkg::*;
#(
  parameter bit Inverse = 1'b0
) (
  input  logic   clk_i,
  input  logic   enable_i,
  input  block_t block_i,
  output block_t block_o,
  // See aes_sub_ram.
  output block_t multiple_o
);

  for (genvar i = 0; i < 16; i += 2) begin : gen_byte
    aes_sub_ram #(
      .Inverse(Inverse)
    ) u_ram (
      .clk_i,
      .enable_i,
      .a_i         (block_i[i]),
      .b_i         (block_i[i+1]),
      .a_o         (block_o[i]),
      .b_o         (block_o[i+1]),
      .a_multiple_o(multiple_o[i]),
      .b_multiple_o(multiple_o[i+1])
    );
  end

endmodule
