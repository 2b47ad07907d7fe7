// The memories of the engine as devices on the bus see them: an AXI4 slave for block memory, and
// behind it the controllers' own memories, each with room for four rows of 4 KiB.
//
// The bus's addresses are those of a window that is aligned to its size, `WindowShift` bits: row 0
// of block memory is at its first byte. One burst of each direction at a time; what nothing is
// behind is answered with DECERR. Beats may be narrow.

module block_port
  import core_pkg::*;
#(
  // Block memory is the first one.
  parameter int unsigned Memories = 2,

  localparam int unsigned OwnRows     = 4,
  localparam int unsigned Rows        = Blocks + (Memories - 1) * OwnRows,
  localparam int unsigned WindowShift = BlockShift + $clog2(Rows)
) (
  input  logic                         clk_i,
  input  logic                         rst_ni,

  input  bus_pkg::request_t            bus_i,
  output bus_pkg::response_t           bus_o,

  // See block_memory.
  output logic [Memories-1:0]          read_valid_o,
  input  logic [Memories-1:0]          read_ready_i,
  output word_at_t                     read_at_o,
  input  logic [Memories-1:0]          read_done_i,
  input  block_word_t [Memories-1:0]   read_data_i,
  output logic [Memories-1:0]          write_valid_o,
  input  logic [Memories-1:0]          write_ready_i,
  output word_at_t                     write_at_o,
  output block_word_t                  write_data_o,
  output keep_t                        write_keep_o
);

  localparam logic [1:0] ResponseDecodeError = 2'b11;
  localparam int unsigned MemoryWidth = $clog2(Memories);
  typedef logic [MemoryWidth-1:0]            memory_t;
  typedef logic [WindowShift-BlockShift-1:0] window_row_t;
  typedef logic [BlockShift-1:0]             place_t;

  // A burst: which memory and row, the place of its next beat, and the beats that are left.
  typedef struct packed {
    logic         bad;
    memory_t      memory;
    row_t         row;
    place_t       place;
    bus_pkg::id_t id;
    logic [2:0]   size;
    logic [7:0]   left;
  } burst_t;

  function automatic burst_t burst_of(
    logic [WindowShift-1:0] addr, bus_pkg::id_t id, logic [7:0] len, logic [2:0] size
  );
    window_row_t at;
    burst_t      burst;
    at    = addr[WindowShift-1:BlockShift];
    burst = '{
      bad:    32'(at) >= Rows,
      memory: '0,
      row:    row_t'(at),
      place:  addr[BlockShift-1:0],
      id:     id,
      size:   size,
      left:   len
    };
    if (32'(at) >= Blocks) begin
      burst.memory = memory_t'(1 + (32'(at) - Blocks) / OwnRows);
      burst.row    = row_t'((32'(at) - Blocks) % OwnRows);
    end
    return burst;
  endfunction

  function automatic place_t next_place(place_t place, logic [2:0] size);
    return (place & ~((place_t'(1) << size) - 1'b1)) + (place_t'(1) << size);
  endfunction

  // ---- Reads ----

  burst_t                asked, read_q, write_q;
  logic                  reading_q, start, fetched, give, next_word, fetch_valid, unused;
  place_t                read_next, read_last;
  block_word_t           word;
  logic [BlockShift-WordShift:0] words;

  assign asked     = burst_of(bus_i.ar.addr[WindowShift-1:0], bus_i.ar.id, bus_i.ar.len,
                              bus_i.ar.size);
  assign start     = bus_i.ar_valid && !reading_q;
  assign read_last = (asked.place & ~((place_t'(1) << asked.size) - 1'b1))
                     + (place_t'(asked.left) << asked.size);
  assign words     = (BlockShift-WordShift+1)'(read_last >> WordShift)
                     - (BlockShift-WordShift+1)'(asked.place >> WordShift) + 1'b1;
  assign read_next = next_place(read_q.place, read_q.size);
  assign next_word = read_q.left == '0
                     || read_next[BlockShift-1:WordShift] != read_q.place[BlockShift-1:WordShift];
  assign give      = bus_o.r_valid && bus_i.r_ready;
  assign unused    = ^{bus_i, read_next, read_last, read_q, write_q};

  block_fetch u_fetch (
    .clk_i,
    .rst_ni,
    .start_i      (start && !asked.bad),
    .at_i         ('{row: asked.row, word: word_index_t'(asked.place >> WordShift)}),
    .words_i      (words),
    .read_valid_o (fetch_valid),
    .read_ready_i (read_ready_i[read_q.memory]),
    .read_at_o,
    .read_done_i  (read_done_i[read_q.memory]),
    .read_data_i  (read_data_i[read_q.memory]),
    .valid_o      (fetched),
    .ready_i      (give && next_word && !read_q.bad),
    .word_o       (word)
  );

  always_comb begin
    read_valid_o                = '0;
    read_valid_o[read_q.memory] = fetch_valid;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) reading_q <= 1'b0;
    else if (!reading_q) reading_q <= bus_i.ar_valid;
    else if (give && read_q.left == '0) reading_q <= 1'b0;
  end

  always_ff @(posedge clk_i) begin
    if (start) begin
      read_q <= asked;
    end else if (give) begin
      read_q.place <= read_next;
      read_q.left  <= read_q.left - 1'b1;
    end
  end

  // ---- Writes ----

  logic writing_q, answering_q, take;

  assign take         = bus_i.w_valid && bus_o.w_ready;
  assign write_at_o   = '{row: write_q.row, word: word_index_t'(write_q.place >> WordShift)};
  assign write_data_o = bus_i.w.data;
  assign write_keep_o = bus_i.w.strb;

  always_comb begin
    write_valid_o                 = '0;
    write_valid_o[write_q.memory] = writing_q && !write_q.bad && bus_i.w_valid;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      writing_q   <= 1'b0;
      answering_q <= 1'b0;
    end else begin
      if (bus_i.aw_valid && bus_o.aw_ready) writing_q <= 1'b1;
      else if (take && bus_i.w.last) writing_q <= 1'b0;
      answering_q <= answering_q ? !bus_i.b_ready : take && bus_i.w.last;
    end
  end

  always_ff @(posedge clk_i) begin
    if (bus_i.aw_valid && bus_o.aw_ready) begin
      write_q <= burst_of(bus_i.aw.addr[WindowShift-1:0], bus_i.aw.id, bus_i.aw.len,
                          bus_i.aw.size);
    end else if (take) begin
      write_q.place <= next_place(write_q.place, write_q.size);
    end
  end

  // ---- What it answers ----

  always_comb begin
    bus_o.ar_ready = !reading_q;
    bus_o.r        = '{
      id:   read_q.id,
      data: read_q.bad ? '0 : word,
      resp: read_q.bad ? ResponseDecodeError : bus_pkg::ResponseOkay,
      last: read_q.left == '0
    };
    bus_o.r_valid  = reading_q && (read_q.bad || fetched);
    bus_o.aw_ready = !writing_q && !answering_q;
    bus_o.w_ready  = writing_q && (write_q.bad || write_ready_i[write_q.memory]);
    bus_o.b        = '{id:   write_q.id,
                       resp: write_q.bad ? ResponseDecodeError : bus_pkg::ResponseOkay};
    bus_o.b_valid  = answering_q;
  end

endmodule
