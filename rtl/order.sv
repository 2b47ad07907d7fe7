// Lines of commands by a key: the first of each line may go, as in the Rust core's `order.rs`,
// where the key is function, tenant and request id. Lines for blocks and for room in a ring have
// the queue as key.
//
// For every command it is kept which others are before it, so that any of them may leave at once.

module order #(
  parameter int unsigned Commands = 16,
  parameter int unsigned KeyWidth = 48,

  localparam int unsigned CommandWidth = $clog2(Commands)
) (
  input  logic                    clk_i,
  input  logic                    rst_ni,

  // A command that is in no line gets into its line, as the last one.
  input  logic                    join_i,
  input  logic [CommandWidth-1:0] join_command_i,
  input  logic [KeyWidth-1:0]     join_key_i,

  // A command leaves its line, wherever in it it is; nothing happens where it is in none.
  input  logic                    leave_i,
  input  logic [CommandWidth-1:0] leave_command_i,

  // Commands that are in a line, and those with nobody before them in it.
  output logic [Commands-1:0]     there_o,
  output logic [Commands-1:0]     first_o
);

  logic [Commands-1:0]               there_q;
  logic [Commands-1:0][KeyWidth-1:0] key_q;
  // before_q[a][b]: b is before a.
  logic [Commands-1:0][Commands-1:0] before_q;
  logic [Commands-1:0]               stays, same;

  always_comb begin
    for (int unsigned i = 0; i < Commands; i++) begin
      stays[i] = there_q[i] && !(leave_i && leave_command_i == CommandWidth'(i));
      same[i]  = key_q[i] == join_key_i;
    end
  end

  always_comb begin
    for (int unsigned i = 0; i < Commands; i++) first_o[i] = there_q[i] && before_q[i] == '0;
  end

  assign there_o = there_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      there_q  <= '0;
      before_q <= '0;
    end else begin
      there_q <= stays;
      for (int unsigned i = 0; i < Commands; i++) before_q[i] <= before_q[i] & stays;
      if (join_i) begin
        there_q[join_command_i]  <= 1'b1;
        before_q[join_command_i] <= stays & same;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (join_i) key_q[join_command_i] <= join_key_i;
  end

endmodule
