// What is proved of `renaming`, seen from outside, for any order of what it is asked for. With
// `Slots` loads take any time, and what is proved of them is at the end.

module renaming_proof #(
  parameter int unsigned Pools = 2,
  parameter int unsigned Units = 2,
  parameter int unsigned Rows  = 4,
  parameter int unsigned Functions = 2,
  parameter bit          Slots  = 1'b0,
  parameter int unsigned Lag    = 2,
  parameter int unsigned Linger = 2,

  localparam int unsigned PoolWidth = $clog2(Pools),
  localparam int unsigned UnitWidth = $clog2(Units),
  localparam int unsigned RowWidth  = $clog2(Rows),
  localparam int unsigned FunctionWidth = $clog2(Functions)
) (
  input logic                 clk_i,
  input logic                 rst_ni,
  input logic [Functions-1:0][8:0] weight_i,
  input logic                 rename_valid_i,
  input logic [PoolWidth-1:0] rename_pool_i,
  input logic [RowWidth-1:0]  rename_row_i,
  input logic [FunctionWidth-1:0] rename_func_i,
  input logic                 release_valid_i,
  input logic [PoolWidth-1:0] release_pool_i,
  input logic [UnitWidth-1:0] release_unit_i,
  input logic [FunctionWidth-1:0] release_func_i,
  input logic                 forget_valid_i,
  input logic [PoolWidth-1:0] forget_pool_i,
  input logic [RowWidth-1:0]  forget_row_i,
  input logic [FunctionWidth-1:0] forget_func_i,
  input logic                 grant_ready_i,
  input logic                 load_ready_i
);

  logic rename_ready, release_ready, forget_ready, forget_found, grant_valid, all_free;
  logic [PoolWidth-1:0] grant_pool;
  logic [UnitWidth-1:0] grant_unit;
  logic [RowWidth-1:0]  grant_row;
  logic                 load_valid;
  logic [PoolWidth-1:0] load_pool;
  logic [UnitWidth-1:0] load_unit;

  renaming #(
    .Pools (Pools),
    .Units (Units),
    .Rows  (Rows),
    .Functions (Functions),
    .Slots (Slots),
    .Lag   (Lag),
    .Linger(Linger)
  ) u_renaming (
    .clk_i,
    .rst_ni,
    .weight_i,
    .rename_valid_i,
    .rename_ready_o  (rename_ready),
    .rename_pool_i,
    .rename_row_i,
    .rename_func_i,
    .release_valid_i,
    .release_ready_o (release_ready),
    .release_pool_i,
    .release_unit_i,
    .release_func_i,
    .forget_valid_i,
    .forget_ready_o  (forget_ready),
    .forget_found_o  (forget_found),
    .forget_pool_i,
    .forget_row_i,
    .forget_func_i,
    .grant_valid_o   (grant_valid),
    .grant_ready_i,
    .grant_pool_o    (grant_pool),
    .grant_unit_o    (grant_unit),
    .grant_row_o     (grant_row),
    .load_valid_o    (load_valid),
    .load_ready_i,
    .load_unit_o     (load_unit),
    .load_pool_o     (load_pool),
    .all_free_o      (all_free)
  );

  // ---- The plain view: who has asked, in which order, and who owns which unit ----

  logic [Rows-1:0]                asked_q;
  logic [Rows-1:0][PoolWidth-1:0] pool_q;
  logic [Rows-1:0][FunctionWidth-1:0] func_q;
  // older_q[a][b]: b had asked before a did, for the same pool and of the same function, and has no
  // unit yet.
  logic [Rows-1:0][Rows-1:0]      older_q;
  logic [Pools-1:0][Units-1:0]    owned_q;
  logic [RowWidth:0]              patience_q;
  logic                           started_q, forgetting_q;
  logic [PoolWidth-1:0]           forget_pool_q;
  logic [RowWidth-1:0]            forget_row_q;
  logic [FunctionWidth-1:0]       forget_func_q;
  // A unit was freed, and not to be loaded: the functions whose rows waited, and that of the row that had it.
  logic                           passed_q;
  logic [Functions-1:0]           waiters_q, waiters;
  logic [FunctionWidth-1:0]       before_q;
  // Rows of one function in turn, by unit, up to 256; whether the weight of the last one's allows another.
  logic [Pools-1:0][Units-1:0][8:0] turns_q;
  logic [8:0]                     turns;
  logic                           again, again_q, lone;

  // Rows in a line: those that asked, but for the one that is being told.
  logic [Rows-1:0] line;

  always_comb begin
    for (int unsigned i = 0; i < Rows; i++) begin
      line[i] = asked_q[i] && !(grant_valid && grant_row == RowWidth'(i));
    end
    waiters = '0;
    for (int unsigned i = 0; i < Rows; i++) begin
      if (line[i] && pool_q[i] == release_pool_i) waiters[func_q[i]] = 1'b1;
    end
    turns = turns_q[release_pool_i][release_unit_i];
    again = waiters[release_func_i] && turns < weight_i[release_func_i];
    lone  = waiters == Functions'(1) << release_func_i;
  end

  logic rename, give_back, forget, grant, pending;
  assign rename    = rename_valid_i && rename_ready;
  assign give_back = release_valid_i && release_ready;
  assign forget    = forget_valid_i && forget_ready;
  assign grant     = grant_valid && grant_ready_i;
  // The row is being told that it has a unit.
  assign pending   = grant_valid && grant_row == forget_row_i;

  initial started_q = 1'b0;

  always_ff @(posedge clk_i) begin
    started_q <= 1'b1;
    if (!rst_ni) begin
      asked_q      <= '0;
      older_q      <= '0;
      owned_q      <= '0;
      patience_q   <= '0;
      forgetting_q <= 1'b0;
      passed_q     <= 1'b0;
    end else begin
      if (give_back) passed_q <= waiters != '0 && !u_renaming.divert;
      else if (rename || grant) passed_q <= 1'b0;
      if (give_back) {waiters_q, before_q, again_q} <= {waiters, release_func_i, again};
      // Who is alone has had all its turns when another one comes.
      if (give_back && waiters != '0 && !u_renaming.divert) begin
        turns_q[release_pool_i][release_unit_i] <= !again && !lone ? 9'd1
                                                   : turns[8] ? turns : turns + 1'b1;
      end
      if (u_renaming.take) turns_q[rename_pool_i][u_renaming.lowest] <= 9'd1;
      if (u_renaming.loaded && u_renaming.give_back && u_renaming.granted) begin
        turns_q[load_pool][load_unit] <= 9'd1;
      end
      if (give_back) owned_q[release_pool_i][release_unit_i] <= 1'b0;
      if (grant) begin
        asked_q[grant_row]             <= 1'b0;
        owned_q[grant_pool][grant_unit] <= 1'b1;
        for (int unsigned i = 0; i < Rows; i++) older_q[i][grant_row] <= 1'b0;
      end
      if (rename) begin
        asked_q[rename_row_i] <= 1'b1;
        pool_q[rename_row_i]  <= rename_pool_i;
        func_q[rename_row_i]  <= rename_func_i;
        for (int unsigned i = 0; i < Rows; i++) begin
          older_q[rename_row_i][i] <= asked_q[i] && pool_q[i] == rename_pool_i
              && func_q[i] == rename_func_i
              && !(grant && RowWidth'(i) == grant_row);
        end
      end
      if (forget && forget_found) begin
        asked_q[forget_row_i] <= 1'b0;
        older_q[forget_row_i] <= '0;
        for (int unsigned i = 0; i < Rows; i++) older_q[i][forget_row_i] <= 1'b0;
      end
      patience_q    <= forget_valid_i && !forget_ready ? patience_q + 1'b1 : '0;
      forgetting_q  <= forget_valid_i && !forget_ready;
      forget_pool_q <= forget_pool_i;
      forget_row_q  <= forget_row_i;
      forget_func_q <= forget_func_i;
    end
  end

  // ---- What the others keep to ----

  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    if (started_q) begin
      if (rename_valid_i) assume (!asked_q[rename_row_i]);
      if (release_valid_i) assume (owned_q[release_pool_i][release_unit_i]);
      if (forget_valid_i) begin
        assume (!asked_q[forget_row_i] || (pool_q[forget_row_i] == forget_pool_i
                                           && func_q[forget_row_i] == forget_func_i));
      end
      if (forgetting_q) begin
        assume (forget_valid_i);
        assume (forget_pool_i == forget_pool_q && forget_row_i == forget_row_q);
        assume (forget_func_i == forget_func_q);
      end
    end
  end

  // ---- What the lines look like, so that the proof is by induction: for any number of cycles ----

  logic [RowWidth:0] walked;
  // Of rows, lines, turns, a grant, a walk, units.
  logic ages, lines, ends, turned, told, walk, sound_units;

  function automatic logic together(logic [RowWidth-1:0] a, logic [RowWidth-1:0] b);
    return pool_q[a] == pool_q[b] && func_q[a] == func_q[b];
  endfunction

  always_comb begin
    walked = '0;
    for (int unsigned i = 0; i < Rows; i++) begin
      walked += (RowWidth + 1)'(older_q[u_renaming.walk_q][i] && line[i]);
    end
    ages = 1'b1;
    lines = 1'b1;
    ends = 1'b1;
    walk = 1'b1;
    turned = 1'b1;
    told = 1'b1;
    // Age is an order among those that wait for one pool.
    for (int unsigned a = 0; a < Rows; a++) begin
      for (int unsigned b = 0; b < Rows; b++) begin
        if (older_q[a][b]) begin
          ages &= line[a] && asked_q[b] && together(a, b) && !older_q[b][a];
        end
        if (a != b && line[a] && line[b] && together(a, b)) begin
          ages &= older_q[a][b] || older_q[b][a];
        end
        for (int unsigned c = 0; c < Rows; c++) begin
          if (older_q[a][b] && older_q[b][c]) ages &= older_q[a][c];
        end
      end
    end
    // A row's neighbour behind it is the next one by age.
    for (int unsigned a = 0; a < Rows; a++) begin
      logic [RowWidth-1:0] next;
      next = u_renaming.behind_q[a];
      if (line[a] && u_renaming.last_q[{pool_q[a], func_q[a]}] != RowWidth'(a)) begin
        lines &= line[next] && together(next, a) && older_q[next][a];
        for (int unsigned b = 0; b < Rows; b++) lines &= !(older_q[next][b] && older_q[b][a]);
      end
      if (line[a]) lines &= u_renaming.waiting_q[pool_q[a]][func_q[a]];
    end
    for (int unsigned p = 0; p < Pools; p++) begin
      for (int unsigned f = 0; f < Functions; f++) begin
        logic [RowWidth-1:0] first, last;
        first = u_renaming.first_q[p*Functions+f];
        last  = u_renaming.last_q[p*Functions+f];
        if (u_renaming.waiting_q[p][f]) begin
          ends &= line[first] && pool_q[first] == PoolWidth'(p);
          ends &= line[last] && pool_q[last] == PoolWidth'(p);
          ends &= func_q[first] == FunctionWidth'(f) && func_q[last] == FunctionWidth'(f);
          for (int unsigned a = 0; a < Rows; a++) begin
            ends &= !(older_q[first][a] && line[a]) && !older_q[a][last];
          end
        end
      end
    end
    for (int unsigned p = 0; p < Pools; p++) begin
      for (int unsigned u = 0; u < Units; u++) begin
        if (owned_q[p][u] || (grant_valid && grant_pool == PoolWidth'(p)
                              && grant_unit == UnitWidth'(u))) begin
          turned &= u_renaming.turns_q[p*Units+u] == turns_q[p][u];
        end
      end
    end
    if (grant_valid) begin
      told &= asked_q[grant_row] && pool_q[grant_row] == grant_pool && older_q[grant_row] == '0;
      told &= !owned_q[grant_pool][grant_unit];
    end
    // A walk is in the line that it was begun in, and all rows that it has passed are others.
    walk &= u_renaming.walking_q == forgetting_q;
    if (passed_q) walk &= grant_valid;
    walk &= patience_q == (forgetting_q ? walked + 1'b1 : '0);
    if (forgetting_q) begin
      walk &= line[u_renaming.walk_q] && pool_q[u_renaming.walk_q] == forget_pool_q;
      walk &= func_q[u_renaming.walk_q] == forget_func_q;
      if (line[forget_row_q]) begin
        walk &= pool_q[forget_row_q] == forget_pool_q && func_q[forget_row_q] == forget_func_q;
      end
      walk &= !(older_q[u_renaming.walk_q][forget_row_q] && line[forget_row_q]);
      if (u_renaming.at_first_q) begin
        walk &= u_renaming.walk_q == u_renaming.first_q[{forget_pool_q, forget_func_q}];
      end else begin
        walk &= line[u_renaming.before_q] && pool_q[u_renaming.before_q] == forget_pool_q;
        walk &= func_q[u_renaming.before_q] == forget_func_q;
        walk &= u_renaming.before_q != u_renaming.last_q[{forget_pool_q, forget_func_q}];
        walk &= u_renaming.behind_q[u_renaming.before_q] == u_renaming.walk_q;
      end
    end
  end

  // ---- What is proved ----

  always_comb begin
    if (started_q && rst_ni) begin
      assert (sound_units);
      assert (ages);
      assert (lines);
      assert (ends);
      assert (turned);
      assert (told);
      assert (walk);
      if (grant) begin
        // No unit has two owners.
        assert (!owned_q[grant_pool][grant_unit]);
        // Who gets one has asked for it, once.
        assert (asked_q[grant_row] && pool_q[grant_row] == grant_pool);
        // Nobody is overtaken by a row of its own function.
        assert (older_q[grant_row] == '0);
      end
      // Functions take turns: the last one has as many as its weight, and then none that waited comes
      // before the one that has the unit now.
      if (passed_q && again_q) assert (func_q[grant_row] == before_q);
      for (int unsigned f = 0; f < Functions; f++) begin
        if (passed_q && !again_q && waiters_q[f]) begin
          assert (FunctionWidth'(func_q[grant_row] - before_q - 1'b1)
                  <= FunctionWidth'(f - before_q - 1'b1));
        end
      end
      // A row in a line is found there, and no other.
      if (forget) assert (forget_found == (asked_q[forget_row_i] && !pending));
      // A walk ends.
      assert (patience_q <= (RowWidth + 1)'(Rows));
    end
  end

  if (!Slots) begin : gen_units
    always_comb begin
      sound_units = 1'b1;
      for (int unsigned p = 0; p < Pools; p++) begin
        if (u_renaming.waiting_q[p] != '0) sound_units &= u_renaming.gen_units.free_q[p] == '0;
        for (int unsigned u = 0; u < Units; u++) begin
          sound_units &= u_renaming.gen_units.free_q[p][u] == !(owned_q[p][u]
              || (grant_valid && grant_pool == PoolWidth'(p) && grant_unit == UnitWidth'(u)));
        end
      end
      if (started_q && rst_ni) begin
        // Nobody waits while a unit is free.
        if (!grant_valid) begin
          for (int unsigned i = 0; i < Rows; i++) begin
            if (asked_q[i]) assert (&owned_q[pool_q[i]]);
          end
        end
        assert (all_free == (owned_q == '0 && asked_q == '0));
      end
    end
  end else begin : gen_slots
    // The most grants to others that a pool waits for.
    localparam int unsigned Most = (Pools - 1) * (Lag + 1) + Lag;

    // What each slot holds; for how long it has been idle, at most what makes sure that it is loaded.
    logic [Units-1:0][PoolWidth-1:0] holds_q;
    logic [Units-1:0][7:0]           idle_q;
    // By pool, the grants to others while its rows wait and no slot is loaded, since it was granted
    // a slot, or since one began to be loaded for it.
    logic [Pools-1:0][7:0]           others_q;
    logic                            loading_q, calm, rested, waited_q, changing;
    logic [PoolWidth-1:0]            load_pool_q, granted_pool;
    logic [UnitWidth-1:0]            load_unit_q;
    logic [7:0]                      tick;
    // Slots with an owner, and those that nobody may have.
    logic [Units-1:0]                owned, loads;

    assign changing     = u_renaming.gen_slots.u_slots.begins;
    assign granted_pool = u_renaming.give_back ? u_renaming.back_pool : rename_pool_i;
    // Nothing else happens, and rows wait, and a slot has been idle for long.
    assign calm = !forget_valid_i && !release_valid_i && (!grant_valid || grant_ready_i)
               && !u_renaming.gen_slots.u_slots.loading_q && u_renaming.gen_slots.waiting != '0
               && rested;

    always_comb begin
      rested = 1'b0;
      for (int unsigned u = 0; u < Units; u++) begin
        owned[u] = grant_valid && grant_unit == UnitWidth'(u);
        for (int unsigned p = 0; p < Pools; p++) owned[u] |= owned_q[p][u];
        loads[u] = u_renaming.gen_slots.u_slots.loading_q && load_unit == UnitWidth'(u);
        rested  |= idle_q[u] == 8'(2 * Linger) && !owned[u] && !loads[u];
      end
    end

    always_ff @(posedge clk_i) begin
      if (!rst_ni) begin
        for (int unsigned u = 0; u < Units; u++) holds_q[u] <= PoolWidth'(u % Pools);
        idle_q    <= '0;
        others_q  <= '0;
        loading_q <= 1'b0;
        waited_q  <= 1'b0;
      end else begin
        loading_q <= load_valid && !load_ready_i;
        waited_q  <= calm && !changing;
        if (load_valid && load_ready_i) holds_q[load_unit] <= load_pool;
        for (int unsigned u = 0; u < Units; u++) begin
          if (owned[u] || loads[u]) idle_q[u] <= '0;
          else if (idle_q[u] != 8'(2 * Linger)) idle_q[u] <= idle_q[u] + 1'b1;
        end
        for (int unsigned p = 0; p < Pools; p++) begin
          if (!u_renaming.gen_slots.waiting[p]
              || (u_renaming.granted && granted_pool == PoolWidth'(p))
              || (changing && u_renaming.gen_slots.u_slots.turn_q == PoolWidth'(p))) begin
            others_q[p] <= '0;
          end else if (u_renaming.granted && !u_renaming.gen_slots.u_slots.loading_q) begin
            others_q[p] <= others_q[p] + 1'b1;
          end
        end
      end
      load_unit_q <= load_unit;
      load_pool_q <= load_pool;
    end

    always_comb begin
      sound_units = 1'b1;
      sound_units &= u_renaming.gen_slots.u_slots.late_q <= Lag;
      sound_units &= u_renaming.gen_slots.u_slots.gen_linger.tick_q < Linger;
      sound_units &= !u_renaming.gen_slots.u_slots.loaded_q
                  || u_renaming.gen_slots.u_slots.loading_q;
      tick = 8'(u_renaming.gen_slots.u_slots.gen_linger.tick_q);
      for (int unsigned u = 0; u < Units; u++) begin
        logic mine;
        mine = u_renaming.gen_slots.u_slots.loaded_q && load_unit == UnitWidth'(u);
        sound_units &= holds_q[u] == (mine ? load_pool : u_renaming.gen_slots.u_slots.holds_q[u]);
        sound_units &= u_renaming.gen_slots.u_slots.free_q[u] == !(owned[u] || loads[u]);
        sound_units &= !(owned[u] && loads[u]) && idle_q[u] <= 8'(2 * Linger);
        for (int unsigned p = 0; p < Pools; p++) begin
          if (owned_q[p][u]) sound_units &= holds_q[u] == PoolWidth'(p);
          if (u_renaming.waiting_q[p] != '0 && u_renaming.gen_slots.u_slots.free_q[u]) begin
            sound_units &= holds_q[u] != PoolWidth'(p);
          end
        end
        if (u_renaming.gen_slots.u_slots.free_q[u]) begin
          if (u_renaming.gen_slots.u_slots.rested_q[u]) begin
            sound_units &= u_renaming.gen_slots.u_slots.gen_linger.calm_q[u];
            sound_units &= idle_q[u] > 8'(Linger);
          end else if (u_renaming.gen_slots.u_slots.gen_linger.calm_q[u]) begin
            sound_units &= idle_q[u] > tick && idle_q[u] <= 8'(Linger) + tick;
          end else begin
            sound_units &= idle_q[u] <= tick;
          end
        end
      end
      if (grant_valid) sound_units &= holds_q[grant_unit] == grant_pool;
      for (int unsigned p = 0; p < Pools; p++) begin
        logic [7:0] turns;
        turns = 8'(PoolWidth'(p - 32'(u_renaming.gen_slots.u_slots.turn_q)));
        if (u_renaming.gen_slots.waiting[p]) begin
          sound_units &= others_q[p] <= (8'(Pools - 1) - turns) * 8'(Lag + 1)
                                      + 8'(u_renaming.gen_slots.u_slots.late_q);
        end
      end
      if (waited_q) sound_units &= u_renaming.gen_slots.waiting[u_renaming.gen_slots.u_slots.turn_q];

      if (started_q && rst_ni) begin
        // A slot has one owner, whichever pool it is of, and a pool gets what holds its operator.
        if (grant) assert (holds_q[grant_unit] == grant_pool && !loads[grant_unit]);
        for (int unsigned u = 0; u < Units; u++) begin
          for (int unsigned p = 0; p < Pools; p++) begin
            if (owned_q[p][u]) assert (holds_q[u] == PoolWidth'(p));
            if (grant && owned_q[p][u]) assert (grant_unit != UnitWidth'(u));
          end
          // Nobody has a job on a slot that is loaded.
          if (load_valid && load_unit == UnitWidth'(u)) assert (!owned[u]);
        end
        // What is to be loaded stays so until it is.
        if (loading_q) assert (load_valid && load_unit == load_unit_q && load_pool == load_pool_q);
        // Nobody waits while a slot that holds its operator is free.
        if (!grant_valid) begin
          for (int unsigned i = 0; i < Rows; i++) begin
            for (int unsigned u = 0; u < Units; u++) begin
              if (asked_q[i] && holds_q[u] == pool_q[i]) assert (owned_q[pool_q[i]][u] || loads[u]);
            end
          end
        end
        // A pool gets a slot after so many grants to others, whatever its slots are.
        for (int unsigned p = 0; p < Pools; p++) begin
          assert (!u_renaming.gen_slots.waiting[p] || others_q[p] <= 8'(Most));
        end
        // Where a slot has been idle for long and rows wait, one is loaded in the second cycle.
        if (waited_q && calm) assert (changing);
        // None is loaded that was in use a moment ago, but for a pool that has waited for `Lag`.
        if (changing && u_renaming.change && !u_renaming.gen_slots.u_slots.late) begin
          assert (idle_q[u_renaming.gen_slots.u_slots.choice] >= 8'(Linger));
        end
        assert (all_free == (owned_q == '0 && asked_q == '0 && loads == '0));
      end
    end
  end

endmodule
