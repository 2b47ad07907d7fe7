// AES-256 in counter mode (FIPS 197, SP 800-38A 6.5): 16 bytes a cycle.
//
// Jobs, state and data go as in ndp_md5, but that bytes come out too. The state is the key, words 0
// to 7, and the counter, words 8 to 11; only the counter comes out again, moved on by the blocks
// that were used. A job that doesn't end its stream is a multiple of 16 bytes. The key's rounds are
// made one a cycle, each of the two before it; a block takes 29 cycles on its way, all of which
// stand still while nobody takes what comes out.

module ndp_aes256_ctr
  import aes_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  // A job, stable until it is ready, which is when its last word of state is out.
  input  logic         job_valid_i,
  output logic         job_ready_o,

  // The state's word at a place: in before the job's data, out after them.
  output logic [3:0]   index_o,
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
  // Cycles from a counter to the bytes that it enciphers, without those of the first and the last.
  localparam int unsigned Delay  = 2 * Rounds - 1;

  typedef enum logic [2:0] {
    LoadKey,
    Expand,
    LoadCounter,
    Data,
    Drain,
    Unload
  } state_e;

  state_e     state_d, state_q;
  // The word of the state; in Expand the round.
  logic [3:0] turn_d, turn_q;
  logic       turned;

  // ---- The key's rounds, the first one in key_q[0] when all are there ----

  block_t [Rounds:0] key_q;
  block_t            expanded, loaded;
  // The words before the last one of a key or counter.
  logic [95:0]       words_q;
  logic              is_even, key_enter;
  logic [7:0]        round_constant_q;

  assign is_even   = !turn_q[0];
  assign expanded  = expand(key_q[Rounds-1], key_q[Rounds][15:12], is_even, round_constant_q);
  assign loaded    = {state_i, words_q};
  assign key_enter = state_q == Expand || (state_q == LoadKey && turned && turn_q[1:0] == 2'd3);

  always_ff @(posedge clk_i) begin
    if (turned && state_q != Unload) words_q <= {state_i, words_q[95:32]};
    if (key_enter) key_q <= {state_q == Expand ? expanded : loaded, key_q[Rounds:1]};
    if (state_q == LoadKey) round_constant_q <= 8'h01;
    else if (state_q == Expand && is_even) round_constant_q <= double(round_constant_q);
  end

  // ---- The counter, as a number of 128 bits: its first byte is the highest ----

  logic [127:0] counter_q;
  block_t       counter_block;
  logic         taken;

  for (genvar i = 0; i < 16; i++) begin : gen_order
    assign counter_block[i] = counter_q[127-8*i -: 8];
  end

  always_ff @(posedge clk_i) begin
    // One adder does both, so that its LUTs are the multiplexer.
    counter_q <= (turned ? {counter_q[95:0], swap(state_i)} : counter_q) + 128'(taken);
  end

  function automatic logic [31:0] swap(logic [31:0] word);
    return {word[7:0], word[15:8], word[23:16], word[31:24]};
  endfunction

  // ---- The rounds ----

  block_t [Rounds-1:0] block_q;
  block_t              substituted_block, unused_multiple, kept;
  logic                advance;

  always_ff @(posedge clk_i) begin
    if (advance) block_q[0] <= counter_block ^ key_q[0];
  end

  for (genvar i = 1; i < Rounds; i++) begin : gen_round
    aes_round u_round (
      .clk_i,
      .enable_i (advance),
      .key_i    (key_q[i]),
      .block_i  (block_q[i-1]),
      .block_o  (block_q[i])
    );
  end

  aes_sub u_last_sub (
    .clk_i,
    .enable_i  (advance),
    .block_i   (block_q[Rounds-1]),
    .block_o   (substituted_block),
    .multiple_o(unused_multiple)
  );

  // ---- The data, on their way beside the counters ----

  logic [144:0]        late [Delay+1];
  logic [Delay:0]      valid_q;
  logic                used;

  // A word without any byte ends a job that has no data: it takes no counter.
  assign taken   = data_valid_i && data_ready_o && data_keep_i[0];
  assign used    = data_valid_i && data_ready_o;
  assign advance = !out_valid_o || out_ready_i;

  always_ff @(posedge clk_i) begin
    if (advance) begin
      late[0] <= {data_last_i, data_keep_i, data_i};
      for (int unsigned i = 1; i <= Delay; i++) late[i] <= late[i-1];
    end
  end

  always_comb begin
    logic [15:0] keep;
    logic [127:0] bytes;
    {keep, bytes} = late[Delay][143:0];
    kept = shift_rows(substituted_block) ^ key_q[Rounds] ^ bytes;
    for (int unsigned i = 0; i < 16; i++) if (!keep[i]) kept[i] = 8'h00;
  end

  always_ff @(posedge clk_i) begin
    if (advance) begin
      out_o <= kept;
      {out_last_o, out_keep_o} <= late[Delay][144:128];
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q     <= '0;
      out_valid_o <= 1'b0;
    end else if (advance) begin
      {out_valid_o, valid_q} <= {valid_q, used};
    end
  end

  // ---- Control ----

  assign data_ready_o = state_q == Data && advance;
  assign index_o      = turn_q;
  assign state_o      = swap(counter_q[127:96]);

  always_comb begin
    state_d       = state_q;
    turned        = 1'b0;
    turn_d        = turn_q;
    state_ready_o = 1'b0;
    state_valid_o = 1'b0;
    job_ready_o   = 1'b0;
    unique case (state_q)
      LoadKey: begin
        state_ready_o = job_valid_i;
        turned        = state_valid_i && state_ready_o;
        if (turned) turn_d = turn_q + 4'd1;
        if (turned && turn_q == 4'd7) begin
          state_d = Expand;
          turn_d  = 4'd2;
        end
      end
      Expand: begin
        turn_d = turn_q + 4'd1;
        if (turn_q == 4'(Rounds)) begin
          state_d = LoadCounter;
          turn_d  = 4'd8;
        end
      end
      LoadCounter: begin
        state_ready_o = 1'b1;
        turned        = state_valid_i;
        if (turned) turn_d = turn_q + 4'd1;
        if (turned && turn_q == 4'd11) begin
          state_d = Data;
          turn_d  = 4'd8;
        end
      end
      Data:  if (used && data_last_i) state_d = Drain;
      Drain: if (out_valid_o && out_ready_i && out_last_o) state_d = Unload;
      default: begin
        state_valid_o = 1'b1;
        turned        = state_ready_i;
        if (turned) turn_d = turn_q + 4'd1;
        if (turned && turn_q == 4'd11) begin
          state_d     = LoadKey;
          turn_d      = 4'd0;
          job_ready_o = 1'b1;
        end
      end
    endcase
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= LoadKey;
      turn_q  <= '0;
    end else begin
      state_q <= state_d;
      turn_q  <= turn_d;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    if (used) begin
      assert (data_last_i || &data_keep_i) else $error("a word before the last one is not full");
      assert ((data_keep_i & (data_keep_i + 1'b1)) == '0) else $error("a word has a hole");
    end
  end
`endif

endmodule
