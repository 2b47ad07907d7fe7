// The UDP offload engine: makes a packet of each unit in an Rx queue, from its stream's template
// (Table II), as the Rust crate's `uoe.rs` has it. Legacy frames go first.
//
// A start copies the template into the run's own, word by word, and checks it. A packet's payload
// is read from the queue into a buffer and summed meanwhile, so that the checksum is known before
// its header leaves. Padding and the frame check sequence are the MAC's.

module uoe
  import d2d_pkg::*;
#(
  // Largest IPv4 packet of the link.
  parameter int unsigned Mtu       = 1500,
  // Where the queues are, as `d2d_rx` has them.
  parameter logic [63:0] QueueBase = 64'h0
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  nanos_t             now_i,
  input  logic               link_i,

  // Accesses to the template's registers. A read's answer is there when it is ready.
  input  logic               access_valid_i,
  output logic               access_ready_o,
  input  access_t            access_i,
  output logic [63:0]        access_data_o,

  // A receiver starts: what is wrong, or the bytes of a packet.
  input  logic               parse_valid_i,
  output logic               parse_ready_o,
  input  stream_t            parse_stream_i,
  output error_t             parse_error_o,
  output logic [15:0]        parse_unit_o,

  // Units in the queues, see `d2d_rx`.
  input  logic [Streams-1:0] ready_i,
  output logic               take_valid_o,
  input  logic               take_ready_i,
  output stream_t            take_stream_o,
  output queued_t            take_most_o,
  input  queued_t            take_bytes_i,
  input  logic [RxShift-1:0] take_at_i,
  input  logic [15:0]        take_epoch_i,
  output logic               consume_valid_o,
  input  logic               consume_ready_i,
  output stream_t            consume_stream_o,
  output queued_t            consume_bytes_o,
  output logic [15:0]        consume_epoch_o,
  output error_t             consume_error_o,

  // Frames of the legacy function, and all frames on their way to the MAC.
  input  logic               legacy_valid_i,
  output logic               legacy_ready_o,
  input  logic [127:0]       legacy_data_i,
  input  logic [15:0]        legacy_keep_i,
  input  logic               legacy_last_i,
  output logic               frame_valid_o,
  input  logic               frame_ready_i,
  output logic [127:0]       frame_data_o,
  output logic [15:0]        frame_keep_o,
  output logic               frame_last_o,
  output logic               frame_legacy_o,

  output bus_pkg::request_t  queue_bus_o,
  input  bus_pkg::response_t queue_bus_i
);

  typedef enum logic [3:0] {
    Sweep,
    Pick,
    Access,
    Check,
    Answer,
    Legacy,
    Take,
    Load,
    Fetch,
    Fill,
    Divide,
    Emit,
    SaveFirst,
    SaveCount,
    Consume
  } step_e;

  // Words of a template, and behind them those of a run: when its first packet left; how many did.
  typedef logic [3:0] word_t;
  localparam word_t MacDestination = 4'd0;
  localparam word_t MacSource      = 4'd1;
  localparam word_t Tag            = 4'd2;
  localparam word_t Ip1            = 4'd3;
  localparam word_t Ip2            = 4'd4;
  localparam word_t Ip3            = 4'd5;
  localparam word_t Udp            = 4'd6;
  localparam word_t Rtp1           = 4'd7;
  localparam word_t Rtp2           = 4'd8;
  localparam word_t Payload        = 4'd9;
  localparam word_t First          = 4'd10;
  localparam word_t Count          = 4'd11;

  localparam int unsigned BufferBeats = (Mtu + 15) / 16 + 1;
  localparam int unsigned BeatsWidth  = $clog2(BufferBeats + 1);
  // 90,000 ticks of RTP in 1,000,000,000 ns.
  localparam logic [17:0] Divisor = 18'd100_000;
  localparam error_t ErrTemplate = 8'd4;
  localparam error_t ErrLink     = 8'd9;

  typedef logic [BeatsWidth-1:0] beats_t;

  function automatic logic [15:0] swap(logic [15:0] value);
    return {value[7:0], value[15:8]};
  endfunction

  function automatic logic [31:0] swap_four(logic [31:0] value);
    return {swap(value[15:0]), swap(value[31:16])};
  endfunction

  // ---- Memory: of each stream the template and, in the upper half, the run's copy of it ----

  logic [63:0] memory [Streams * 32];
  logic [63:0] word, new_word;
  logic        write;
  logic [StreamWidth+4:0] at, write_at, sweep_q;
  step_e       step_q, step_d;
  stream_t     stream_q;
  word_t       word_q;
  // When the run's first packet left; how many did.
  logic [63:0] first_q;
  logic [15:0] number_q;

  always_comb begin
    at       = {stream_q, 1'b1, word_q};
    new_word = '0;
    write    = 1'b0;
    unique case (step_q)
      Sweep: begin
        at    = sweep_q;
        write = 1'b1;
      end
      Access: begin
        at       = {access_i.stream, 1'b0, access_i.number};
        new_word = written(access_i.halves, access_i.data, word);
        write    = access_i.halves != '0 && access_i.number <= Payload;
      end
      // Read in the lower half, written in the upper one.
      Check: begin
        at[4]    = 1'b0;
        new_word = word_q <= Payload ? word : '0;
        write    = 1'b1;
      end
      SaveFirst: begin
        at       = {stream_q, 1'b1, First};
        new_word = first_q;
        write    = 1'b1;
      end
      SaveCount: begin
        at       = {stream_q, 1'b1, Count};
        new_word = {47'b0, 1'b1, number_q + 1'b1};
        write    = 1'b1;
      end
      default: ;
    endcase
  end

  assign word     = memory[at];
  assign write_at = step_q == Check ? {stream_q, 1'b1, word_q} : at;

  always_ff @(posedge clk_i) begin
    if (write) memory[write_at] <= new_word;
  end

  // ---- The check of a template ----

  logic        good_q, good, rtp_q;
  logic [15:0] unit_q, largest;

  assign largest = rtp_q ? 16'(Mtu - 40) : 16'(Mtu - 28);

  always_comb begin
    good = 1'b1;
    unique case (word_q)
      MacDestination: good = word[47:0] != '0;
      MacSource:      good = !word[0];
      Tag:            good = word[15:0] inside {16'h0081, 16'h0000};
      Ip1:            good = word[7:0] == 8'h45 && (word[63:48] & ~16'h0040) == '0;
      Ip2:            good = word[7:0] != '0 && word[15:8] == 8'd17;
      Ip3:            good = word[31:0] != '0;
      Udp:            good = word[31:16] != '0;
      Rtp1:           good = word[7:0] inside {8'h80, 8'h00};
      Payload:        good = word[15:0] != '0 && word[15:0] <= largest;
      default: ;
    endcase
  end

  assign parse_ready_o  = step_q == Answer;
  assign parse_error_o  = !link_i ? ErrLink : good_q ? ErrNone : ErrTemplate;
  assign parse_unit_o   = unit_q;
  assign access_ready_o = step_q == Access;
  assign access_data_o  = word;

  // ---- A packet: its parts ----

  logic [8:0][63:0]   template_q;
  queued_t            bytes_q;
  logic [RxShift-1:4] place_q;
  logic [15:0]        epoch_q;
  logic               chosen_valid, bad_q, unused;
  stream_t            chosen;

  arbiter #(
    .Count (Streams)
  ) u_arbiter (
    .clk_i,
    .rst_ni,
    .ask_i    (ready_i),
    .valid_o  (chosen_valid),
    .chosen_o (chosen),
    .take_i   (step_q == Pick && step_d == Take)
  );

  // Ticks since the run's first packet.
  logic [67:0] quotient_q;
  logic [16:0] rest_q;
  logic [17:0] rest;
  logic [6:0]  divided_q;
  logic        dividing;
  assign rest     = {rest_q, quotient_q[67]};
  assign dividing = divided_q != '0;

  // The payload, as it lies in memory, and its sum of words in network order.
  logic [127:0]       buffer [BufferBeats];
  beats_t             fill_q, drain_q;
  logic [RxShift:0]   span;
  logic [8:0]         burst_beats, burst_q;
  beats_t             all_beats;
  logic [31:0]        sum_q;
  logic [127:0]       masked;
  logic [20:0]        beat_sum;

  // Where payload begins in its first beat, and ends in its last one.
  logic [3:0] skip_q;
  logic [4:0] tail;

  assign tail      = {1'b0, span[3:0]} + 1'b1;
  assign span      = (RxShift + 1)'(skip_q) + (RxShift + 1)'(bytes_q) + 15;
  assign all_beats = beats_t'(span >> 4);

  always_comb begin
    // Up to the end of the page.
    burst_beats = 9'd256 - 9'(place_q[11:4]);
    if (9'(all_beats - fill_q) < burst_beats) burst_beats = 9'(all_beats - fill_q);
  end

  always_comb begin
    masked   = queue_bus_i.r.data;
    beat_sum = '0;
    for (int unsigned i = 0; i < 16; i++) begin
      if ((fill_q == '0 && 4'(i) < skip_q)
          || (fill_q == all_beats - 1'b1 && 5'(i) >= tail)) masked[8*i+:8] = '0;
    end
    for (int unsigned i = 0; i < 8; i++) beat_sum += 21'(swap(masked[16*i+:16]));
  end

  // ---- A packet: its headers ----

  logic        has_tag, has_rtp;
  logic [5:0]  header_bytes;
  logic [15:0] total, udp_length, ip_sum, udp_sum, identification, sequence_number;
  logic [31:0] ticks, timestamp;
  logic [63:0] ip1, ip2;
  logic [95:0] rtp;

  assign has_tag      = template_q[Tag][15:0] != '0;
  assign has_rtp      = template_q[Rtp1][7:0] != '0;
  assign header_bytes = 6'd42 + (has_tag ? 6'd4 : 6'd0) + (has_rtp ? 6'd12 : 6'd0);
  assign udp_length   = 16'(bytes_q) + (has_rtp ? 16'd20 : 16'd8);
  assign total        = udp_length + 16'd20;
  assign identification  = swap(template_q[Ip1][47:32]) + number_q;
  assign sequence_number = swap(template_q[Rtp1][31:16]) + number_q;
  assign ticks           = quotient_q[31:0];
  assign timestamp = swap_four(template_q[Rtp1][63:32]) + ticks;
  assign rtp = {template_q[Rtp2][31:0], swap_four(timestamp), swap(sequence_number),
                template_q[Rtp1][15:0]};

  // Sums in one's complement, folded twice.
  function automatic logic [15:0] fold(logic [31:0] value);
    logic [16:0] once;
    once = 17'(value[15:0]) + 17'(value[31:16]);
    return once[15:0] + 16'(once[16]);
  endfunction

  always_comb begin
    logic [31:0] ip, udp;
    ip1 = {template_q[Ip1][63:48], swap(identification), swap(total), template_q[Ip1][15:0]};
    ip2 = {template_q[Ip2][63:32], 16'b0, template_q[Ip2][15:0]};
    ip  = '0;
    for (int unsigned i = 0; i < 4; i++) ip += 32'(swap(ip1[16*i+:16])) + 32'(swap(ip2[16*i+:16]));
    for (int unsigned i = 0; i < 2; i++) ip += 32'(swap(template_q[Ip3][16*i+:16]));
    ip_sum = ~fold(ip);

    // Where the payload begins at an odd byte of its beat, all its bytes were summed at the other
    // place of their words.
    udp = 32'(skip_q[0] ? swap(fold(sum_q)) : fold(sum_q)) + 32'(udp_length) * 2 + 32'd17;
    for (int unsigned i = 0; i < 2; i++) begin
      udp += 32'(swap(template_q[Ip3][16*i+:16])) + 32'(swap(template_q[Udp][16*i+:16]));
      udp += 32'(swap(ip2[32+16*i+:16]));
    end
    for (int unsigned i = 0; i < 6; i++) udp += has_rtp ? 32'(swap(rtp[16*i+:16])) : '0;
    udp_sum = ~fold(udp);
    if (udp_sum == '0) udp_sum = '1;
  end

  // In the order of the wire, byte 0 in the lowest bits.
  logic [511:0] header;
  always_comb begin
    logic [335:0] typed;
    typed = {rtp, swap(udp_sum), swap(udp_length), template_q[Udp][31:0], template_q[Ip3][31:0],
             ip2[63:32], swap(ip_sum), ip2[15:0], ip1, 16'h0008};
    // The tag is between the addresses and the type.
    header = {80'b0, typed, 96'b0};
    if (has_tag) header[463:96] = {typed, template_q[Tag][31:0]};
    header[95:0] = {template_q[MacSource][47:0], template_q[MacDestination][47:0]};
  end

  // ---- A frame: headers, and behind them the payload, shifted to where they end ----

  logic [6:0]   beat_q;
  logic [3:0]   fraction, shift;
  logic [1:0]   whole;
  logic [15:0]  frame_bytes;
  logic [6:0]   frame_beats;
  logic [127:0] before_q, next, shifted, from_header;
  logic         behind, last;

  assign fraction    = header_bytes[3:0];
  assign whole       = header_bytes[5:4];
  assign frame_bytes = 16'(header_bytes) + 16'(bytes_q);
  assign frame_beats = 7'((frame_bytes + 16'd15) >> 4);
  assign shift       = skip_q - fraction;
  // The first beat with payload takes nothing of the beat before the buffer's first.
  assign behind      = skip_q >= fraction;
  assign next        = buffer[drain_q];
  assign shifted     = 128'({next, before_q} >> {shift, 3'b0});
  assign last        = beat_q == frame_beats - 1'b1;

  always_comb begin
    from_header = header[{beat_q[1:0], 7'b0}+:128];
    frame_data_o = from_header;
    if (beat_q > 7'(whole)) begin
      frame_data_o = shifted;
    end else if (beat_q == 7'(whole)) begin
      for (int unsigned i = 0; i < 16; i++) begin
        if (4'(i) >= fraction) frame_data_o[8*i+:8] = shifted[8*i+:8];
      end
    end
    frame_keep_o = last && frame_bytes[3:0] != '0 ? ~(16'hffff << frame_bytes[3:0]) : '1;
    frame_last_o = last;
    if (step_q == Legacy) begin
      frame_data_o = legacy_data_i;
      frame_keep_o = legacy_keep_i;
      frame_last_o = legacy_last_i;
    end
  end

  assign frame_legacy_o = step_q == Legacy;
  assign frame_valid_o  = step_q == Emit || (step_q == Legacy && legacy_valid_i);
  assign legacy_ready_o = step_q == Legacy && frame_ready_i;

  // ---- Steps ----

  always_comb begin
    step_d = step_q;
    unique case (step_q)
      Sweep: if (sweep_q == '1) step_d = Pick;
      Pick: begin
        if (parse_valid_i) step_d = Check;
        else if (access_valid_i) step_d = Access;
        else if (link_i && legacy_valid_i) step_d = Legacy;
        else if (link_i && chosen_valid) step_d = Take;
      end
      Access: step_d = Pick;
      Check:  if (word_q == Count) step_d = Answer;
      Answer: step_d = Pick;
      Legacy: if (legacy_valid_i && frame_ready_i && legacy_last_i) step_d = Pick;
      Take:   if (take_ready_i) step_d = take_bytes_i == '0 ? Pick : Load;
      Load:   if (word_q == Count) step_d = Fetch;
      Fetch:  if (queue_bus_i.ar_ready) step_d = Fill;
      Fill: begin
        if (queue_bus_i.r_valid && burst_q == 9'd1) begin
          step_d = fill_q + 1'b1 == all_beats ? Divide : Fetch;
        end
      end
      // What could not be read does not leave: its run fails.
      Divide: if (!dividing) step_d = bad_q ? Consume : Emit;
      Emit:   if (frame_ready_i && last) step_d = SaveFirst;
      SaveFirst: step_d = SaveCount;
      SaveCount: step_d = Consume;
      Consume: if (consume_ready_i) step_d = Pick;
      default: step_d = Pick;
    endcase
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      step_q    <= Sweep;
      sweep_q   <= '0;
      word_q    <= '0;
      divided_q <= '0;
    end else begin
      step_q <= step_d;
      if (step_q == Sweep) sweep_q <= sweep_q + 1'b1;
      word_q <= step_q inside {Check, Load} ? word_q + 1'b1 : '0;
      if (step_q == Load && word_q == Count) divided_q <= 7'd68;
      else if (dividing) divided_q <= divided_q - 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    unique case (step_q)
      Pick: begin
        stream_q <= parse_valid_i ? parse_stream_i : chosen;
        good_q   <= 1'b1;
        rtp_q    <= 1'b0;
      end
      Check: begin
        good_q <= good_q && good;
        if (word_q == Rtp1) rtp_q <= word[7:0] != '0;
        if (word_q == Payload) unit_q <= word[15:0];
      end
      Take: begin
        bytes_q <= take_bytes_i;
        place_q <= take_at_i[RxShift-1:4];
        skip_q  <= take_at_i[3:0];
        epoch_q <= take_epoch_i;
        fill_q  <= '0;
        sum_q   <= '0;
        beat_q  <= '0;
        bad_q   <= 1'b0;
      end
      Load: begin
        if (word_q < Payload) template_q[word_q] <= word;
        if (word_q == First) first_q <= word;
        if (word_q == Count) begin
          number_q <= word[15:0];
          if (!word[16]) first_q <= now_i;
        end
      end
      Fetch: burst_q <= burst_beats;
      Fill: begin
        if (queue_bus_i.r_valid) begin
          sum_q   <= sum_q + 32'(beat_sum);
          bad_q   <= bad_q || queue_bus_i.r.resp != bus_pkg::ResponseOkay;
          fill_q  <= fill_q + 1'b1;
          burst_q <= burst_q - 1'b1;
          // The next burst begins with a page.
          if (burst_q == 9'd1) place_q <= {place_q[RxShift-1:12] + 1'b1, 8'b0};
        end
      end
      Divide: begin
        drain_q  <= behind ? beats_t'(1) : '0;
        before_q <= buffer[0];
      end
      Emit: begin
        if (frame_ready_i) begin
          beat_q <= beat_q + 1'b1;
          if (beat_q >= 7'(whole)) begin
            before_q <= next;
            drain_q  <= drain_q + 1'b1;
          end
        end
      end
      default: ;
    endcase
    if (step_q == Fill && queue_bus_i.r_valid) buffer[fill_q] <= queue_bus_i.r.data;
    if (step_q == Load && word_q == Count) begin
      quotient_q <= word[16] ? (68'(now_i - first_q) << 3) + 68'(now_i - first_q) : '0;
      rest_q     <= '0;
    end else if (dividing) begin
      rest_q     <= 17'(rest >= Divisor ? rest - Divisor : rest);
      quotient_q <= {quotient_q[66:0], rest >= Divisor};
    end
  end

  assign take_valid_o     = step_q == Take;
  assign take_stream_o    = stream_q;
  assign take_most_o      = '1;
  assign consume_valid_o  = step_q == Consume;
  assign consume_stream_o = stream_q;
  assign consume_bytes_o  = bytes_q;
  assign consume_epoch_o  = epoch_q;
  assign consume_error_o  = bad_q ? ErrBus : ErrNone;
  assign unused           = ^{queue_bus_i.aw_ready, queue_bus_i.w_ready, queue_bus_i.b,
                              queue_bus_i.b_valid, queue_bus_i.r.id, queue_bus_i.r.last,
                              access_i.number > Payload};

  always_comb begin
    queue_bus_o          = '0;
    queue_bus_o.ar.addr  = QueueBase + 64'({stream_q, place_q, 4'b0});
    queue_bus_o.ar.len   = 8'(burst_beats - 1'b1);
    queue_bus_o.ar.size  = 3'd4;
    queue_bus_o.ar.burst = bus_pkg::BurstIncrement;
    queue_bus_o.ar_valid = step_q == Fetch;
    queue_bus_o.r_ready  = step_q == Fill;
  end

endmodule
