// A sender's credits: how many bytes may go next, and what becomes of a grant. (`sender.rs`)

module d2d_credit
  import d2d_pkg::*;
(
  // How far the sender is, how far the receiver, and the credits that may be under way.
  input  position_t               sent_i,
  input  position_t               taken_i,
  input  logic [31:0]             budget_i,

  // Up to where credits reach.
  output position_t               limit_o,
  // Bytes in the queue, where they are due up to, and where the next one goes: those that go now
  // do not cross a multiple of the largest payload.
  input  queued_t                 queued_i,
  input  position_t               due_i,
  input  logic [PayloadShift-1:0] offset_i,
  output payload_t                bytes_o,

  // A grant of so many credits, modulo 2^32: it is newer than the last one, or false; what was
  // taken then.
  input  logic [31:0]             grant_i,
  output logic                    newer_o,
  output logic                    false_o,
  output position_t               granted_o
);

  logic [31:0] ahead;
  position_t   ready;
  payload_t    room;

  assign limit_o   = (taken_i + 64'(budget_i)) << CreditShift;
  assign ahead     = grant_i - taken_i[31:0];
  assign newer_o   = ahead != '0 && !ahead[31];
  assign granted_o = taken_i + 64'(ahead);
  assign false_o   = newer_o && granted_o > credits_of(sent_i);

  always_comb begin
    ready = due_i > sent_i ? due_i - sent_i : '0;
    if (64'(queued_i) < ready) ready = 64'(queued_i);
    if (limit_o - sent_i < ready) ready = limit_o - sent_i;
    room    = payload_t'(1 << PayloadShift) - {1'b0, offset_i};
    bytes_o = ready < 64'(room) ? payload_t'(ready) : room;
  end

endmodule
