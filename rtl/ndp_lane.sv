// A unit of a pool, and what feeds it: a job's bytes come from block memory, and go back there from
// a cipher; its state comes from the context of its operator, and goes back.
//
// A digest's state is kept as its value: words in the value's order and byte order. Where a value
// is expected, it is compared as the last state goes out.

module ndp_lane
  import core_pkg::*;
#(
  parameter pool_t Pool = 3'd0
) (
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         job_valid_i,
  output logic         job_ready_o,
  input  job_t         job_i,

  // Words of the job's block: one that was asked for comes a few cycles later.
  output logic         read_valid_o,
  input  logic         read_ready_i,
  output word_at_t     read_at_o,
  input  logic         read_done_i,
  input  block_word_t  read_data_i,
  output logic         write_valid_o,
  input  logic         write_ready_i,
  output word_at_t     write_at_o,
  output block_word_t  write_data_o,

  // Words of its context, in the same way.
  output logic         load_valid_o,
  input  logic         load_ready_i,
  output context_at_t  load_at_o,
  input  logic         load_done_i,
  input  logic [31:0]  load_data_i,
  output logic         store_valid_o,
  input  logic         store_ready_i,
  output context_at_t  store_at_o,
  output logic [31:0]  store_data_o,

  output logic         outcome_valid_o,
  input  logic         outcome_ready_i,
  output outcome_t     outcome_o
);

  localparam logic [7:0] Operator = PoolOperator[Pool];
  localparam bit IsDigest  = Operator < dcs_pkg::OpAes256Ctr;
  // Hash functions take words of 32 bits, the others whole ones.
  localparam bit IsHash    = Operator <= dcs_pkg::OpSha256;
  localparam int unsigned DataBytes = IsHash ? 4 : WordBytes;
  // The value has the highest byte of each word of the state first.
  localparam bit Swaps     = IsDigest && Operator != dcs_pkg::OpMd5;
  // Words of a context: a digest's value, a cipher's number that is kept behind a reserved word.
  localparam logic [4:0] ValueAt  = 5'd8;
  localparam logic [4:0] NumberAt = 5'd17;

  typedef enum logic [1:0] {
    Idle,
    Work,
    Tell
  } state_e;

  state_e state_q;
  job_t   job_q;
  logic   accept, job_done, job_error;

  assign job_ready_o = state_q == Idle;
  assign accept      = job_valid_i && job_ready_o;

  // ---- The block's words ----

  logic        there, pop;
  block_word_t next_word;
  logic [BlockShift-WordShift:0] words;

  assign words = job_i.length[BlockShift:WordShift]
                 + (BlockShift-WordShift+1)'(job_i.length[WordShift-1:0] != '0);

  block_fetch u_fetch (
    .clk_i,
    .rst_ni,
    .start_i (accept),
    .at_i    ('{row: job_i.id.row, word: '0}),
    .words_i (words),
    .read_valid_o,
    .read_ready_i,
    .read_at_o,
    .read_done_i,
    .read_data_i,
    .valid_o (there),
    .ready_i (pop),
    .word_o  (next_word)
  );

  // ---- They are fed; without any byte the job is one word that has none ----

  bytes_t                 left_q;
  logic                   fed_q, data_valid, data_ready, data_last, feed;
  logic [DataBytes-1:0]   data_keep;
  logic [8*DataBytes-1:0] data, kept;

  assign data_valid = state_q == Work && !fed_q && (there || job_q.length == '0);
  assign data_last  = left_q <= bytes_t'(DataBytes);
  assign feed       = data_valid && data_ready;

  always_comb begin
    for (int unsigned at = 0; at < DataBytes; at++) begin
      data_keep[at]   = left_q > bytes_t'(at);
      kept[8*at +: 8] = data_keep[at] ? data[8*at +: 8] : 8'h00;
    end
  end

  always_ff @(posedge clk_i) begin
    if (accept) begin
      left_q <= job_i.length;
      fed_q  <= 1'b0;
    end else if (feed) begin
      left_q <= left_q - bytes_t'(DataBytes);
      fed_q  <= data_last;
    end
  end

  if (IsHash) begin : gen_narrow
    logic [1:0] part_q;
    assign data = next_word[32*part_q +: 32];
    assign pop  = feed && job_q.length != '0 && (part_q == 2'd3 || data_last);
    always_ff @(posedge clk_i) begin
      if (accept) part_q <= '0;
      else if (feed) part_q <= part_q + 2'd1;
    end
  end else begin : gen_wide
    assign data = next_word;
    assign pop  = feed && job_q.length != '0;
  end

  // ---- What comes out ----

  logic        out_valid, unused;
  keep_t       out_keep;
  word_index_t out_q;

  assign unused = ^{job_q, out_keep, kept, write_ready_i, job_error};

  assign write_valid_o = out_valid && out_keep[0];
  assign write_at_o    = '{row: job_q.id.row, word: out_q};

  always_ff @(posedge clk_i) begin
    if (accept) out_q <= '0;
    else if (write_valid_o && write_ready_i) out_q <= out_q + 1'b1;
  end

  // ---- The state ----

  logic [4:0]  index, slot;
  logic        in_ready, in_valid, state_valid, state_ready;
  logic [31:0] initial_word, held_q, state_in, state_out, value;
  // A word of the context is asked for; is there.
  logic        asked_q, there_is_q, loads, compares, used;

  function automatic logic [31:0] as_value(logic [31:0] given);
    return Swaps ? {given[7:0], given[15:8], given[23:16], given[31:24]} : given;
  endfunction

  always_comb begin
    slot = index;
    if (Operator == dcs_pkg::OpCrc64Nvme) slot[0] = !index[0];
    // The parameter's number is two words behind a reserved one, the unit's has a third one on top.
    if (Operator == dcs_pkg::OpAes256Xts && index >= NumberAt) begin
      slot = index == 5'd19 ? NumberAt : index + 5'd1;
    end
  end

  if (Operator == dcs_pkg::OpMd5) begin : gen_md5_initial
    assign initial_word = md5_pkg::Initial[index[1:0]];
  end else if (Operator == dcs_pkg::OpSha1) begin : gen_sha1_initial
    assign initial_word = sha1_pkg::Initial[index[2:0]];
  end else if (Operator == dcs_pkg::OpSha256) begin : gen_sha256_initial
    assign initial_word = sha256_pkg::Initial[index[2:0]];
  end else begin : gen_zero_initial
    assign initial_word = '0;
  end

  assign loads         = in_ready && !(IsDigest && !job_q.begun);
  assign compares      = state_valid && job_q.expects;
  assign load_valid_o  = (loads || compares) && !asked_q && !there_is_q;
  assign load_at_o     = '{of: '{command: job_q.id.command, at: job_q.id.at},
                           word: IsDigest && !state_valid ? ValueAt | slot : slot};
  assign in_valid      = state_q == Work && (IsDigest && !job_q.begun ? 1'b1 : there_is_q);
  assign state_in      = IsDigest && !job_q.begun ? initial_word : as_value(held_q);
  assign value         = as_value(state_out);
  assign store_valid_o = state_valid && (!job_q.expects || there_is_q);
  assign store_at_o    = '{of: '{command: job_q.id.command, at: job_q.id.at},
                           word: IsDigest ? ValueAt | slot : slot};
  assign store_data_o  = value;
  assign state_ready   = store_valid_o && store_ready_i;
  assign used          = state_valid ? state_ready : in_ready && in_valid;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      asked_q    <= 1'b0;
      there_is_q <= 1'b0;
    end else begin
      asked_q    <= (asked_q || (load_valid_o && load_ready_i)) && !load_done_i;
      there_is_q <= (there_is_q || load_done_i) && !used;
    end
  end

  logic wrong_q;

  always_ff @(posedge clk_i) begin
    if (load_done_i) held_q <= load_data_i;
    if (accept) wrong_q <= 1'b0;
    else if (state_ready && job_q.expects && value != held_q) wrong_q <= 1'b1;
  end

  // ---- The job ----

  logic error_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Idle;
    end else begin
      unique case (state_q)
        Idle:    if (job_valid_i) state_q <= job_i.told ? Tell : Work;
        Work:    if (job_done) state_q <= Tell;
        Tell:    if (outcome_ready_i) state_q <= Idle;
        default: state_q <= Idle;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (accept) job_q <= job_i;
    error_q <= state_q == Work ? job_error : error_q;
    if (accept) error_q <= 1'b0;
  end

  assign outcome_valid_o = state_q == Tell;

  always_comb begin
    outcome_o = '{id: job_q.id, kind: Processed, bytes: job_q.length, path: '0,
                  status: '0, errno: '0};
    if (IsDigest && job_q.ends) outcome_o.kind = Digest;
    if (error_q || wrong_q) begin
      outcome_o.kind   = Failed;
      outcome_o.status = error_q ? dcs_pkg::StatusTruncatedData : dcs_pkg::StatusDigestMismatch;
    end
  end

  // ---- The unit ----

  if (Operator == dcs_pkg::OpMd5) begin : gen_md5
    assign index[4:2] = '0;
    ndp_md5 u_unit (
      .clk_i, .rst_ni, .job_valid_i (state_q == Work), .job_ready_o (job_done),
      .job_final_i (job_q.ends), .job_length_i (job_q.covered), .index_o (index[1:0]),
      .state_valid_i (in_valid), .state_ready_o (in_ready), .state_i (state_in),
      .state_valid_o (state_valid), .state_ready_i (state_ready), .state_o (state_out),
      .data_valid_i (data_valid), .data_ready_o (data_ready), .data_i (data),
      .data_keep_i (data_keep), .data_last_i (data_last)
    );
  end else if (Operator == dcs_pkg::OpSha1) begin : gen_sha1
    assign index[4:3] = '0;
    ndp_sha1 u_unit (
      .clk_i, .rst_ni, .job_valid_i (state_q == Work), .job_ready_o (job_done),
      .job_final_i (job_q.ends), .job_length_i (job_q.covered), .index_o (index[2:0]),
      .state_valid_i (in_valid), .state_ready_o (in_ready), .state_i (state_in),
      .state_valid_o (state_valid), .state_ready_i (state_ready), .state_o (state_out),
      .data_valid_i (data_valid), .data_ready_o (data_ready), .data_i (data),
      .data_keep_i (data_keep), .data_last_i (data_last)
    );
  end else if (Operator == dcs_pkg::OpSha256) begin : gen_sha256
    assign index[4:3] = '0;
    ndp_sha256 u_unit (
      .clk_i, .rst_ni, .job_valid_i (state_q == Work), .job_ready_o (job_done),
      .job_final_i (job_q.ends), .job_length_i (job_q.covered), .index_o (index[2:0]),
      .state_valid_i (in_valid), .state_ready_o (in_ready), .state_i (state_in),
      .state_valid_o (state_valid), .state_ready_i (state_ready), .state_o (state_out),
      .data_valid_i (data_valid), .data_ready_o (data_ready), .data_i (data),
      .data_keep_i (data_keep), .data_last_i (data_last)
    );
  end else if (IsDigest) begin : gen_crc
    assign index[4:1] = '0;
    ndp_crc #(
      .Code      (Operator == dcs_pkg::OpCrc32 ? 0 : Operator == dcs_pkg::OpCrc32c ? 1 : 2),
      .DataWidth (8 * WordBytes)
    ) u_unit (
      .clk_i, .rst_ni, .job_valid_i (state_q == Work), .job_ready_o (job_done),
      .index_o (index[0]),
      .state_valid_i (in_valid), .state_ready_o (in_ready), .state_i (state_in),
      .state_valid_o (state_valid), .state_ready_i (state_ready), .state_o (state_out),
      .data_valid_i (data_valid), .data_ready_o (data_ready), .data_i (kept),
      .data_keep_i (data_keep), .data_last_i (data_last)
    );
  end else if (Operator == dcs_pkg::OpAes256Ctr) begin : gen_ctr
    logic unused_last;
    assign index[4] = 1'b0;
    ndp_aes256_ctr u_unit (
      .clk_i, .rst_ni, .job_valid_i (state_q == Work), .job_ready_o (job_done),
      .index_o (index[3:0]),
      .state_valid_i (in_valid), .state_ready_o (in_ready), .state_i (state_in),
      .state_valid_o (state_valid), .state_ready_i (state_ready), .state_o (state_out),
      .data_valid_i (data_valid), .data_ready_o (data_ready), .data_i (data),
      .data_keep_i (data_keep), .data_last_i (data_last),
      .out_valid_o (out_valid), .out_ready_i (write_ready_i || !out_keep[0]),
      .out_o (write_data_o), .out_keep_o (out_keep), .out_last_o (unused_last)
    );
  end else begin : gen_xts
    logic unused_last;
    ndp_aes256_xts u_unit (
      .clk_i, .rst_ni, .job_valid_i (state_q == Work), .job_ready_o (job_done),
      .job_error_o (job_error), .index_o (index),
      .state_valid_i (in_valid), .state_ready_o (in_ready), .state_i (state_in),
      .state_valid_o (state_valid), .state_ready_i (state_ready), .state_o (state_out),
      .data_valid_i (data_valid), .data_ready_o (data_ready), .data_i (data),
      .data_keep_i (data_keep), .data_last_i (data_last),
      .out_valid_o (out_valid), .out_ready_i (write_ready_i || !out_keep[0]),
      .out_o (write_data_o), .out_keep_o (out_keep), .out_last_o (unused_last)
    );
  end

  if (IsDigest) begin : gen_no_out
    assign out_valid    = 1'b0;
    assign out_keep     = '0;
    assign write_data_o = '0;
  end

  if (Operator != dcs_pkg::OpAes256Xts) begin : gen_no_error
    assign job_error = 1'b0;
  end

endmodule
