// What is proved of `order`: who is first is who came first of those with the same key that are
// still there, however they come and leave.

module order_proof #(
  parameter int unsigned Commands = 4,
  parameter int unsigned KeyWidth = 2,

  localparam int unsigned CommandWidth = $clog2(Commands)
) (
  input logic                    clk_i,
  input logic                    rst_ni,
  input logic                    join_i,
  input logic [CommandWidth-1:0] join_command_i,
  input logic [KeyWidth-1:0]     join_key_i,
  input logic                    leave_i,
  input logic [CommandWidth-1:0] leave_command_i
);

  logic [Commands-1:0] there, first;

  order #(
    .Commands (Commands),
    .KeyWidth (KeyWidth)
  ) u_order (
    .clk_i,
    .rst_ni,
    .join_i,
    .join_command_i,
    .join_key_i,
    .leave_i,
    .leave_command_i,
    .there_o (there),
    .first_o (first)
  );

  // ---- The plain view: who is there, with which key, and who was there before whom ----

  logic [Commands-1:0]               there_q;
  logic [Commands-1:0][KeyWidth-1:0] key_q;
  logic [Commands-1:0][Commands-1:0] older_q;
  logic                              started_q;

  initial started_q = 1'b0;

  always_ff @(posedge clk_i) begin
    started_q <= 1'b1;
    if (!rst_ni) begin
      there_q <= '0;
      older_q <= '0;
    end else begin
      if (leave_i) begin
        there_q[leave_command_i] <= 1'b0;
        older_q[leave_command_i] <= '0;
        for (int unsigned i = 0; i < Commands; i++) older_q[i][leave_command_i] <= 1'b0;
      end
      if (join_i) begin
        there_q[join_command_i] <= 1'b1;
        key_q[join_command_i]   <= join_key_i;
        for (int unsigned i = 0; i < Commands; i++) begin
          older_q[join_command_i][i] <= there_q[i] && !(leave_i && leave_command_i == CommandWidth'(i));
        end
      end
    end
  end

  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    if (started_q && join_i) begin
      assume (!there_q[join_command_i]);
      assume (!leave_i || leave_command_i != join_command_i);
    end
  end

  logic sound;
  logic [Commands-1:0] expected;

  always_comb begin
    sound = there == there_q;
    for (int unsigned a = 0; a < Commands; a++) begin
      expected[a] = there_q[a];
      for (int unsigned b = 0; b < Commands; b++) begin
        if (older_q[a][b]) sound &= there_q[a] && there_q[b] && !older_q[b][a];
        if (a != b && there_q[a] && there_q[b]) sound &= older_q[a][b] || older_q[b][a];
        for (int unsigned c = 0; c < Commands; c++) begin
          if (older_q[a][b] && older_q[b][c]) sound &= older_q[a][c];
        end
        if (there_q[a]) begin
          sound &= u_order.before_q[a][b] == (older_q[a][b] && key_q[a] == key_q[b]);
        end
        if (older_q[a][b] && key_q[a] == key_q[b]) expected[a] = 1'b0;
      end
      if (there_q[a]) sound &= u_order.key_q[a] == key_q[a];
    end
  end

  always_comb begin
    if (started_q && rst_ni) begin
      assert (sound);
      // Nobody goes before those that came earlier, and nobody waits for those that have left.
      assert (first == expected);
      // Somebody is first wherever somebody is.
      for (int unsigned a = 0; a < Commands; a++) begin
        logic some;
        some = 1'b0;
        for (int unsigned b = 0; b < Commands; b++) begin
          if (first[b] && key_q[b] == key_q[a]) some = 1'b1;
        end
        if (there_q[a]) assert (some);
      end
    end
  end

endmodule
