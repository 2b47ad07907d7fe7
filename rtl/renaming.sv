// Operator renaming: operators of chains onto physical units (FlexCSV 4.5.1), as the Rust core's
// `renaming.rs` has it.
//
// A pool is the units of one operator. A row of the scoreboard that asks for a unit of a pool gets
// the free one of the lowest number; where none is free it stands in its function's line for the
// pool. Functions take turns by their weights: a unit that is free again stays with the function
// of the row that had it for as many rows as that one's weight, and goes then to the next one whose
// rows wait, and of these to the one that has waited longest. A line is
// linked through one memory, with a place for every row, since a row is in one line at most. An
// answer comes a cycle later. A row leaves its line, when its command failed, by a walk along it:
// that is rare, and may take a cycle for each row in the line, while everything else waits.
//
// With `Slots` the units are slots of all pools, whose operator can be changed: see `slots`.

module renaming #(
  parameter int unsigned Pools = 8,
  // Of each pool; with slots, of all.
  parameter int unsigned Units = 4,
  parameter int unsigned Rows  = 64,
  parameter int unsigned Functions = 4,
  // Functions have weights; else these are not looked at, and each has one turn.
  parameter bit          Weights = 1'b1,
  parameter bit          Slots = 1'b0,
  parameter int unsigned Lag    = 16,
  parameter int unsigned Linger = 4096,

  localparam int unsigned PoolWidth = $clog2(Pools),
  localparam int unsigned UnitWidth = $clog2(Units),
  localparam int unsigned RowWidth  = $clog2(Rows),
  localparam int unsigned FunctionWidth = $clog2(Functions)
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  // Of each function, 1 to 256.
  input  logic [Functions-1:0][8:0] weight_i,

  // A row that has no unit and is in no line asks for one.
  input  logic                 rename_valid_i,
  output logic                 rename_ready_o,
  input  logic [PoolWidth-1:0] rename_pool_i,
  input  logic [RowWidth-1:0]  rename_row_i,
  input  logic [FunctionWidth-1:0] rename_func_i,

  // A unit that was granted to a row of this function is done.
  input  logic                 release_valid_i,
  output logic                 release_ready_o,
  input  logic [PoolWidth-1:0] release_pool_i,
  input  logic [UnitWidth-1:0] release_unit_i,
  input  logic [FunctionWidth-1:0] release_func_i,

  // A row leaves its line, stable until it is ready; `found` tells then that it was in it. Where it
  // wasn't, it has a unit, or is being granted one.
  input  logic                 forget_valid_i,
  output logic                 forget_ready_o,
  output logic                 forget_found_o,
  input  logic [PoolWidth-1:0] forget_pool_i,
  input  logic [RowWidth-1:0]  forget_row_i,
  input  logic [FunctionWidth-1:0] forget_func_i,

  // A row has a unit.
  output logic                 grant_valid_o,
  input  logic                 grant_ready_i,
  output logic [PoolWidth-1:0] grant_pool_o,
  output logic [UnitWidth-1:0] grant_unit_o,
  output logic [RowWidth-1:0]  grant_row_o,

  // A slot is to be loaded with a pool's operator: stable until it is. Nobody has it meanwhile.
  output logic                 load_valid_o,
  input  logic                 load_ready_i,
  output logic [UnitWidth-1:0] load_unit_o,
  output logic [PoolWidth-1:0] load_pool_o,

  // No unit works or is loaded, and nobody waits for one.
  output logic                 all_free_o
);

  typedef logic [RowWidth-1:0] row_t;
  typedef logic [FunctionWidth-1:0] function_t;

  // A pool's line of a function.
  typedef struct packed {
    logic [PoolWidth-1:0] pool;
    function_t            func;
  } line_t;

  localparam int unsigned Lines = 2**(PoolWidth + FunctionWidth);

  // Lines with rows.
  logic [Pools-1:0][Functions-1:0] waiting_q;

  // The row of each line that has waited longest, and the one that came last; the row behind a row
  // in its line.
