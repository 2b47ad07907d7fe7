// SHA-1 (FIPS 180-4): a step a cycle, 85 cycles a block of 64 bytes.
//
// Jobs, state and data go as in ndp_md5; the state's words in the order E to A, as they rotate. The
// first 16 steps take the message's words as they come: there is no buffer for a block.

module ndp_sha1
  import sha1_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,

  // A job, stable until it is ready, which is when its last word of state is out.
  input  logic        job_valid_i,
  output logic        job_ready_o,
  input  logic        job_final_i,
  input  logic [60:0] job_length_i,

  // The state's word at a place: in before the job's data, out after them.
  output logic [2:0]  index_o,
  input  logic        state_valid_i,
  output logic        state_ready_o,
  input  logic [31:0] state_i,
  output logic        state_valid_o,
  input  logic        state_ready_i,
  output logic [31:0] state_o,

  // See ndp_pad.
  input  logic        data_valid_i,
  output logic        data_ready_o,
  input  logic [31:0] data_i,
  input  logic [3:0]  data_keep_i,
  input  logic        data_last_i
);

  typedef enum logic [1:0] {
    Load,
    Run,
    Fold,
    Unload
  } state_e;

  localparam logic [2:0] LastTurn = 3'd4;
  // In this turn the next block's first word is taken.
  localparam logic [2:0] WordTurn = 3'd2;

  state_e     state_d, state_q;
  // The word of Load, Fold and Unload.
  logic [2:0] turn_d, turn_q;
  // The step whose message word is made: three ahead of the one that is done. 80 and above: none.
  logic [6:0] step_d, step_q;

  logic       word_valid, word_ready, word_last;
  word_t      word;
  // The job's last word is taken: what comes now is the next job's.
  logic       whole_d, whole_q;
  logic       pad_ready, open;
  logic       advance, turned;

  assign open         = job_valid_i && !whole_q;
  assign data_ready_o = pad_ready && open;

  ndp_pad #(
    .BigEndian(1'b1)
  ) u_pad (
    .clk_i,
    .rst_ni,
    .final_i     (job_final_i),
    .length_i    (job_length_i),
    .data_valid_i(data_valid_i && open),
    .data_ready_o(pad_ready),
    .data_i,
    .data_keep_i,
    .data_last_i,
    .word_valid_o(word_valid),
    .word_ready_i(word_ready),
    .word_o      (word),
    .word_last_o (word_last)
  );

  // ---- Four stages, an adder each: the message's word and constant, E, the mix, the step ----
  //
  // A step's E is C two steps before, and what it mixes is known one step before.

  // The last 16 words, the oldest one in the lowest bits.
  logic [511:0] message_q;
  word_t        spread, scheduled, addend_q, partial_q, sum_q;
  logic [1:0]   round, round_q, round2_q;
  logic         fresh;

  assign fresh     = step_q[6:4] == 3'd0;
  assign round     = round_of(step_q);
  assign spread    = message_q[13*32 +: 32] ^ message_q[8*32 +: 32]
                   ^ message_q[2*32 +: 32] ^ message_q[0*32 +: 32];
  assign scheduled = fresh ? word : {spread[30:0], spread[31]};

  word_t a_q, b_q, c_d, c_q, d_q, e_q;
  // E in the highest bits.
  logic [159:0] chain_q;
  word_t folded, entering;

  assign folded   = chain_q[159:128] + e_q;
  assign entering = state_q == Load ? state_i : folded;
  assign c_d      = state_q == Run ? {b_q[1:0], b_q[31:2]} : b_q;

  always_ff @(posedge clk_i) begin
    if (advance) begin
      message_q <= {scheduled, message_q[511:32]};
      addend_q  <= scheduled + K[round];
      round_q   <= round;
      partial_q <= addend_q + c_q;
      round2_q  <= round_q;
      sum_q     <= partial_q + mix(round2_q, a_q, c_d, c_q);
      a_q       <= state_q == Run ? sum_q + {a_q[26:0], a_q[31:27]} : entering;
      b_q       <= a_q;
      c_q       <= c_d;
      d_q       <= c_q;
      e_q       <= d_q;
    end
    if (turned) chain_q <= {chain_q[127:0], entering};
  end

  // ---- Control ----

  logic word_ok, last_turn, word_turn;

  assign last_turn = turn_q == LastTurn;
  assign word_turn = turn_q >= WordTurn;
  // In the last three turns, and in Run, a step among the first 16 waits for its word.
  assign word_ok   = !fresh || word_valid;

  always_comb begin
    state_d       = state_q;
    turned        = 1'b0;
    advance       = 1'b0;
    word_ready    = 1'b0;
    state_ready_o = 1'b0;
    state_valid_o = 1'b0;
    job_ready_o   = 1'b0;
    unique case (state_q)
      Load: begin
        state_ready_o = job_valid_i && (!word_turn || word_ok);
        turned        = state_valid_i && state_ready_o;
        advance       = turned;
        word_ready    = word_turn && turned;
        if (turned && last_turn) state_d = Run;
      end
      Run: begin
        advance    = word_ok;
        word_ready = fresh;
        if (step_q == 7'd82) state_d = Fold;
      end
      Fold: begin
        turned     = whole_q || !word_turn || word_ok;
        advance    = turned;
        word_ready = word_turn && !whole_q;
        if (turned && last_turn) state_d = whole_q ? Unload : Run;
      end
      default: begin
        state_valid_o = 1'b1;
        turned        = state_ready_i;
        if (turned && last_turn) begin
          state_d     = Load;
          job_ready_o = 1'b1;
        end
      end
    endcase
  end

  assign index_o = LastTurn - turn_q;
  assign state_o = chain_q[159:128];

  always_comb begin
    turn_d = turn_q;
    if (turned) turn_d = last_turn ? 3'd0 : turn_q + 3'd1;
    step_d = step_q;
    if (advance) step_d = turned && turn_q == WordTurn - 3'd1 ? 7'd0 : step_q + 7'd1;
    whole_d = whole_q && !job_ready_o;
    if (word_valid && word_ready && word_last) whole_d = 1'b1;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Load;
      turn_q  <= '0;
      step_q  <= '0;
      whole_q <= 1'b0;
    end else begin
      state_q <= state_d;
      turn_q  <= turn_d;
      step_q  <= step_d;
      whole_q <= whole_d;
    end
  end

endmodule
