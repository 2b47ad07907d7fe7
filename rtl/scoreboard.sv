// The scoreboard: at which stage every block is, and what it waits for (DCS-ctrl 3.3.2), as the
// Rust core's `scoreboard.rs` and `plan.rs` have it.
//
// Rows of a command stand in a line, in the order of its data. A row is at one stage at a time.
// Operators, and writes to a stream, take the rows of a command in their order: a row waits for the
// one before it to pass the stage. One change a cycle.

module scoreboard
  import core_pkg::*;
(
  input  logic                clk_i,
  input  logic                rst_ni,

  input  board_e              change_i,
  input  row_t                row_i,
  // BoardAdd: the row's command. Else the row's own.
  input  command_t            command_i,
  // BoardPass: the next stage, and whether it takes rows in their order. BoardDone: whether the
  // last one does.
  input  stage_t              stage_i,
  input  logic                ordered_i,
  // The change makes no row ready for a write: `sequencer` does, in its turn.
  input  logic                hold_i,

  // A row in line has a unit: at any time, whatever else changes.
  input  logic                grant_i,
  input  row_t                grant_row_i,

  // The row.
  output row_state_e          state_o,
  output stage_t              stage_o,
  output command_t            command_o,
  output logic                has_unit_o,
  output logic                first_o,
  output logic                follower_o,
  output row_t                follower_row_o,
  output logic                follower_writes_o,

  // The first row of every command.
  output logic [Commands-1:0] there_o,
  output row_t [Commands-1:0] head_o,

  // Rows that wait for nothing.
  output logic [Blocks-1:0]   ready_o,
  output logic                idle_o
);

  row_state_e [Blocks-1:0]    state_q;
  stage_t     [Blocks-1:0]    stage_q;
  command_t   [Blocks-1:0]    command_q;
  logic       [Blocks-1:0]    unit_q;
  // Neighbours in the command's line.
  logic       [Blocks-1:0]    first_q, last_q;
  row_t       [Blocks-1:0]    before_q, behind_q;
  logic       [Commands-1:0]  there_q;
  row_t       [Commands-1:0]  head_q, tail_q;

  row_t   ahead, behind;
  logic   clear, wake, leaves;

  assign state_o        = state_q[row_i];
  assign stage_o        = stage_q[row_i];
  assign command_o      = command_q[row_i];
  assign has_unit_o     = unit_q[row_i];
  assign first_o        = first_q[row_i];
  assign follower_o     = !last_q[row_i];
  assign follower_row_o = behind_q[row_i];
  assign follower_writes_o = follower_o && stage_q[behind] == StDestination;
  assign there_o        = there_q;
  assign head_o         = head_q;
  assign ahead         = before_q[row_i];
  assign behind         = behind_q[row_i];

  // Nothing before a row is still to pass its next stage. A row that is done may stay: its device
  // has its block.
  assign clear = !ordered_i || first_q[row_i] || stage_q[ahead] > stage_i || state_q[ahead] == Done;
  // The row behind has waited for this one.
  assign wake  = (change_i == BoardPass || (change_i == BoardDone && !hold_i)) && follower_o
                 && state_q[behind] == Wait && stage_q[behind] == stage_q[row_i];

  assign leaves = change_i inside {BoardRetire, BoardOrphan};

  always_comb begin
    idle_o = 1'b1;
    for (int unsigned i = 0; i < Blocks; i++) begin
      ready_o[i] = state_q[i] == Ready;
      if (state_q[i] != Free) idle_o = 1'b0;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= {Blocks{Free}};
      unit_q  <= '0;
    end else begin
      if (grant_i) begin
        state_q[grant_row_i] <= Ready;
        unit_q[grant_row_i]  <= 1'b1;
      end
      unique case (change_i)
        BoardAdd, BoardReady: state_q[row_i] <= Ready;
        BoardPass:            state_q[row_i] <= clear && !hold_i ? Ready : Wait;
        BoardDone:            state_q[row_i] <= Done;
        BoardWait:            state_q[row_i] <= Wait;
        BoardLine:            state_q[row_i] <= Line;
        BoardIssue:           state_q[row_i] <= Issued;
        BoardStop:            state_q[row_i] <= Stopped;
        BoardRelease:         unit_q[row_i] <= 1'b0;
        BoardRetire, BoardFree: state_q[row_i] <= Free;
        BoardOrphan:          state_q[row_i] <= Orphan;
        default: ;
      endcase
      if (wake) state_q[behind] <= Ready;
    end
  end

  always_ff @(posedge clk_i) begin
    if (change_i == BoardAdd) begin
      stage_q[row_i]   <= StSource;
      command_q[row_i] <= command_i;
    end else if (change_i == BoardPass) begin
      stage_q[row_i]   <= stage_i;
    end
  end

  // ---- The commands' lines ----

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) there_q <= '0;
    else if (change_i == BoardAdd) there_q[command_i] <= 1'b1;
    else if (leaves) there_q[command_o] <= follower_o;
  end

  always_ff @(posedge clk_i) begin
    if (change_i == BoardAdd) begin
      first_q[row_i]    <= !there_q[command_i];
      last_q[row_i]     <= 1'b1;
      before_q[row_i]   <= tail_q[command_i];
      tail_q[command_i] <= row_i;
      if (there_q[command_i]) begin
        last_q[tail_q[command_i]]   <= 1'b0;
        behind_q[tail_q[command_i]] <= row_i;
      end else begin
        head_q[command_i] <= row_i;
      end
    end else if (leaves && follower_o) begin
      first_q[behind]   <= 1'b1;
      head_q[command_o] <= behind;
    end
  end

endmodule
