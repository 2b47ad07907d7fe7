// Block buffers with credits, as the Rust core's `credit.rs` has them: who gets the next one.
//
// A command that starts has one block reserved, or two where it withholds blocks, so that commands
// cannot starve each other; more are on credit, as long as there are any, up to the window. A
// command that finds none gets in line, and while somebody is in line the others get in line too:
// `line_o` are those that may have one.

module credit
  import core_pkg::*;
(
  input  logic                clk_i,
  input  logic                rst_ni,

  // Queues that there are, the function of each, and the functions' weights.
  input  logic [Queues-1:0]      there_i,
  input  function_t [Queues-1:0] func_i,
  input  logic [Functions-1:0][8:0] weight_i,
  output logic                settled_o,
  // Queues whose next command may start now, and those where that needs two blocks.
  input  logic [Queues-1:0]   pairs_i,
  output logic [Queues-1:0]   start_o,
  // A command starts: its first block is reserved, or its first two.
  input  logic                start_i,
  input  logic                pair_i,
  // It takes a block, if `granted` says so; else it may be in line now. `turn`: it was in line, and
  // is served now.
  input  logic                take_i,
  input  logic                turn_i,
  output logic                granted_o,
  output row_t                block_o,
  // It wants none now: it leaves the line.
  input  logic                leave_i,
  // It gives a block back.
  input  logic                give_i,
  input  row_t                give_block_i,
  // It has no block any more and gives back what is reserved.
  input  logic                finish_i,
  // It leaves a block behind that a device still has, and takes none any more. When the device is
  // through with it, the block comes back; nothing happens where it is not such a block.
  input  logic                orphan_i,
  input  logic                back_i,
  input  row_t                back_block_i,
  // The command that all this is about, and its queue. One of them at a time.
  input  command_t            command_i,
  input  queue_t              queue_i,

  // Commands in line for which there is a block now.
  output logic [Commands-1:0] line_o,
  // Commands in line, and blocks that nobody has.
  output logic [Commands-1:0] waits_o,
  output logic [Blocks-1:0]   free_o,
  output logic                idle_o
);

  typedef logic [$clog2(Blocks+1)-1:0] count_t;

  logic [Blocks-1:0]      free_q;
  count_t [Commands-1:0]  held_q;
  queue_t [Commands-1:0]  queue_q;
  logic [Commands-1:0]    waits_q;
  count_t                 free_count;
  // Blocks that were left behind, by which queue. Commands with two reserved blocks; and how many
  // are reserved and not left behind.
  logic [Blocks-1:0]      orphan_q;
  queue_t [Blocks-1:0]    orphan_queue_q;
  logic [Commands-1:0]    pair_q;
  logic [Commands-1:0][1:0] reserve_q;
  logic [Queues-1:0]      open;
  logic                   reserved, spare, may, charge, refund, back;

  // The first blocks that a command holds are the reserved ones.
  assign reserved  = held_q[command_i] < (pair_q[command_i] ? count_t'(2) : count_t'(1));
  assign spare     = held_q[command_i] > (pair_q[command_i] ? count_t'(2) : count_t'(1));
  assign may       = open[queue_i] && (turn_i || waits_q == '0);
  assign granted_o = take_i && (reserved || (held_q[command_i] < count_t'(Window) && may));
  assign charge    = start_i || (granted_o && !reserved);
  assign back      = back_i && orphan_q[back_block_i];
  assign refund    = back || (finish_i && reserve_q[command_i] != '0) || (give_i && spare);
  assign waits_o   = waits_q;
  assign free_o    = free_q;
  assign idle_o    = free_count == count_t'(Blocks) && free_q == '1;

  quota #(
    .Total  (Blocks),
    .Queues (Queues)
  ) u_quota (
    .clk_i,
    .rst_ni,
    .there_i,
    .func_i,
    .weight_i,
    .settled_o,
    .open_o       (open),
    .pairs_i,
    .start_o,
    .take_i       (charge),
    .take_queue_i (queue_i),
    .take_two_i   (start_i && pair_i),
    .give_i       (refund),
    .give_queue_i (back ? orphan_queue_q[back_block_i] : queue_i),
    .give_two_i   (finish_i && reserve_q[command_i][1]),
    .free_o       (free_count)
  );

  always_comb begin
    block_o = '0;
    for (int unsigned i = Blocks; i > 0; i--) begin
      if (free_q[i-1]) block_o = row_t'(i - 1);
    end
    for (int unsigned i = 0; i < Commands; i++) begin
      line_o[i] = waits_q[i] && open[queue_q[i]];
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      free_q   <= '1;
      held_q   <= '0;
      waits_q  <= '0;
      orphan_q <= '0;
    end else begin
      if (granted_o) begin
        free_q[block_o]   <= 1'b0;
        held_q[command_i] <= held_q[command_i] + 1'b1;
      end
      if (give_i) begin
        free_q[give_block_i] <= 1'b1;
        held_q[command_i]    <= held_q[command_i] - 1'b1;
      end
      // The last blocks that a command leaves behind are its reserved ones.
      if (orphan_i) begin
        orphan_q[give_block_i] <= 1'b1;
        held_q[command_i]      <= held_q[command_i] - 1'b1;
      end
      if (back) begin
        orphan_q[back_block_i] <= 1'b0;
        free_q[back_block_i]   <= 1'b1;
      end
      // Who is refused for want of a block gets in line; who has its turn leaves it, and so does
      // who is at its window: a block of its own that comes back has it ask again.
      if (take_i) waits_q[command_i] <= !granted_o && held_q[command_i] < count_t'(Window);
      if (leave_i || finish_i) waits_q[command_i] <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      queue_q[command_i]   <= queue_i;
      pair_q[command_i]    <= pair_i;
      reserve_q[command_i] <= pair_i ? 2'd2 : 2'd1;
    end else if (orphan_i && !spare) begin
      reserve_q[command_i] <= reserve_q[command_i] - 1'b1;
    end
    if (orphan_i) orphan_queue_q[give_block_i] <= queue_i;
  end

endmodule
