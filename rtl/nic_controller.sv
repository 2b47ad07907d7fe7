// The send path of the NICs that the Rust crate drives: operations of the core become frames in
// the transmit ring of an 82574, or (`Advanced`) an 82576.
//
// A connection's template gives the headers; sequence and acknowledgement numbers, window, lengths
// and identification are filled in here, checksums and segments by the NIC. An operation on UDP
// ends when its frames are on the wire, one on TCP when the peer has acknowledged it: so long its
// block stays, and can be sent again. When that is done, software says; so it does for
// acknowledgements, windows and whatever else TCP decides.
//
// A frame takes three descriptors: context, headers, payload. Its headers have a place in memory
// by the number of their descriptor, so that they stay until the NIC has read them.

module nic_controller
  import core_pkg::*;
  import nic_pkg::*;
#(
  parameter bit          Advanced = 1'b0,
  // Cycles from one look at the ring to the next.
  parameter int unsigned Interval = 16
) (
  input  logic               clk_i,
  input  logic               rst_ni,

  // It changes only while nothing is under way.
  input  layout_t            place_i,

  input  logic               request_valid_i,
  output logic               request_ready_o,
  input  request_t           request_i,

  // Writes, and flushes of streams, of which there is nothing to do.
  input  logic               operation_valid_i,
  output logic               operation_ready_o,
  input  operation_t         operation_i,
  output logic               outcome_valid_o,
  input  logic               outcome_ready_i,
  output outcome_t           outcome_o,
  // Nothing is under way.
  output logic               idle_o,

  output bus_pkg::request_t  bus_o,
  input  bus_pkg::response_t bus_i
);

  localparam int unsigned TimerWidth = $clog2(Interval + 1);

  // An operation that was taken from the core.
  typedef struct packed {
    operation_id_t id;
    connection_t   connection;
    logic          tcp;
    logic [31:0]   address;
    bytes_t        length;
    number_t       number;
    // It was handed to the NIC once; bytes from `at` to `stop` are to be so, maybe again.
    logic          sent;
    bytes_t        at;
    bytes_t        stop;
    // It can't be sent, for this reason.
    logic          lost;
    status_t       status;
  } entry_state_t;

  typedef enum logic [3:0] {
    Sweep,
    Pick,
    Request,
    // What is to be sent again, operation by operation.
    Seek,
    From,
    To,
    Join,
    Take,
    Judge,
    Address,
    Data,
    Response,
    Finish,
    Look,
    Looked,
    Tell
  } step_e;

  // What is written for a frame, in this order.
  typedef enum logic [2:0] {
    Headers,
    Context,
    First,
    Second,
    Doorbell
  } part_e;

  step_e        step_q, step_d;
  part_e        part_q;
  template_t    connections [Connections];
  template_t    c_q, c_d;
  connection_t  at_q, at;
  connection_t  owners [Commands];
  entry_state_t [Pending-1:0] entries_q;
  logic [Pending-1:0]    valid_q, busy;
  pending_t              turn_q, sought_q, vacant;
  logic                  has_vacant;
  // The operation that is looked at.
  entry_state_t          e_q;
  entry_t                tail, last;
  logic [TimerWidth-1:0] timer_q;
  outcome_t              outcome_q, outcome_d;
  logic                  store, is_due, has_room, any, done, bad_q, held_q;
  logic [1:0]            beat_q;

  nic_ring u_ring (
    .clk_i,
    .rst_ni,
    .clear_i        (step_q == Request && request_i.kind == WasStopped),
    .room_o         (has_room),
    .tail_o         (tail),
    .push_i         (step_q == Finish && !bad_q),
    .push_pending_i (turn_q),
    .any_o          (any),
    .last_o         (last),
    .pop_i          (step_q == Looked && bus_i.r_valid && done),
    .busy_o         (busy)
  );

  assign is_due = timer_q == '0 && any && !held_q;

  always_comb begin
    vacant     = '0;
    has_vacant = 1'b0;
    for (int unsigned i = Pending; i > 0; i--) begin
      if (!valid_q[i-1]) begin
        vacant     = pending_t'(i - 1);
        has_vacant = 1'b1;
      end
    end
  end

  // ---- Which connection is looked at ----

  logic is_request, is_take;
  assign is_request = request_valid_i;
  assign is_take    = !is_request && !is_due && operation_valid_i && has_vacant;

  always_comb begin
    at = entries_q[turn_q].connection;
    if (is_request) at = request_i.connection;
    else if (is_take) at = owners[operation_i.id.command];
  end

  always_ff @(posedge clk_i) begin
    if (step_q == Sweep || store) connections[at_q] <= step_q == Sweep ? '0 : c_d;
    if (step_q == Request && request_i.kind == Bind) begin
      owners[request_i.command] <= request_i.connection;
    end
  end

  // ---- What is to be done for an operation ----

  number_t ends_at;
  logic    is_acknowledged, may_send;
  // What the next frame has of it, once it is judged; whether that is the rest of it, and makes
  // several segments.
  bytes_t  left, piece, piece_q;
  logic    rest_q, segment_q;
  // Of a resend, where it begins and ends in the operation.
  number_t from_q, to_q;

  function automatic logic reaches(number_t number, number_t other);
    return $signed(number - other) >= 0;
  endfunction

  assign ends_at         = e_q.number + number_t'(e_q.length);
  assign is_acknowledged = !e_q.tcp || reaches(c_q.acknowledged, ends_at);
  assign may_send        = e_q.at != e_q.stop && has_room && !held_q
                           && (!e_q.tcp || e_q.sent
                           || (e_q.number == c_q.sent && reaches(c_q.limit, ends_at)));
  assign left            = e_q.stop - e_q.at;
  assign piece           = e_q.tcp || 16'(left) <= c_q.most ? left : bytes_t'(c_q.most);

  always_comb begin
    step_d    = step_q;
    c_d       = c_q;
    store     = 1'b0;
    outcome_d = outcome_q;
    unique case (step_q)
      Sweep: if (at_q == '1) step_d = Pick;
      Pick: begin
        if (is_request) step_d = Request;
        else if (is_due) step_d = Look;
        else if (is_take) step_d = Take;
        else if (valid_q[turn_q]) step_d = Judge;
      end
      Request: begin
        step_d = Pick;
        store  = 1'b1;
        unique case (request_i.kind)
          Open: begin
            c_d = request_i.opened;
            if (request_i.opened.most == '0) begin
              c_d.failed = 1'b1;
              c_d.status = dcs_pkg::StatusBadParameter;
            end
          end
          Acknowledged: begin
            if (reaches(request_i.first, c_q.acknowledged)) c_d.acknowledged = request_i.first;
            if (reaches(request_i.second, c_q.limit)) c_d.limit = request_i.second;
          end
          Advertise: begin
            c_d.acknowledges = request_i.first;
            c_d.window       = request_i.second[15:0];
          end
          Resend: step_d = Seek;
          Fail: begin
            c_d.failed = 1'b1;
            c_d.status = request_i.first[14:0];
          end
          default: ;
        endcase
      end
      Seek: step_d = From;
      From: step_d = To;
      To:   step_d = Join;
      Join: step_d = sought_q == '1 ? Pick : Seek;
      Take: begin
        step_d         = Pick;
        outcome_d      = '0;
        outcome_d.id   = operation_i.id;
        if (operation_i.kind == DoWrite) begin
          store    = 1'b1;
          c_d.next = c_q.next + number_t'(operation_i.length);
        end else begin
          outcome_d.kind = operation_i.kind == DoFlush ? Flushed : Failed;
          if (outcome_d.kind == Failed) outcome_d.status = dcs_pkg::StatusInternalError;
          step_d = Tell;
        end
      end
      Judge: begin
        step_d          = Pick;
        outcome_d       = '0;
        outcome_d.id    = e_q.id;
        outcome_d.kind  = Failed;
        if (!busy[turn_q] && (e_q.lost || c_q.failed)) begin
          outcome_d.status = e_q.lost ? e_q.status : c_q.status;
          step_d           = Tell;
        end else if (!busy[turn_q] && e_q.sent && (e_q.tcp || e_q.at == e_q.stop)
                     && is_acknowledged) begin
          outcome_d.kind  = Moved;
          outcome_d.bytes = e_q.length;
          step_d          = Tell;
        end else if (may_send && !e_q.lost && !c_q.failed) begin
          step_d = Address;
        end
      end
      Address: if (bus_i.aw_ready) step_d = Data;
      Data:    if (bus_i.w_ready && bus_o.w.last) step_d = Response;
      Response: begin
        if (bus_i.b_valid) step_d = part_q == Doorbell || bad_q ? Finish : Address;
      end
      Finish: begin
        step_d = Pick;
        if (!bad_q) begin
          store = 1'b1;
          c_d.identification = c_q.identification + 1'b1;
          if (e_q.tcp && !e_q.sent) c_d.sent = ends_at;
        end
      end
      Look:   if (bus_i.ar_ready) step_d = Looked;
      Looked: if (bus_i.r_valid) step_d = Pick;
      default: if (outcome_ready_i) step_d = Pick;
    endcase
  end

  // Of a resend, what the operation has of it.
  function automatic logic [1:0][BlockShift:0] overlap();
    number_t from, to;
    from = from_q[31] ? '0 : from_q;
    to   = to_q[31] ? '0 : to_q > number_t'(e_q.length) ? number_t'(e_q.length) : to_q;
    return from >= to ? '0 : {bytes_t'(to), bytes_t'(from)};
  endfunction

  // With what is yet to be sent.
  function automatic logic [1:0][BlockShift:0] joined(logic [1:0][BlockShift:0] one,
                                                      logic [1:0][BlockShift:0] other);
    if (other[1] == other[0]) return one;
    return {one[1] > other[1] ? one[1] : other[1], one[0] < other[0] ? one[0] : other[0]};
  endfunction

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      step_q   <= Sweep;
      at_q     <= '0;
      valid_q  <= '0;
      turn_q   <= '0;
      sought_q <= '0;
      timer_q  <= '0;
      held_q   <= 1'b0;
    end else begin
      step_q <= step_d;
      if (timer_q != '0) timer_q <= timer_q - 1'b1;
      if (step_q == Sweep) at_q <= at_q + 1'b1;
      if (step_q == Pick) at_q <= at;
      if (step_q == Pick && step_d == Pick) turn_q <= turn_q + 1'b1;
      if (step_q == Judge && step_d == Pick) turn_q <= turn_q + 1'b1;
      if (step_q == Join) {turn_q, sought_q} <= {turn_q + 1'b1, sought_q + 1'b1};
      if (step_q == Judge && step_d == Tell) valid_q[turn_q] <= 1'b0;
      if (step_q == Take && operation_i.kind == DoWrite) valid_q[vacant] <= 1'b1;
      if (step_q == Request && request_i.kind == WillStop) held_q <= 1'b1;
      if (step_q == Request && request_i.kind == WasStopped) begin
        held_q <= 1'b0;
      end
      if (step_q == Finish && !bad_q) timer_q <= TimerWidth'(Interval);
      if (step_q == Looked && bus_i.r_valid) timer_q <= done ? '0 : TimerWidth'(Interval);
    end
  end

  // The done bit of the oldest frame's last descriptor.
  assign done = bus_i.r.data[96] && bus_i.r.resp == bus_pkg::ResponseOkay;

  always_ff @(posedge clk_i) begin
    outcome_q <= outcome_d;
    if (step_q == Pick) c_q <= connections[at];
    if (step_q inside {Pick, Seek}) e_q <= entries_q[turn_q];
    if (step_q == Take && operation_i.kind == DoWrite) begin
      entries_q[vacant]            <= '0;
      entries_q[vacant].id         <= operation_i.id;
      entries_q[vacant].connection <= at_q;
      entries_q[vacant].tcp        <= c_q.tcp;
      entries_q[vacant].address    <= (32'(operation_i.id.row) << BlockShift)
                                      + 32'(operation_i.start);
      entries_q[vacant].length     <= operation_i.length;
      entries_q[vacant].stop       <= operation_i.length;
      entries_q[vacant].number     <= c_q.next;
    end
    if (step_q == Request) begin
      for (int unsigned i = 0; i < Pending; i++) begin
        if (request_i.kind == WasStopped) begin
          if (busy[i] && !entries_q[i].tcp) begin
            entries_q[i].lost   <= 1'b1;
            entries_q[i].status <= request_i.first[14:0];
          end
        end
      end
    end
    from_q <= request_i.first - e_q.number;
    to_q   <= from_q + request_i.second;
    if (step_q == Join && e_q.connection == at_q && e_q.sent && overlap() != '0) begin
      {entries_q[turn_q].stop, entries_q[turn_q].at} <= joined(overlap(), {e_q.stop, e_q.at});
    end
    if (step_q == Finish) begin
      if (bad_q) begin
        entries_q[turn_q].lost   <= 1'b1;
        entries_q[turn_q].status <= dcs_pkg::StatusPathUnavailable;
      end else begin
        entries_q[turn_q].at <= e_q.at + piece_q;
        if (rest_q) entries_q[turn_q].sent <= 1'b1;
      end
    end
    unique case (step_q)
      Judge: begin
        part_q <= Headers;
        beat_q <= '0;
        bad_q  <= 1'b0;
      end
      Data: if (bus_i.w_ready) beat_q <= beat_q + 1'b1;
      Response: begin
        beat_q <= '0;
        if (bus_i.b_valid) begin
          part_q <= part_e'(part_q + 1'b1);
          bad_q  <= bus_i.b.resp != bus_pkg::ResponseOkay;
        end
      end
      default: ;
    endcase
  end

  // ---- A frame's headers ----

  logic [15:0]  transport, transport_q, pseudo, pseudo_q;
  logic [19:0]  addresses_q;
  logic [511:0] header;

  function automatic logic [15:0] swap(logic [15:0] value);
    return {value[7:0], value[15:8]};
  endfunction

  function automatic logic [31:0] swap_four(logic [31:0] value);
    return {swap(value[15:0]), swap(value[31:16])};
  endfunction

  // The NIC makes segments, with their lengths and numbers, where there is more than one.
  assign transport = segment_q ? '0 : 16'(piece_q) + (e_q.tcp ? 16'd20 : 16'd8);

  always_comb begin
    logic [19:0] sum;
    logic [16:0] once;
    sum    = addresses_q + 20'(transport);
    once   = 17'(sum[15:0]) + 17'(sum[19:16]);
    pseudo = once[15:0] + 16'(once[16]);
  end

  // Known in the cycle behind Judge, and the sum a cycle later: before the first data.
  always_ff @(posedge clk_i) begin
    if (step_q == Judge) begin
      piece_q   <= piece;
      rest_q    <= piece == left;
      segment_q <= e_q.tcp && 16'(piece) > c_q.most;
    end
    addresses_q <= 20'(swap(c_q.source[15:0])) + 20'(swap(c_q.source[31:16]))
                   + 20'(swap(c_q.destination[15:0])) + 20'(swap(c_q.destination[31:16]))
                   + (e_q.tcp ? 20'd6 : 20'd17);
    transport_q <= transport;
    pseudo_q    <= pseudo;
  end

  always_comb begin
    logic [159:0] ip;
    logic [159:0] tcp;
    logic [63:0]  udp;
    // Checksums are zero, or the pseudo header's: the NIC does the rest.
    ip = {c_q.destination, c_q.source, 16'h0000, e_q.tcp ? 8'd6 : 8'd17, c_q.ttl, 16'h0040,
          swap(c_q.identification), segment_q ? 16'h0000 : swap(transport_q + 16'd20),
          c_q.service, 8'h45};
    // ACK and PSH.
    tcp = {16'h0000, swap(pseudo_q), swap(c_q.window), 16'h1850, swap_four(c_q.acknowledges),
           swap_four(e_q.number + number_t'(e_q.at)), c_q.destination_port, c_q.source_port};
    udp = {swap(pseudo_q), swap(transport_q), c_q.destination_port, c_q.source_port};
    header = {80'b0, e_q.tcp ? tcp : {96'b0, udp}, ip, 16'h0008, c_q.mac_source,
              c_q.mac_destination};
  end

  // ---- Descriptors ----

  localparam logic [31:0] End       = 32'h0100_0000;
  localparam logic [31:0] InsertFcs = 32'h0200_0000;
  localparam logic [31:0] Report    = 32'h0800_0000;
  localparam logic [31:0] Extension = 32'h2000_0000;
  // Insert the IP header's checksum, and TCP's or UDP's.
  localparam logic [31:0] Checksums = 32'h0000_0300;

  logic [31:0]  header_bytes, bytes;
  logic [127:0] context_word, payload_at, headers_at;
  entry_t       header_at;

  assign header_at = tail + 1'b1;

  assign header_bytes = e_q.tcp ? 32'd54 : 32'd42;
  // Of the frame, without headers where it is segmented.
  assign bytes        = segment_q ? 32'(piece_q) : 32'(piece_q) + header_bytes;

  always_comb begin
    logic [31:0] most, kind, insert, insert_behind;
    most = segment_q ? {c_q.most, 16'b0} : '0;
    if (Advanced) begin
      context_word = {most | (segment_q ? 32'd20 << 8 : '0),
                      Extension | 32'h0020_0400 | (e_q.tcp ? 32'h0800 : '0),
                      32'b0, 32'd14 << 9 | 32'd20};
      kind = 32'h0030_0000 | (segment_q ? 32'h8000_0000 : '0);
      insert = bytes << 14 | Checksums;
      insert_behind = '0;
    end else begin
      context_word = {most | (segment_q ? header_bytes << 8 : '0),
                      Extension | (e_q.tcp ? 32'h0100_0000 : '0) | 32'h0200_0000
                      | (segment_q ? 32'h0400_0000 | 32'(piece_q) : '0),
                      (e_q.tcp ? 32'd50 << 8 : 32'd40 << 8) | 32'd34,
                      32'h0021_180e};
      kind = 32'h0010_0000 | (segment_q ? 32'h0400_0000 : '0);
      insert = Checksums;
      insert_behind = Checksums;
    end
    headers_at = {insert, Extension | InsertFcs | kind | header_bytes,
              place_i.headers + 64'({header_at, 6'b0})};
    payload_at = {insert_behind, Extension | InsertFcs | End | Report | kind | 32'(piece_q),
              place_i.blocks + 64'(e_q.address) + 64'(e_q.at)};
  end

  // ---- The bus ----

  entry_t place, rung;
  assign place = tail + entry_t'(part_q) - 1'b1;
  assign rung  = tail + entry_t'(3);

  always_comb begin
    bus_o          = '0;
    bus_o.aw.size  = 3'd4;
    bus_o.aw.burst = bus_pkg::BurstIncrement;
    bus_o.aw_valid = step_q == Address;
    bus_o.w_valid  = step_q == Data;
    bus_o.w.strb   = '1;
    bus_o.w.last   = part_q != Headers || beat_q == '1;
    bus_o.b_ready  = step_q == Response;
    unique case (part_q)
      Headers: begin
        bus_o.aw.addr = place_i.headers + 64'({header_at, 6'b0});
        bus_o.aw.len  = 8'd3;
        bus_o.w.data  = header[{beat_q, 7'b0}+:128];
      end
      Doorbell: begin
        bus_o.aw.addr = place_i.tail;
        bus_o.w.data  = {4{32'(rung)}};
        bus_o.w.strb  = 16'hf << place_i.tail[3:0];
      end
      default: begin
        bus_o.aw.addr = place_i.ring + 64'({place, 4'b0});
        bus_o.w.data  = part_q == Context ? context_word
                        : part_q == First ? headers_at : payload_at;
      end
    endcase
    bus_o.ar.addr  = place_i.ring + 64'({last, 4'b0});
    bus_o.ar.size  = 3'd4;
    bus_o.ar.burst = bus_pkg::BurstIncrement;
    bus_o.ar_valid = step_q == Look;
    bus_o.r_ready  = step_q == Looked;
  end

  logic unused;
  assign unused = ^{operation_i, bus_i.b.id, bus_i.r};

  assign request_ready_o   = step_q == Request ? request_i.kind != Resend
                             : step_q == Join && sought_q == '1;
  assign operation_ready_o = step_q == Take;
  assign outcome_valid_o   = step_q == Tell;
  assign outcome_o         = outcome_q;
  assign idle_o            = step_q == Pick && valid_q == '0;

endmodule
