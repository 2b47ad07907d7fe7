// The share of a pool that no queue can take from another, as the Rust core's `quota.rs` has it.
//
// A queue that has less than its guarantee finds the rest of it free; what is nobody's guarantee
// goes to whoever comes first. While one function has all queues, half of the pool is guaranteed
// to them in equal parts. If several have queues, all but an eighth, ten at least and half at
// most, is guaranteed to these functions: in equal parts where their weights are equal, and each
// part has one for each queue; else one to each queue and the rest by weight. Each function's part
// is its queues' in equal parts.
//
// Guarantees are worked out anew when a queue has come or gone, function by function, each in as
// many cycles as there are things in the pool, and a few: `settled_o` tells that this is over.
//
// Who needs two at once, with a guarantee of one, has a claim: where no guarantee goes before it,
// what comes back is kept for it, or those who take one at a time could have it for ever. There is
// one claim at a time.

module quota #(
  parameter int unsigned Total  = 16,
  parameter int unsigned Queues = 4,

  localparam int unsigned CountWidth = $clog2(Total + 1),
  localparam int unsigned QueueWidth = $clog2(Queues)
) (
  input  logic                              clk_i,
  input  logic                              rst_ni,

  // Queues that there are, the function of each, and the weight of each function, 1 to 256.
  input  logic [Queues-1:0]                 there_i,
  input  logic [Queues-1:0][QueueWidth-1:0] func_i,
  input  logic [Queues-1:0][8:0]            weight_i,
  output logic                              settled_o,

  // Queues that may take one now; queues that need two to go on, which may be none; and those that
  // may take what they need to go on.
  output logic [Queues-1:0]                 open_o,
  input  logic [Queues-1:0]                 pairs_i,
  output logic [Queues-1:0]                 start_o,
  input  logic                              take_i,
  input  logic [QueueWidth-1:0]             take_queue_i,
  input  logic                              take_two_i,
  input  logic                              give_i,
  input  logic [QueueWidth-1:0]             give_queue_i,
  input  logic                              give_two_i,
  output logic [CountWidth-1:0]             free_o
);

  typedef logic [CountWidth-1:0] count_t;

  localparam int unsigned Eighth  = Total / 8 > 10 ? Total / 8 : 10;
  localparam int unsigned Surplus = Eighth < Total / 2 ? Eighth : Total / 2;

  localparam int unsigned Guaranteed = Total - Surplus;
  // While one function has all queues.
  localparam count_t Alone = count_t'(Total / 2 / Queues);

  // A function's equal part, by their number.
  typedef count_t [Queues:0] parts_t;

  function automatic parts_t parts();
    parts = '0;
    for (int unsigned i = 1; i <= Queues; i++) parts[i] = count_t'(Guaranteed / i);
  endfunction

  localparam parts_t Equal = parts();

  // ---- Shares ----

  typedef enum logic [1:0] {
    Settled,
    // Functions are counted, and their weights added up.
    Sum,
    // The next function.
    Next,
    // Its part is worked out.
    Part
  } state_e;

  typedef logic [$clog2(Queues+1)-1:0] queues_t;
  typedef logic [QueueWidth+8:0]       sum_t;

  state_e              state_q;
  count_t [Queues-1:0] guarantee_q;
  // Queues that were there when this was begun, and those of the function that is looked at.
  logic [Queues-1:0]   there_q, own;
  logic [QueueWidth-1:0] at_q;
  queues_t             mine;
  logic [8:0]          weight;
  // Functions with queues; all queues, and most of one function; the sum of the weights, one of
  // them, and whether all are equal.
  queues_t             sharing_q, queues_q, most_q;
  sum_t                sum_q;
  logic [8:0]          some_q;
  logic                equal_q;
  // A queue's guarantee is what is shared, times the weight, by the sum of all, by the function's
  // queues: how often the weight is still to be added, the sum's remainder, the queues' remainder,
  // and what each queue has.
  count_t              left_q, each_q;
  sum_t                rest_q;
  queues_t             parts_q;
  logic [QueueWidth+9:0] added;
  logic                changed, at_last, carry, full, equal;
  count_t              shared;

  assign changed   = there_i != there_q;
  assign settled_o = state_q == Settled && !changed;
  assign at_last   = 32'(at_q) == Queues - 1;
  assign weight    = weight_i[at_q];
  assign added     = {1'b0, rest_q} + (QueueWidth + 10)'(weight);
  assign carry     = added >= {1'b0, sum_q};
  assign full      = parts_q + 1'b1 == mine;
  assign equal     = equal_q && count_t'(most_q) <= Equal[sharing_q];

  always_comb begin
    mine = '0;
    for (int unsigned i = 0; i < Queues; i++) begin
      own[i] = there_q[i] && func_i[i] == at_q;
      mine  += queues_t'(own[i]);
    end
    shared = count_t'(Guaranteed);
    if (!equal) begin
      shared = 32'(queues_q) > Guaranteed ? '0 : count_t'(Guaranteed - 32'(queues_q));
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q     <= Settled;
      there_q     <= '0;
      guarantee_q <= {Queues{Alone}};
    end else if (changed) begin
      state_q <= Sum;
      there_q <= there_i;
    end else begin
      unique case (state_q)
        Sum: if (at_last) state_q <= Next;
        Next: begin
          state_q <= sharing_q < queues_t'(2) || (mine == '0 && at_last) ? Settled
                     : mine == '0 ? Next : Part;
          for (int unsigned i = 0; i < Queues; i++) begin
            if (sharing_q < queues_t'(2)) guarantee_q[i] <= Alone;
            else if (!there_q[i]) guarantee_q[i] <= '0;
          end
        end
        Part: begin
          if (left_q == '0) begin
            state_q <= at_last ? Settled : Next;
            for (int unsigned i = 0; i < Queues; i++) begin
              if (own[i]) guarantee_q[i] <= each_q;
            end
          end
        end
        default: ;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (changed) begin
      at_q      <= '0;
      sharing_q <= '0;
      queues_q  <= '0;
      most_q    <= '0;
      sum_q     <= '0;
      equal_q   <= 1'b1;
    end else begin
      unique case (state_q)
        Sum: begin
          at_q <= at_last ? '0 : at_q + 1'b1;
          if (mine != '0) begin
            sharing_q <= sharing_q + 1'b1;
            if (mine > most_q) most_q <= mine;
            queues_q  <= queues_q + mine;
            sum_q     <= sum_q + sum_t'(weight);
            some_q    <= weight;
            equal_q   <= equal_q && (sharing_q == '0 || weight == some_q);
          end
        end
        Next: begin
          if (mine == '0) at_q <= at_q + 1'b1;
          left_q  <= shared;
          each_q  <= count_t'(!equal);
          rest_q  <= '0;
          parts_q <= '0;
        end
        Part: begin
          if (left_q == '0) begin
            at_q <= at_q + 1'b1;
          end else begin
            left_q <= left_q - 1'b1;
            rest_q <= sum_t'(carry ? added - {1'b0, sum_q} : added);
            if (carry) begin
              parts_q <= full ? '0 : parts_q + 1'b1;
              each_q  <= each_q + count_t'(full);
            end
          end
        end
        default: ;
      endcase
    end
  end

  // ---- Who has how many ----

  count_t [Queues-1:0] used_q, lacks;
  // Not taken yet of all guarantees: more than is free, where a guarantee has grown.
  logic [CountWidth:0] owed;
  count_t free_q;
  // What is kept for a claim, beside the guarantee, and of which queue it is.
  logic                  claim_q;
  logic [QueueWidth-1:0] claimer_q;
  logic [1:0]            kept;
  logic [Queues-1:0][1:0] claimed;
  logic [1:0]            taken, given;

  assign taken = !take_i ? 2'd0 : take_two_i ? 2'd2 : 2'd1;
  assign given = !give_i ? 2'd0 : give_two_i ? 2'd2 : 2'd1;
  assign free_o = free_q;

  // Beside all that is owed to others, so many more than one would be left.
  function automatic logic may(int unsigned i, logic [1:0] more);
    return (CountWidth + 1)'(free_q) + (CountWidth + 1)'(lacks[i])
           > owed + (CountWidth + 1)'(more);
  endfunction

  always_comb begin
    owed = '0;
    for (int unsigned i = 0; i < Queues; i++) begin
      lacks[i]  = guarantee_q[i] > used_q[i] ? guarantee_q[i] - used_q[i] : '0;
      owed     += (CountWidth + 1)'(lacks[i]);
    end
    for (int unsigned i = 0; i < Queues; i++) begin
      open_o[i]  = may(i, lacks[i] == '0 ? kept : 2'd0);
      claimed[i] = lacks[i] < count_t'(2) && claimer_q != QueueWidth'(i) ? kept : 2'd0;
      start_o[i] = pairs_i[i] ? may(i, 2'd1 + claimed[i]) : open_o[i];
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      used_q <= '0;
      free_q <= CountWidth'(Total);
    end else begin
      for (int unsigned i = 0; i < Queues; i++) begin
        used_q[i] <= used_q[i] + (take_queue_i == QueueWidth'(i) ? count_t'(taken) : '0)
                     - (give_queue_i == QueueWidth'(i) ? count_t'(given) : '0);
      end
      free_q <= free_q - count_t'(taken) + count_t'(given);
    end
  end

  // ---- A claim ----

  always_comb begin
    kept = 2'd0;
    if (claim_q && lacks[claimer_q] < count_t'(2)) kept = 2'd2 - lacks[claimer_q][1:0];
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      claim_q   <= 1'b0;
      claimer_q <= '0;
    end else if (claim_q) begin
      claim_q <= pairs_i[claimer_q];
    end else begin
      for (int unsigned i = 0; i < Queues; i++) begin
        if (pairs_i[i] && !start_o[i] && guarantee_q[i] < count_t'(2)) begin
          claim_q   <= 1'b1;
          claimer_q <= QueueWidth'(i);
        end
      end
    end
  end

endmodule
