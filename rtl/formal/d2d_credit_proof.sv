// What is proved of `d2d_credit`, whatever its sender does in which order: it has never sent more
// than it has credits for; credits are not returned that were never used, and old grants are worth
// nothing; no byte leaves the queue twice, or from an empty one; and who has data that are due, and
// credits, may send.

module d2d_credit_proof
  import d2d_pkg::*;
(
  input logic        clk_i,
  input logic        rst_ni,
  // A run begins; bytes come into the queue; a write leaves; a grant comes.
  input logic        start_i,
  input logic [31:0] budget_i,
  input logic        push_i,
  input queued_t     push_bytes_i,
  input logic        send_i,
  input position_t   due_i,
  input logic        grant_i,
  input logic [31:0] grant_taken_i
);

  // The sender's state, as `d2d_tx` keeps it.
  position_t   sent_q, taken_q, pushed_q;
  queued_t     queued_q;
  logic [31:0] budget_q;
  position_t   limit, granted;
  payload_t    bytes;
  logic        newer, is_false, started_q;

  initial started_q = 1'b0;

  d2d_credit u_credit (
    .sent_i    (sent_q),
    .taken_i   (taken_q),
    .budget_i  (budget_q),
    .limit_o   (limit),
    .queued_i  (queued_q),
    .due_i,
    .offset_i  (sent_q[PayloadShift-1:0]),
    .bytes_o   (bytes),
    .grant_i   (grant_taken_i),
    .newer_o   (newer),
    .false_o   (is_false),
    .granted_o (granted)
  );

  always_ff @(posedge clk_i) begin
    started_q <= 1'b1;
    if (!rst_ni || start_i) begin
      sent_q   <= '0;
      taken_q  <= '0;
      pushed_q <= '0;
      queued_q <= '0;
      budget_q <= budget_i;
    end else if (push_i) begin
      pushed_q <= pushed_q + 64'(push_bytes_i);
      queued_q <= queued_q + push_bytes_i;
    end else if (send_i) begin
      sent_q   <= sent_q + 64'(bytes);
      queued_q <= queued_q - queued_t'(bytes);
    end else if (grant_i && newer && !is_false) begin
      taken_q <= granted;
    end
  end

  // A queue is not filled beyond its size, and no stream has more than 2^60 bytes.
  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    assume (17'(queued_q) + 17'(push_bytes_i) <= 17'(1 << QueueShift));
    assume (pushed_q < 64'h1000_0000_0000_0000);
  end

  logic [31:0] behind;
  assign behind = taken_q[31:0] - grant_taken_i;

  always_comb begin
    if (started_q && rst_ni) begin
      assert (sent_q + 64'(queued_q) == pushed_q);
      assert (sent_q <= pushed_q && 17'(queued_q) <= 17'(1 << QueueShift));
      assert (sent_q <= limit);
      assert (taken_q <= credits_of(sent_q));
      // An old grant, or the last one again, is worth nothing.
      if (behind < 32'h8000_0000) assert (!newer && !is_false);
      assert (64'(bytes) <= 64'(queued_q) && 64'(bytes) <= limit - sent_q);
      // No write crosses a multiple of the largest payload.
      assert (10'(sent_q[PayloadShift-1:0]) + 10'(bytes) <= 10'(1 << PayloadShift));
      if (queued_q != '0 && sent_q < due_i && sent_q < limit) assert (bytes != '0);
    end
  end

endmodule
