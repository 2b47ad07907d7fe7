// Joins the buses of several masters into one: their bursts go in turns.
//
// A burst has the number of its master as its identifier, by which its answer finds the way back.
// The beats of a write follow its address before the next address is taken.

module bus_join #(
  parameter int unsigned Masters = 2,

  localparam int unsigned Width = $clog2(Masters)
) (
  input  logic                             clk_i,
  input  logic                             rst_ni,

  input  bus_pkg::request_t [Masters-1:0]  masters_i,
  output bus_pkg::response_t [Masters-1:0] masters_o,
  output bus_pkg::request_t                bus_o,
  input  bus_pkg::response_t               bus_i
);

  typedef logic [Width-1:0] master_t;

  logic [Masters-1:0] reads, writes;

  for (genvar i = 0; i < Masters; i++) begin : gen_asks
    assign reads[i]  = masters_i[i].ar_valid;
    assign writes[i] = masters_i[i].aw_valid;
  end

  // ---- Reads: an address is taken, then offered ----

  logic              read, turn_to_read, asked_q;
  master_t           reader, reader_q;
  bus_pkg::address_t ar_q;

  arbiter #(.Count (Masters)) u_reader (
    .clk_i, .rst_ni, .ask_i (reads), .valid_o (read), .chosen_o (reader), .take_i (turn_to_read)
  );

  // Its master is told in the cycle after that in which it was chosen.
  typedef enum logic [1:0] {
    Choose,
    Take,
    Offer
  } state_e;

  state_e read_q, write_q;

  assign turn_to_read = read_q == Choose && read;
  assign asked_q      = read_q == Offer;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      read_q <= Choose;
    end else begin
      unique case (read_q)
        Choose:  if (read) read_q <= Take;
        Take:    read_q <= Offer;
        default: if (bus_i.ar_ready) read_q <= Choose;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (read_q == Choose) reader_q <= reader;
    if (read_q == Take) begin
      ar_q    <= masters_i[reader_q].ar;
      ar_q.id <= bus_pkg::id_t'(reader_q);
    end
  end

  // ---- Writes ----

  logic              write, turn_to_write, beats_q;
  master_t           writer, writer_q;
  bus_pkg::address_t aw_q;

  arbiter #(.Count (Masters)) u_writer (
    .clk_i, .rst_ni, .ask_i (writes), .valid_o (write), .chosen_o (writer),
    .take_i (turn_to_write)
  );

  assign turn_to_write = write_q == Choose && write && !beats_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      write_q <= Choose;
      beats_q <= 1'b0;
    end else begin
      unique case (write_q)
        Choose:  if (turn_to_write) write_q <= Take;
        Take:    write_q <= Offer;
        default: if (bus_i.aw_ready) write_q <= Choose;
      endcase
      if (write_q == Take) beats_q <= 1'b1;
      else if (bus_o.w_valid && bus_i.w_ready && bus_o.w.last) beats_q <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (write_q == Choose && !beats_q) writer_q <= writer;
    if (write_q == Take) begin
      aw_q    <= masters_i[writer_q].aw;
      aw_q.id <= bus_pkg::id_t'(writer_q);
    end
  end

  // ---- The bus ----

  master_t read_for, written_for;
  logic    unused;

  assign read_for    = master_t'(bus_i.r.id);
  assign written_for = master_t'(bus_i.b.id);
  assign unused      = ^{masters_i, bus_i};

  assign bus_o.ar       = ar_q;
  assign bus_o.ar_valid = asked_q;
  assign bus_o.aw       = aw_q;
  assign bus_o.aw_valid = write_q == Offer;
  assign bus_o.w        = masters_i[writer_q].w;
  assign bus_o.w_valid  = beats_q && masters_i[writer_q].w_valid;
  assign bus_o.r_ready  = masters_i[read_for].r_ready;
  assign bus_o.b_ready  = masters_i[written_for].b_ready;

  for (genvar i = 0; i < Masters; i++) begin : gen_answers
    assign masters_o[i].ar_ready = read_q == Take && reader_q == master_t'(i);
    assign masters_o[i].aw_ready = write_q == Take && writer_q == master_t'(i);
    assign masters_o[i].w_ready  = beats_q && writer_q == master_t'(i) && bus_i.w_ready;
    assign masters_o[i].r        = bus_i.r;
    assign masters_o[i].r_valid  = bus_i.r_valid && read_for == master_t'(i);
    assign masters_o[i].b        = bus_i.b;
    assign masters_o[i].b_valid  = bus_i.b_valid && written_for == master_t'(i);
  end

endmodule
