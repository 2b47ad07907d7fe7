// The parity of some bits, in as few LUTs of six inputs as there can be: each takes six, and its
// outcome is another bit behind the last one.

module parity #(
  parameter int unsigned Width = 16
) (
  input  logic [Width-1:0] bits_i,
  output logic             parity_o
);

  if (Width == 1) begin : gen_wire
    assign parity_o = bits_i[0];
  end else if (Width <= 6) begin : gen_lut
    logic [5:0] six;
    always_comb begin
      six            = '0;
      six[Width-1:0] = bits_i;
    end
    parity_lut u_lut (
      .bits_i  (six),
      .parity_o(parity_o)
    );
  end else begin : gen_luts
    logic first;
    parity_lut u_first (
      .bits_i  (bits_i[5:0]),
      .parity_o(first)
    );
    parity #(
      .Width(Width - 5)
    ) u_rest (
      .bits_i  ({first, bits_i[Width-1:6]}),
      .parity_o(parity_o)
    );
  end

endmodule
