// The share of a pool that no queue can take from another, as the Rust core's `quota.rs` has it.
//
// Half of the pool is split into guarantees: a queue that has less than its guarantee finds the
// rest of it free. Everything else goes to whoever comes first.

module quota #(
  parameter int unsigned Total  = 16,
  parameter int unsigned Queues = 4,

  localparam int unsigned CountWidth = $clog2(Total + 1),
  localparam int unsigned QueueWidth = $clog2(Queues)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,

  // Queues that may take one now, and those that have none.
  output logic [Queues-1:0]     open_o,
  output logic [Queues-1:0]     none_o,
  input  logic                  take_i,
  input  logic [QueueWidth-1:0] take_queue_i,
  input  logic                  give_i,
  input  logic [QueueWidth-1:0] give_queue_i,
  output logic [CountWidth-1:0] free_o
);

  typedef logic [CountWidth-1:0] count_t;

  localparam count_t Guarantee = CountWidth'(Total / 2 / Queues);

  count_t [Queues-1:0] used_q;
  // Not taken yet of all guarantees.
  count_t free_q, owed_q;
  logic take, give;

  // Who takes one and gives one back at once changes nothing.
  assign take   = take_i && !(give_i && take_queue_i == give_queue_i);
  assign give   = give_i && !(take_i && take_queue_i == give_queue_i);
  assign free_o = free_q;

  always_comb begin
    for (int unsigned i = 0; i < Queues; i++) begin
      open_o[i] = used_q[i] < Guarantee || free_q > owed_q;
      none_o[i] = used_q[i] == '0;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      used_q <= '0;
      free_q <= CountWidth'(Total);
      owed_q <= CountWidth'(Total / 2 / Queues * Queues);
    end else begin
      if (take) used_q[take_queue_i] <= used_q[take_queue_i] + 1'b1;
      if (give) used_q[give_queue_i] <= used_q[give_queue_i] - 1'b1;
      free_q <= free_q - CountWidth'(take) + CountWidth'(give);
      owed_q <= owed_q - CountWidth'(take && used_q[take_queue_i] < Guarantee)
                + CountWidth'(give && used_q[give_queue_i] <= Guarantee);
    end
  end

endmodule
