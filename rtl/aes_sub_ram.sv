// The substitution of two bytes a cycle, in a block RAM with two ports.

module aes_sub_ram
  import aes_pkg::*;
(
  input  logic       clk_i,
  input  logic       enable_i,
  input  logic [7:0] a_i,
  input  logic [7:0] b_i,
  output logic [7:0] a_o,
  output logic [7:0] b_o
);

  (* rom_style = "block", ram_style = "block" *)
  logic [7:0] rom [256];

  initial begin
    for (int unsigned i = 0; i < 256; i++) rom[i] = SBox[i];
  end

  always_ff @(posedge clk_i) begin
    if (enable_i) begin
      a_o <= rom[a_i];
      b_o <= rom[b_i];
    end
  end

endmodule
