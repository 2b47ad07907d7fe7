// MD5 (RFC 1321): a step a cycle, 68 cycles a block of 64 bytes.
//
// Which unit works on a stream is decided job by job (renaming): so the chaining value comes in as
// words before the data, and goes out after them; it is the digest where the job ends its stream.
// Words are taken and given at the places that `index_o` says: A, D, C, B, as they rotate. The
// chaining value is added to a block's outcome while both rotate past one adder: that takes four
// cycles, and saves three adders and all multiplexers.

module ndp_md5
  import md5_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,

  // A job, stable until it is ready, which is when its last word of state is out.
  input  logic        job_valid_i,
  output logic        job_ready_o,
  input  logic        job_final_i,
  input  logic [60:0] job_length_i,

  // The state's word at a place: in before the job's data, out after them.
  output logic [1:0]  index_o,
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

  state_e state_d, state_q;
  // The word of Load, Fold and Unload.
  logic [1:0] turn_d, turn_q;

  // ---- The message: two blocks, one is filled while the other one is read ----

  (* ram_style = "distributed" *)
  word_t      message_q [32];
  logic [4:0] write_d, write_q;
  logic       read_bank_d, read_bank_q;
  logic [1:0] full_d, full_q;
  logic [1:0] last_d, last_q;
  logic       word_valid, word_ready, word_last;
  word_t      word;
  logic       block_done;
  // The job's last word is there: what comes now is the next job's.
  logic       whole_d, whole_q;
  logic       pad_ready, open;

  assign open         = job_valid_i && !whole_q;
  assign data_ready_o = pad_ready && open;
  assign word_ready   = !full_q[write_q[4]];

  ndp_pad #(
    .BigEndian(1'b0)
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

  always_comb begin
    write_d = write_q;
    full_d  = full_q;
    last_d  = last_q;
    whole_d = whole_q && !job_ready_o;
    if (word_valid && word_ready) begin
      write_d = write_q + 5'd1;
      whole_d = word_last;
      if (write_q[3:0] == 4'd15) begin
        full_d[write_q[4]] = 1'b1;
        last_d[write_q[4]] = word_last;
      end
    end
    if (block_done) full_d[read_bank_q] = 1'b0;
    read_bank_d = read_bank_q ^ block_done;
  end

  always_ff @(posedge clk_i) begin
    if (word_valid && word_ready) message_q[write_q] <= word;
  end

  // ---- Three stages: look the step's constants up, add message and constant, add A ----

  logic [5:0] step_d, step_q;
  logic [3:0] index_q;
  word_t      constant_q, addend_q, sum_q;
  logic [6:0] how_q, how2_q, how3_q;
  word_t      a_q, b_q, c_q, d_q;
  logic       advance, enter;

  always_ff @(posedge clk_i) begin
    if (advance) begin
      index_q    <= message_index(step_q);
      constant_q <= K[step_q];
      how_q      <= {step_q[5:4], rotation(step_q[5:4], step_q[1:0])};
      addend_q   <= message_q[{read_bank_q, index_q}] + constant_q;
      how2_q     <= how_q;
      sum_q      <= d_q + addend_q;
      how3_q     <= how2_q;
    end
  end

  // ---- The step itself, and the chaining value ----

  word_t chain_a_q, chain_b_q, chain_c_q, chain_d_q;
  word_t stepped, folded, entering;

  assign stepped  = b_q + rotate(sum_q + mix(how3_q[6:5], b_q, c_q, d_q), how3_q[4:0]);
  assign folded   = chain_a_q + a_q;
  assign entering = state_q == Load ? state_i : folded;

  always_ff @(posedge clk_i) begin
    if (advance) begin
      a_q <= d_q;
      d_q <= c_q;
      c_q <= b_q;
      b_q <= state_q == Run ? stepped : entering;
    end
    if (enter) begin
      chain_a_q <= chain_d_q;
      chain_d_q <= chain_c_q;
      chain_c_q <= chain_b_q;
      chain_b_q <= entering;
    end
  end

  // ---- Control ----

  logic turned, message_ready;
  // The block that was done last is the job's last one.
  logic job_last_q;

  // From the second turn on the next block's first constants are looked up.
  assign message_ready = turn_q != 2'd1 || full_q[read_bank_q];

  always_comb begin
    state_d       = state_q;
    turned        = 1'b0;
    block_done    = 1'b0;
    state_ready_o = 1'b0;
    state_valid_o = 1'b0;
    job_ready_o   = 1'b0;
    unique case (state_q)
      Load: begin
        state_ready_o = job_valid_i && message_ready;
        turned        = state_valid_i && state_ready_o;
        if (turned && turn_q == 2'd3) state_d = Run;
      end
      // The step that is looked up is three ahead of the one that is done.
      Run: if (step_q == 6'd2) begin
        state_d    = Fold;
        block_done = 1'b1;
      end
      Fold: begin
        turned = job_last_q || message_ready;
        if (turned && turn_q == 2'd3) state_d = job_last_q ? Unload : Run;
      end
      default: begin
        state_valid_o = 1'b1;
        turned        = state_ready_i;
        if (turned && turn_q == 2'd3) begin
          state_d     = Load;
          job_ready_o = 1'b1;
        end
      end
    endcase
  end

  assign advance = state_q == Run || turned;
  assign enter   = turned;
  assign turn_d  = turned ? turn_q + 2'd1 : turn_q;
  assign index_o = 2'd0 - turn_q;
  assign state_o = chain_a_q;

  always_comb begin
    step_d = step_q;
    if (advance) step_d = turned && turn_q == 2'd0 ? 6'd0 : step_q + 6'd1;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q     <= Load;
      turn_q      <= '0;
      step_q      <= '0;
      write_q     <= '0;
      read_bank_q <= 1'b0;
      full_q      <= '0;
      last_q      <= '0;
      whole_q     <= 1'b0;
      job_last_q  <= 1'b0;
    end else begin
      state_q     <= state_d;
      turn_q      <= turn_d;
      step_q      <= step_d;
      write_q     <= write_d;
      read_bank_q <= read_bank_d;
      full_q      <= full_d;
      last_q      <= last_d;
      whole_q     <= whole_d;
      if (block_done) job_last_q <= last_q[read_bank_q];
    end
  end

endmodule
