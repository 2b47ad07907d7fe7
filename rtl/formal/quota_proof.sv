// What is proved of `quota`: nothing is lost and nothing comes of nothing, and a queue below its
// guarantee may always take.

module quota_proof #(
  parameter int unsigned Total  = 9,
  parameter int unsigned Queues = 3,

  localparam int unsigned CountWidth = $clog2(Total + 1),
  localparam int unsigned QueueWidth = $clog2(Queues)
) (
  input logic                  clk_i,
  input logic                  rst_ni,
  input logic                  take_i,
  input logic [QueueWidth-1:0] take_queue_i,
  input logic                  give_i,
  input logic [QueueWidth-1:0] give_queue_i
);

  localparam int unsigned Guarantee = Total / 2 / Queues;

  logic [Queues-1:0]     open;
  logic [CountWidth-1:0] free;

  quota #(
    .Total  (Total),
    .Queues (Queues)
  ) u_quota (
    .clk_i,
    .rst_ni,
    .open_o (open),
    .take_i,
    .take_queue_i,
    .give_i,
    .give_queue_i,
    .free_o (free)
  );

  logic [Queues-1:0][7:0] used_q;
  logic [7:0]             all, owed;
  logic                   started_q, sound;

  initial started_q = 1'b0;

  always_ff @(posedge clk_i) begin
    started_q <= 1'b1;
    for (int unsigned i = 0; i < Queues; i++) begin
      if (!rst_ni) used_q[i] <= '0;
      else used_q[i] <= used_q[i] + 8'(take_i && take_queue_i == QueueWidth'(i))
                        - 8'(give_i && give_queue_i == QueueWidth'(i));
    end
  end

  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    if (started_q) begin
      assume (take_queue_i < QueueWidth'(Queues) && give_queue_i < QueueWidth'(Queues));
      if (take_i) assume (open[take_queue_i]);
      if (give_i) assume (used_q[give_queue_i] != '0);
    end
  end

  always_comb begin
    all   = '0;
    owed  = '0;
    sound = 1'b1;
    for (int unsigned i = 0; i < Queues; i++) begin
      all   += used_q[i];
      owed  += used_q[i] < 8'(Guarantee) ? 8'(Guarantee) - used_q[i] : '0;
      sound &= used_q[i] <= 8'(Total) && 8'(u_quota.used_q[i]) == used_q[i];
    end
    sound &= 8'(u_quota.owed_q) == owed && 8'(free) >= owed;
  end

  always_comb begin
    if (started_q && rst_ni) begin
      assert (sound);
      assert (8'(free) + all == 8'(Total));
      for (int unsigned i = 0; i < Queues; i++) begin
        // What it is guaranteed is there; what is others' guarantee stays.
        if (used_q[i] < 8'(Guarantee)) assert (open[i]);
        if (open[i]) assert (free != '0);
        if (open[i] && used_q[i] >= 8'(Guarantee)) assert (8'(free) > owed);
      end
    end
  end

endmodule
