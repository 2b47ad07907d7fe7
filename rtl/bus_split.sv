// Parts the bus of a master into several ways: a burst goes the way that its master says.
//
// A master has reads on one way at a time, and says which until their last beat has come; the beats
// of a write follow its address on the same way. An answer has the number of its way as its
// identifier. Nothing is stored here.

module bus_split #(
  parameter int unsigned Ways = 2
) (
  input  bus_pkg::way_t                read_way_i,
  input  bus_pkg::way_t                write_way_i,
  input  bus_pkg::request_t            master_i,
  output bus_pkg::response_t           master_o,
  output bus_pkg::request_t [Ways-1:0] ways_o,
  input  bus_pkg::response_t [Ways-1:0] ways_i
);

  localparam int unsigned Width = Ways > 1 ? $clog2(Ways) : 1;
  typedef logic [Width-1:0] index_t;

  index_t reader, writer, answering;
  logic   unused;

  assign reader = index_t'(read_way_i);
  assign writer = index_t'(write_way_i);
  assign unused = ^{read_way_i, write_way_i};

  // Writes may be answered on several ways at once: the lowest one is heard first.
  always_comb begin
    answering = '0;
    for (int unsigned i = Ways; i > 0; i--) if (ways_i[i-1].b_valid) answering = index_t'(i - 1);
  end

  always_comb begin
    for (int unsigned i = 0; i < Ways; i++) begin
      ways_o[i]          = master_i;
      ways_o[i].ar_valid = master_i.ar_valid && reader == index_t'(i);
      ways_o[i].r_ready  = master_i.r_ready && reader == index_t'(i);
      ways_o[i].aw_valid = master_i.aw_valid && writer == index_t'(i);
      ways_o[i].w_valid  = master_i.w_valid && writer == index_t'(i);
      ways_o[i].b_ready  = master_i.b_ready && answering == index_t'(i);
    end
    master_o          = ways_i[writer];
    master_o.ar_ready = ways_i[reader].ar_ready;
    master_o.r        = ways_i[reader].r;
    master_o.r.id     = bus_pkg::id_t'(reader);
    master_o.r_valid  = ways_i[reader].r_valid;
    master_o.b        = ways_i[answering].b;
    master_o.b.id     = bus_pkg::id_t'(answering);
    master_o.b_valid  = ways_i[answering].b_valid;
  end

endmodule
