// What is proved of `quota`, while queues come and go: nothing is lost and nothing comes of
// nothing; nobody takes what is another's guarantee; and while guarantees stay, a queue below its
// own finds the rest of it free.

module quota_proof #(
  parameter int unsigned Total  = 9,
  parameter int unsigned Queues = 3,

  localparam int unsigned CountWidth = $clog2(Total + 1),
  localparam int unsigned QueueWidth = $clog2(Queues)
) (
  input logic                  clk_i,
  input logic                  rst_ni,
  input logic [Queues-1:0]     there_i,
  input logic [Queues-1:0][QueueWidth-1:0] func_i,
  input logic                  take_i,
  input logic [QueueWidth-1:0] take_queue_i,
  input logic                  give_i,
  input logic [QueueWidth-1:0] give_queue_i
);

  logic [Queues-1:0]     open;
  logic [CountWidth-1:0] free;

  quota #(
    .Total  (Total),
    .Queues (Queues)
  ) u_quota (
    .clk_i,
    .rst_ni,
    .there_i,
    .func_i,
    .open_o (open),
    .take_i,
    .take_queue_i,
    .give_i,
    .give_queue_i,
    .free_o (free)
  );

  // ---- The plain view: what each has, and what it is to have at least ----

  logic [Queues-1:0][7:0] used_q, part, part_q;
  logic [7:0]             functions, all, owed;
  // All guarantees have been covered since some time.
  logic                   covered_q;
  logic                   started_q, sound;

  initial started_q = 1'b0;

  always_comb begin
    functions = '0;
    for (int unsigned i = 0; i < Queues; i++) begin
      logic known;
      known = 1'b0;
      for (int unsigned j = 0; j < i; j++) known |= there_i[j] && func_i[j] == func_i[i];
      functions += 8'(there_i[i] && !known);
    end
    for (int unsigned i = 0; i < Queues; i++) begin
      logic [7:0] mine;
      mine = '0;
      for (int unsigned j = 0; j < Queues; j++) mine += 8'(there_i[j] && func_i[j] == func_i[i]);
      // A pool of 9 has a surplus of 4.
      if (functions < 2) part[i] = 8'(Total / 2 / Queues);
      else if (!there_i[i]) part[i] = '0;
      else part[i] = (8'(Total) - 8'(Total / 2)) / functions / mine;
    end
  end

  always_ff @(posedge clk_i) begin
    started_q <= 1'b1;
    part_q    <= rst_ni ? part : {Queues{8'(Total / 2 / Queues)}};
    covered_q <= !rst_ni || (sound && 8'(free) >= owed && part == part_q);
    for (int unsigned i = 0; i < Queues; i++) begin
      if (!rst_ni) used_q[i] <= '0;
      else used_q[i] <= used_q[i] + 8'(take_i && take_queue_i == QueueWidth'(i))
                        - 8'(give_i && give_queue_i == QueueWidth'(i));
    end
  end

  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    for (int unsigned i = 0; i < Queues; i++) assume (func_i[i] < QueueWidth'(Queues));
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
      owed  += used_q[i] < part_q[i] ? part_q[i] - used_q[i] : '0;
      sound &= used_q[i] <= 8'(Total) && 8'(u_quota.used_q[i]) == used_q[i];
      sound &= 8'(u_quota.guarantee_q[i]) == part_q[i] && part_q[i] <= 8'(Total);
    end
  end

  always_comb begin
    if (started_q && rst_ni) begin
      assert (sound);
      assert (8'(free) + all == 8'(Total));
      // What is guaranteed in all is there, or may be.
      if (covered_q) assert (8'(free) >= owed);
      for (int unsigned i = 0; i < Queues; i++) begin
        logic [7:0] others;
        others = used_q[i] < part_q[i] ? owed - (part_q[i] - used_q[i]) : owed;
        // It may take exactly where something is left that is no other's guarantee.
        assert (open[i] == (8'(free) > others));
        // What it is guaranteed is there; what is others' guarantee stays.
        if (covered_q && used_q[i] < part_q[i]) assert (open[i]);
      end
    end
  end

endmodule
