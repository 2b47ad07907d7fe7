// What is proved of `credit`: no block has two owners, none is lost, a command that has started gets
// its reserved block whenever it asks, and nobody has more than its window. Nobody leaves blocks
// behind here.

module credit_proof
  import core_pkg::*;
(
  input logic     clk_i,
  input logic     rst_ni,
  input logic [Queues-1:0]      there_i,
  input function_t [Queues-1:0] func_i,
  input logic [Queues-1:0]      pairs_i,
  input logic     start_i,
  input logic     pair_i,
  input logic     take_i,
  input logic     turn_i,
  input logic     leave_i,
  input logic     give_i,
  input row_t     give_block_i,
  input logic     finish_i,
  input command_t command_i,
  input queue_t   queue_i
);

  logic [Queues-1:0]   start;
  logic [Commands-1:0] line;
  logic                granted, idle;
  row_t                block;

  credit u_credit (
    .clk_i,
    .rst_ni,
    .there_i,
    .func_i,
    .pairs_i,
    .start_o (start),
    .start_i,
    .pair_i,
    .take_i,
    .turn_i,
    .granted_o (granted),
    .block_o (block),
    .leave_i,
    .give_i,
    .give_block_i,
    .finish_i,
    .orphan_i (1'b0),
    .back_i (1'b0),
    .back_block_i ('0),
    .command_i,
    .queue_i,
    .line_o (line),
    .idle_o (idle)
  );

  // ---- The plain view: who has started, of which queue, and whose each block is ----

  logic     [Commands-1:0] started_commands_q, pair_q;
  queue_t   [Commands-1:0] queue_q;
  logic     [Blocks-1:0]   owned_q;
  command_t [Blocks-1:0]   owner_q;
  logic                    started_q, sound;

  initial started_q = 1'b0;

  always_ff @(posedge clk_i) begin
    started_q <= 1'b1;
    if (!rst_ni) begin
      started_commands_q <= '0;
      owned_q            <= '0;
    end else begin
      if (start_i) begin
        started_commands_q[command_i] <= 1'b1;
        queue_q[command_i]            <= queue_i;
        pair_q[command_i]             <= pair_i;
      end
      if (finish_i) started_commands_q[command_i] <= 1'b0;
      if (granted) begin
        owned_q[block] <= 1'b1;
        owner_q[block] <= command_i;
      end
      if (give_i) owned_q[give_block_i] <= 1'b0;
    end
  end

  logic [Commands-1:0][7:0] held, needs;
  logic [Queues-1:0][7:0]   used;
  logic [7:0]               all;

  always_comb begin
    held = '0;
    used = '0;
    all  = '0;
    for (int unsigned i = 0; i < Blocks; i++) begin
      if (owned_q[i]) held[owner_q[i]] = held[owner_q[i]] + 1'b1;
    end
    for (int unsigned i = 0; i < Commands; i++) begin
      needs[i] = pair_q[i] ? 8'd2 : 8'd1;
      if (started_commands_q[i]) begin
        used[queue_q[i]] = used[queue_q[i]] + (held[i] < needs[i] ? needs[i] : held[i]);
      end
    end
    for (int unsigned i = 0; i < Queues; i++) all = all + used[i];
  end

  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    if (started_q) begin
      assume ($countones({start_i, take_i, leave_i, give_i, finish_i}) <= 1);
      if (start_i) begin
        assume (!started_commands_q[command_i] && start[queue_i] && pairs_i[queue_i] == pair_i);
      end
      if (take_i || leave_i || give_i || finish_i) begin
        assume (started_commands_q[command_i] && queue_q[command_i] == queue_i);
      end
      if (give_i) assume (owned_q[give_block_i] && owner_q[give_block_i] == command_i);
      if (finish_i) assume (held[command_i] == '0);
    end
  end

  always_comb begin
    sound = u_credit.free_q == ~owned_q;
    sound &= u_credit.orphan_q == '0;
    for (int unsigned i = 0; i < Commands; i++) begin
      sound &= 8'(u_credit.held_q[i]) == held[i];
      if (!started_commands_q[i]) sound &= held[i] == '0 && !u_credit.waits_q[i];
      else begin
        sound &= u_credit.queue_q[i] == queue_q[i] && u_credit.pair_q[i] == pair_q[i];
        sound &= 8'(u_credit.reserve_q[i]) == needs[i];
      end
    end
    for (int unsigned i = 0; i < Queues; i++) begin
      sound &= 8'(u_credit.u_quota.used_q[i]) == used[i];
    end
    sound &= 8'(u_credit.free_count) + all == 8'(Blocks) && all <= 8'(Blocks);
  end

  always_comb begin
    if (started_q && rst_ni) begin
      assert (sound);
      // No block has two owners.
      if (granted) assert (!owned_q[block]);
      // The reserved blocks are there whatever the others have.
      if (take_i && held[command_i] < needs[command_i]) assert (granted);
      // Nobody has more than its window.
      for (int unsigned i = 0; i < Commands; i++) assert (held[i] <= 8'(Window));
      // All credits come back.
      if (started_commands_q == '0) assert (idle);
      // Who is in line is served where there is a block for its queue.
      for (int unsigned i = 0; i < Commands; i++) begin
        assert (line[i] == (u_credit.waits_q[i] && u_credit.open[queue_q[i]]));
      end
    end
  end

endmodule
