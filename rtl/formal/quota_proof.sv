// What is proved of `quota`, while queues come and go: nothing is lost and nothing comes of
// nothing; nobody takes what is another's guarantee; while guarantees stay, a queue below its own
// finds the rest of it free; and once they are settled, guarantees are what weights and numbers of
// queues say. Weights are 1 to 3.

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
  input logic [Queues-1:0][8:0] weight_i,
  input logic                  take_i,
  input logic [QueueWidth-1:0] take_queue_i,
  input logic                  take_two_i,
  input logic [Queues-1:0]     pairs_i,
  input logic                  give_i,
  input logic [QueueWidth-1:0] give_queue_i,
  input logic                  give_two_i
);

  logic [Queues-1:0]     open, start;
  logic [CountWidth-1:0] free;
  logic                  settled;

  quota #(
    .Total  (Total),
    .Queues (Queues)
  ) u_quota (
    .clk_i,
    .rst_ni,
    .there_i,
    .func_i,
    .weight_i,
    .settled_o (settled),
    .open_o (open),
    .pairs_i,
    .start_o (start),
    .take_i,
    .take_queue_i,
    .take_two_i,
    .give_i,
    .give_queue_i,
    .give_two_i,
    .free_o (free)
  );

  // ---- The plain view: what each has, and what it is to have at least ----

  typedef logic [8:0] number_t;

  logic [Queues-1:0][7:0] used_q;
  logic [7:0]             all, owed;
  // All guarantees were covered, and have stayed.
  logic                   covered_q;
  logic                   started_q, sound;
  // What was there in the last cycle.
  logic [Queues-1:0]                 there_q;
  logic [Queues-1:0][QueueWidth-1:0] func_q;
  logic [Queues-1:0][8:0]            weight_q;

  // How many are taken, and given back.
  logic [7:0] taken, given;

  assign taken = !take_i ? 8'd0 : take_two_i ? 8'd2 : 8'd1;
  assign given = !give_i ? 8'd0 : give_two_i ? 8'd2 : 8'd1;

  initial started_q = 1'b0;

  always_ff @(posedge clk_i) begin
    started_q <= 1'b1;
    there_q   <= rst_ni ? there_i : '0;
    func_q    <= func_i;
    weight_q  <= weight_i;
    covered_q <= !rst_ni || (settled && 8'(free) >= owed);
    for (int unsigned i = 0; i < Queues; i++) begin
      if (!rst_ni) used_q[i] <= '0;
      else used_q[i] <= used_q[i] + (take_queue_i == QueueWidth'(i) ? taken : '0)
                        - (give_queue_i == QueueWidth'(i) ? given : '0);
    end
  end

  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    for (int unsigned i = 0; i < Queues; i++) begin
      assume (func_i[i] < QueueWidth'(Queues));
      assume (weight_i[i] inside {[9'd1:9'd3]});
    end
    if (started_q) begin
      // A queue has its function when it comes.
      if (there_i == there_q) assume (func_i == func_q && weight_i == weight_q);
      assume (take_queue_i < QueueWidth'(Queues) && give_queue_i < QueueWidth'(Queues));
      if (take_i && !take_two_i) assume (open[take_queue_i]);
      if (take_i && take_two_i) assume (pairs_i[take_queue_i] && start[take_queue_i]);
      assume (used_q[give_queue_i] >= given);
    end
  end

  // ---- Functions, and what is shared ----

  // Of functions below each number: those with queues, their queues, the sum of their weights,
  // whether these are equal, and most queues of one.
  number_t [Queues:0]   functions, queues, sum, most;
  logic    [Queues:0]   equal;
  logic    [8:0]        some;
  number_t [Queues-1:0] mine;
  number_t              shared, least, working;

  always_comb begin
    functions[0] = '0;
    queues[0]    = '0;
    sum[0]       = '0;
    equal[0]     = 1'b1;
    most[0]      = '0;
    some         = '0;
    for (int unsigned f = 0; f < Queues; f++) begin
      mine[f] = '0;
      for (int unsigned i = 0; i < Queues; i++) begin
        mine[f] += number_t'(there_q[i] && func_q[i] == QueueWidth'(f));
      end
      functions[f+1] = functions[f] + number_t'(mine[f] != '0);
      queues[f+1]    = queues[f] + mine[f];
      most[f+1]      = mine[f] > most[f] ? mine[f] : most[f];
      sum[f+1]       = sum[f] + (mine[f] != '0 ? number_t'(weight_q[f]) : '0);
      equal[f+1]     = equal[f] && (mine[f] == '0 || functions[f] == '0 || weight_q[f] == some);
      if (mine[f] != '0) some = weight_q[f];
    end
    // A pool of 9 has a surplus of 4, so that an equal part always has one for each queue here.
    shared  = equal[Queues] ? number_t'(5) : number_t'(5) - queues[Queues];
    least   = equal[Queues] ? '0 : number_t'(1);
    working = shared - number_t'(u_quota.left_q);
  end

  // A function's queues have their part, of what does not divide nothing.
  function automatic logic due(number_t each, number_t own, number_t weight, number_t whole);
    return each >= least && (each - least) * own * whole <= shared * weight
           && shared * weight < (each - least + 1'b1) * own * whole;
  endfunction

  logic                 shares, summing;
  logic [QueueWidth:0]  at;
  number_t              now;

  always_comb begin
    all   = '0;
    owed  = '0;
    sound = u_quota.there_q == there_q;
    for (int unsigned i = 0; i < Queues; i++) begin
      logic [7:0] part;
      part   = 8'(u_quota.guarantee_q[i]);
      all   += used_q[i];
      owed  += used_q[i] < part ? part - used_q[i] : '0;
      sound &= used_q[i] <= 8'(Total) && 8'(u_quota.used_q[i]) == used_q[i] && part <= 8'(Total);
    end
    // States are Settled, Sum, Next, Part.
    summing = u_quota.state_q == 2'd1;
    shares  = functions[Queues] >= number_t'(2);
    at      = u_quota.state_q == 2'd0 ? (QueueWidth + 1)'(Queues) : {1'b0, u_quota.at_q};
    sound  &= at <= (QueueWidth + 1)'(Queues);
    now     = number_t'(summing ? at : (QueueWidth + 1)'(Queues));
    if (u_quota.state_q != 2'd0) begin
      sound &= at < (QueueWidth + 1)'(Queues);
      sound &= 16'(u_quota.sum_q) == 16'(sum[now]) && number_t'(u_quota.queues_q) == queues[now];
      sound &= u_quota.equal_q == equal[now];
      sound &= number_t'(u_quota.sharing_q) == functions[now];
      sound &= number_t'(u_quota.most_q) == most[now];
    end
    if (summing && functions[now] != '0) begin
      for (int unsigned f = 0; f < Queues; f++) begin
        if ((QueueWidth + 1)'(f) < at && functions[f+1] == functions[now] && mine[f] != '0) begin
          sound &= u_quota.some_q == weight_q[f];
        end
      end
    end
    if (u_quota.state_q == 2'd3) begin
      number_t own;
      own    = mine[u_quota.at_q];
      sound &= shares && own != '0 && number_t'(u_quota.left_q) <= shared;
      sound &= number_t'(u_quota.parts_q) < own && 16'(u_quota.rest_q) < 16'(sum[Queues]);
      sound &= number_t'(u_quota.each_q) >= least
               && number_t'(u_quota.each_q) - least <= working;
      sound &= ((number_t'(u_quota.each_q) - least) * own + number_t'(u_quota.parts_q))
               * sum[Queues] + number_t'(u_quota.rest_q)
               == working * number_t'(weight_q[u_quota.at_q]);
    end
    for (int unsigned i = 0; i < Queues; i++) begin
      number_t part;
      part = number_t'(u_quota.guarantee_q[i]);
      if (u_quota.state_q == 2'd0 && !shares) begin
        sound &= part == number_t'(Total / 2 / Queues);
      end else if (!summing && shares && !there_q[i] && (u_quota.state_q != 2'd2 || at != '0)) begin
        sound &= part == '0;
      end else if (!summing && shares && there_q[i] && {1'b0, func_q[i]} < at) begin
        sound &= due(part, mine[func_q[i]], number_t'(weight_q[func_q[i]]), sum[Queues]);
      end
    end
  end

  always_comb begin
    if (started_q && rst_ni) begin
      assert (sound);
      assert (8'(free) + all == 8'(Total));
      // What is guaranteed in all is there, or may be.
      if (covered_q) assert (8'(free) >= owed);
      for (int unsigned i = 0; i < Queues; i++) begin
        logic [7:0] others, part, claim;
        part   = 8'(u_quota.guarantee_q[i]);
        others = used_q[i] < part ? owed - (part - used_q[i]) : owed;
        // It may take exactly where something is left that is no other's guarantee.
        // A claim goes before what is not guaranteed.
        claim  = u_quota.claim_q ? 8'(u_quota.kept) : '0;
        assert (open[i] == (8'(free) > others + (used_q[i] < part ? '0 : claim)));
        if (pairs_i[i]) begin
          if (used_q[i] + 8'd1 < part || u_quota.claimer_q == QueueWidth'(i)) claim = '0;
          assert (start[i] == (8'(free) > others + 8'd1 + claim));
        end else begin
          assert (start[i] == open[i]);
        end
        // What it is guaranteed is there; what is others' guarantee stays.
        if (covered_q && used_q[i] < part) assert (open[i]);
        if (covered_q && pairs_i[i] && used_q[i] + 8'd1 < part) assert (start[i]);
        // Once it is settled, a guarantee is what weights and numbers of queues say.
        if (settled && there_i[i] && shares) begin
          assert (due(number_t'(part), mine[func_q[i]], number_t'(weight_q[func_q[i]]),
                      sum[Queues]));
        end
      end
    end
  end

endmodule
