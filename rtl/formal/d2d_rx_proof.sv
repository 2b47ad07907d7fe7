// What is proved of `d2d_rx`: no byte is written to a queue for which the window has no room,
// credits are not returned for what was never received, and a receiver whose credits are used up
// owes a grant, or has yet to take what it has.

module d2d_rx_proof
  import d2d_pkg::*;
(
  input logic               clk_i,
  input logic               rst_ni,
  input nanos_t             now_i,
  input logic               access_valid_i,
  input access_t            access_i,
  input logic               parse_ready_i,
  input error_t             parse_error_i,
  input logic [15:0]        parse_unit_i,
  input logic               take_valid_i,
  input stream_t            take_stream_i,
  input queued_t            take_most_i,
  input logic               consume_valid_i,
  input stream_t            consume_stream_i,
  input queued_t            consume_bytes_i,
  input logic [15:0]        consume_epoch_i,
  input error_t             consume_error_i,
  input bus_pkg::request_t  aperture_bus_i,
  input bus_pkg::response_t queue_bus_i,
  input bus_pkg::response_t grant_bus_i
);

  // Steps of the machine, by their numbers.
  localparam logic [3:0] Sweep = 4'd0;
  localparam logic [3:0] Pick = 4'd1;
  localparam logic [3:0] Parse = 4'd3;
  localparam logic [3:0] Begin = 4'd4;
  localparam logic [3:0] Consume = 4'd6;
  localparam logic [3:0] Copy = 4'd8;
  localparam logic [3:0] Settle = 4'd9;
  localparam logic [3:0] Store = 4'd14;

  logic access_ready, parse_valid, take_ready, consume_ready, ended, told, ended_interrupt;
  logic [63:0] access_data;
  logic [Streams-1:0] ready;
  stream_t parse_stream, ended_stream;
  queued_t take_bytes;
  logic [RxShift-1:0] take_at;
  logic [15:0] take_epoch;
  bus_pkg::response_t aperture_bus;
  bus_pkg::request_t queue_bus, grant_bus;

  d2d_rx u_rx (
    .clk_i,
    .rst_ni,
    .now_i,
    .aperture_i        (52'h0),
    .access_valid_i,
    .access_ready_o    (access_ready),
    .access_i,
    .access_data_o     (access_data),
    .parse_valid_o     (parse_valid),
    .parse_ready_i,
    .parse_stream_o    (parse_stream),
    .parse_error_i,
    .parse_unit_i,
    .ready_o           (ready),
    .take_valid_i,
    .take_ready_o      (take_ready),
    .take_stream_i,
    .take_most_i,
    .take_bytes_o      (take_bytes),
    .take_at_o         (take_at),
    .take_epoch_o      (take_epoch),
    .consume_valid_i,
    .consume_ready_o   (consume_ready),
    .consume_stream_i,
    .consume_bytes_i,
    .consume_epoch_i,
    .consume_error_i,
    .ended_o           (ended),
    .told_o            (told),
    .ended_stream_o    (ended_stream),
    .ended_interrupt_o (ended_interrupt),
    .aperture_bus_i,
    .aperture_bus_o    (aperture_bus),
    .queue_bus_o       (queue_bus),
    .queue_bus_i,
    .grant_bus_o       (grant_bus),
    .grant_bus_i
  );

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;

  // Nobody consumes what was not taken, or fills a stream of 2^44 bytes; a burst's first beat has
  // nothing before its address.
  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    if (u_rx.step_q == Consume) begin
      assume (64'(consume_bytes_i) <= u_rx.c_q.taken_out - u_rx.c_q.consumed);
    end
    assume (u_rx.c_q.received < 64'h1000_0000_0000);
    if (u_rx.step_q == Parse) assume (parse_unit_i != '0);
    for (int unsigned i = 0; i < bus_pkg::BeatBytes; i++) begin
      if (4'(i) < u_rx.first_q) assume (!aperture_bus_i.w.strb[i]);
    end
    // A burst has at most 4 KiB.
    if (u_rx.step_q == Copy) assume (14'(u_rx.count_q) + 14'(u_rx.here) <= 14'd4096);
  end

  // ---- What every stream's word keeps to ----

  typedef struct packed {
    state_e    state;
    logic      owed;
    position_t received;
    position_t taken_out;
    position_t consumed;
    position_t told;
    logic [15:0] unit;
  } view_t;

  localparam position_t Window = position_t'(1 << RxShift);

  // Credits after which the next grant is due.
  function automatic position_t step_of(logic [15:0] unit);
    position_t step;
    step = (position_t'(1 << WindowShift) - credits_of(64'(unit))) >> 2;
    return step == '0 ? 64'd1 : step;
  endfunction

  function automatic logic keeps(view_t view);
    return (!is_running(view.state) || view.owed
            || view.consumed >> CreditShift < view.told + step_of(view.unit))
        && view.consumed <= view.taken_out && view.taken_out <= view.received
        && view.received <= view.consumed + Window && view.received < 64'h1000_0000_2000
        && view.told <= credits_of(view.received);
  endfunction

  view_t [Streams-1:0] views;
  view_t held;
  logic  sound, holds;

  assign held  = '{u_rx.c_q.state, u_rx.c_q.owed, u_rx.c_q.received, u_rx.c_q.taken_out,
                   u_rx.c_q.consumed, u_rx.c_q.told, u_rx.c_q.unit};
  assign holds = !(u_rx.step_q inside {Sweep, Pick});

  for (genvar i = 0; i < int'(Streams); i++) begin : gen_views
    assign views[i] = '{u_rx.streams[i].state, u_rx.streams[i].owed, u_rx.streams[i].received,
                        u_rx.streams[i].taken_out, u_rx.streams[i].consumed, u_rx.streams[i].told,
                        u_rx.streams[i].unit};
  end

  position_t first;
  assign first = held.received + 64'(u_rx.count_q);

  always_comb begin
    sound = u_rx.step_q <= Store;
    for (int unsigned i = 0; i < Streams; i++) begin
      if (u_rx.step_q == Sweep ? stream_t'(i) < u_rx.at_q
          : !(holds && u_rx.at_q == stream_t'(i))) sound &= keeps(views[i]);
    end
    if (holds) sound &= keeps(held);
    // A run begins with a grant.
    if (u_rx.step_q inside {Parse, Begin}) sound &= held.owed;
    if (u_rx.step_q inside {Copy, Settle}) begin
      sound &= u_rx.count_q <= 13'd4096;
      sound &= 64'(u_rx.room_q) == (first < held.consumed + Window
                                    ? held.consumed + Window - first : '0);
      if (u_rx.expected_q) sound &= is_running(held.state) && u_rx.ours_q;
    end
  end

  logic [bus_pkg::BeatBytes-1:0] strobes;
  assign strobes = queue_bus.w.strb;

  always_comb begin
    if (started_q && rst_ni) begin
      assert (sound);
      if (u_rx.step_q == Copy && queue_bus.w_valid) begin
        for (int unsigned i = 0; i < bus_pkg::BeatBytes; i++) begin
          if (strobes[i]) begin
            assert (first + 64'(i) - 64'(u_rx.first_q) < held.consumed + Window);
          end
        end
      end
      if (grant_bus.w_valid) begin
        assert (u_rx.credits <= credits_of(held.received));
      end
    end
  end

endmodule
