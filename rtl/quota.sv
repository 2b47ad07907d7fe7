// The share of a pool that no queue can take from another, as the Rust core's `quota.rs` has it.
//
// A queue that has less than its guarantee finds the rest of it free; what is nobody's guarantee
// goes to whoever comes first. While one function has all queues, half of the pool is guaranteed
// to them in equal parts. If several have queues, all but an eighth, ten at least and half at
// most, is guaranteed to these functions in equal parts, and each one's part to its queues.
//
// There are neither weights of functions nor claims: here no command starts with several blocks.
// The pool is so large that an equal part has one for each queue, however many its function has.

module quota #(
  parameter int unsigned Total  = 16,
  parameter int unsigned Queues = 4,

  localparam int unsigned CountWidth = $clog2(Total + 1),
  localparam int unsigned QueueWidth = $clog2(Queues)
) (
  input  logic                              clk_i,
  input  logic                              rst_ni,

  // Queues that there are, and the function of each.
  input  logic [Queues-1:0]                 there_i,
  input  logic [Queues-1:0][QueueWidth-1:0] func_i,

  // Queues that may take one now, and those that have none.
  output logic [Queues-1:0]                 open_o,
  output logic [Queues-1:0]                 none_o,
  input  logic                              take_i,
  input  logic [QueueWidth-1:0]             take_queue_i,
  input  logic                              give_i,
  input  logic [QueueWidth-1:0]             give_queue_i,
  output logic [CountWidth-1:0]             free_o
);

  typedef logic [CountWidth-1:0] count_t;

  localparam int unsigned Eighth  = Total / 8 > 10 ? Total / 8 : 10;
  localparam int unsigned Surplus = Eighth < Total / 2 ? Eighth : Total / 2;

  // What a queue is guaranteed, by the number of functions and by that of its function's queues.
  typedef count_t [Queues:0][Queues:0] parts_t;

  function automatic parts_t parts();
    parts = '0;
    for (int unsigned i = 0; i <= Queues; i++) begin
      for (int unsigned j = 0; j <= Queues; j++) begin
        if (i < 2) parts[i][j] = count_t'(Total / 2 / Queues);
        else if (j > 0) parts[i][j] = count_t'((Total - Surplus) / i / j);
      end
    end
  endfunction

  localparam parts_t Parts = parts();

  // ---- Shares ----

  typedef logic [$clog2(Queues+1)-1:0] queues_t;

  // Functions with queues; queues of each one's function, none where a queue is not there.
  queues_t              sharing;
  queues_t [Queues-1:0] mine;
  count_t  [Queues-1:0] guarantee, guarantee_q;
  logic [2**QueueWidth-1:0] found;

  always_comb begin
    found = '0;
    for (int unsigned i = 0; i < Queues; i++) begin
      mine[i] = '0;
      for (int unsigned j = 0; j < Queues; j++) begin
        mine[i] += queues_t'(there_i[i] && there_i[j] && func_i[i] == func_i[j]);
      end
      if (there_i[i]) found[func_i[i]] = 1'b1;
    end
    sharing = '0;
    for (int unsigned i = 0; i < 2**QueueWidth; i++) sharing += queues_t'(found[i]);
    for (int unsigned i = 0; i < Queues; i++) guarantee[i] = Parts[sharing][mine[i]];
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) guarantee_q <= {Queues{Parts[0][0]}};
    else guarantee_q <= guarantee;
  end

  // ---- Who has how many ----

  count_t [Queues-1:0] used_q, lacks;
  // Not taken yet of all guarantees: more than is free, where a guarantee has grown.
  logic [CountWidth:0] owed;
  count_t free_q;
  logic take, give;

  // Who takes one and gives one back at once changes nothing.
  assign take   = take_i && !(give_i && take_queue_i == give_queue_i);
  assign give   = give_i && !(take_i && take_queue_i == give_queue_i);
  assign free_o = free_q;

  always_comb begin
    owed = '0;
    for (int unsigned i = 0; i < Queues; i++) begin
      lacks[i]  = guarantee_q[i] > used_q[i] ? guarantee_q[i] - used_q[i] : '0;
      owed     += (CountWidth + 1)'(lacks[i]);
      none_o[i] = used_q[i] == '0;
    end
    for (int unsigned i = 0; i < Queues; i++) begin
      open_o[i] = (CountWidth + 1)'(free_q) + (CountWidth + 1)'(lacks[i]) > owed;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      used_q <= '0;
      free_q <= CountWidth'(Total);
    end else begin
      if (take) used_q[take_queue_i] <= used_q[take_queue_i] + 1'b1;
      if (give) used_q[give_queue_i] <= used_q[give_queue_i] - 1'b1;
      free_q <= free_q - CountWidth'(take) + CountWidth'(give);
    end
  end

`ifndef SYNTHESIS
  // At worst one function has all queues but one of each of the others.
  initial begin
    for (int unsigned i = 2; i <= Queues; i++) begin
      assert (Parts[i][Queues+1-i] != '0) else $error("a queue that is guaranteed nothing");
    end
  end
`endif

endmodule
