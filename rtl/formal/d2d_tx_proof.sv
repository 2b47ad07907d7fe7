// What is proved of `d2d_tx`, beside what is of `d2d_credit`: every stream keeps to its credits and
// its queue's bytes, whatever happens to it and to others; and a stream that may send does so when
// its turn comes, which is after one turn of each other stream.

module d2d_tx_proof
  import d2d_pkg::*;
(
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

  // Steps of the machine, by their numbers.
  localparam logic [3:0] Sweep = 4'd0;
  localparam logic [3:0] Pick = 4'd1;
  localparam logic [3:0] Access = 4'd2;
  localparam logic [3:0] Push = 4'd3;
  localparam logic [3:0] Parse = 4'd4;
  localparam logic [3:0] Multiply = 4'd5;
  localparam logic [3:0] Divide = 4'd6;
  localparam logic [3:0] Begin = 4'd7;
  localparam logic [3:0] Turn = 4'd8;
  localparam logic [3:0] Address = 4'd9;
  localparam logic [3:0] Move = 4'd10;
  localparam logic [3:0] Response = 4'd11;
  localparam logic [3:0] Store = 4'd12;

  logic access_ready, access_sender, parse_valid, push_ready, sent, ended, ended_interrupt;
  logic [63:0] access_data;
  stream_t  parse_stream, sent_stream, ended_stream;
  payload_t sent_bytes;
  bus_pkg::request_t bus;

  d2d_tx u_tx (
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
    .ended_interrupt_o (ended_interrupt),
    .bus_o             (bus),
    .bus_i
  );

  // Bytes that were put into the queue in this run, by the words that the machine works on.
  position_t [Streams-1:0] pushed_q;
  logic started_q, asked_access_q, asked_push_q;
  access_t access_q;
  stream_t push_stream_q;
  queued_t push_bytes_q;

  initial started_q = 1'b0;

  always_ff @(posedge clk_i) begin
    started_q      <= 1'b1;
    asked_access_q <= rst_ni && access_valid_i && !access_ready;
    access_q       <= access_i;
    asked_push_q   <= rst_ni && push_valid_i && !push_ready;
    push_stream_q  <= push_stream_i;
    push_bytes_q   <= push_bytes_i;
    if (!rst_ni) pushed_q <= '0;
    else if (u_tx.step_q == Access && access_i.halves[0] && access_i.number == RegTxAddress
             && access_i.data[1:0] != '0) pushed_q[u_tx.at_q] <= '0;
    else if (push_ready) pushed_q[push_stream_i] <= pushed_q[push_stream_i] + 64'(push_bytes_i);
  end

  // What is asked for stays; a queue is not filled beyond its size; streams end before 2^44 bytes.
  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    if (asked_access_q) assume (access_valid_i && access_i == access_q);
    if (asked_push_q) begin
      assume (push_valid_i && push_stream_i == push_stream_q && push_bytes_i == push_bytes_q);
    end
    assume (pushed_q[0] < 64'h1000_0000_0000 && pushed_q[1] < 64'h1000_0000_0000);
    if (u_tx.step_q == Push) begin
      assume (17'(u_tx.c_q.queued) + 17'(push_bytes_i) <= 17'(1 << QueueShift));
    end
  end

  // ---- What every stream's word keeps to ----

  typedef struct packed {
    logic        planned;
    state_e      state;
    position_t   sent;
    queued_t     queued;
    position_t   taken;
    logic [31:0] budget;
  } view_t;

  function automatic position_t limit_of(view_t view);
    return (view.taken + 64'(view.budget)) << CreditShift;
  endfunction

  function automatic logic keeps(view_t view, position_t pushed);
    return view.planned ? view.sent <= limit_of(view) && view.sent <= pushed
                          && view.taken <= credits_of(view.sent)
                          && (!is_running(view.state) || view.sent + 64'(view.queued) == pushed)
                        : view.sent == '0 && view.taken == '0 && view.queued == '0;
  endfunction

  view_t [Streams-1:0] views;
  view_t  held;
  logic   holds, sound;
  logic [Streams-1:0][StreamWidth:0] others_q;

  assign held  = '{u_tx.c_q.planned, u_tx.c_q.state, u_tx.c_q.sent, u_tx.c_q.queued,
                   u_tx.c_q.taken, u_tx.c_q.budget};
  assign holds = !(u_tx.step_q inside {Sweep, Pick});

  for (genvar i = 0; i < int'(Streams); i++) begin : gen_views
    assign views[i] = '{u_tx.streams[i].planned, u_tx.streams[i].state, u_tx.streams[i].sent,
                        u_tx.streams[i].queued, u_tx.streams[i].taken, u_tx.streams[i].budget};

    // Turns of other streams since this one's.
    always_ff @(posedge clk_i) begin
      if (!rst_ni) others_q[i] <= (StreamWidth + 1)'(int'(Streams) - 1 - i);
      else if (u_tx.step_q == Turn && u_tx.step_d != Turn) begin
        others_q[i] <= u_tx.at_q == stream_t'(i) ? '0 : others_q[i] + 1'b1;
      end
    end
  end

  logic in_start, in_write;
  assign in_start = u_tx.step_q inside {Parse, Multiply, Divide, Begin};
  assign in_write = u_tx.step_q inside {Address, Move, Response};

  always_comb begin
    sound = u_tx.step_q <= Store;
    for (int unsigned i = 0; i < Streams; i++) begin
      if (u_tx.step_q == Sweep ? stream_t'(i) < u_tx.at_q
          : !(holds && u_tx.at_q == stream_t'(i))) begin
        sound &= keeps(views[i], pushed_q[i]);
        sound &= !is_running(views[i].state) || (views[i].planned && views[i].state != StParse);
      end
      sound &= others_q[i] == (StreamWidth + 1)'(Streams - 1)
               - (StreamWidth + 1)'(stream_t'(stream_t'(i) - u_tx.turn_q));
      if (u_tx.step_q == Sweep) sound &= pushed_q[i] == '0;
    end
    if (u_tx.step_q == Sweep) sound &= u_tx.turn_q == '0;
    if (holds) begin
      sound &= keeps(held, pushed_q[u_tx.at_q]);
      if (in_start) sound &= held.state == StParse && !held.planned && pushed_q[u_tx.at_q] == '0;
      else sound &= !is_running(held.state) || (held.planned && held.state != StParse);
    end
    if (u_tx.step_q == Access) sound &= asked_access_q && access_q.stream == u_tx.at_q;
    if (u_tx.step_q == Push) sound &= asked_push_q && push_stream_q == u_tx.at_q;
    if (u_tx.step_q == Turn) sound &= u_tx.at_q == u_tx.turn_q;
    if (in_write) begin
      sound &= held.state == StSend && u_tx.bytes_q != '0;
      sound &= 64'(u_tx.bytes_q) <= 64'(held.queued);
      sound &= held.sent + 64'(u_tx.bytes_q) <= limit_of(held);
    end
  end

  always_comb begin
    if (started_q && rst_ni) begin
      assert (sound);
      for (int unsigned i = 0; i < Streams; i++) begin
        assert (others_q[i] < (StreamWidth + 1)'(Streams));
      end
      if (sent) begin
        // Within credits, and out of the queue.
        assert (held.sent + 64'(sent_bytes) <= limit_of(held));
        assert (64'(sent_bytes) <= 64'(held.queued) && sent_bytes != '0);
      end
      // Who has data that are due, and credits, sends them when it is looked at.
      if (u_tx.step_q == Turn && held.state == StSend && !u_tx.c_q.pause
          && held.sent < u_tx.due && held.queued != '0 && held.sent < limit_of(held)
          && !(u_tx.c_q.paced && u_tx.c_q.next <= now_i)) begin
        assert (u_tx.step_d == Address);
      end
    end
  end

endmodule
