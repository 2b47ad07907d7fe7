// AES-256 in XTS mode (IEEE 1619): 16 bytes a cycle, in data units of 512 bytes or more.
//
// Jobs, state and data go as in ndp_aes256_ctr. The state is what the operator's parameter has: the
// key of the data, words 0 to 7, that of the tweaks, 8 to 15, the bytes of a data unit, 16 (a power
// of two, 16 to 65536), and the number of the first unit, 17 to 19; only the number of the next
// unit comes out again. A job that doesn't end its stream is whole units. The last unit may be
// shorter; where bytes are left over behind its last block, they go with that block (ciphertext
// stealing, 5.3.2); 1 to 15 bytes alone are an error, and don't come out.
//
// A unit's first tweak takes 31 cycles, and is made while the unit before is worked on; with
// smaller units the data wait for it. The block that gives bytes to a shorter one is taken out at
// the end of the rounds, and enters them again with those.

module ndp_aes256_xts
  import aes_pkg::*;
#(
  // Deciphers.
  parameter bit Inverse = 1'b0
) (
  input  logic         clk_i,
  input  logic         rst_ni,

  // A job, stable until it is ready, which is when its last word of state is out.
  input  logic         job_valid_i,
  output logic         job_ready_o,
  // With ready: its last unit has 1 to 15 bytes.
  output logic         job_error_o,

  // The state's word at a place: in before the job's data, out after them.
  output logic [4:0]   index_o,
  input  logic         state_valid_i,
  output logic         state_ready_o,
  input  logic [31:0]  state_i,
  output logic         state_valid_o,
  input  logic         state_ready_i,
  output logic [31:0]  state_o,

  // Bytes in memory's order. All of a word are there, but not in the last one.
  input  logic         data_valid_i,
  output logic         data_ready_o,
  input  logic [127:0] data_i,
  input  logic [15:0]  data_keep_i,
  input  logic         data_last_i,

  // The same bytes, enciphered or deciphered; those that are not there are zeros.
  output logic         out_valid_o,
  input  logic         out_ready_i,
  output logic [127:0] out_o,
  output logic [15:0]  out_keep_o,
  output logic         out_last_o
);

  localparam int unsigned Rounds = 14;
  // Cycles from a block to its outcome, without those of the first and the last.
  localparam int unsigned Delay  = 2 * Rounds - 1;

  // Keys are loaded and expanded one after the other, that of the tweaks first.
  typedef enum logic [2:0] {
    LoadKey,
    Expand,
    LoadNumber,
    Data,
    // The last block waits for the one that it takes bytes from; that one's other bytes follow.
    Steal,
    Rest,
    Drain,
    Unload
  } state_e;

  state_e     state_d, state_q;
  // The word of the state; in Expand the round.
  logic [4:0] turn_d, turn_q;
  logic       turned;
  // The key is that of the data.
  logic       second_d, second_q;

  // ---- The keys' rounds ----

  // The last two rounds of the key that is expanded, and the words before a round's last one.
  block_t      older_q, newer_q, newer_d, entering;
  logic [95:0] words_q;
  logic [7:0]  constant_q;
  logic        is_even, made, made_q;
  // Which round the last one is.
  logic [3:0]  round_d, round_q;

  assign is_even = !turn_q[0];
  assign made    = state_q == Expand || (state_q == LoadKey && turned && turn_q[1:0] == 2'd3);
  assign newer_d = state_q == Expand ? expand(older_q, newer_q[15:12], is_even, constant_q)
                                     : {state_i, words_q};
  assign round_d = state_q == Expand ? turn_q[3:0] : {3'd0, turn_q[2]};

  always_ff @(posedge clk_i) begin
    if (turned) words_q <= {state_i, words_q[95:32]};
    if (made) begin
      older_q <= newer_q;
      newer_q <= newer_d;
      round_q <= round_d;
    end
    if (state_q == LoadKey) constant_q <= 8'h01;
    else if (state_q == Expand && is_even) constant_q <= double(constant_q);
  end

  // The tweaks' key has a round a word.
  (* ram_style = "distributed" *)
  block_t     tweak_key_q [16];
  logic [3:0] tweak_round;
  logic       second_made_q;

  always_ff @(posedge clk_i) begin
    if (made_q && !second_made_q) tweak_key_q[round_q] <= newer_q;
  end

  // That of the data has them all at once, in the order of their use.
  block_t [Rounds:0] key_q;

  if (Inverse) begin : gen_inverse_key
    block_t doubled, fourfold;
    always_comb begin
      for (int unsigned i = 0; i < 16; i++) begin
        doubled[i]  = double(newer_q[i]);
        fourfold[i] = double(doubled[i]);
      end
      entering = unmix_columns(newer_q, fourfold);
      if (round_q == 4'd0 || round_q == 4'(Rounds)) entering = newer_q;
    end
    always_ff @(posedge clk_i) begin
      if (made_q) key_q <= {key_q[Rounds-1:0], entering};
    end
  end else begin : gen_key
    assign entering = newer_q;
    always_ff @(posedge clk_i) begin
      if (made_q) key_q <= {entering, key_q[Rounds:1]};
    end
  end

  // ---- Data units: their number, and the blocks of one that were taken ----

  logic [12:0] size_q;
  logic [95:0] number_q;
  logic [11:0] count_q;
  logic        number_turned, first, unit_end, take, begin_unit;

  assign number_turned = turned && state_q != LoadKey;

  assign first    = count_q == '0;
  assign unit_end = 13'(count_q) + 13'd1 == size_q;

  always_ff @(posedge clk_i) begin
    if (turned && state_q == LoadNumber && turn_q == 5'd16) size_q <= state_i[16:4];
    // One adder does both, so that its LUTs are the multiplexer.
    number_q <= (number_turned ? {state_i, number_q[95:32]} : number_q) + 96'(begin_unit);
    if (state_q == LoadNumber) count_q <= '0;
    else if (take) count_q <= unit_end ? '0 : count_q + 12'd1;
  end

  // ---- Tweaks: a unit's first one, and that of the next block, which is twice the one before ----

  logic         first_done, keyed;
  block_t       first_tweak, tweak_q, tweak_d;
  logic [127:0] tweak, twice, half;
  logic         tweak_valid_q, tweak_enable;
  logic         to_half, to_out;

  assign keyed = second_q && state_q != LoadNumber && state_q != Unload;

  aes_block u_first_tweak (
    .clk_i,
    .rst_ni,
    .clear_i(!keyed),
    .start_i(1'b1),
    .block_i({32'd0, number_q}),
    .round_o(tweak_round),
    .key_i  (tweak_key_q[tweak_round]),
    .done_o (first_done),
    .take_i (begin_unit),
    .block_o(first_tweak)
  );

  // The lowest bit of the first byte is the lowest coefficient; x^128 is x^7 + x^2 + x + 1.
  assign tweak = tweak_q;
  assign twice = {tweak[126:0], 1'b0} ^ (tweak[127] ? 128'h87 : 128'h0);
  assign half  = {1'b0, tweak[127:1]} ^ (tweak[0] ? {1'b1, 120'd0, 7'h43} : 128'h0);

  always_comb begin
    tweak_d = twice;
    if (begin_unit) tweak_d = first_tweak;
    else if (to_out) tweak_d = out_o;
    else if (Inverse && to_half) tweak_d = half;
  end

  always_ff @(posedge clk_i) begin
    if (tweak_enable) tweak_q <= tweak_d;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) tweak_valid_q <= 1'b0;
    else if (begin_unit) tweak_valid_q <= 1'b1;
    else if ((take && unit_end) || state_q == Unload) tweak_valid_q <= 1'b0;
  end

  // ---- A word waits until the one behind it is seen: it may give it bytes ----

  logic         held_q, held_last_q, free, fed;
  block_t       held_data_q;
  logic [15:0]  held_keep_q;
  logic         full, steal, skewed_q, skew, lone, advance, go;

  assign full  = held_keep_q[15];
  // The last word isn't full, and no block of its unit is before it.
  assign lone  = held_q && held_last_q && !full && first;
  assign steal = held_q && !held_last_q && data_valid_i && data_last_i && !data_keep_i[15]
               && !unit_end;
  // Deciphering, the block before the last one has the last tweak, and that one the tweak before.
  assign skew  = Inverse && steal && !skewed_q && tweak_valid_q && state_q == Data;
  assign advance = !out_valid_o || out_ready_i;
  assign go    = state_q == Data && advance;
  assign take  = go && held_q && full && tweak_valid_q && (held_last_q || data_valid_i) && !skew;
  assign free  = !held_q || (take && !held_last_q);
  assign fed   = data_valid_i && data_ready_o;

  assign data_ready_o = state_q == Data && free;
  assign begin_unit   = first_done && state_q == Data
      && (take ? unit_end && !held_last_q : held_q && full && !tweak_valid_q);
  assign to_half      = take && steal;
  assign tweak_enable = begin_unit || take || skew || to_out;

  always_ff @(posedge clk_i) begin
    if (fed) begin
      held_data_q <= data_i;
      held_last_q <= data_last_i;
    end
    // What doesn't come out isn't there.
    if (fed) held_keep_q <= data_keep_i;
    else if (go && lone) held_keep_q <= '0;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      held_q   <= 1'b0;
      skewed_q <= 1'b0;
    end else begin
      held_q   <= fed || (held_q && !take && state_q != Unload);
      skewed_q <= (skewed_q || skew) && !take;
    end
  end

  // ---- The rounds ----

  // How a word's outcome comes out.
  typedef enum logic [1:0] {
    Full,
    Last,
    // It is the tweak beside it, as far as the held word goes.
    Partial,
    // Not at all: the last block takes bytes from it.
    Stolen
  } kind_e;

  block_t [Rounds-1:0] block_q;
  block_t              joined, substituted, unused_multiple, shifted, outcome;
  kind_e               kind;
  logic                enter, stolen_q;

  always_comb begin
    joined = held_data_q;
    for (int unsigned i = 0; i < 16; i++) begin
      if (state_q == Steal && !held_keep_q[i]) joined[i] = out_o[8*i +: 8];
    end
  end

  always_ff @(posedge clk_i) begin
    if (advance) block_q[0] <= joined ^ tweak_q ^ key_q[0];
  end

  for (genvar i = 1; i < Rounds; i++) begin : gen_round
    aes_round #(
      .Inverse(Inverse)
    ) u_round (
      .clk_i,
      .enable_i (advance),
      .key_i    (key_q[i]),
      .block_i  (block_q[i-1]),
      .block_o  (block_q[i])
    );
  end

  aes_sub #(
    .Inverse(Inverse)
  ) u_last_sub (
    .clk_i,
    .enable_i  (advance),
    .block_i   (block_q[Rounds-1]),
    .block_o   (substituted),
    .multiple_o(unused_multiple)
  );

  assign shifted = Inverse ? unshift_rows(substituted) : shift_rows(substituted);

  // ---- The tweaks, on their way beside the blocks ----

  block_t         late [Delay+1];
  kind_e          late_kind [Delay+1];
  logic [Delay:0] valid_q;

  assign to_out  = state_q == Steal && stolen_q;
  assign enter   = take || to_out || (advance && (state_q == Rest || (go && lone)));

  always_comb begin
    kind = Full;
    if (state_q == Rest || lone) kind = Partial;
    else if (state_q == Data && held_last_q) kind = Last;
    else if (state_q == Data && steal) kind = Stolen;
  end

  always_ff @(posedge clk_i) begin
    if (advance) begin
      late[0]      <= tweak_q;
      late_kind[0] <= kind;
      for (int unsigned i = 1; i <= Delay; i++) begin
        late[i]      <= late[i-1];
        late_kind[i] <= late_kind[i-1];
      end
    end
  end

  always_comb begin
    outcome = shifted ^ key_q[Rounds] ^ late[Delay];
    if (late_kind[Delay] == Partial) begin
      for (int unsigned i = 0; i < 16; i++) begin
        outcome[i] = held_keep_q[i] ? late[Delay][i] : 8'h00;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (advance) begin
      out_o      <= outcome;
      out_keep_o <= late_kind[Delay] == Partial ? held_keep_q : '1;
      out_last_o <= late_kind[Delay] == Partial || late_kind[Delay] == Last;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q     <= '0;
      out_valid_o <= 1'b0;
      stolen_q    <= 1'b0;
    end else if (advance) begin
      valid_q     <= {valid_q[Delay-1:0], enter};
      out_valid_o <= valid_q[Delay] && late_kind[Delay] != Stolen;
      stolen_q    <= valid_q[Delay] && late_kind[Delay] == Stolen;
    end
  end

  // ---- Control ----

  logic error_q;

  assign index_o     = turn_q;
  assign state_o     = number_q[31:0];
  assign job_error_o = error_q;

  always_comb begin
    state_d       = state_q;
    turn_d        = turn_q;
    second_d      = second_q;
    turned        = 1'b0;
    state_ready_o = 1'b0;
    state_valid_o = 1'b0;
    job_ready_o   = 1'b0;
    unique case (state_q)
      LoadKey: begin
        state_ready_o = job_valid_i;
        turned        = state_valid_i && state_ready_o;
        if (turned) turn_d = turn_q + 5'd1;
        if (turned && turn_q[2:0] == 3'd7) begin
          state_d = Expand;
          turn_d  = 5'd2;
        end
      end
      Expand: begin
        turn_d = turn_q + 5'd1;
        if (turn_q == 5'(Rounds)) begin
          state_d = second_q ? Data : LoadNumber;
          turn_d  = second_q ? 5'd17 : 5'd16;
        end
      end
      LoadNumber: begin
        state_ready_o = 1'b1;
        turned        = state_valid_i;
        if (turned) turn_d = turn_q + 5'd1;
        if (turned && turn_q == 5'd19) begin
          state_d  = LoadKey;
          turn_d   = 5'd0;
          second_d = 1'b1;
        end
      end
      Data: begin
        if (take && steal) state_d = Steal;
        else if (enter && held_last_q) state_d = Drain;
      end
      Steal: if (to_out) state_d = Rest;
      Rest:  if (advance) state_d = Drain;
      Drain: if (out_valid_o && out_ready_i && out_last_o) state_d = Unload;
      default: begin
        state_valid_o = 1'b1;
        turned        = state_ready_i;
        if (turned) turn_d = turn_q + 5'd1;
        if (turned && turn_q == 5'd19) begin
          state_d     = LoadKey;
          turn_d      = 5'd8;
          second_d    = 1'b0;
          job_ready_o = 1'b1;
        end
      end
    endcase
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q       <= LoadKey;
      turn_q        <= 5'd8;
      second_q      <= 1'b0;
      made_q        <= 1'b0;
      second_made_q <= 1'b0;
      error_q       <= 1'b0;
    end else begin
      state_q       <= state_d;
      turn_q        <= turn_d;
      second_q      <= second_d;
      made_q        <= made;
      second_made_q <= second_q;
      if (state_q == LoadKey) error_q <= 1'b0;
      else if (go && lone) error_q <= held_keep_q[0];
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    if (fed) begin
      assert (data_last_i || &data_keep_i) else $error("a word before the last one is not full");
      assert ((data_keep_i & (data_keep_i + 1'b1)) == '0) else $error("a word has a hole");
      assert (data_keep_i[0] || (data_last_i && !held_q && first))
      else $error("a job with data ends with a word without bytes");
    end
  end
`endif

endmodule
