// The slots of `renaming`: units whose operator can be changed (partial reconfiguration, FlexCSV
// 4.5.2), by the meaning of crates/slots, its policy with reconfiguration and its order of arrival.
//
// A slot holds the operator of one pool, and is idle, at work, or being loaded with another one;
// one is loaded at a time, as an FPGA has one port for that. Pools whose rows wait take turns. For
// the one whose turn it is a slot is loaded that has been idle for `Linger` cycles, or twice as
// long: of several the one with the highest number, as grants take the lowest. After `Lag` grants
// to other pools any slot that is idle or comes back is loaded for it: so a pool in demand keeps no
// slot for ever, and slots do not change hands with every job. The turn passes on when a row of the
// pool is granted a slot, or a load for it begins.

module slots #(
  parameter int unsigned Pools  = 8,
  parameter int unsigned Slots  = 8,
  // Grants; cycles.
  parameter int unsigned Lag    = 16,
  parameter int unsigned Linger = 4096,

  localparam int unsigned PoolWidth = $clog2(Pools),
  localparam int unsigned SlotWidth = $clog2(Slots)
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,

  // Pools with rows that wait. A row gets a slot of this pool.
  input  logic [Pools-1:0]     waiting_i,
  input  logic                 grant_i,
  input  logic [PoolWidth-1:0] grant_pool_i,

  // The idle slots of a pool. One is taken; one comes back, and nobody gets it.
  input  logic [PoolWidth-1:0] pool_i,
  output logic [Slots-1:0]     free_o,
  output logic                 all_free_o,
  input  logic                 take_i,
  input  logic [SlotWidth-1:0] take_slot_i,
  input  logic                 put_i,
  input  logic [SlotWidth-1:0] back_slot_i,

  // An idle slot should be loaded, and is; one that comes back should, and is: nobody gets it.
  output logic                 change_o,
  input  logic                 change_i,
  output logic                 divert_o,
  input  logic                 divert_i,

  // A slot is loaded, and comes back with its new pool.
  output logic                 loaded_o,
  input  logic                 loaded_i,

  // To be loaded, stable until it is.
  output logic                 load_valid_o,
  input  logic                 load_ready_i,
  output logic [SlotWidth-1:0] load_slot_o,
  output logic [PoolWidth-1:0] load_pool_o
);

  typedef logic [PoolWidth-1:0] pool_t;

  localparam int unsigned LateWidth = $clog2(Lag + 1);

  pool_t [Slots-1:0] holds_q;
  logic [Slots-1:0] free_q, rested_q, ripe;
  logic loading_q, loaded_q;
  // Whose turn it is, and the grants to others since.
  pool_t turn_q, next_turn;
  logic [LateWidth-1:0] late_q;
  logic late, wanted, begins;
  logic [SlotWidth-1:0] choice;

  assign begins = change_i || divert_i;
  assign late   = late_q == LateWidth'(Lag);
  assign wanted = waiting_i[turn_q] && !loading_q;

  // ---- Whose turn it is ----

  always_comb begin
    next_turn = turn_q;
    for (int unsigned i = Pools - 1; i > 0; i--) begin
      pool_t next;
      next = pool_t'((32'(turn_q) + i) % Pools);
      if (waiting_i[next]) next_turn = next;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      turn_q <= '0;
      late_q <= '0;
    end else if (begins || !waiting_i[turn_q] || (grant_i && grant_pool_i == turn_q)) begin
      turn_q <= next_turn;
      late_q <= '0;
    end else if (grant_i && !loading_q && !late) begin
      late_q <= late_q + 1'b1;
    end
  end

  // ---- How long slots have been idle ----

  if (Linger == 0) begin : gen_at_once
    assign rested_q = '1;
  end else begin : gen_linger
    localparam int unsigned TickWidth = Linger == 1 ? 1 : $clog2(Linger);
    logic [TickWidth-1:0] tick_q;
    logic tick;
    // Idle since the last tick.
    logic [Slots-1:0] calm_q;

    assign tick = tick_q == TickWidth'(Linger - 1);

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        tick_q   <= '0;
        calm_q   <= '0;
        rested_q <= '0;
      end else begin
        tick_q <= tick ? '0 : tick_q + 1'b1;
        for (int unsigned i = 0; i < Slots; i++) begin
          if (!free_q[i]) {rested_q[i], calm_q[i]} <= '0;
          else if (tick) {rested_q[i], calm_q[i]} <= {calm_q[i], 1'b1};
        end
      end
    end
  end

  // ---- The slot to load ----

  assign ripe     = free_q & (late ? '1 : rested_q);
  assign change_o = wanted && ripe != '0;
  assign divert_o = wanted && late;
  assign loaded_o = loaded_q;

  always_comb begin
    choice = '0;
    for (int unsigned i = 0; i < Slots; i++) begin
      if (ripe[i]) choice = SlotWidth'(i);
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      loading_q <= 1'b0;
      loaded_q  <= 1'b0;
    end else begin
      if (begins) loading_q <= 1'b1;
      else if (loaded_i) loading_q <= 1'b0;
      loaded_q <= loaded_q ? !loaded_i : load_valid_o && load_ready_i;
    end
  end

  always_ff @(posedge clk_i) begin
    if (begins) begin
      load_slot_o <= change_i ? choice : back_slot_i;
      load_pool_o <= turn_q;
    end
  end

  assign load_valid_o = loading_q && !loaded_q;

  // ---- The table ----

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      free_q <= '1;
      for (int unsigned i = 0; i < Slots; i++) holds_q[i] <= pool_t'(i % Pools);
    end else begin
      for (int unsigned i = 0; i < Slots; i++) begin
        if (put_i && back_slot_i == SlotWidth'(i)) free_q[i] <= 1'b1;
        if (take_i && take_slot_i == SlotWidth'(i)) free_q[i] <= 1'b0;
        if (change_i && choice == SlotWidth'(i)) free_q[i] <= 1'b0;
        if (loaded_i && load_slot_o == SlotWidth'(i)) holds_q[i] <= load_pool_o;
      end
    end
  end

  for (genvar i = 0; i < Slots; i++) begin : gen_free
    assign free_o[i] = free_q[i] && holds_q[i] == pool_i;
  end
  assign all_free_o = &free_q;

endmodule
