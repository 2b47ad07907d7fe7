// What is proved of `d2d_rx`, whatever its driver, senders and owner do: the window is never overrun,
// and no byte is written but one that the queue has room for; nothing is taken twice, and nothing
// consumed that was not taken; grants never go back; and each run ends once.

// What is known of a stream.
`define OF(field) (held ? u_rx.c_q.field : u_rx.streams[i].field)

module d2d_rx_proof
  import d2d_pkg::*;
#(
  localparam logic [63:0] QueueBase = 64'h1_0000_0000
) (
  input logic               clk_i,
  input logic               rst_ni,
  input nanos_t             now_i,
  input logic [63:12]       aperture_i,
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

  localparam int unsigned Beat = bus_pkg::BeatBytes;

  // The module's steps.
  typedef enum logic [4:0] {
    Sweep,
    Pick,
    Access,
    Parse,
    Begin,
    Take,
    Taken,
    Consume,
    Finish,
    Arrive,
    Copy,
    Settle,
    Turn,
    Grant,
    GrantData,
    Granted,
    Store
  } step_e;

  logic               access_ready, parse_valid, take_ready, consume_ready, ended, told, interrupt;
  logic [63:0]        access_data;
  stream_t            parse_stream, ended_stream;
  logic [Streams-1:0] ready;
  queued_t            take_bytes;
  logic [RxShift-1:0] take_at;
  logic [15:0]        take_epoch;
  bus_pkg::response_t aperture_bus;
  bus_pkg::request_t  queue_bus, grant_bus;

  d2d_rx #(
    .QueueBase (QueueBase)
  ) u_rx (
    .clk_i,
    .rst_ni,
    .now_i,
    .aperture_i,
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
    .ended_interrupt_o (interrupt),
    .aperture_bus_i,
    .aperture_bus_o    (aperture_bus),
    .queue_bus_o       (queue_bus),
    .queue_bus_i,
    .grant_bus_o       (grant_bus),
    .grant_bus_i
  );

  // ---- The plain view: bytes that a stream's owner has, runs whose end was told, the burst ----

  logic                    started_q, begins;
  position_t [Streams-1:0] out_q;
  queued_t                 most_q;
  logic [Streams-1:0]      over_q;
  // Where the beat begins, from the burst's first byte on; that byte's lane; the beat's number, and
  // the last one's.
  logic signed [13:0]      from_q;
  logic [3:0]              lane_q;
  logic [7:0]              beat_q, last_q;

  initial started_q = 1'b0;

  // A write to the register that begins a run or clears the last one.
  assign begins = access_ready && access_i.halves[0] && access_i.number == RegTxAddress
                  && access_i.data[1:0] != '0;

  always_ff @(posedge clk_i) begin
    started_q <= 1'b1;
    most_q    <= take_most_i;
    if (!rst_ni) begin
      out_q  <= '0;
      over_q <= '0;
    end else begin
      if (take_ready) out_q[u_rx.at_q] <= out_q[u_rx.at_q] + 64'(take_bytes);
      if (consume_ready && consume_epoch_i == take_epoch) begin
        out_q[u_rx.at_q] <= out_q[u_rx.at_q] - 64'(consume_bytes_i);
      end
      if (ended) over_q[ended_stream] <= 1'b1;
      if (begins) begin
        out_q[u_rx.at_q]  <= '0;
        over_q[u_rx.at_q] <= 1'b0;
      end
      if (u_rx.step_q == Arrive) begin
        from_q <= -14'(aperture_bus_i.aw.addr[3:0]);
        lane_q <= aperture_bus_i.aw.addr[3:0];
        beat_q <= '0;
        last_q <= aperture_bus_i.aw.len;
      end else if (queue_bus.w_valid && queue_bus_i.w_ready) begin
        from_q <= from_q + 14'(Beat);
        beat_q <= beat_q + 1'b1;
      end
    end
  end

  // ---- What is assumed: requests wait; AXI's rules; who consumes has taken; no run is endless ----

  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    if (u_rx.step_q == Access) assume (access_valid_i && access_i.stream == u_rx.at_q);
    if (u_rx.step_q inside {Take, Taken}) assume (take_valid_i && take_stream_i == u_rx.at_q);
    if (u_rx.step_q == Taken) assume (take_most_i == most_q);
    if (u_rx.step_q == Consume) begin
      assume (consume_valid_i && consume_stream_i == u_rx.at_q);
      if (consume_epoch_i == take_epoch) assume (64'(consume_bytes_i) <= out_q[u_rx.at_q]);
    end
    if (u_rx.step_q == Arrive) begin
      assume (aperture_bus_i.aw_valid && u_rx.burst_stream == u_rx.at_q);
      assume (aperture_bus_i.aw.size == 3'd4 && aperture_bus_i.aw.burst == 2'b01);
      // No burst crosses 4 KiB.
      assume (9'(aperture_bus_i.aw.addr[11:4]) + 9'(aperture_bus_i.aw.len) < 9'd256);
    end
    if (aperture_bus_i.w_valid && u_rx.step_q == Copy) begin
      assume (aperture_bus_i.w.last == (beat_q == last_q));
      for (int signed i = 0; i < Beat; i++) begin
        if (from_q + 14'(i) < 0) assume (!aperture_bus_i.w.strb[i]);
      end
    end
  end

  // ---- What holds at any time ----

  for (genvar i = 0; i < int'(Streams); i++) begin : gen_stream
    logic               held, runs, swept;
    position_t          credits;

    assign held  = !(u_rx.step_q inside {Sweep, Pick}) && u_rx.at_q == stream_t'(i);
    assign runs  = is_running(`OF(state));
    assign swept = u_rx.step_q != Sweep || u_rx.at_q > stream_t'(i);

    always_comb begin
      credits = `OF(consumed) >> CreditShift;
      if (`OF(bounded) && `OF(consumed) == `OF(end_at)) credits = credits_of(`OF(consumed));
    end

    always_comb begin
      // No stream has more than 2^60 bytes.
      assume (`OF(received) < 64'h1000_0000_0000_0000);
      if (started_q && rst_ni && swept) begin
        assert (`OF(receiver) == (`OF(state) != StInit));
        assert (`OF(state) inside {StInit, StFetch, StIdle, StFailed});
        assert (`OF(consumed) <= `OF(taken_out) && `OF(taken_out) <= `OF(received));
        assert (`OF(received) <= `OF(consumed) + 64'(1 << RxShift));
        if (runs) assert (`OF(taken_out) - `OF(consumed) == out_q[i]);
        if (runs && `OF(bounded)) begin
          assert (`OF(received) <= `OF(end_at));
          if (!held || u_rx.step_q != Finish) assert (`OF(consumed) != `OF(end_at));
        end
        // It is over once: it will be told, or it was.
        assert ((`OF(announce) || over_q[i]) == (`OF(state) inside {StIdle, StFailed}));
        assert (!(`OF(announce) && over_q[i]));
        if (`OF(state) == StIdle) assert (`OF(bounded) && `OF(consumed) == `OF(end_at));
        assert (`OF(told) <= credits);
      end
    end
  end

  // ---- The burst ----

  position_t room;
  logic      sound;
  assign room = u_rx.c_q.consumed + 64'(1 << RxShift) - u_rx.c_q.received;

  always_comb begin
    sound = from_q < 0 ? u_rx.first_q == 4'(-from_q) && 64'(u_rx.room_q) == room
            : u_rx.first_q == '0
              && 64'(u_rx.room_q) == (room > 64'(from_q) ? room - 64'(from_q) : '0);
    sound &= from_q == 14'(16 * 14'(beat_q)) - 14'(lane_q) && beat_q <= last_q;
  end

  always_comb begin
    if (started_q && rst_ni) begin
      assert (u_rx.step_q <= Store);
      if (u_rx.step_q == Sweep) assert (over_q == '0 && out_q == '0);
      if (u_rx.step_q inside {Parse, Begin}) begin
        assert (u_rx.c_q.state == StFetch && !u_rx.c_q.bounded);
        assert (u_rx.c_q.received == '0 && u_rx.c_q.consumed == '0 && u_rx.c_q.told == '0);
      end
      if (u_rx.step_q == Taken && u_rx.units_q != '0) begin
        assert (u_rx.c_q.taken_out + 64'(u_rx.units_q) <= u_rx.c_q.received);
        assert (64'(u_rx.units_q) <= 64'(most_q) && !u_rx.c_q.pause);
      end
      if (u_rx.step_q == Finish) assert (is_running(u_rx.c_q.state));
      if (u_rx.step_q inside {Copy, Settle}) begin
        if (u_rx.expected_q) assert (u_rx.ours_q);
        if (u_rx.ours_q) assert (u_rx.known_q && is_running(u_rx.c_q.state));
      end
      if (u_rx.step_q == Copy && u_rx.expected_q) assert (sound);
      if (queue_bus.w_valid) begin
        for (int signed i = 0; i < Beat; i++) begin
          if (queue_bus.w.strb[i]) begin
            assert (from_q + 14'(i) >= 0 && 64'(from_q + 14'(i)) < room);
          end
        end
      end
      if (u_rx.step_q inside {Grant, GrantData}) assert (u_rx.c_q.told == u_rx.credits);
      if (ended) assert (!over_q[ended_stream]);
      if (take_ready && take_bytes != '0) begin
        assert (u_rx.c_q.taken_out + 64'(take_bytes) <= u_rx.c_q.received);
        assert (64'(take_bytes) <= 64'(take_most_i) && !u_rx.c_q.pause);
      end
      if (grant_bus.w_valid) assert (grant_bus.w.data[31:0] == u_rx.c_q.told[31:0]);
    end
  end

endmodule
