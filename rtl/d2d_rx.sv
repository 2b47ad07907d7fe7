// The receivers of a function's streams: from their aperture into an Rx queue in memory, and grants
// back to the sender, as the Rust crate's `receiver.rs` has them.
//
// It stands between the bus to the aperture and the queues' memory. A burst goes on to the queue
// with another address, and without its strobes if it is not taken: only its address is needed for
// that, since a queue's bytes lie as they do in the aperture. A burst that fails its run at its
// end has then overwritten nothing but bytes of that run that are given up anyway.

module d2d_rx
  import d2d_pkg::*;
#(
  // Units leave as packets, one by one; else as blocks, whose size is a power of two, several at
  // once.
  parameter bit          Network      = 1'b1,
  // Where the queues are, one behind the other, and the epoch before each stream's first run.
  parameter logic [63:0] QueueBase    = 64'h0,
  parameter logic [15:0] InitialEpoch = 16'h0
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  nanos_t             now_i,
  // The address at which senders reach the aperture.
  input  logic [63:12]       aperture_i,

  // Accesses to registers. A read's answer is there when it is ready.
  input  logic               access_valid_i,
  output logic               access_ready_o,
  input  access_t            access_i,
  output logic [63:0]        access_data_o,

  // The owner's part of a start: what is wrong, or the bytes of a unit.
  output logic               parse_valid_o,
  input  logic               parse_ready_i,
  output stream_t            parse_stream_o,
  input  error_t             parse_error_i,
  input  logic [15:0]        parse_unit_i,

  // Streams that have a unit in their queue. Bytes that are taken keep their credits until they
  // are consumed. Who takes is told where they are in the queue, and how many: none, if the run has
  // ended meanwhile. What is consumed of another run than the present one does not count.
  output logic [Streams-1:0] ready_o,
  input  logic               take_valid_i,
  output logic               take_ready_o,
  input  stream_t            take_stream_i,
  input  queued_t            take_most_i,
  output queued_t            take_bytes_o,
  output logic [RxShift-1:0] take_at_o,
  output logic [15:0]        take_epoch_o,
  input  logic               consume_valid_i,
  output logic               consume_ready_o,
  input  stream_t            consume_stream_i,
  input  queued_t            consume_bytes_i,
  input  logic [15:0]        consume_epoch_i,
  input  error_t             consume_error_i,

  // A run has ended; the driver is to be told of a grant.
  output logic               ended_o,
  output logic               told_o,
  output stream_t            ended_stream_o,
  output logic               ended_interrupt_o,

  // The aperture: addresses are offsets in it.
  input  bus_pkg::request_t  aperture_bus_i,
  output bus_pkg::response_t aperture_bus_o,
  // The queues' memory; grants.
  output bus_pkg::request_t  queue_bus_o,
  input  bus_pkg::response_t queue_bus_i,
  output bus_pkg::request_t  grant_bus_o,
  input  bus_pkg::response_t grant_bus_i
);

  typedef struct packed {
    // Registers.
    logic [60:0] address;
    logic        pause;
    position_t   count;
    logic [60:0] grant_to;
    logic [31:0] stall;
    logic [31:0] refresh;
    logic [1:0]  interrupts;
    // This run.
    logic        receiver;
    state_e      state;
    error_t      error;
    logic [15:0] epoch;
    logic        bounded;
    position_t   end_at;
    logic [15:0] unit;
    logic [41:0] interval;
    logic        impatient;
    logic [41:0] patience;
    position_t   received;
    position_t   taken_out;
    position_t   consumed;
    position_t   told;
    logic        owed;
    logic [3:0]  farewells;
    nanos_t      repeat_at;
    nanos_t      since;
    logic        announce;
    logic [31:0] late;
    position_t   packets;
  } stream_state_t;

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

  localparam int unsigned BeatShift = $clog2(bus_pkg::BeatBytes);
  localparam int unsigned CountWidth = CreditShift + 1;
  localparam logic [3:0]  Farewells = 4'd8;
  localparam position_t   EndHere   = '1;

  stream_state_t streams [Streams];
  stream_state_t c_q, c_d;
  step_e         step_q, step_d;
  stream_t       at_q, turn_q, at;
  logic          is_arrival, is_access, is_take, is_consume;

  // ---- Which stream is served next ----

  bus_pkg::address_t burst;
  stream_t           burst_stream;

  assign burst        = aperture_bus_i.aw;
  assign burst_stream = burst.addr[PlaceShift+PlacesShift+:StreamWidth];

  // Data, registers, the owner, turns: whoever is served gives the others a turn by being done.
  logic favour_q;
  assign is_arrival = aperture_bus_i.aw_valid && !(favour_q && (access_valid_i || consume_valid_i
                                                                || take_valid_i));
  assign is_access  = !is_arrival && access_valid_i;
  assign is_consume = !is_arrival && !is_access && consume_valid_i;
  assign is_take    = !is_arrival && !is_access && !is_consume && take_valid_i;

  always_comb begin
    at = turn_q;
    if (step_q == Sweep || step_q == Store) at = at_q;
    else if (is_arrival) at = burst_stream;
    else if (is_access) at = access_i.stream;
    else if (is_consume) at = consume_stream_i;
    else if (is_take) at = take_stream_i;
  end

  stream_state_t swept;
  always_comb begin
    swept       = '0;
    swept.epoch = InitialEpoch;
    swept.unit  = 16'd1;
  end

  always_ff @(posedge clk_i) begin
    if (step_q == Sweep || step_q == Store) streams[at] <= step_q == Sweep ? swept : c_q;
  end

  // ---- What is in the queue and may leave it ----

  // A queue is never fuller than a window, so that a few bits tell how full it is.
  typedef logic [RxShift:0] filled_t;

  filled_t queued, units, units_q, most;
  logic    has_rest, all;
  assign queued   = filled_t'(c_q.received - c_q.taken_out);
  assign has_rest = c_q.bounded && c_q.end_at == c_q.received;
  assign all      = step_q != Take || 64'(take_most_i) >= 64'(queued);

  always_comb begin
    most = all ? queued : filled_t'(take_most_i);
    if (Network) units = 64'(most) >= 64'(c_q.unit) ? filled_t'(c_q.unit) : '0;
    else units = most & ~(filled_t'(c_q.unit) - 1'b1);
    if (units == '0 && has_rest && all) units = queued;
    if (c_q.pause || !is_running(c_q.state)) units = '0;
  end

  // Credits that were taken, the last one too at the end.
  position_t credits, step_credits;
  always_comb begin
    credits = c_q.consumed >> CreditShift;
    if (c_q.bounded && c_q.consumed == c_q.end_at) credits = credits_of(c_q.consumed);
    step_credits = (64'(1 << WindowShift) - credits_of(64'(c_q.unit))) >> 2;
    if (step_credits == '0) step_credits = 64'd1;
  end

  grant_t grant;
  assign grant = '{
    paused: c_q.pause && is_running(c_q.state),
    failed: c_q.state == StFailed,
    epoch:  c_q.epoch,
    taken:  credits[31:0]
  };

  // ---- What a register reads as ----

  always_comb begin
    logic [PlacesShift+StreamWidth-1:0] present;
    present       = {at_q, c_q.epoch[PlacesShift-1:0]};
    access_data_o = '0;
    unique case (access_i.number)
      RegTxAddress:     access_data_o = {c_q.address, c_q.pause, 2'b00};
      RegRxAddress:     access_data_o = {aperture_i, 12'b0} + (64'(present) << PlaceShift);
      RegBaseCredits:   access_data_o = {32'd1 << WindowShift, 32'b0};
      RegByteCount: begin
        access_data_o = c_q.bounded && is_running(c_q.state) ? c_q.end_at : c_q.count;
      end
      RegCreditAddress: access_data_o = {c_q.grant_to, 3'b0};
      RegGrant:         access_data_o = {14'b0, grant};
      RegStatus: begin
        access_data_o = {32'b0, c_q.epoch, c_q.error, 1'b0, c_q.pause,
                         c_q.receiver ? RoleReceiver : 2'd0,
                         c_q.state == StFetch && units != '0 ? StCalc : c_q.state};
      end
      RegMoved:         access_data_o = c_q.received;
      RegTaken:         access_data_o = c_q.consumed;
      RegTimes:         access_data_o = {c_q.refresh, c_q.stall};
      RegControl:       access_data_o = {46'b0, c_q.interrupts, 16'b0};
      RegDropped:       access_data_o = {32'b0, c_q.late};
      RegPackets:       access_data_o = c_q.packets;
      default:          access_data_o = '0;
    endcase
  end

  function automatic logic [63:0] merged(logic [63:0] old);
    return written(access_i.halves, access_i.data, old);
  endfunction

  // ---- A burst to the aperture ----

  logic [PlaceShift-1:0]  offset, distance;
  logic [PlacesShift-1:0] place;
  logic                   known, ours;
  // What the burst is taken for, by its address: a known stream's, this run's, at the expected
  // position.
  logic                   known_q, ours_q, expected_q;
  logic [PlaceShift-1:0]  distance_q, offset_q;
  // Bytes of the burst so far. Those for which the window has no room go nowhere.
  logic [CountWidth-1:0]  count_q;
  filled_t                room, room_q;
  logic [BeatShift-1:0]   first_q;
  // Bytes of the beat; bytes that there is place for in it, whichever of them are strobed.
  logic [BeatShift:0]     here, lanes;
  filled_t                left;
  logic [bus_pkg::BeatBytes-1:0] fits;

  assign offset   = burst.addr[PlaceShift-1:0];
  assign place    = burst.addr[PlaceShift+:PlacesShift];
  assign known    = burst.addr >> (PlaceShift + PlacesShift + StreamWidth) == '0;
  assign ours     = known && c_q.receiver && is_running(c_q.state)
                    && place == c_q.epoch[PlacesShift-1:0];
  assign distance = offset - c_q.received[PlaceShift-1:0];
  assign room     = filled_t'(1 << RxShift) - filled_t'(c_q.received - c_q.consumed);
  assign left     = room_q + filled_t'(first_q);
  assign lanes    = (BeatShift + 1)'(bus_pkg::BeatBytes) - (BeatShift + 1)'(first_q);

  always_comb begin
    here = '0;
    for (int unsigned i = 0; i < bus_pkg::BeatBytes; i++) begin
      here += (BeatShift + 1)'(aperture_bus_i.w.strb[i]);
      fits[i] = left > filled_t'(i);
    end
  end

  // ---- What becomes of the stream ----

  logic          fail, ends, tells;
  error_t        failure;
  logic [63:0]   value;
  logic          due, tells_sender;
  position_t     until_byte;
  logic [PlaceShift:0] behind;

  assign tells_sender = c_q.grant_to != '0;
  assign due          = tells_sender && c_q.repeat_at <= now_i
                        && (is_running(c_q.state) || c_q.farewells != '0);
  assign until_byte   = c_q.received + 64'(count_q);
  assign behind       = (PlaceShift + 1)'(distance_q) + (PlaceShift + 1)'(count_q);

  always_comb begin
    c_d     = c_q;
    step_d  = Store;
    fail    = 1'b0;
    failure = ErrNone;
    value   = '0;
    ends    = 1'b0;
    tells   = 1'b0;
    unique case (step_q)
      Sweep: step_d = at_q == stream_t'(Streams - 1) ? Pick : Sweep;
      Pick: begin
        c_d = streams[at];
        if (is_arrival) step_d = Arrive;
        else if (is_access) step_d = Access;
        else if (is_consume) step_d = Consume;
        else if (is_take) step_d = Take;
        else step_d = Turn;
      end
      Access: begin
        if (access_i.halves != '0) begin
          unique case (access_i.number)
            RegTxAddress: begin
              value       = merged({c_q.address, c_q.pause, 2'b00});
              c_d.address = value[63:3];
              if (access_i.halves[0]) begin
                c_d.pause = value[2];
                if (c_q.pause != value[2] && is_running(c_q.state)) begin
                  c_d.owed  = 1'b1;
                  c_d.since = now_i;
                end
                if (value[1] || value[0]) begin
                  c_d.receiver  = 1'b0;
                  c_d.state     = StInit;
                  c_d.error     = ErrNone;
                  c_d.bounded   = 1'b0;
                  c_d.unit      = 16'd1;
                  c_d.received  = '0;
                  c_d.taken_out = '0;
                  c_d.consumed  = '0;
                  c_d.told      = '0;
                  c_d.owed      = 1'b0;
                  c_d.farewells = '0;
                  c_d.announce  = 1'b0;
                  c_d.late      = '0;
                  c_d.packets   = '0;
                end
                if (value[0] && value[63:3] == '0) begin
                  c_d.receiver = 1'b1;
                  c_d.epoch    = c_q.epoch + 1'b1;
                  c_d.state    = StFetch;
                  c_d.since    = now_i;
                  c_d.owed     = 1'b1;
                  step_d       = Parse;
                end
              end
            end
            RegByteCount: begin
              value     = merged(c_q.count);
              c_d.count = value;
              if (value != '0 && is_running(c_q.state)) begin
                if (value == EndHere) value = '0;
                c_d.bounded = 1'b1;
                c_d.end_at  = value > c_q.received ? value : c_q.received;
                step_d      = Finish;
              end
            end
            RegCreditAddress: begin
              value        = merged({c_q.grant_to, 3'b0});
              c_d.grant_to = value[63:3];
            end
            RegTimes: {c_d.refresh, c_d.stall} = merged({c_q.refresh, c_q.stall});
            RegControl: begin
              value          = merged({46'b0, c_q.interrupts, 16'b0});
              c_d.interrupts = value[17:16];
            end
            default: ;
          endcase
        end
      end
      Parse: begin
        step_d = parse_ready_i ? Begin : Parse;
        c_d.unit      = parse_unit_i;
        c_d.error     = parse_error_i;
        c_d.impatient = c_q.stall != '0;
        c_d.patience  = nanos_of(c_q.stall);
        c_d.interval  = nanos_of(c_q.refresh == '0 ? 32'd100_000
                                 : c_q.refresh < 32'd1000 ? 32'd1000 : c_q.refresh);
      end
      Begin: begin
        if (c_q.error != ErrNone || credits_of(64'(c_q.unit)) >= 64'(1 << WindowShift)) begin
          // Without a plan the grants of the end are repeated as usual.
          fail         = 1'b1;
          failure      = c_q.error != ErrNone ? c_q.error : ErrCredits;
          c_d.unit     = 16'd1;
          c_d.interval = nanos_of(32'd100_000);
        end else begin
          c_d.bounded = c_q.count != '0;
          c_d.end_at  = c_q.count;
        end
      end
      Take: step_d = Taken;
      Taken: begin
        c_d.taken_out = c_q.taken_out + 64'(units_q);
        if (Network && units_q != '0) c_d.packets = c_q.packets + 1'b1;
      end
      Consume: begin
        if (is_running(c_q.state) && consume_epoch_i == c_q.epoch) begin
          if (consume_error_i != ErrNone) begin
            fail    = 1'b1;
            failure = consume_error_i;
          end else begin
            c_d.consumed = c_q.consumed + 64'(consume_bytes_i);
            c_d.since    = now_i;
            step_d       = Finish;
          end
        end
      end
      // Everything that the stream has was taken; or credits enough to tell of them.
      Finish: begin
        if (c_q.bounded && c_q.consumed == c_q.end_at) begin
          c_d.state     = StIdle;
          c_d.announce  = 1'b1;
          c_d.owed      = 1'b1;
          c_d.farewells = Farewells;
          c_d.taken_out = c_q.received;
        end else if ((c_q.consumed >> CreditShift) >= c_q.told + step_credits) begin
          c_d.owed = 1'b1;
        end
      end
      Arrive: step_d = queue_bus_i.aw_ready ? Copy : Arrive;
      Copy:   step_d = aperture_bus_i.w_valid && queue_bus_i.w_ready && aperture_bus_i.w.last
                       ? Settle : Copy;
      Settle: begin
        step_d = queue_bus_i.b_valid && aperture_bus_i.b_ready ? Store : Settle;
        if (step_d == Store && count_q != '0 && known_q) begin
          if (!ours_q) begin
            c_d.late = c_q.late + 32'(c_q.late != '1);
          end else if ((PlaceShift + 1)'(offset_q) + (PlaceShift + 1)'(count_q)
                       > (PlaceShift + 1)'(1 << PlaceShift)) begin
            fail    = 1'b1;
            failure = ErrOverrun;
          end else if (distance_q[PlaceShift-1]
                       && behind <= (PlaceShift + 1)'(1 << PlaceShift)) begin
            c_d.late = c_q.late + 32'(c_q.late != '1);
          end else if (!expected_q) begin
            fail    = 1'b1;
            failure = ErrSequence;
          end else if (filled_t'(count_q) > room
                       || (c_q.bounded && until_byte > c_q.end_at)) begin
            fail    = 1'b1;
            failure = ErrOverrun;
          end else if (queue_bus_i.b.resp != bus_pkg::ResponseOkay) begin
            fail    = 1'b1;
            failure = ErrBus;
          end else begin
            c_d.received = until_byte;
            c_d.since    = now_i;
          end
        end
      end
      Turn: begin
        if (c_q.receiver) begin
          if (is_running(c_q.state) && c_q.impatient && !c_q.pause
              && now_i - c_q.since >= 64'(c_q.patience)) begin
            fail    = 1'b1;
            failure = ErrStalled;
          end else if (c_q.owed || due) begin
            c_d.owed      = 1'b0;
            c_d.told      = credits;
            c_d.repeat_at = now_i + 64'(c_q.interval);
            if (!c_q.owed && !is_running(c_q.state)) c_d.farewells = c_q.farewells - 1'b1;
            tells         = !tells_sender && c_q.interrupts[1];
            if (tells_sender) step_d = Grant;
          end else begin
            ends         = c_q.announce;
            c_d.announce = 1'b0;
          end
        end
      end
      Grant:     step_d = grant_bus_i.aw_ready ? GrantData : Grant;
      GrantData: step_d = grant_bus_i.w_ready ? Granted : GrantData;
      Granted: begin
        step_d = grant_bus_i.b_valid ? Store : Granted;
        if (grant_bus_i.b_valid && grant_bus_i.b.resp != bus_pkg::ResponseOkay
            && is_running(c_q.state)) begin
          fail    = 1'b1;
          failure = ErrBus;
        end
      end
      default: step_d = Pick;
    endcase
    if (fail) begin
      step_d        = Store;
      c_d.state     = StFailed;
      c_d.error     = failure;
      c_d.announce  = 1'b1;
      c_d.owed      = 1'b1;
      c_d.farewells = Farewells;
      c_d.taken_out = c_q.received;
    end
  end

  assign access_ready_o  = step_q == Access;
  assign parse_valid_o   = step_q == Parse;
  assign parse_stream_o  = at_q;
  assign take_ready_o    = step_q == Taken;
  assign take_bytes_o    = queued_t'(units_q);
  assign take_at_o       = c_q.taken_out[RxShift-1:0];
  assign take_epoch_o    = c_q.epoch;
  assign consume_ready_o = step_q == Consume;

  assign ended_o           = ends;
  assign told_o            = tells;
  assign ended_stream_o    = at_q;
  assign ended_interrupt_o = c_q.interrupts[0];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      step_q   <= Sweep;
      at_q     <= '0;
      turn_q   <= '0;
      favour_q <= 1'b0;
      ready_o  <= '0;
    end else begin
      step_q <= step_d;
      if (step_q == Sweep) at_q <= at_q + 1'b1;
      if (step_q == Pick) begin
        at_q     <= at;
        favour_q <= is_arrival;
      end
      if (step_q == Turn) turn_q <= at_q == stream_t'(Streams - 1) ? '0 : at_q + 1'b1;
      if (step_q == Store) ready_o[at_q] <= units != '0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!(step_q inside {Sweep, Store})) c_q <= c_d;
    units_q <= units;
    if (step_q == Arrive) begin
      known_q    <= known;
      ours_q     <= ours;
      expected_q <= ours && distance == '0;
      distance_q <= distance;
      offset_q   <= offset;
      count_q    <= '0;
      first_q    <= burst.addr[BeatShift-1:0];
      room_q     <= room;
    end else if (step_q == Copy && aperture_bus_i.w_valid && queue_bus_i.w_ready) begin
      count_q <= count_q + CountWidth'(here);
      room_q  <= room_q > filled_t'(lanes) ? room_q - filled_t'(lanes) : '0;
      first_q <= '0;
    end
  end

  // Nothing is read from an aperture: reads are answered with an error.
  logic             reading_q;
  bus_pkg::id_t     read_id_q;
  logic [7:0]       read_left_q;
  logic             unused_inputs;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      reading_q   <= 1'b0;
      read_id_q   <= '0;
      read_left_q <= '0;
    end else if (!reading_q) begin
      reading_q   <= aperture_bus_i.ar_valid;
      read_id_q   <= aperture_bus_i.ar.id;
      read_left_q <= aperture_bus_i.ar.len;
    end else if (aperture_bus_i.r_ready) begin
      reading_q   <= read_left_q != '0;
      read_left_q <= read_left_q - 1'b1;
    end
  end

  always_comb begin
    aperture_bus_o          = '0;
    aperture_bus_o.aw_ready = step_q == Arrive && queue_bus_i.aw_ready;
    aperture_bus_o.w_ready  = step_q == Copy && queue_bus_i.w_ready;
    aperture_bus_o.b        = queue_bus_i.b;
    aperture_bus_o.b_valid  = step_q == Settle && queue_bus_i.b_valid;
    aperture_bus_o.ar_ready = !reading_q;
    aperture_bus_o.r_valid  = reading_q;
    aperture_bus_o.r.id     = read_id_q;
    aperture_bus_o.r.resp   = 2'b10;
    aperture_bus_o.r.last   = read_left_q == '0;

    queue_bus_o          = '0;
    queue_bus_o.aw       = burst;
    queue_bus_o.aw.addr  = QueueBase + 64'({at_q, offset[RxShift-1:0]});
    queue_bus_o.aw_valid = step_q == Arrive;
    queue_bus_o.w        = aperture_bus_i.w;
    queue_bus_o.w.strb   = expected_q ? aperture_bus_i.w.strb & fits : '0;
    queue_bus_o.w_valid  = step_q == Copy && aperture_bus_i.w_valid;
    queue_bus_o.b_ready  = step_q == Settle && aperture_bus_i.b_ready;

    grant_bus_o          = '0;
    grant_bus_o.aw.addr  = {c_q.grant_to, 3'b0};
    grant_bus_o.aw.size  = 3'(BeatShift);
    grant_bus_o.aw.burst = bus_pkg::BurstIncrement;
    grant_bus_o.aw_valid = step_q == Grant;
    grant_bus_o.w.data   = {2{14'b0, grant}};
    grant_bus_o.w.strb   = c_q.grant_to[0] ? 16'hff00 : 16'h00ff;
    grant_bus_o.w.last   = 1'b1;
    grant_bus_o.w_valid  = step_q == GrantData;
    grant_bus_o.b_ready  = step_q == Granted;
  end

  assign unused_inputs = ^{aperture_bus_i.ar.addr, aperture_bus_i.ar.size, aperture_bus_i.ar.burst,
                           queue_bus_i.ar_ready, queue_bus_i.r, queue_bus_i.r_valid,
                           grant_bus_i.ar_ready, grant_bus_i.r, grant_bus_i.r_valid,
                           grant_bus_i.b.id};

endmodule
