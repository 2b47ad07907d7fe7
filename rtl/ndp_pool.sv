// Several units of each kind, given out job by job by `renaming`: pool 0 is MD5, pool 1 SHA-1.
//
// A row asks for a unit of a pool for its next job, and is told by `busy_o` and `row_o` when a unit
// is at work on it; whoever has the row's bytes then feeds that unit. A unit that is done goes to
// the row that has waited longest. Channels are those of the units, one for each: units of pool 0
// first.
//
// With `Slots` there are `Units` slots for both: each holds one unit at a time, and is loaded with
// the other kind where that is wanted. Here it has both, of which the one that it doesn't hold is
// in reset; while it is loaded it has none.

module ndp_pool #(
  // Of each pool; with slots, of both.
  parameter int unsigned Units  = 2,
  parameter int unsigned Rows   = 8,
  parameter bit          Slots  = 1'b0,
  parameter int unsigned Lag    = 8,
  parameter int unsigned Linger = 64,

  localparam int unsigned Pools     = 2,
  localparam int unsigned All       = Slots ? Units : Pools * Units,
  localparam int unsigned UnitWidth = $clog2(Units),
  localparam int unsigned RowWidth  = $clog2(Rows)
) (
  input  logic                          clk_i,
  input  logic                          rst_ni,

  // See renaming.
  input  logic                          rename_valid_i,
  output logic                          rename_ready_o,
  input  logic                          rename_pool_i,
  input  logic [RowWidth-1:0]           rename_row_i,
  input  logic                          forget_valid_i,
  output logic                          forget_ready_o,
  output logic                          forget_found_o,
  input  logic                          forget_pool_i,
  input  logic [RowWidth-1:0]           forget_row_i,
  output logic                          all_free_o,
  output logic                          load_valid_o,
  input  logic                          load_ready_i,
  output logic [UnitWidth-1:0]          load_unit_o,
  output logic                          load_pool_o,

  // A unit is at work on a job of a row; in its last cycle `done_o` is high.
  output logic [All-1:0]                busy_o,
  output logic [All-1:0][RowWidth-1:0]  row_o,
  output logic [All-1:0]                done_o,
  // The job of that row, stable while the unit is at work.
  input  logic [All-1:0]                job_final_i,
  input  logic [All-1:0][60:0]          job_length_i,

  // See ndp_md5.
  output logic [All-1:0][2:0]           index_o,
  input  logic [All-1:0]                state_valid_i,
  output logic [All-1:0]                state_ready_o,
  input  logic [All-1:0][31:0]          state_i,
  output logic [All-1:0]                state_valid_o,
  input  logic [All-1:0]                state_ready_i,
  output logic [All-1:0][31:0]          state_o,

  // See ndp_pad.
  input  logic [All-1:0]                data_valid_i,
  output logic [All-1:0]                data_ready_o,
  input  logic [All-1:0][31:0]          data_i,
  input  logic [All-1:0][3:0]           data_keep_i,
  input  logic [All-1:0]                data_last_i
);

  logic                 grant, grant_pool;
  logic [UnitWidth-1:0] grant_unit;
  logic [RowWidth-1:0]  grant_row;
  logic                 release_valid, release_ready, release_pool;
  logic [UnitWidth-1:0] release_unit;
  // Units that are done, and not given back yet.
  logic [All-1:0]       spent_q;
  // The pool that a unit is of.
  logic [All-1:0]       kind;

  renaming #(
    .Pools(Pools),
    .Units(Units),
    .Rows (Rows),
    .Functions(2),
    .Slots (Slots),
    .Lag   (Lag),
    .Linger(Linger)
  ) u_renaming (
    .clk_i,
    .rst_ni,
    .weight_i ({2{9'd1}}),
    .rename_valid_i,
    .rename_ready_o,
    .rename_pool_i,
    .rename_row_i,
    .rename_func_i (1'b0),
    .release_valid_i(release_valid),
    .release_ready_o(release_ready),
    .release_pool_i (release_pool),
    .release_unit_i (release_unit),
    .release_func_i (1'b0),
    .forget_valid_i,
    .forget_ready_o,
    .forget_found_o,
    .forget_pool_i,
    .forget_row_i,
    .forget_func_i (1'b0),
    .grant_valid_o  (grant),
    .grant_ready_i  (1'b1),
    .grant_pool_o   (grant_pool),
    .grant_unit_o   (grant_unit),
    .grant_row_o    (grant_row),
    .load_valid_o,
    .load_ready_i,
    .load_unit_o,
    .load_pool_o,
    .all_free_o
  );

  assign release_valid = spent_q != '0;

  always_comb begin
    release_pool = 1'b0;
    release_unit = '0;
    for (int unsigned i = All; i > 0; i--) begin
      if (spent_q[i-1]) begin
        release_pool = kind[i-1];
        release_unit = UnitWidth'((i - 1) % Units);
      end
    end
  end

  for (genvar i = 0; i < All; i++) begin : gen_unit
    logic mine, given_back;
    // By pool: it is here; and what it puts out.
    logic [Pools-1:0] there, done, state_ready, state_valid, data_ready;
    logic [Pools-1:0][2:0] index;
    logic [Pools-1:0][31:0] state;

    assign mine       = grant && 32'(grant_unit) == i % Units
                     && (Slots || 32'(grant_pool) == i / Units);
    assign given_back = release_ready && 32'(release_unit) == i % Units
                     && (Slots || 32'(release_pool) == i / Units);

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        busy_o[i]  <= 1'b0;
        spent_q[i] <= 1'b0;
      end else begin
        busy_o[i]  <= mine || (busy_o[i] && !done_o[i]);
        spent_q[i] <= done_o[i] || (spent_q[i] && !given_back);
      end
    end

    always_ff @(posedge clk_i) begin
      if (mine) row_o[i] <= grant_row;
    end

    if (Slots) begin : gen_slot
      logic kind_q, loads, lost_q;
      assign loads   = load_valid_o && 32'(load_unit_o) == i;
      assign there   = {kind_q, !kind_q} & {Pools{!lost_q}};
      assign kind[i] = kind_q;

      always_ff @(posedge clk_i or negedge rst_ni) begin
        if (!rst_ni) begin
          kind_q <= i % Pools == 1;
          lost_q <= 1'b0;
        end else if (loads) begin
          lost_q <= !load_ready_i;
          kind_q <= load_pool_o;
        end
      end

`ifndef SYNTHESIS
      always_ff @(posedge clk_i) begin
        assert (!(loads && (busy_o[i] || spent_q[i]))) else $error("a job while loaded");
        assert (!mine || grant_pool == kind_q) else $error("a job of another kind");
      end
`endif
    end else begin : gen_kind
      assign there   = {kind[i], !kind[i]};
      assign kind[i] = i >= Units;
    end

    if (Slots || i < Units) begin : gen_md5
      assign index[0][2] = 1'b0;
      ndp_md5 u_unit (
        .clk_i,
        .rst_ni       (rst_ni && there[0]),
        .job_valid_i  (busy_o[i] && there[0]),
        .job_ready_o  (done[0]),
        .job_final_i  (job_final_i[i]),
        .job_length_i (job_length_i[i]),
        .index_o      (index[0][1:0]),
        .state_valid_i(state_valid_i[i]),
        .state_ready_o(state_ready[0]),
        .state_i      (state_i[i]),
        .state_valid_o(state_valid[0]),
        .state_ready_i(state_ready_i[i]),
        .state_o      (state[0]),
        .data_valid_i (data_valid_i[i]),
        .data_ready_o (data_ready[0]),
        .data_i       (data_i[i]),
        .data_keep_i  (data_keep_i[i]),
        .data_last_i  (data_last_i[i])
      );
    end else begin : gen_no_md5
      assign {done[0], state_ready[0], state_valid[0], data_ready[0]} = '0;
      assign index[0] = '0;
      assign state[0] = '0;
      logic unused;
      assign unused = there[0];
    end
    if (Slots || i >= Units) begin : gen_sha1
      ndp_sha1 u_unit (
        .clk_i,
        .rst_ni       (rst_ni && there[1]),
        .job_valid_i  (busy_o[i] && there[1]),
        .job_ready_o  (done[1]),
        .job_final_i  (job_final_i[i]),
        .job_length_i (job_length_i[i]),
        .index_o      (index[1]),
        .state_valid_i(state_valid_i[i]),
        .state_ready_o(state_ready[1]),
        .state_i      (state_i[i]),
        .state_valid_o(state_valid[1]),
        .state_ready_i(state_ready_i[i]),
        .state_o      (state[1]),
        .data_valid_i (data_valid_i[i]),
        .data_ready_o (data_ready[1]),
        .data_i       (data_i[i]),
        .data_keep_i  (data_keep_i[i]),
        .data_last_i  (data_last_i[i])
      );
    end else begin : gen_no_sha1
      assign {done[1], state_ready[1], state_valid[1], data_ready[1]} = '0;
      assign index[1] = '0;
      assign state[1] = '0;
      logic unused;
      assign unused = there[1];
    end

    assign done_o[i]        = done[kind[i]];
    assign index_o[i]       = index[kind[i]];
    assign state_ready_o[i] = state_ready[kind[i]];
    assign state_valid_o[i] = state_valid[kind[i]];
    assign state_o[i]       = state[kind[i]];
    assign data_ready_o[i]  = data_ready[kind[i]];
  end

endmodule