`ifdef FORMAL
  row_t [Lines-1:0] first_q, last_q;
  row_t [Rows-1:0] behind_q;
  logic [2**(PoolWidth+UnitWidth)-1:0][8:0] turns_q;
`else
  (* ram_style = "distributed" *)
  row_t first_q [Lines];
  (* ram_style = "distributed" *)
  row_t last_q [Lines];
  (* ram_style = "distributed" *)
  row_t behind_q [Rows];
  (* ram_style = "distributed" *)
  logic [8:0] turns_q [2**(PoolWidth+UnitWidth)];
`endif
  // Rows of one function, one after the other, that have had the unit that comes back.
  logic [8:0] turns;
  logic again;
  line_t line;
  row_t first, last, behind;
  function_t turn;
  logic waits;
  logic link;
  row_t link_at, link_to;

  // The walk: where it is, and the row before that, but at the line's first row.
  logic walking_q, at_first_q;
  row_t walk_q, before_q;

  logic idle, open, rename, give_back, here, at_last, head, tail;
  logic granted;
  // Free units of the pool that is asked for, and the lowest of them.
  logic [Units-1:0] free;
  logic [UnitWidth-1:0] lowest;
  logic all_free, take, put;
  // An idle slot, or one that comes back, is to be loaded; one is loaded, and comes back.
  logic change, divert, loaded;

  // The unit that comes back, and the function that had it.
  logic [PoolWidth-1:0] back_pool;
  logic [UnitWidth-1:0] back_unit;
  function_t back_func;

  assign idle            = !walking_q && !forget_valid_i;
  assign open            = idle && (!grant_valid_o || grant_ready_i);
  assign release_ready_o = open && !loaded;
  assign rename_ready_o  = open && !loaded && !release_valid_i && !change;
  assign rename          = rename_valid_i && rename_ready_o;
  assign give_back       = open && (loaded || release_valid_i);
  assign granted         = give_back ? waiting_q[back_pool] != '0 && !divert : rename && free != '0;
  assign take            = rename && granted;
  assign put             = give_back && !granted && !divert;

  assign here            = walk_q == forget_row_i;
  assign at_last         = walk_q == last;
  assign forget_ready_o  = walking_q ? here || at_last : forget_valid_i && !waits;
  assign forget_found_o  = walking_q && here;

  assign turns = turns_q[{back_pool, back_unit}];
  assign again = Weights && !loaded && waiting_q[back_pool][back_func]
              && turns < weight_i[back_func];

  // The line that this is about. After a function come those with the numbers after its own.
  always_comb begin
    turn = back_func;
    for (int unsigned i = Functions - 1; i > 0; i--) begin
      function_t next;
      next = function_t'((32'(back_func) + i) % Functions);
      if (waiting_q[back_pool][next]) turn = next;
    end
    if (again) turn = back_func;
    if (!idle) line = '{pool: forget_pool_i, func: forget_func_i};
    else if (loaded || release_valid_i) line = '{pool: back_pool, func: turn};
    else line = '{pool: rename_pool_i, func: rename_func_i};
  end

  assign waits = waiting_q[line.pool][line.func];
  assign first = first_q[line];
  assign last  = last_q[line];

  always_comb begin
    lowest = '0;
    for (int unsigned i = Units; i > 0; i--) begin
      if (free[i-1]) lowest = UnitWidth'(i - 1);
    end
  end

  // ---- The memory of the lines ----

  assign behind  = behind_q[walking_q ? walk_q : first];
  assign link    = walking_q ? here && !at_first_q : rename && !granted && waits;
  assign link_at = walking_q ? before_q : last;
  assign link_to = walking_q ? behind : rename_row_i;

  always_ff @(posedge clk_i) begin
    if (link) behind_q[link_at] <= link_to;
  end

  // ---- Turns ----

  always_ff @(posedge clk_i) begin
    if (take) begin
      turns_q[{rename_pool_i, lowest}] <= 9'd1;
    end else if (give_back && granted) begin
      // Who is alone in line has had all its turns when another one comes.
      turns_q[{back_pool, back_unit}] <= loaded || turn != back_func ? 9'd1
                                         : turns[8] ? turns : turns + 1'b1;
    end
  end

  // ---- Units ----

  if (Slots) begin : gen_slots
    logic wish_change, wish_divert, idle_slots;
    logic [Pools-1:0] waiting;
    function_t func_q;

    for (genvar i = 0; i < Pools; i++) begin : gen_waiting
      assign waiting[i] = waiting_q[i] != '0;
    end

    assign all_free  = idle_slots && waiting == '0;
    assign change    = wish_change && open && !loaded && !release_valid_i;
    assign divert    = wish_divert && !loaded;
    assign back_pool = loaded ? load_pool_o : release_pool_i;
    assign back_unit = loaded ? load_unit_o : release_unit_i;
    assign back_func = loaded ? func_q : release_func_i;

    // Of the row that got the slot that was loaded last.
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) func_q <= '0;
      else if (give_back && loaded && granted) func_q <= turn;
    end

    slots #(
      .Pools (Pools),
      .Slots (Units),
      .Lag   (Lag),
      .Linger(Linger)
    ) u_slots (
      .clk_i,
      .rst_ni,
      .waiting_i   (waiting),
      .grant_i     (granted),
      .grant_pool_i(give_back ? back_pool : rename_pool_i),
      .pool_i      (rename_pool_i),
      .free_o      (free),
      .all_free_o  (idle_slots),
      .take_i      (take),
      .take_slot_i (lowest),
      .put_i       (put),
      .back_slot_i (back_unit),
      .change_o    (wish_change),
      .change_i    (change),
      .divert_o    (wish_divert),
      .divert_i    (give_back && divert),
      .loaded_o    (loaded),
      .loaded_i    (give_back && loaded),
      .load_valid_o,
      .load_ready_i,
      .load_slot_o (load_unit_o),
      .load_pool_o
    );
  end else begin : gen_units
    logic [Pools-1:0][Units-1:0] free_q;

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) free_q <= '1;
      else if (put) free_q[back_pool][back_unit] <= 1'b1;
      else if (take) free_q[rename_pool_i][lowest] <= 1'b0;
    end

    assign free      = free_q[rename_pool_i];
    assign all_free  = &free_q;
    assign change    = 1'b0;
    assign divert    = 1'b0;
    assign loaded    = 1'b0;
    assign back_pool = release_pool_i;
    assign back_unit = release_unit_i;
    assign back_func = release_func_i;

    assign load_valid_o = 1'b0;
    assign load_unit_o  = '0;
    assign load_pool_o  = '0;
    logic unused;
    assign unused = load_ready_i;
  end

  // ---- Lines ----

  assign head = (give_back && granted) || (rename && !granted && !waits)
              || (walking_q && here && at_first_q);
  assign tail = (rename && !granted) || (walking_q && here && !at_first_q && at_last);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      waiting_q <= '0;
    end else if (give_back) begin
      if (granted && first == last) waiting_q[line.pool][line.func] <= 1'b0;
    end else if (rename) begin
      if (!granted) waiting_q[line.pool][line.func] <= 1'b1;
    end else if (walking_q && here && at_first_q && at_last) begin
      waiting_q[line.pool][line.func] <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (head) first_q[line] <= rename ? rename_row_i : behind;
    if (tail) last_q[line] <= rename ? rename_row_i : before_q;
  end

  // ---- The walk ----

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      walking_q <= 1'b0;
    end else if (!walking_q) begin
      walking_q <= forget_valid_i && waits;
    end else begin
      walking_q <= !forget_ready_o;
    end
  end

  always_ff @(posedge clk_i) begin
    at_first_q <= !walking_q;
    before_q   <= walk_q;
    walk_q     <= walking_q ? behind : first;
  end

  // ---- The answer ----

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) grant_valid_o <= 1'b0;
    else if (open) grant_valid_o <= granted;
    else if (grant_ready_i) grant_valid_o <= 1'b0;
  end

  always_ff @(posedge clk_i) begin
    if (open) begin
      grant_pool_o <= give_back ? back_pool : rename_pool_i;
      grant_unit_o <= give_back ? back_unit : lowest;
      grant_row_o  <= give_back ? first : rename_row_i;
    end
  end

  assign all_free_o = all_free && !grant_valid_o;

endmodule
