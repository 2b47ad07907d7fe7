// The receive path of the NICs that the Rust crate drives: the receive ring of an 82574 (extended
// descriptors) or an 82576, which write descriptors back alike.
//
// Of a frame that is the next data of a known connection, whole and with good checksums, the
// payload stays in its buffer of 2 KiB until the core reads from the connection: then it is
// gathered into the block. Software is told what its header says. Every other frame is handed to
// software, which gives the buffer back. Buffers come back in any order, and the next descriptor
// gets one that is free: so a connection of which nobody reads stops no other. Payload
// takes half of the buffers at most, and a quarter for one connection: what would take more is not
// kept, but software's, so that acknowledgements always get through.

module nic_receive
  import core_pkg::*;
  import nic_pkg::*;
#(
  // Cycles from one look at the ring to the next.
  parameter int unsigned Interval = 16
) (
  input  logic               clk_i,
  input  logic               rst_ni,

  // It changes only while nothing is under way.
  input  receive_layout_t    place_i,

  input  logic               request_valid_i,
  output logic               request_ready_o,
  input  receive_request_t   request_i,

  // Reads of streams: one waits until something is there, and ends with what is there then. An
  // abort names its row, serial number and command.
  input  logic               operation_valid_i,
  output logic               operation_ready_o,
  input  operation_t         operation_i,
  input  logic               abort_valid_i,
  output logic               abort_ready_o,
  input  operation_id_t      abort_i,
  output logic               outcome_valid_o,
  input  logic               outcome_ready_i,
  output outcome_t           outcome_o,

  // What software is told of a frame, and the buffers that it gives back.
  output logic               event_valid_o,
  input  logic               event_ready_i,
  output received_t          event_o,
  input  logic               return_valid_i,
  output logic               return_ready_o,
  input  buffer_t            return_i,

  output bus_pkg::request_t  bus_o,
  input  bus_pkg::response_t bus_i
);

  localparam int unsigned TimerWidth = $clog2(Interval + 1);
  localparam int unsigned BeatsWidth = BufferShift - 3;

  typedef logic [BufferShift:0]  size_t;
  typedef logic [BeatsWidth-1:0] beats_t;

  // Who has a buffer.
  typedef enum logic [1:0] {
    Back,
    Posted,
    Kept,
    Software
  } holder_e;

  // Payload in a buffer that is kept.
  typedef struct packed {
    size_t at;
    size_t left;
  } piece_t;

  // A read that waits, and how far it is.
  typedef struct packed {
    operation_id_t id;
    bytes_t        start;
    bytes_t        length;
  } read_t;

  // A connection's end.
  typedef struct packed {
    logic    ended;
    logic    broken;
    status_t status;
  } end_t;

  typedef enum logic [4:0] {
    Pick,
    Request,
    Forget,
    Take,
    Abort,
    Return,
    Post,
    PostData,
    PostDone,
    Ring,
    RingData,
    RingDone,
    Look,
    Looked,
    Header,
    HeaderData,
    Match,
    Event,
    Scan,
    CopyFrom,
    CopyTo,
    Prime,
    Copy,
    CopyDone,
    Tell
  } step_e;

  step_e       step_q, step_d;
  template_t   connections [Connections];
  template_t   c;
  piece_t      pieces [Buffers];
  piece_t      piece;
  read_t       reads [Commands];
  read_t       read_q;
  // The buffer of each descriptor; kept buffers of a connection are a list, oldest first.
  buffer_t     posted [Buffers];
  buffer_t     next_of [Buffers];
  holder_e [Buffers-1:0]           holder_q;
  logic [Connections-1:0]          known_q;
  end_t [Connections-1:0]          ends_q;
  logic [Connections-1:0][BufferWidth:0] kept_q;
  logic [BufferWidth:0]            kept_all_q;
  buffer_t [Connections-1:0]       oldest_q, newest_q;
  connection_t [Commands-1:0]      owners_q;
  logic [Commands-1:0]             waits_q, able;
  logic                            able_valid;
  command_t                        able_command, command_q;
  connection_t                     at_q, connection_q;
  // Of the ring: descriptors. Buffers: the one that is posted next, read from, and told of.
  buffer_t                         head_q, tail_q, rung_q, post_q, scan_q, frame_q, free;
  logic [BufferWidth:0]            posted_q;
  logic [TimerWidth-1:0]           timer_q;
  logic [15:0]                     length_q;
  logic [3:0][127:0]               header_q;
  logic [1:0]                      header_at_q;
  bytes_t                          done_q;
  outcome_t                        outcome_q;
  logic                            ours, ours_q, may_post, free_found, has_room, bad_q, bad, held_q;

  // ---- Reads that can go on ----

  always_comb begin
    for (int unsigned i = 0; i < Commands; i++) begin
      able[i] = waits_q[i] && (kept_q[owners_q[i]] != '0 || ends_q[owners_q[i]].ended
                               || ends_q[owners_q[i]].broken);
    end
  end

  arbiter #(
    .Count (Commands)
  ) u_arbiter (
    .clk_i,
    .rst_ni,
    .ask_i    (able),
    .valid_o  (able_valid),
    .chosen_o (able_command),
    .take_i   (step_q == Pick && step_d == Scan)
  );

  always_comb begin
    free_found = 1'b0;
    free       = '0;
    for (int unsigned i = Buffers; i > 0; i--) begin
      if (holder_q[i-1] == Back) begin
        free_found = 1'b1;
        free       = buffer_t'(i - 1);
      end
    end
  end

  // One descriptor stays back: a full ring would look empty.
  assign may_post = free_found && posted_q < (BufferWidth + 1)'(Buffers - 1);

  // ---- A frame's header ----

  logic [511:0] h;
  logic [15:0]  total, udp_length, payload;
  logic         is_tcp, is_plain, is_match, is_next;
  number_t      number;

  assign h = header_q;

  function automatic logic [15:0] swap(logic [15:0] value);
    return {value[7:0], value[15:8]};
  endfunction

  function automatic logic [31:0] swap_four(logic [31:0] value);
    return {swap(value[15:0]), swap(value[31:16])};
  endfunction

  assign c          = connections[at_q];
  assign total      = swap(h[16*8+:16]);
  assign udp_length = swap(h[38*8+:16]);
  assign is_tcp     = h[23*8+:8] == 8'd6;
  assign payload    = total - (is_tcp ? 16'd40 : 16'd28);
  assign number     = swap_four(h[38*8+:32]);
  // IPv4 without options or fragments, all of it there; TCP without options, ACK and maybe PSH.
  assign is_plain = h[12*8+:24] == 24'h45_0008 && (h[20*8+:16] & 16'hffbf) == '0
                    && 17'(total) + 17'd14 <= 17'(length_q)
                    && (is_tcp ? total > 16'd40 && h[46*8+:8] == 8'h50
                                 && (h[47*8+:8] & 8'hf7) == 8'h10
                               : h[23*8+:8] == 8'd17 && total > 16'd28
                                 && udp_length == total - 16'd20);
  assign is_match = known_q[at_q] && c.tcp == is_tcp && h[0+:48] == c.mac_source
                    && h[26*8+:32] == c.destination && h[30*8+:32] == c.source
                    && h[34*8+:16] == c.destination_port && h[36*8+:16] == c.source_port;
  assign is_next  = !is_tcp || number == c.next;
  assign has_room = kept_all_q < (BufferWidth + 1)'(MostKept)
                    && kept_q[at_q] < (BufferWidth + 1)'(MostKeptEach);
  assign ours     = is_match && is_plain && is_next && has_room
                    && !ends_q[at_q].ended && !ends_q[at_q].broken;

  // ---- The copy of a piece into a block ----

  logic [3:0]   from_byte, to_byte, shift, last_byte;
  size_t        count_q, count;
  logic [63:0]  from, to;
  beats_t       from_beats, to_beats, from_left_q, to_left_q;
  logic         first_q;
  logic [127:0] before_q;
  logic [15:0]  strobes;

  assign piece      = pieces[scan_q];
  assign count      = 16'(piece.left) < 16'(read_q.length - done_q)
                      ? piece.left : size_t'(read_q.length - done_q);
  assign from       = place_i.buffers + 64'({scan_q, piece.at[BufferShift-1:0]});
  assign to         = place_i.blocks + (64'(read_q.id.row) << BlockShift) + 64'(read_q.start)
                      + 64'(done_q);
  assign from_byte  = from[3:0];
  assign to_byte    = to[3:0];
  assign shift      = from_byte - to_byte;
  assign from_beats = beats_t'((16'(from_byte) + 16'(count) + 16'd15) >> 4);
  assign to_beats   = beats_t'((16'(to_byte) + 16'(count) + 16'd15) >> 4);
  assign last_byte  = 4'(5'(to_byte) + 5'(count[3:0]) - 5'd1);
  assign bad        = bad_q || bus_i.b.resp != bus_pkg::ResponseOkay;
  assign strobes    = (first_q ? 16'hffff << to_byte : 16'hffff)
                      & (to_left_q == beats_t'(1) ? ~(16'hfffe << last_byte) : 16'hffff);

  // ---- Steps ----

  end_t read_end;
  logic abort_found, unused;
  logic frame_is_good, is_done;
  assign read_end = ends_q[connection_q];
  // Written back, whole, undamaged, with both checksums right.
  assign is_done       = bus_i.r.data[64] && bus_i.r.resp == bus_pkg::ResponseOkay;
  assign frame_is_good = bus_i.r.data[65] && !bus_i.r.data[95] && bus_i.r.data[70]
                         && !bus_i.r.data[94] && bus_i.r.data[69:68] != '0 && !bus_i.r.data[93]
                         && bus_i.r.data[111:96] >= 16'd42
                         && bus_i.r.data[111:96] <= 16'(1 << BufferShift);

  always_comb begin
    step_d = step_q;
    unique case (step_q)
      Pick: begin
        if (request_valid_i) step_d = Request;
        else if (return_valid_i) step_d = Return;
        else if (abort_valid_i) step_d = Abort;
        else if (operation_valid_i) step_d = Take;
        else if (may_post && !held_q) step_d = Post;
        else if (rung_q != tail_q && !held_q) step_d = Ring;
        else if (timer_q == '0 && posted_q != '0 && !held_q) step_d = Look;
        else if (able_valid) step_d = Scan;
      end
      Request:    step_d = request_i.kind == Listen ? Forget : Pick;
      Forget:     if (kept_q[connection_q] == '0) step_d = Pick;
      Abort:      step_d = abort_found ? Tell : Pick;
      Post:       if (bus_i.aw_ready) step_d = PostData;
      PostData:   if (bus_i.w_ready) step_d = PostDone;
      PostDone:   if (bus_i.b_valid) step_d = Pick;
      Ring:       if (bus_i.aw_ready) step_d = RingData;
      RingData:   if (bus_i.w_ready) step_d = RingDone;
      RingDone:   if (bus_i.b_valid) step_d = Pick;
      Look:       if (bus_i.ar_ready) step_d = Looked;
      Looked: begin
        if (bus_i.r_valid) step_d = !is_done ? Pick : frame_is_good ? Header : Event;
      end
      Header:     if (bus_i.ar_ready) step_d = HeaderData;
      HeaderData: if (bus_i.r_valid && header_at_q == '1) step_d = Match;
      Match:      if (ours || at_q == '1) step_d = Event;
      Event:      if (event_ready_i) step_d = Pick;
      Scan: begin
        step_d = kept_q[connection_q] == '0 ? Tell : CopyFrom;
      end
      CopyFrom:   if (bus_i.ar_ready) step_d = CopyTo;
      CopyTo:     if (bus_i.aw_ready) step_d = from_byte >= to_byte ? Prime : Copy;
      Prime:      if (bus_i.r_valid) step_d = Copy;
      Copy:       if (bus_o.w_valid && bus_i.w_ready && bus_o.w.last) step_d = CopyDone;
      CopyDone: begin
        if (bus_i.b_valid) begin
          step_d = bad || 16'(done_q) + 16'(count_q) == 16'(read_q.length) ? Tell : Scan;
        end
      end
      Tell: if (outcome_ready_i) step_d = Pick;
      default: step_d = Pick;
    endcase
  end

  // An abort is withdrawn when its operation has been answered meanwhile.
  assign abort_found = abort_valid_i && waits_q[abort_i.command]
                       && reads[abort_i.command].id.row == abort_i.row
                       && reads[abort_i.command].id.serial == abort_i.serial;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      step_q   <= Pick;
      holder_q <= {Buffers{Back}};
      known_q  <= '0;
      ends_q   <= '0;
      kept_q   <= '0;
      kept_all_q <= '0;
      oldest_q <= '0;
      newest_q <= '0;
      owners_q <= '0;
      waits_q  <= '0;
      at_q     <= '0;
      head_q   <= '0;
      tail_q   <= '0;
      rung_q   <= '0;
      posted_q <= '0;
      timer_q  <= '0;
      held_q   <= 1'b0;
    end else begin
      step_q <= step_d;
      if (timer_q != '0) timer_q <= timer_q - 1'b1;
      unique case (step_q)
        Pick: at_q <= '0;
        Request: begin
          unique case (request_i.kind)
            Listen: begin
              known_q[request_i.connection] <= 1'b1;
              ends_q[request_i.connection]  <= '0;
            end
            Assign: owners_q[request_i.command] <= request_i.connection;
            Ended:  ends_q[request_i.connection].ended <= 1'b1;
            Broken: begin
              ends_q[request_i.connection].broken <= 1'b1;
              ends_q[request_i.connection].status <= request_i.status;
            end
            RingStops: held_q <= 1'b1;
            default: begin
              held_q   <= 1'b0;
              head_q   <= '0;
              tail_q   <= '0;
              rung_q   <= '0;
              posted_q <= '0;
              for (int unsigned i = 0; i < Buffers; i++) begin
                if (holder_q[i] == Posted) holder_q[i] <= Back;
              end
            end
          endcase
        end
        Forget: begin
          if (kept_q[connection_q] != '0) begin
            holder_q[oldest_q[connection_q]] <= Back;
            oldest_q[connection_q]           <= next_of[oldest_q[connection_q]];
            kept_q[connection_q]             <= kept_q[connection_q] - 1'b1;
            kept_all_q                       <= kept_all_q - 1'b1;
          end
        end
        Take:   waits_q[operation_i.id.command] <= 1'b1;
        Abort:  if (abort_found) waits_q[abort_i.command] <= 1'b0;
        Return: if (holder_q[return_i] == Software) holder_q[return_i] <= Back;
        PostDone: begin
          if (bus_i.b_valid) begin
            holder_q[post_q] <= Posted;
            tail_q           <= tail_q + 1'b1;
            posted_q         <= posted_q + 1'b1;
          end
        end
        RingDone: if (bus_i.b_valid) rung_q <= tail_q;
        Looked: begin
          if (bus_i.r_valid) begin
            timer_q <= is_done ? '0 : TimerWidth'(Interval);
            if (is_done) begin
              head_q   <= head_q + 1'b1;
              posted_q <= posted_q - 1'b1;
            end
          end
        end
        Match: if (!ours) at_q <= at_q + 1'b1;
        Event: begin
          if (event_ready_i) begin
            holder_q[frame_q] <= event_o.kept ? Kept : Software;
            if (event_o.kept) begin
              kept_q[at_q]   <= kept_q[at_q] + 1'b1;
              kept_all_q     <= kept_all_q + 1'b1;
              newest_q[at_q] <= frame_q;
              if (kept_q[at_q] == '0) oldest_q[at_q] <= frame_q;
            end
          end
        end
        Scan: begin
          if (step_d == Tell) waits_q[command_q] <= 1'b0;
        end
        CopyDone: begin
          if (bus_i.b_valid) begin
            if (count_q == piece.left) begin
              holder_q[scan_q]       <= Back;
              oldest_q[connection_q] <= next_of[scan_q];
              kept_q[connection_q]   <= kept_q[connection_q] - 1'b1;
              kept_all_q             <= kept_all_q - 1'b1;
            end
            if (step_d == Tell) waits_q[command_q] <= 1'b0;
            if (bad) begin
              ends_q[connection_q].broken <= 1'b1;
              ends_q[connection_q].status <= dcs_pkg::StatusDataTransferError;
            end
          end
        end
        default: ;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    unique case (step_q)
      Pick: begin
        command_q    <= able_command;
        connection_q <= owners_q[able_command];
        read_q       <= reads[able_command];
        done_q       <= '0;
        bad_q        <= 1'b0;
        post_q       <= free;
      end
      PostDone: if (bus_i.b_valid) posted[tail_q] <= post_q;
      Request: begin
        connection_q <= request_i.connection;
        if (request_i.kind == Listen) connections[request_i.connection] <= request_i.opened;
      end
      Take: begin
        reads[operation_i.id.command] <= '{
          id: operation_i.id, start: operation_i.start, length: operation_i.length
        };
      end
      Looked: begin
        frame_q     <= posted[head_q];
        length_q    <= bus_i.r.data[111:96];
        header_at_q <= '0;
        ours_q      <= 1'b0;
      end
      HeaderData: begin
        if (bus_i.r_valid) begin
          header_q[header_at_q] <= bus_i.r.resp == bus_pkg::ResponseOkay ? bus_i.r.data : '0;
          header_at_q           <= header_at_q + 1'b1;
        end
      end
      Match: ours_q <= ours;
      Event: begin
        if (event_ready_i && ours_q) begin
          connections[at_q].next <= event_o.next;
          pieces[frame_q] <= '{
            at: is_tcp ? size_t'(54) : size_t'(42), left: size_t'(payload)
          };
          if (kept_q[at_q] != '0) next_of[newest_q[at_q]] <= frame_q;
        end
      end
      Scan: begin
        scan_q           <= oldest_q[connection_q];
        outcome_q        <= '0;
        outcome_q.id     <= read_q.id;
        outcome_q.kind   <= read_end.broken && done_q == '0 ? Failed : Moved;
        outcome_q.bytes  <= done_q;
        outcome_q.status <= read_end.broken && done_q == '0 ? read_end.status : '0;
      end
      Abort: begin
        outcome_q        <= '0;
        outcome_q.id     <= reads[abort_i.command].id;
        outcome_q.kind   <= Failed;
        outcome_q.status <= dcs_pkg::StatusCancelled;
      end
      CopyFrom: begin
        count_q     <= count;
        from_left_q <= from_beats;
        to_left_q   <= to_beats;
        first_q     <= 1'b1;
      end
      Prime: begin
        if (bus_i.r_valid) begin
          before_q    <= bus_i.r.data;
          bad_q       <= bus_i.r.resp != bus_pkg::ResponseOkay;
          from_left_q <= from_left_q - 1'b1;
        end
      end
      Copy: begin
        if (bus_o.w_valid && bus_i.w_ready) begin
          before_q  <= bus_i.r.data;
          first_q   <= 1'b0;
          to_left_q <= to_left_q - 1'b1;
          if (from_left_q != '0) begin
            bad_q       <= bad_q || bus_i.r.resp != bus_pkg::ResponseOkay;
            from_left_q <= from_left_q - 1'b1;
          end
        end
      end
      CopyDone: begin
        if (bus_i.b_valid) begin
          done_q          <= done_q + bytes_t'(count_q);
          pieces[scan_q]  <= '{at: piece.at + count_q, left: piece.left - count_q};
          outcome_q       <= '0;
          outcome_q.id    <= read_q.id;
          outcome_q.kind  <= bad ? Failed : Moved;
          if (bad) outcome_q.status <= dcs_pkg::StatusDataTransferError;
          else outcome_q.bytes <= read_q.length;
        end
      end
      default: ;
    endcase
  end

  // ---- What is told ----

  always_comb begin
    event_o              = '0;
    event_o.place        = frame_q;
    event_o.length       = length_q;
    event_o.kept         = ours_q;
    event_o.connection   = at_q;
    event_o.acknowledges = swap_four(h[42*8+:32]);
    event_o.window       = swap(h[48*8+:16]);
    event_o.next         = c.next + (is_tcp ? number_t'(payload) : '0);
  end

  assign unused = ^{operation_i, abort_i, bus_i.b.id, bus_i.r.id, bus_i.r.last, c, h, read_end};

  assign request_ready_o   = step_q == Request;
  assign operation_ready_o = step_q == Take;
  assign abort_ready_o     = step_q == Abort;
  assign return_ready_o    = step_q == Return;
  assign event_valid_o     = step_q == Event;
  assign outcome_valid_o   = step_q == Tell;
  assign outcome_o         = outcome_q;

  // ---- The bus ----

  always_comb begin
    bus_o          = '0;
    bus_o.aw.size  = 3'd4;
    bus_o.aw.burst = bus_pkg::BurstIncrement;
    bus_o.ar.size  = 3'd4;
    bus_o.ar.burst = bus_pkg::BurstIncrement;
    bus_o.aw_valid = step_q inside {Post, Ring, CopyTo};
    bus_o.b_ready  = step_q inside {PostDone, RingDone, CopyDone};
    bus_o.ar_valid = step_q inside {Look, Header, CopyFrom};
    bus_o.w.strb   = '1;
    bus_o.w.last   = 1'b1;
    bus_o.aw.addr  = place_i.ring + 64'({tail_q, 4'b0});
    bus_o.w.data   = {64'b0, place_i.buffers + (64'(post_q) << BufferShift)};
    bus_o.w_valid  = step_q inside {PostData, RingData};
    bus_o.r_ready  = step_q inside {Looked, HeaderData, Prime};
    unique case (step_q)
      Ring, RingData: begin
        bus_o.aw.addr = place_i.tail;
        bus_o.w.data  = {4{32'(tail_q)}};
        bus_o.w.strb  = 16'hf << place_i.tail[3:0];
      end
      CopyTo, Copy: begin
        bus_o.aw.addr = to;
        bus_o.aw.len  = 8'(to_beats - 1'b1);
        bus_o.w.data  = 128'({bus_i.r.data, before_q} >> {shift, 3'b0});
        bus_o.w.strb  = strobes;
        bus_o.w.last  = to_left_q == beats_t'(1);
        bus_o.w_valid = step_q == Copy && (from_left_q == '0 || bus_i.r_valid);
        bus_o.r_ready = step_q == Copy && from_left_q != '0 && bus_i.w_ready;
      end
      Header, HeaderData: begin
        bus_o.ar.addr = place_i.buffers + (64'(frame_q) << BufferShift);
        bus_o.ar.len  = 8'd3;
      end
      CopyFrom: begin
        bus_o.ar.addr = from;
        bus_o.ar.len  = 8'(from_beats - 1'b1);
      end
      default: bus_o.ar.addr = place_i.ring + 64'({head_q, 4'b0});
    endcase
  end

endmodule
