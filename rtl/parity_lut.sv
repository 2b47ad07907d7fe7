// The parity of six bits: a LUT, which synthesis leaves as it is.

(* keep_hierarchy *)
module parity_lut (
  input  logic [5:0] bits_i,
  output logic       parity_o
);

  assign parity_o = ^bits_i;

endmodule
