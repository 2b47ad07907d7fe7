// Times of the stages of each command, for its result area: when the first operation was issued
// and the last one done, how long all of them took together, and how many there were.

module stage_times
  import core_pkg::*;
  import sequencer_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic [63:0] now_i,

  // An operation is issued, or is done: not in two cycles one after the other. The first one that a
  // command issues at a stage begins the stage's times.
  input  times_e      event_i,
  input  logic        first_i,
  input  times_at_t   at_i,
  input  flight_at_t  flight_i,

  // The times of a finished command's stage, in the cycle after one with `ready`.
  output logic        read_ready_o,
  input  times_at_t   read_at_i,
  output times_t      read_o
);

  times_t      times  [2 ** $bits(times_at_t)];
  logic [63:0] issued [2 ** $bits(flight_at_t)];

  times_e      event_q;
  logic        first_q;
  times_at_t   at_q;
  logic [63:0] now_q, since_q;
  times_t      old_q, times_d;

  assign read_ready_o = event_i == TimesNone;
  assign read_o       = old_q;

  always_comb begin
    times_d = old_q;
    if (event_q == TimesIssue) begin
      times_d.operations = old_q.operations + 1'b1;
      if (first_q) begin
        times_d            = '0;
        times_d.operations = $bits(times_d.operations)'(1);
        // 0 means never.
        times_d.first      = now_q == '0 ? 64'd1 : now_q;
      end
    end else begin
      times_d.last = now_q;
      times_d.busy = old_q.busy + (now_q - since_q);
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) event_q <= TimesNone;
    else event_q <= event_i;
  end

  always_ff @(posedge clk_i) begin
    first_q <= first_i;
    at_q    <= at_i;
    now_q   <= now_i;
    old_q   <= times[event_i == TimesNone ? read_at_i : at_i];
    since_q <= issued[flight_i];
    if (event_i == TimesIssue) issued[flight_i] <= now_i;
    if (event_q != TimesNone) times[at_q] <= times_d;
  end

endmodule
