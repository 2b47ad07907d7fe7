// Operator renaming: operators of chains onto physical units (FlexCSV 4.5.1), as the Rust core's
// `renaming.rs` has it.
//
// A pool is the units of one operator. A row of the scoreboard that asks for a unit of a pool gets
// the free one of the lowest number; where none is free it stands in its function's line for the
// pool. Functions take turns: a unit that is free again goes to the next one, after that of the
// row that had it, whose rows wait, and of these to the one that has waited longest. A line is
// linked through one memory, with a place for every row, since a row is in one line at most. An
// answer comes a cycle later. A row leaves its line, when its command failed, by a walk along it:
// that is rare, and may take a cycle for each row in the line, while everything else waits.

module renaming #(
  parameter int unsigned Pools = 8,
  parameter int unsigned Units = 4,
  parameter int unsigned Rows  = 64,
  parameter int unsigned Functions = 4,

  localparam int unsigned PoolWidth = $clog2(Pools),
  localparam int unsigned UnitWidth = $clog2(Units),
  localparam int unsigned RowWidth  = $clog2(Rows),
  localparam int unsigned FunctionWidth = $clog2(Functions)
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,

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

  // No unit works and nobody waits for one.
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

  logic [Pools-1:0][Units-1:0] free_q;
  // Lines with rows.
  logic [Pools-1:0][Functions-1:0] waiting_q;

  // The row of each line that has waited longest, and the one that came last; the row behind a row
  // in its line.
`ifdef FORMAL
  row_t [Lines-1:0] first_q, last_q;
  row_t [Rows-1:0] behind_q;
`else
  (* ram_style = "distributed" *)
  row_t first_q [Lines];
  (* ram_style = "distributed" *)
  row_t last_q [Lines];
  (* ram_style = "distributed" *)
  row_t behind_q [Rows];
`endif
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
  logic [UnitWidth-1:0] lowest;

  assign idle            = !walking_q && !forget_valid_i;
  assign open            = idle && (!grant_valid_o || grant_ready_i);
  assign release_ready_o = open;
  assign rename_ready_o  = open && !release_valid_i;
  assign rename          = rename_valid_i && rename_ready_o;
  assign give_back       = release_valid_i && release_ready_o;
  assign granted         = give_back ? waiting_q[release_pool_i] != '0
                                     : rename && free_q[rename_pool_i] != '0;

  assign here            = walk_q == forget_row_i;
  assign at_last         = walk_q == last;
  assign forget_ready_o  = walking_q ? here || at_last : forget_valid_i && !waits;
  assign forget_found_o  = walking_q && here;

  // The line that this is about. After a function come those with the numbers after its own.
  always_comb begin
    turn = release_func_i;
    for (int unsigned i = Functions - 1; i > 0; i--) begin
      function_t next;
      next = function_t'((32'(release_func_i) + i) % Functions);
      if (waiting_q[release_pool_i][next]) turn = next;
    end
    if (!idle) line = '{pool: forget_pool_i, func: forget_func_i};
    else if (release_valid_i) line = '{pool: release_pool_i, func: turn};
    else line = '{pool: rename_pool_i, func: rename_func_i};
  end

  assign waits = waiting_q[line.pool][line.func];
  assign first = first_q[line];
  assign last  = last_q[line];

  always_comb begin
    lowest = '0;
    for (int unsigned i = Units; i > 0; i--) begin
      if (free_q[rename_pool_i][i-1]) lowest = UnitWidth'(i - 1);
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

  // ---- Units and lines ----

  assign head = give_back || (rename && !granted && !waits) || (walking_q && here && at_first_q);
  assign tail = (rename && !granted) || (walking_q && here && !at_first_q && at_last);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      free_q    <= '1;
      waiting_q <= '0;
    end else if (give_back) begin
      if (!granted) free_q[release_pool_i][release_unit_i] <= 1'b1;
      else if (first == last) waiting_q[line.pool][line.func] <= 1'b0;
    end else if (rename) begin
      if (granted) free_q[rename_pool_i][lowest] <= 1'b0;
      else waiting_q[line.pool][line.func] <= 1'b1;
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
      grant_pool_o <= give_back ? release_pool_i : rename_pool_i;
      grant_unit_o <= give_back ? release_unit_i : lowest;
      grant_row_o  <= give_back ? first : rename_row_i;
    end
  end

  assign all_free_o = &free_q && !grant_valid_o;

endmodule
