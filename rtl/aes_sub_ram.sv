// The substitution of two bytes a cycle, in a block RAM with two ports. It is wide enough to give a
// multiple of the outcome too, which the round needs.

module aes_sub_ram
  import aes_pkg::*;
#(
  parameter bit Inverse = 1'b0
) (
  input  logic       clk_i,
  input  logic       enable_i,
  input  logic [7:0] a_i,
  input  logic [7:0] b_i,
  output logic [7:0] a_o,
  output logic [7:0] b_o,
  // Twice that, or four times where it is the inverse.
  output logic [7:0] a_multiple_o,
  output logic [7:0] b_multiple_o
);

  (* rom_style = "block", ram_style = "block" *)
  logic [15:0] rom [256];

  initial begin
    for (int unsigned i = 0; i < 256; i++) begin
      if (Inverse) rom[i] = {double(double(InverseSBox[i])), InverseSBox[i]};
      else rom[i] = {double(SBox[i]), SBox[i]};
    end
  end

  always_ff @(posedge clk_i) begin
    if (enable_i) begin
      {a_multiple_o, a_o} <= rom[a_i];
      {b_multiple_o, b_o} <= rom[b_i];
    end
  end

endmodule
