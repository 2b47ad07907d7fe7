// The core's way to its hosts' memory, by AXI4 and at any alignment: entries and descriptors are
// read, result areas and completion entries are written. Each function has a host, with a bus of
// its own: what is read and written goes the way of the function whose queue it is for.
//
// The words of a completion entry are written one after the other, and when all that was written
// to its host before them has been answered: a host that sees the phase bit sees all of it. An
// interrupt follows in the same way. A write that the bus refuses is nobody's: its host doesn't see
// it. Where `quiet_o`, nothing of a function is under way, or will be by itself.

module host_port
  import core_pkg::*;
#(
  parameter int unsigned Hosts = 2
) (
  input  logic               clk_i,
  input  logic               rst_ni,

  // See engine: one read at a time.
  input  logic               read_valid_i,
  output logic               read_ready_o,
  input  function_t          read_func_i,
  input  address_t           read_address_i,
  input  logic [12:0]        read_bytes_i,
  output logic               data_valid_o,
  input  logic               data_ready_i,
  output logic [63:0]        data_o,
  output logic               data_error_o,
  input  logic               write_valid_i,
  output logic               write_ready_o,
  input  function_t          write_func_i,
  input  logic               write_entry_i,
  input  address_t           write_address_i,
  input  logic [63:0]        write_data_i,
  input  logic               interrupt_valid_i,
  output logic               interrupt_ready_o,
  input  function_t          interrupt_func_i,
  input  logic [10:0]        interrupt_vector_i,

  output logic               interrupt_valid_o,
  input  logic               interrupt_ready_i,
  output function_t          interrupt_func_o,
  output logic [10:0]        interrupt_vector_o,
  output logic [Hosts-1:0]   quiet_o,

  // See bus_split: a way for each host.
  output bus_pkg::way_t      read_way_o,
  output bus_pkg::way_t      write_way_o,
  output bus_pkg::request_t  bus_o,
  input  bus_pkg::response_t bus_i
);

  localparam int unsigned Shift      = $clog2(bus_pkg::BeatBytes);
  localparam int unsigned BeatsWidth = BlockShift - Shift + 2;
  localparam int unsigned WordsWidth = BlockShift - 3 + 1;

  typedef logic [BeatsWidth-1:0] beats_t;
  typedef logic [WordsWidth-1:0] words_t;
  typedef logic [(Hosts > 1 ? $clog2(Hosts) : 1)-1:0] host_t;

  // ---- Reads: beats that are not asked for yet, and words that are not given ----

  logic           start, given, take, half_q, bad_q, bad;
  logic [63-Shift:0] beat_q;
  beats_t         beats_q, room, beats;
  words_t         words_q;
  block_word_t    word;
  logic           word_valid, word_take, unused;
  keep_t          unused_keep;
  logic           unused_last;
  beats_t         unused_in, unused_out;

  assign read_ready_o = words_q == '0;
  assign start        = read_valid_i && read_ready_o;
  assign room         = beats_t'(bus_pkg::MostBeats)
                        - beats_t'(beat_q[$clog2(bus_pkg::MostBeats)-1:0]);
  assign beats        = beats_q < room ? beats_q : room;
  assign unused       = ^{bus_i, unused_keep, unused_last, unused_in, unused_out};

  realign u_realign (
    .clk_i,
    .rst_ni,
    .start_i     (start),
    .from_i      (read_address_i[Shift-1:0]),
    .to_i        ('0),
    .length_i    (read_bytes_i),
    .words_in_o  (unused_in),
    .words_out_o (unused_out),
    .valid_i     (bus_i.r_valid),
    .ready_o     (bus_o.r_ready),
    .word_i      (bus_i.r.data),
    .valid_o     (word_valid),
    .ready_i     (word_take),
    .word_o      (word),
    .keep_o      (unused_keep),
    .last_o      (unused_last)
  );

  assign take         = bus_i.r_valid && bus_o.r_ready;
  assign bad          = bad_q || (take && bus_i.r.resp != bus_pkg::ResponseOkay);
  assign data_valid_o = word_valid && words_q != '0;
  assign data_o       = half_q ? word[127:64] : word[63:0];
  assign data_error_o = bad;
  assign given        = data_valid_o && data_ready_i;
  // A word of the bus is two of the core's, but for the last one.
  assign word_take    = given && (half_q || words_q == words_t'(1));

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      words_q <= '0;
      beats_q <= '0;
      half_q  <= 1'b0;
    end else if (start) begin
      words_q <= words_t'((32'(read_bytes_i) + 32'd7) >> 3);
      beats_q <= beats_t'((32'(read_address_i[Shift-1:0]) + 32'(read_bytes_i)
                           + bus_pkg::BeatBytes - 1) >> Shift);
      half_q  <= 1'b0;
    end else begin
      if (given) begin
        words_q <= words_q - 1'b1;
        half_q  <= !half_q;
      end
      if (bus_o.ar_valid && bus_i.ar_ready) beats_q <= beats_q - beats;
    end
  end

  always_ff @(posedge clk_i) begin
    bad_q <= bad && !start;
    if (start) read_way_o <= bus_pkg::way_t'(read_func_i);
    if (start) beat_q <= read_address_i[63:Shift];
    else if (bus_o.ar_valid && bus_i.ar_ready) beat_q <= beat_q + (64-Shift)'(beats);
  end

  // ---- Writes: a word is in one beat, or in two ----

  typedef enum logic [1:0] {
    Idle,
    Address,
    Data
  } state_e;

  state_e             state_q;
  logic               second_q, across, answered;
  address_t           address_q;
  logic [63:0]        data_q;
  logic [Shift-1:0]   place;
  logic [255:0]       shifted;
  logic [31:0]        strobes;
  // Of each host the words under way that its bus has not answered, fewer than it can count.
  logic [Hosts-1:0][5:0] open_q;
  logic [Hosts-1:0]   asks, hears;

  assign place         = address_q[Shift-1:0];
  assign across        = place > Shift'(bus_pkg::BeatBytes - 8);
  assign shifted       = 256'(data_q) << {place, 3'b000};
  assign strobes       = 32'h0000_00ff << place;
  assign answered      = bus_i.b_valid && bus_o.b_ready;
  assign write_ready_o = state_q == Idle && (open_q[host_t'(write_func_i)] == '0
                         || (!write_entry_i && open_q[host_t'(write_func_i)] < 6'd32));

  for (genvar i = 0; i < Hosts; i++) begin : gen_hosts
    assign asks[i]    = bus_o.aw_valid && bus_i.aw_ready && host_t'(write_way_o) == host_t'(i);
    assign hears[i]   = answered && host_t'(bus_i.b.id) == host_t'(i);
    assign quiet_o[i] = open_q[i] == '0
                        && (state_q == Idle || host_t'(write_way_o) != host_t'(i));
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q  <= Idle;
      second_q <= 1'b0;
      open_q   <= '0;
    end else begin
      for (int unsigned i = 0; i < Hosts; i++) begin
        open_q[i] <= open_q[i] + 6'(asks[i]) - 6'(hears[i]);
      end
      unique case (state_q)
        Idle:    if (write_valid_i && write_ready_o) state_q <= Address;
        Address: if (bus_i.aw_ready) state_q <= Data;
        default: begin
          if (bus_i.w_ready) begin
            state_q  <= across && !second_q ? Address : Idle;
            second_q <= across && !second_q;
          end
        end
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Idle) begin
      address_q   <= write_address_i;
      data_q      <= write_data_i;
      write_way_o <= bus_pkg::way_t'(write_func_i);
    end
  end

  // ---- Interrupts ----

  logic quiet;

  assign quiet              = quiet_o[host_t'(interrupt_func_i)];
  assign interrupt_func_o   = interrupt_func_i;
  assign interrupt_valid_o  = interrupt_valid_i && quiet;
  assign interrupt_ready_o  = interrupt_ready_i && quiet;
  assign interrupt_vector_o = interrupt_vector_i;

  // ---- The bus ----

  bus_pkg::address_t burst;

  always_comb begin
    burst          = '0;
    burst.size     = 3'(Shift);
    burst.burst    = bus_pkg::BurstIncrement;
    bus_o.ar       = burst;
    bus_o.ar.addr  = {beat_q, Shift'(0)};
    bus_o.ar.len   = 8'(beats - 1'b1);
    bus_o.ar_valid = beats_q != '0;
    bus_o.aw       = burst;
    bus_o.aw.addr  = {address_q[63:Shift] + (64-Shift)'(second_q), Shift'(0)};
    bus_o.aw_valid = state_q == Address;
    bus_o.w        = '{
      data: second_q ? shifted[255:128] : shifted[127:0],
      strb: second_q ? strobes[31:16] : strobes[15:0],
      last: 1'b1
    };
    bus_o.w_valid  = state_q == Data;
    bus_o.b_ready  = 1'b1;
  end

endmodule
