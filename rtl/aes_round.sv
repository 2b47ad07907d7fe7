// A round of AES but the last one, in two cycles; or of its inverse, whose key has gone through
// InvMixColumns (FIPS 197 5.3.5).

// A round on its own gets a LUT a bit; among others yosys finds nothing better than two.
(* keep_hierarchy *)
module aes_round
  import aes_pkg::*;
#(
  parameter bit Inverse = 1'b0
) (
  input  logic   clk_i,
  input  logic   enable_i,
  input  block_t key_i,
  input  block_t block_i,
  output block_t block_o
);

  block_t substituted, multiple, mixed;

  aes_sub #(
    .Inverse(Inverse)
  ) u_sub (
    .clk_i,
    .enable_i,
    .block_i,
    .block_o   (substituted),
    .multiple_o(multiple)
  );

  if (Inverse) begin : gen_inverse
    assign mixed = unmix_columns(unshift_rows(substituted), unshift_rows(multiple));
  end else begin : gen_forward
    assign mixed = mix_columns(shift_rows(substituted), shift_rows(multiple));
  end

  always_ff @(posedge clk_i) begin
    if (enable_i) block_o <= mixed ^ key_i;
  end

endmodule
