// The senders of a function's streams: from a Tx queue in memory to a receiver's aperture, under
// credits and at the stream's pace, as the Rust crate's `sender.rs` and `pace.rs` have them.
//
// One machine takes the streams in turn. What it knows of a stream is a word of a memory: it loads
// the word, does one thing for the stream, and stores it. A queue's bytes lie as they do in the
// receiver's place, modulo a beat of the bus, so that data are copied without being shifted.

module d2d_tx
  import d2d_pkg::*;
#(
  // A network feeds the queues; it may be silent for as long as it wants.
  parameter bit          Network   = 1'b0,
  // Where the queues are: one behind the other.
  parameter logic [63:0] QueueBase = 64'h0
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  nanos_t             now_i,

  // Accesses to registers. A read's answer is there when it is ready.
  input  logic               access_valid_i,
  output logic               access_ready_o,
  input  access_t            access_i,
  output logic [63:0]        access_data_o,
  // The stream is a sender, or nothing yet.
  output logic               access_sender_o,

  // The owner's part of a start: what is wrong, or how many bytes the tasks have.
  output logic               parse_valid_o,
  input  logic               parse_ready_i,
  output stream_t            parse_stream_o,
  input  error_t             parse_error_i,
  input  position_t          parse_bytes_i,

  // Bytes were put into a queue, or could not be read.
  input  logic               push_valid_i,
  output logic               push_ready_o,
  input  stream_t            push_stream_i,
  input  queued_t            push_bytes_i,
  input  error_t             push_error_i,

  // Bytes have left a queue; a run has ended.
  output logic               sent_o,
  output stream_t            sent_stream_o,
  output payload_t           sent_bytes_o,
  output logic               ended_o,
  output stream_t            ended_stream_o,
  output logic               ended_interrupt_o,

  output bus_pkg::request_t  bus_o,
  input  bus_pkg::response_t bus_i
);

  typedef struct packed {
    // Registers.
    logic [60:0] address;
    logic        pause;
    logic [39:0] rate;
    logic [23:0] granularity;
    logic [31:0] credits;
    position_t   count;
    logic [31:0] grant_half;
    logic [31:0] stall;
    logic [31:0] refresh;
    logic [15:0] epoch;
    logic [1:0]  interrupts;
    logic [31:0] place;
    // The last run that was begun.
    logic        has_run;
    logic [51:0] run_address;
    logic [15:0] run_epoch;
    // This run: what was planned.
    logic        sender;
    logic        planned;
    state_e      state;
    error_t      error;
    logic [31:0] budget;
    logic [31:0] wrap;
    logic        bounded;
    position_t   end_at;
    position_t   most;
    logic [41:0] patience;
    logic        announce;
    // Its pace: bytes of a slot and millionths of one; when the next slot begins.
    logic        paced;
    logic [33:0] slot;
    logic [43:0] portion;
    logic [19:0] millionths;
    position_t   due;
    logic [19:0] over;
    nanos_t      next;
    // How far it is.
    position_t   sent;
    logic [43:0] offset;
    queued_t     queued;
    position_t   taken;
    position_t   chunk;
    nanos_t      since;
    logic [31:0] late;
  } stream_state_t;

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

  localparam int unsigned BeatShift = $clog2(bus_pkg::BeatBytes);
  localparam position_t   EndHere   = '1;
  localparam logic [20:0] Million   = 21'd1_000_000;

  stream_state_t streams [Streams];
  stream_state_t c_q;
  step_e         step_q;
  stream_t       at_q, turn_q, at;
  logic          is_access, is_push;

  // ---- Which stream is served next: accesses first, then queues, then turns ----

  assign is_access = access_valid_i;
  assign is_push   = !is_access && push_valid_i;

  always_comb begin
    at = turn_q;
    if (step_q == Sweep || step_q == Store) at = at_q;
    else if (is_access) at = access_i.stream;
    else if (is_push) at = push_stream_i;
  end

  always_ff @(posedge clk_i) begin
    if (step_q == Sweep || step_q == Store) streams[at] <= step_q == Sweep ? '0 : c_q;
  end

  // ---- What a register reads as ----

  position_t taken_bytes, limit, granted, due;
  logic      starved, is_later, is_false;
  payload_t  bytes;
  grant_t    grant;

  assign starved     = c_q.state == StSend && c_q.sent == limit;
  assign taken_bytes = c_q.taken << CreditShift;

  d2d_credit u_credit (
    .sent_i    (c_q.sent),
    .taken_i   (c_q.taken),
    .budget_i  (c_q.budget),
    .limit_o   (limit),
    .queued_i  (c_q.queued),
    .due_i     (due),
    .offset_i  (c_q.offset[PayloadShift-1:0]),
    .bytes_o   (bytes),
    .grant_i   (grant.taken),
    .newer_o   (is_later),
    .false_o   (is_false),
    .granted_o (granted)
  );

  always_comb begin
    logic [15:0] epoch;
    epoch         = c_q.planned ? c_q.run_epoch : '0;
    access_data_o = '0;
    unique case (access_i.number)
      RegTxAddress:   access_data_o = {c_q.address, c_q.pause, 2'b00};
      RegRate:        access_data_o = {c_q.granularity, c_q.rate};
      RegBaseCredits: access_data_o = {32'b0, c_q.credits};
      RegByteCount: begin
        access_data_o = c_q.bounded && is_running(c_q.state) ? c_q.end_at : c_q.count;
      end
      RegGrant:       access_data_o = {16'b0, epoch, c_q.taken[31:0]};
      RegStatus: begin
        access_data_o = {32'b0, epoch, c_q.error, starved, c_q.pause,
                         c_q.sender ? RoleSender : 2'd0, c_q.state};
      end
      RegMoved:       access_data_o = c_q.sent;
      RegTaken:       access_data_o = taken_bytes < c_q.sent ? taken_bytes : c_q.sent;
      RegTimes:       access_data_o = {c_q.refresh, c_q.stall};
      RegControl:     access_data_o = {c_q.place, 14'b0, c_q.interrupts, c_q.epoch};
      RegDropped:     access_data_o = {32'b0, c_q.late};
      default:        access_data_o = '0;
    endcase
  end

  assign access_sender_o = c_q.sender;

  function automatic logic [63:0] merged(logic [63:0] old);
    return written(access_i.halves, access_i.data, old);
  endfunction

  // ---- A grant ----

  logic [15:0] epochs;

  assign grant  = grant_t'(50'(merged({32'b0, c_q.grant_half})));
  assign epochs = grant.epoch - c_q.run_epoch;

  // ---- What a write, a queue or a turn makes of the stream ----

  stream_state_t c_d;
  step_e         step_d;
  logic          fail, start, to_ended;
  error_t        failure;
  logic [63:0]   value;
  payload_t      bytes_q;

  // The chunk's end, or the stream's.
  assign due = c_q.bounded && c_q.end_at < c_q.chunk ? c_q.end_at : c_q.chunk;

  // The copy: which addresses are out, an answer was an error, the burst's last beat.
  logic ar_done_q, aw_done_q, bad_q, beat_last;

  // The serial unit: rate times granularity, then divided by a million.
  logic [63:0] product_q;
  logic [19:0] rest_q;
  logic [20:0] rest;
  logic [6:0]  count_q;
  assign rest = {rest_q, product_q[63]};

  logic is_late, waits;
  assign waits   = c_q.state == StCheck
                   || (c_q.state == StSend && (starved || (c_q.queued == '0 && !Network)));
  assign is_late = waits && !c_q.pause && now_i - c_q.since >= 64'(c_q.patience);

  always_comb begin
    c_d      = c_q;
    step_d   = Store;
    fail     = 1'b0;
    failure  = ErrNone;
    start    = 1'b0;
    to_ended = 1'b0;
    value    = '0;
    unique case (step_q)
      Sweep: step_d = at_q == stream_t'(Streams - 1) ? Pick : Sweep;
      Pick: begin
        c_d    = streams[at];
        step_d = is_access ? Access : is_push ? Push : Turn;
      end
      Access: begin
        if (access_i.halves != '0) begin
          unique case (access_i.number)
            RegTxAddress: begin
              value       = merged({c_q.address, c_q.pause, 2'b00});
              c_d.address = value[63:3];
              if (access_i.halves[0]) begin
                c_d.pause = value[2];
                if (c_q.pause && !value[2]) begin
                  // Slots begin anew.
                  c_d.since = now_i;
                  c_d.due   = c_q.sent + 64'(c_q.portion);
                  c_d.over  = c_q.millionths;
                  c_d.next  = now_i + 64'(c_q.slot);
                  if (c_q.state inside {StSend, StWait}) begin
                    c_d.chunk = c_q.sent;
                    c_d.state = StWait;
                  end
                end
                if (value[1] || value[0]) begin
                  c_d.sender   = 1'b0;
                  c_d.planned  = 1'b0;
                  c_d.bounded  = 1'b0;
                  c_d.announce = 1'b0;
                  c_d.state    = StInit;
                  c_d.error    = ErrNone;
                  c_d.budget   = '0;
                  c_d.portion  = '0;
                  c_d.sent     = '0;
                  c_d.offset   = '0;
                  c_d.queued   = '0;
                  c_d.taken    = '0;
                  c_d.late     = '0;
                end
                start = value[0] && value[63:3] != '0;
                if (start) begin
                  c_d.sender = 1'b1;
                  c_d.state  = StParse;
                  c_d.since  = now_i;
                  step_d     = Parse;
                end
              end
            end
            RegRate: {c_d.granularity, c_d.rate} = merged({c_q.granularity, c_q.rate});
            RegBaseCredits: begin
              value       = merged({32'b0, c_q.credits});
              c_d.credits = value[31:0];
            end
            RegByteCount: begin
              value     = merged(c_q.count);
              c_d.count = value;
              if (value != '0 && is_running(c_q.state)) begin
                // The end is here, or behind what was sent.
                if (value == EndHere) value = Network ? c_q.sent + 64'(c_q.queued) : '0;
                if (!Network && value > c_q.most) begin
                  fail    = 1'b1;
                  failure = ErrTasks;
                end else begin
                  c_d.bounded = 1'b1;
                  c_d.end_at  = value > c_q.sent ? value : c_q.sent;
                  c_d.since   = now_i;
                end
              end
            end
            RegGrant: begin
              value          = merged({32'b0, c_q.grant_half});
              c_d.grant_half = value[31:0];
              if (access_i.halves[1] && c_q.sender) begin
                if (!c_q.planned) begin
                  c_d.late = c_q.late + 32'(c_q.late != '1);
                end else if (!is_running(c_q.state) || epochs != '0) begin
                  if (is_running(c_q.state) && !epochs[15]) begin
                    fail    = 1'b1;
                    failure = ErrRestarted;
                  end else if (epochs != '0) begin
                    c_d.late = c_q.late + 32'(c_q.late != '1);
                  end
                end else if (grant.failed) begin
                  fail    = 1'b1;
                  failure = ErrPeer;
                end else begin
                  if (grant.paused) c_d.since = now_i;
                  if (is_false) begin
                    fail    = 1'b1;
                    failure = ErrGrant;
                  end else if (is_later) begin
                    c_d.taken = granted;
                    c_d.since = now_i;
                  end else if (!grant.paused && grant.taken != c_q.taken[31:0]) begin
                    c_d.late = c_q.late + 32'(c_q.late != '1);
                  end
                end
              end
            end
            RegTimes: {c_d.refresh, c_d.stall} = merged({c_q.refresh, c_q.stall});
            RegControl: begin
              value          = merged({c_q.place, 14'b0, c_q.interrupts, c_q.epoch});
              c_d.place      = value[63:32];
              c_d.interrupts = value[17:16];
              c_d.epoch      = value[15:0];
            end
            default: ;
          endcase
        end
      end
      Push: begin
        if (is_running(c_q.state)) begin
          if (push_error_i != ErrNone) begin
            fail    = 1'b1;
            failure = push_error_i;
          end else begin
            c_d.queued = c_q.queued + push_bytes_i;
            if (!Network) c_d.since = now_i;
          end
        end
      end
      Parse: begin
        step_d = Parse;
        if (parse_ready_i) begin
          step_d       = Multiply;
          c_d.most     = parse_bytes_i;
          c_d.patience = nanos_of(c_q.stall == '0 ? 32'd1_000_000 : c_q.stall);
          c_d.slot     = 34'(nanos_of({8'b0, c_q.granularity}));
          c_d.paced    = c_q.rate != '0;
          c_d.error    = parse_error_i;
        end
      end
      Multiply: step_d = count_q == 7'd23 ? Divide : Multiply;
      Divide:   step_d = count_q == 7'd63 ? Begin : Divide;
      Begin: begin
        // The plan's checks, in the order of their errors.
        fail = 1'b1;
        if (c_q.error != ErrNone) failure = c_q.error;
        else if (c_q.paced && c_q.granularity == '0) failure = ErrRate;
        else if (c_q.credits == '0 || c_q.credits > c_q.place >> 1) failure = ErrCredits;
        else if (c_q.address[8:0] != '0
            || 65'({c_q.address, 3'b0}) + 65'({c_q.place, 12'b0}) > 65'h0_ffff_ffff_ffff_ffff) begin
          failure = ErrAddress;
        end else if (c_q.has_run && c_q.run_address == c_q.address[60:9]
            && c_q.run_epoch == c_q.epoch) begin
          failure = ErrEpoch;
        end else begin
          fail            = 1'b0;
          c_d.has_run     = 1'b1;
          c_d.run_address = c_q.address[60:9];
          c_d.run_epoch   = c_q.epoch;
          c_d.planned     = 1'b1;
          c_d.budget      = c_q.credits;
          c_d.wrap        = c_q.place;
          c_d.bounded     = c_q.count != '0 || !Network;
          c_d.end_at      = c_q.count != '0 ? c_q.count : c_q.most;
          c_d.portion     = product_q[43:0];
          c_d.millionths  = rest_q;
          c_d.due         = c_q.paced ? 64'(product_q[43:0]) : '1;
          c_d.over        = rest_q;
          c_d.next        = now_i + 64'(c_q.slot);
          c_d.chunk       = c_d.due;
          c_d.since       = now_i;
          c_d.state       = StSend;
        end
      end
      Turn: begin
        step_d = Turn;
        if (!is_running(c_q.state)) begin
          step_d       = Store;
          to_ended     = c_q.announce;
          c_d.announce = 1'b0;
        end else if (is_late) begin
          fail    = 1'b1;
          failure = ErrStalled;
        end else if (c_q.paced && !c_q.pause && c_q.next <= now_i) begin
          // Another slot.
          c_d.next = c_q.next + 64'(c_q.slot);
          if (21'(c_q.over) + 21'(c_q.millionths) >= Million) begin
            c_d.over = 20'(21'(c_q.over) + 21'(c_q.millionths) - Million);
            c_d.due  = c_q.due + 64'(c_q.portion) + 1'b1;
          end else begin
            c_d.over = c_q.over + c_q.millionths;
            c_d.due  = c_q.due + 64'(c_q.portion);
          end
        end else begin
          unique case (c_q.state)
            StSend: begin
              if (c_q.pause) step_d = Store;
              else if (c_q.sent >= due) c_d.state = StWait;
              else if (bytes == '0) step_d = Store;
              else step_d = Address;
            end
            StWait: begin
              if (c_q.bounded && c_q.sent == c_q.end_at) c_d.state = StCheck;
              else if (c_q.pause || (c_q.paced && c_q.due <= c_q.sent)) step_d = Store;
              else begin
                c_d.since = now_i;
                c_d.state = StCheck;
              end
            end
            default: begin
              if (!c_q.bounded || c_q.sent < c_q.end_at) begin
                c_d.chunk = c_q.paced ? c_q.due : '1;
                c_d.state = StSend;
              end else if (c_q.taken >= credits_of(c_q.end_at)) begin
                c_d.state    = StIdle;
                c_d.queued   = '0;
                c_d.announce = 1'b1;
              end else begin
                step_d = Store;
              end
            end
          endcase
        end
      end
      Address: begin
        step_d = Address;
        if ((bus_i.ar_ready || ar_done_q) && (bus_i.aw_ready || aw_done_q)) step_d = Move;
      end
      Move: step_d = bus_i.r_valid && bus_i.w_ready && beat_last ? Response : Move;
      Response: begin
        step_d = Response;
        if (bus_i.b_valid) begin
          step_d     = Store;
          c_d.sent   = c_q.sent + 64'(bytes_q);
          c_d.queued = c_q.queued - queued_t'(bytes_q);
          c_d.offset = c_q.offset + 44'(bytes_q);
          if (c_d.offset == {c_q.wrap, 12'b0}) c_d.offset = '0;
          c_d.since  = now_i;
          if (bus_i.b.resp != bus_pkg::ResponseOkay || bad_q) begin
            fail    = 1'b1;
            failure = ErrBus;
          end
        end
      end
      default: step_d = Pick;
    endcase
    if (fail) begin
      step_d       = Store;
      c_d.state    = StFailed;
      c_d.error    = failure;
      c_d.queued   = '0;
      c_d.announce = 1'b1;
    end
  end

  assign access_ready_o = step_q == Access;
  assign push_ready_o   = step_q == Push;
  assign parse_valid_o  = step_q == Parse;
  assign parse_stream_o = at_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      step_q  <= Sweep;
      at_q    <= '0;
      turn_q  <= '0;
      bytes_q <= '0;
    end else begin
      step_q <= step_d;
      if (step_q == Sweep) at_q <= at_q + 1'b1;
      if (step_q == Pick) at_q <= at;
      if (step_q == Turn && step_d != Turn) begin
        turn_q <= at_q == stream_t'(Streams - 1) ? '0 : at_q + 1'b1;
      end
      if (step_q == Turn) bytes_q <= bytes;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!(step_q inside {Sweep, Store})) c_q <= c_d;
    count_q <= step_q == step_d ? count_q + 1'b1 : '0;
    unique case (step_q)
      Multiply: begin
        // From the highest bit of the granularity on.
        product_q <= (product_q << 1) + (c_q.granularity[23 - count_q[4:0]] ? 64'(c_q.rate) : '0);
      end
      Divide: begin
        rest_q    <= 20'(rest >= Million ? rest - Million : rest);
        product_q <= {product_q[62:0], rest >= Million};
      end
      default: begin
        if (step_q == Parse) product_q <= '0;
        if (step_q == Parse) rest_q <= '0;
      end
    endcase
  end

  // ---- The copy: a burst from the queue becomes a burst to the receiver ----

  logic [PayloadShift:0]       span;
  logic [PayloadShift-BeatShift:0] beats_q;
  logic [BeatShift-1:0]        first, final_byte;
  bus_pkg::id_t                unused_ids;
  logic [BeatShift:0]          unused_span;
  logic [bus_pkg::BeatBytes-1:0] from_first, to_final;
  logic                        first_beat_q;

  assign first      = c_q.offset[BeatShift-1:0];
  assign span       = bytes_q + payload_t'(first) - 1'b1;
  assign final_byte = span[BeatShift-1:0];
  assign from_first = first_beat_q ? bus_pkg::BeatBytes'('1) << first : '1;
  assign to_final   = beat_last ? ~(bus_pkg::BeatBytes'('1) << final_byte << 1) : '1;
  assign beat_last  = beats_q == '0;
  assign unused_ids = bus_i.b.id ^ bus_i.r.id;
  assign unused_span = {bus_i.r.last, final_byte};

  always_comb begin
    bus_o          = '0;
    bus_o.ar.addr  = QueueBase + 64'({at_q, c_q.sent[QueueShift-1:0]});
    bus_o.ar.len   = 8'(span[PayloadShift:BeatShift]);
    bus_o.ar.size  = 3'(BeatShift);
    bus_o.ar.burst = bus_pkg::BurstIncrement;
    bus_o.aw       = bus_o.ar;
    bus_o.aw.addr  = {c_q.run_address, 12'b0} + 64'(c_q.offset);
    bus_o.ar_valid = step_q == Address && !ar_done_q;
    bus_o.aw_valid = step_q == Address && !aw_done_q;
    bus_o.r_ready  = step_q == Move && bus_i.w_ready;
    bus_o.w_valid  = step_q == Move && bus_i.r_valid;
    bus_o.w.data   = bus_i.r.data;
    bus_o.w.strb   = from_first & to_final;
    bus_o.w.last   = beat_last;
    bus_o.b_ready  = step_q == Response;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      ar_done_q    <= 1'b0;
      aw_done_q    <= 1'b0;
      bad_q        <= 1'b0;
      beats_q      <= '0;
      first_beat_q <= 1'b0;
    end else if (step_q == Address) begin
      ar_done_q    <= step_d == Address && (ar_done_q || bus_i.ar_ready);
      aw_done_q    <= step_d == Address && (aw_done_q || bus_i.aw_ready);
      beats_q      <= span[PayloadShift:BeatShift];
      first_beat_q <= 1'b1;
      bad_q        <= 1'b0;
    end else if (step_q == Move && bus_i.r_valid && bus_i.w_ready) begin
      beats_q      <= beats_q - 1'b1;
      first_beat_q <= 1'b0;
      bad_q        <= bad_q || bus_i.r.resp != bus_pkg::ResponseOkay;
    end
  end

  assign sent_o            = step_q == Response && bus_i.b_valid;
  assign sent_stream_o     = at_q;
  assign sent_bytes_o      = bytes_q;
  assign ended_o           = to_ended;
  assign ended_stream_o    = at_q;
  assign ended_interrupt_o = c_q.interrupts[0];

endmodule
