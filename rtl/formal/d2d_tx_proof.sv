// What is proved of `d2d_tx`, whatever its driver, its owner and the receiver do: a stream never
// sends more than it has credits for, bytes that are not in its queue, or bytes before their time;
// every byte of its bursts is in the receiver's place, and none beside them; each run ends once, and
// well only when the receiver has taken everything.

// What is known of a stream.
`define OF(field) (held ? u_tx.c_q.field : u_tx.streams[i].field)

module d2d_tx_proof
  import d2d_pkg::*;
#(
  localparam logic [63:0] QueueBase = 64'h1_0000_0000
) (
  input logic               clk_i,
  input logic               rst_ni,
  input nanos_t             now_i,
  input logic               access_valid_i,
  input access_t            access_i,
  input logic               parse_ready_i,
  input error_t             parse_error_i,
  input position_t          parse_bytes_i,
  input logic               push_valid_i,
  input stream_t            push_stream_i,
  input queued_t            push_bytes_i,
  input error_t             push_error_i,
  input bus_pkg::response_t bus_i
);

  localparam int unsigned Beat = bus_pkg::BeatBytes;

  // The module's steps.
  typedef enum logic [3:0] {
    Sweep,
    Pick,
    Access,
    Push,
    Parse,
    Multiply,
    Divide,
    Begin,
    Turn,
    Address,
    Move,
    Response,
    Store
  } step_e;

  logic              access_ready, access_sender, parse_valid, push_ready, sent, ended, interrupt;
  logic [63:0]       access_data;
  stream_t           parse_stream, sent_stream, ended_stream;
  payload_t          sent_bytes;
  bus_pkg::request_t bus;

  d2d_tx #(
    .QueueBase (QueueBase)
  ) u_tx (
    .clk_i,
    .rst_ni,
    .now_i,
    .access_valid_i,
    .access_ready_o    (access_ready),
    .access_i,
    .access_data_o     (access_data),
    .access_sender_o   (access_sender),
    .parse_valid_o     (parse_valid),
    .parse_ready_i,
    .parse_stream_o    (parse_stream),
    .parse_error_i,
    .parse_bytes_i,
    .push_valid_i,
    .push_ready_o      (push_ready),
    .push_stream_i,
    .push_bytes_i,
    .push_error_i,
    .sent_o            (sent),
    .sent_stream_o     (sent_stream),
    .sent_bytes_o      (sent_bytes),
    .ended_o           (ended),
    .ended_stream_o    (ended_stream),
    .ended_interrupt_o (interrupt),
    .bus_o             (bus),
    .bus_i
  );

  // ---- The plain view: bytes that were put into a stream's queue, runs whose end was told ----

  logic                    started_q, begins;
  position_t [Streams-1:0] pushed_q;
  logic [Streams-1:0]      over_q;

  initial started_q = 1'b0;

  // A write to the register that begins a run or clears the last one.
  assign begins = access_ready && access_i.halves[0] && access_i.number == RegTxAddress
                  && access_i.data[1:0] != '0;

  always_ff @(posedge clk_i) begin
    started_q <= 1'b1;
    if (!rst_ni) begin
      pushed_q <= '0;
      over_q   <= '0;
    end else begin
      if (push_ready && push_error_i == ErrNone && is_running(u_tx.c_q.state)) begin
        pushed_q[u_tx.at_q] <= pushed_q[u_tx.at_q] + 64'(push_bytes_i);
      end
      if (ended) over_q[ended_stream] <= 1'b1;
      if (begins) begin
        pushed_q[u_tx.at_q] <= '0;
        over_q[u_tx.at_q]   <= 1'b0;
      end
    end
  end

  // ---- What is assumed: requests wait; a queue is not filled beyond its size ----

  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    if (u_tx.step_q == Access) assume (access_valid_i && access_i.stream == u_tx.at_q);
    if (u_tx.step_q == Push) begin
      assume (push_valid_i && push_stream_i == u_tx.at_q);
      assume (17'(u_tx.c_q.queued) + 17'(push_bytes_i) <= 17'(1 << QueueShift));
    end
  end

  // ---- What holds at any time ----

  for (genvar i = 0; i < int'(Streams); i++) begin : gen_stream
    logic               held, runs, swept, sends;

    assign held  = !(u_tx.step_q inside {Sweep, Pick}) && u_tx.at_q == stream_t'(i);
    assign runs  = is_running(`OF(state));
    assign sends = `OF(state) inside {StSend, StWait, StCheck};
    assign swept = u_tx.step_q != Sweep || u_tx.at_q > stream_t'(i);

    always_comb begin
      // No stream has more than 2^60 bytes, and time does not end.
      assume (pushed_q[i] < 64'h1000_0000_0000_0000);
      assume (!`OF(paced) || `OF(due) < 64'h1000_0000_0000_0000);
      if (started_q && rst_ni && swept) begin
        assert (`OF(sender) == (`OF(state) != StInit));
        assert (`OF(state) inside {StInit, StParse, StSend, StWait, StCheck, StIdle, StFailed});
        if (`OF(state) == StParse) begin
          assert (held && !`OF(planned) && `OF(sent) == '0 && `OF(taken) == '0 && `OF(queued) == '0
                  && `OF(offset) == '0 && pushed_q[i] == '0);
          assert (u_tx.step_q inside {Parse, Multiply, Divide, Begin});
        end
        if (sends) begin
          assert (`OF(planned) && `OF(sent) + 64'(`OF(queued)) == pushed_q[i]);
          if (`OF(bounded)) assert (`OF(sent) <= `OF(end_at));
        end
        if (`OF(planned)) begin
          // Credits, and the receiver's place.
          assert (`OF(sent) <= (`OF(taken) + 64'(`OF(budget))) << CreditShift);
          assert (`OF(taken) <= credits_of(`OF(sent)) && `OF(budget) <= `OF(wrap) >> 1);
          assert (`OF(sent) < 64'h1000_0000_0000_0000);
          assert (`OF(offset) < {`OF(wrap), 12'b0});
          assert (`OF(offset[PayloadShift-1:0]) == `OF(sent[PayloadShift-1:0]));
          assert (65'({`OF(run_address), 12'b0}) + 65'({`OF(wrap), 12'b0}) <= 65'h0_ffff_ffff_ffff_ffff);
        end
        assert (17'(`OF(queued)) <= 17'(1 << QueueShift));
        // A slot's bytes are due, and no later ones.
        if (`OF(state) == StSend && `OF(paced)) assert (`OF(chunk) <= `OF(due));
        // It is over once: it will be told, or it was.
        assert ((`OF(announce) || over_q[i]) == (`OF(state) inside {StIdle, StFailed}));
        assert (!(`OF(announce) && over_q[i]));
        if (`OF(state) == StIdle) begin
          assert (`OF(bounded) && `OF(sent) == `OF(end_at) && `OF(taken) >= credits_of(`OF(end_at)));
        end
      end
    end
  end

  // ---- The burst ----

  logic        bursts;
  logic [12:0] number, from;
  assign bursts = u_tx.step_q inside {Address, Move, Response};
  assign number = 13'(u_tx.span[PayloadShift:4]) - 13'(u_tx.beats_q);
  assign from   = number * 13'(Beat);

  always_comb begin
    if (started_q && rst_ni) begin
      assert (u_tx.step_q <= Store);
      if (u_tx.step_q == Sweep) assert (over_q == '0 && pushed_q == '0);
      if (u_tx.step_q inside {Parse, Multiply, Divide, Begin}) assert (u_tx.c_q.state == StParse);
      if (bursts) begin
        assert (u_tx.bytes_q != '0 && u_tx.bytes_q == u_tx.bytes);
        assert (u_tx.c_q.state == StSend && !u_tx.c_q.pause);
        assert (64'(u_tx.bytes_q) <= 64'(u_tx.c_q.queued));
        assert (u_tx.c_q.sent + 64'(u_tx.bytes_q) <= u_tx.limit);
        assert (u_tx.c_q.sent + 64'(u_tx.bytes_q) <= u_tx.due);
        assert (45'(u_tx.c_q.offset) + 45'(u_tx.bytes_q) <= 45'({u_tx.c_q.wrap, 12'b0}));
        // The bytes of the queue lie as those of the place do.
        assert (u_tx.c_q.sent[3:0] == u_tx.c_q.offset[3:0]);
      end
      if (u_tx.step_q == Move) begin
        assert (u_tx.beats_q <= u_tx.span[PayloadShift:4]);
        assert (u_tx.first_beat_q == (number == '0));
      end
      if (bus.w_valid) begin
        for (int unsigned i = 0; i < Beat; i++) begin
          assert (bus.w.strb[i] == (from + 13'(i) >= 13'(u_tx.c_q.offset[3:0])
                  && from + 13'(i) < 13'(u_tx.c_q.offset[3:0]) + 13'(u_tx.bytes_q)));
        end
        assert (bus.w.last == (number == 13'(u_tx.span[PayloadShift:4])));
      end
      if (ended) assert (!over_q[ended_stream]);
    end
  end

endmodule
