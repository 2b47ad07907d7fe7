// What is proved of `scoreboard`: no row is dispatched at a stage that takes rows in their order
// before all earlier rows of its command have passed that stage; and no row waits for nothing.

module scoreboard_proof
  import core_pkg::*;
(
  input logic     clk_i,
  input logic     rst_ni,
  input board_e   change_i,
  input row_t     row_i,
  input command_t command_i,
  input logic     grant_i,
  input row_t     grant_row_i,
  // Of each command: how many operators, and whether writes may overtake each other.
  input places_t [Commands-1:0] operators_i,
  input logic    [Commands-1:0] positional_i,
  // And whether it withholds blocks.
  input logic    [Commands-1:0] withholds_i
);

  stage_t              stage, next;
  row_state_e          state;
  command_t            command;
  logic                has_unit, first, follower, writes, idle, ordered, hold;
  row_t                follower_row;
  logic [Commands-1:0] there;
  row_t [Commands-1:0] heads;
  logic [Blocks-1:0]   ready;

  assign next    = places_t'(stage) == operators_i[command] ? StDestination : stage + 1'b1;
  assign ordered = !(next == StDestination && positional_i[command]);
  assign hold    = withholds_i[command] && (next == StDestination || stage == StDestination);

  scoreboard u_scoreboard (
    .clk_i,
    .rst_ni,
    .change_i,
    .row_i,
    .command_i,
    .stage_i        (next),
    .ordered_i      (ordered),
    .hold_i         (hold),
    .grant_i,
    .grant_row_i,
    .state_o        (state),
    .stage_o        (stage),
    .command_o      (command),
    .has_unit_o     (has_unit),
    .first_o        (first),
    .follower_o     (follower),
    .follower_row_o (follower_row),
    .follower_writes_o (writes),
    .there_o        (there),
    .head_o         (heads),
    .ready_o        (ready),
    .idle_o         (idle)
  );

  // ---- The plain view: which rows are in use, by whom, and which of a command's came first ----

  logic     [Blocks-1:0]             used_q;
  // Rows that have left their command, and that a device has still.
  logic     [Blocks-1:0]             orphan_q;
  command_t [Blocks-1:0]             command_q;
  logic     [Blocks-1:0][Blocks-1:0] older_q;
  // Commands that failed: their rows only go.
  logic     [Commands-1:0]           failed_q;
  places_t  [Commands-1:0]           operators_q;
  logic     [Commands-1:0]           positional_q, withholds_q;
  logic                              started_q;

  initial started_q = 1'b0;

  always_ff @(posedge clk_i) begin
    started_q    <= 1'b1;
    operators_q  <= operators_i;
    positional_q <= positional_i;
    withholds_q  <= withholds_i;
    if (!rst_ni) begin
      used_q   <= '0;
      orphan_q <= '0;
      older_q  <= '0;
      failed_q <= '0;
    end else begin
      if (change_i == BoardAdd) begin
        used_q[row_i]    <= 1'b1;
        command_q[row_i] <= command_i;
        for (int unsigned i = 0; i < Blocks; i++) begin
          older_q[row_i][i] <= used_q[i] && command_q[i] == command_i;
        end
      end
      if (change_i == BoardStop) failed_q[command_q[row_i]] <= 1'b1;
      if (change_i == BoardOrphan) orphan_q[row_i] <= 1'b1;
      if (change_i == BoardFree) orphan_q[row_i] <= 1'b0;
      if (change_i inside {BoardRetire, BoardOrphan}) begin
        used_q[row_i]  <= 1'b0;
        older_q[row_i] <= '0;
        for (int unsigned i = 0; i < Blocks; i++) older_q[i][row_i] <= 1'b0;
        if (!follower) failed_q[command_q[row_i]] <= 1'b0;
      end
    end
  end

  // ---- What the sequencer keeps to ----

  // All rows before it are written.
  logic failed, dispatched, clear;
  assign failed     = failed_q[command_q[row_i]];
  assign dispatched = state == Ready || state == Issued;

  always_comb begin
    clear = 1'b1;
    for (int unsigned i = 0; i < Blocks; i++) begin
      if (older_q[row_i][i] && u_scoreboard.state_q[i] != Done) clear = 1'b0;
    end
  end

  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    if (started_q) begin
      assume (change_i <= BoardFree);
      for (int unsigned i = 0; i < Commands; i++) begin
        assume (operators_i[i] <= 4'd2);
        // A command's are its own as long as it has rows.
        if (there[i]) begin
          assume (operators_i[i] == operators_q[i] && positional_i[i] == positional_q[i]);
          assume (withholds_i[i] == withholds_q[i]);
        end
      end
      if (change_i == BoardAdd) begin
        assume (!used_q[row_i] && !orphan_q[row_i] && !failed_q[command_i]);
      end else if (change_i == BoardFree) begin
        assume (orphan_q[row_i]);
      end else if (change_i != BoardNone) begin
        assume (used_q[row_i] || (orphan_q[row_i] && change_i == BoardRelease));
      end
      unique case (change_i)
        BoardPass:    assume (dispatched && stage != StDestination && !failed);
        BoardDone:    assume (dispatched && stage == StDestination && !failed);
        BoardReady:   assume (!failed && (state == Issued
                              || (state == Wait && clear && stage == StDestination)));
        BoardWait:    assume (!failed && state == Ready && stage == StDestination && !first
                              && positional_i[command]);
        BoardLine:    assume (!failed && state == Ready && !has_unit && stage != StSource
                              && stage != StDestination);
        BoardIssue:   assume (!failed && state == Ready);
        BoardRelease: assume (has_unit);
        BoardRetire:  assume (first && (state == Done || failed) && state != Line);
        BoardOrphan:  assume (first && failed && state == Issued);
        BoardStop:    assume (state != Done);
        default: ;
      endcase
      if (grant_i) begin
        assume (used_q[grant_row_i] && u_scoreboard.state_q[grant_row_i] == Line);
        assume (change_i == BoardNone || row_i != grant_row_i);
      end
    end
  end

  // ---- What the lines look like ----

  logic sound;

  always_comb begin
    sound = 1'b1;
    for (int unsigned a = 0; a < Blocks; a++) begin
      row_t behind, ahead;
      behind = u_scoreboard.behind_q[a];
      ahead  = u_scoreboard.before_q[a];
      sound &= used_q[a] == !(u_scoreboard.state_q[a] inside {Free, Orphan});
      sound &= orphan_q[a] == (u_scoreboard.state_q[a] == Orphan);
      if (used_q[a]) begin
        sound &= u_scoreboard.command_q[a] == command_q[a] && there[command_q[a]];
        sound &= u_scoreboard.first_q[a] == (older_q[a] == '0);
        sound &= u_scoreboard.stage_q[a] == StDestination
                 || places_t'(u_scoreboard.stage_q[a]) <= operators_q[command_q[a]];
        if (u_scoreboard.state_q[a] == Done) sound &= u_scoreboard.stage_q[a] == StDestination;
        if (!u_scoreboard.first_q[a]) sound &= older_q[a][ahead];
        if (!u_scoreboard.last_q[a]) sound &= older_q[behind][a];
        for (int unsigned b = 0; b < Blocks; b++) begin
          // The neighbours are the next ones by age.
          if (!u_scoreboard.first_q[a]) sound &= !(older_q[a][b] && older_q[b][ahead]);
          if (!u_scoreboard.last_q[a]) sound &= !(older_q[behind][b] && older_q[b][a]);
          else sound &= !older_q[b][a];
          if (a != b && used_q[b] && command_q[a] == command_q[b]) begin
            sound &= older_q[a][b] || older_q[b][a];
          end
        end
      end
      for (int unsigned b = 0; b < Blocks; b++) begin
        if (older_q[a][b]) begin
          sound &= used_q[a] && used_q[b] && command_q[a] == command_q[b] && !older_q[b][a];
        end
        for (int unsigned c = 0; c < Blocks; c++) begin
          if (older_q[a][b] && older_q[b][c]) sound &= older_q[a][c];
        end
      end
    end
    for (int unsigned c = 0; c < Commands; c++) begin
      row_t head, tail;
      head = heads[c];
      tail = u_scoreboard.tail_q[c];
      if (there[c]) begin
        sound &= used_q[head] && command_q[head] == command_t'(c) && older_q[head] == '0;
        sound &= used_q[tail] && command_q[tail] == command_t'(c) && u_scoreboard.last_q[tail];
      end else begin
        sound &= !failed_q[c];
      end
    end
  end

  // ---- What is proved ----

  function automatic logic in_order(stage_t at, logic positional);
    return at != StSource && !(at == StDestination && positional);
  endfunction

  always_comb begin
    if (started_q && rst_ni) begin
      assert (sound);
      for (int unsigned a = 0; a < Blocks; a++) begin
        logic active, waits;
        stage_t at;
        at     = u_scoreboard.stage_q[a];
        active = used_q[a] && u_scoreboard.state_q[a] inside {Ready, Line, Issued};
        waits  = used_q[a] && u_scoreboard.state_q[a] == Wait;
        if (!failed_q[command_q[a]] && in_order(at, positional_q[command_q[a]])) begin
          // No operation before those that it depends on.
          for (int unsigned b = 0; b < Blocks; b++) begin
            if ((active || used_q[a] && u_scoreboard.state_q[a] == Done) && older_q[a][b]) begin
              assert (u_scoreboard.stage_q[b] > at || u_scoreboard.state_q[b] == Done);
            end
          end
          // Who waits, waits for the row before it.
          if (waits && !(at == StDestination && withholds_q[command_q[a]])) begin
            assert (!u_scoreboard.first_q[a]);
            assert (u_scoreboard.stage_q[u_scoreboard.before_q[a]] == at
                    && u_scoreboard.state_q[u_scoreboard.before_q[a]] != Done
                    || u_scoreboard.stage_q[u_scoreboard.before_q[a]] < at);
          end
        end
        // Whoever is through with the first operator has overtaken nobody.
        for (int unsigned b = 0; b < Blocks; b++) begin
          if (!failed_q[command_q[a]] && older_q[a][b] && at > 4'd1
              && operators_q[command_q[a]] != '0) begin
            assert (u_scoreboard.stage_q[b] >= at);
          end
        end
        if (waits) assert (u_scoreboard.stage_q[a] != StSource);
      end
      assert (ready == (ready & used_q));
      // Where a write is withheld, only the sequencer lets it go.
      if (hold && change_i inside {BoardPass, BoardDone} && !failed) begin
        assert (!u_scoreboard.wake || stage != StDestination);
      end
      if (used_q == '0 && orphan_q == '0) assert (idle);
    end
  end

endmodule
