// SHA-256 (FIPS 180-4): a step a cycle, 72 cycles a block of 64 bytes.
//
// Jobs, state and data go as in ndp_md5; the state's words in the order H to A, as they rotate.
// The first 16 steps take the message's words as they come: there is no buffer for a block.

module ndp_sha256
  import sha256_pkg::*;
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

  state_e     state_d, state_q;
  // The word of Load, Fold and Unload.
  logic [2:0] turn_d, turn_q;
  // The step whose message word is made: two ahead of the one that is done. 64 and above: none.
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

  // ---- Three stages: the message's word, its sum with constant and H, the step ----

  // The last 16 words, the oldest one in the lowest bits.
  logic [511:0] message_q;
  word_t        scheduled, addend_q, sum_q;
  logic         fresh;

  assign fresh     = step_q[6:4] == 3'd0;
  assign scheduled = fresh ? word
      : small_sigma1(message_q[14*32 +: 32]) + message_q[9*32 +: 32]
      + small_sigma0(message_q[1*32 +: 32]) + message_q[0*32 +: 32];

  word_t a_q, b_q, c_q, d_q, e_q, f_q, g_q, h_q;
  // H in the highest bits.
  logic [255:0] chain_q;
  word_t folded, entering, t1, t2;

  assign t1       = sum_q + big_sigma1(e_q) + choose(e_q, f_q, g_q);
  assign t2       = big_sigma0(a_q) + majority(a_q, b_q, c_q);
  assign folded   = chain_q[255:224] + h_q;
  assign entering = state_q == Load ? state_i : folded;

  always_ff @(posedge clk_i) begin
    if (advance) begin
      message_q <= {scheduled, message_q[511:32]};
      addend_q  <= scheduled + K[step_q[5:0]];
      sum_q     <= g_q + addend_q;
      a_q       <= state_q == Run ? t1 + t2 : entering;
      b_q       <= a_q;
      c_q       <= b_q;
      d_q       <= c_q;
      e_q       <= state_q == Run ? d_q + t1 : d_q;
      f_q       <= e_q;
      g_q       <= f_q;
      h_q       <= g_q;
    end
    if (turned) chain_q <= {chain_q[223:0], entering};
  end

  // ---- Control ----

  logic word_ok;

  // In the last two turns, and in Run, a step among the first 16 waits for its word.
  assign word_ok = !fresh || word_valid;

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
        state_ready_o = job_valid_i && (turn_q < 3'd6 || word_ok);
        turned        = state_valid_i && state_ready_o;
        advance       = turned;
        word_ready    = turn_q >= 3'd6 && turned;
        if (turned && turn_q == 3'd7) state_d = Run;
      end
      Run: begin
        advance    = word_ok;
        word_ready = fresh;
        if (step_q == 7'd65) state_d = Fold;
      end
      Fold: begin
        turned     = whole_q || turn_q < 3'd6 || word_ok;
        advance    = turned;
        word_ready = turn_q >= 3'd6 && !whole_q;
        if (turned && turn_q == 3'd7) state_d = whole_q ? Unload : Run;
      end
      default: begin
        state_valid_o = 1'b1;
        turned        = state_ready_i;
        if (turned && turn_q == 3'd7) begin
          state_d     = Load;
          job_ready_o = 1'b1;
        end
      end
    endcase
  end

  assign turn_d  = turned ? turn_q + 3'd1 : turn_q;
  assign index_o = 3'd7 - turn_q;
  assign state_o = chain_q[255:224];

  always_comb begin
    step_d = step_q;
    if (advance) step_d = turned && turn_q == 3'd5 ? 7'd0 : step_q + 7'd1;
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
