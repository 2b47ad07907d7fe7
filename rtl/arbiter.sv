// Round robin: of those that ask the next one behind the one that was taken last.

module arbiter #(
  parameter int unsigned Count = 8,

  localparam int unsigned Width = $clog2(Count)
) (
  input  logic             clk_i,
  input  logic             rst_ni,

  input  logic [Count-1:0] ask_i,
  output logic             valid_o,
  output logic [Width-1:0] chosen_o,
  // The chosen one is served.
  input  logic             take_i
);

  // Those behind the one that was taken last.
  logic [Count-1:0] later_q, later;

  assign valid_o = ask_i != '0;
  assign later   = ask_i & later_q;

  always_comb begin
    chosen_o = '0;
    for (int unsigned i = Count; i > 0; i--) begin
      if (later != '0 ? later[i-1] : ask_i[i-1]) chosen_o = Width'(i - 1);
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      later_q <= '0;
    end else if (take_i) begin
      for (int unsigned i = 0; i < Count; i++) later_q[i] <= Width'(i) > chosen_o;
    end
  end

endmodule
