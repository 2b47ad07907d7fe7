// Operations of a memory endpoint that wait, in their order, and the bursts of the first one: a
// burst ends where 4 KiB end.

module memory_line
  import core_pkg::*;
#(
  localparam int unsigned Shift      = $clog2(bus_pkg::BeatBytes),
  localparam int unsigned BeatsWidth = BlockShift - Shift + 2
) (
  input  logic          clk_i,
  input  logic          rst_ni,

  // As many as there are rows at most.
  input  logic          operation_valid_i,
  input  operation_t    operation_i,
  input  address_t      address_i,
  input  bus_pkg::way_t way_i,

  output logic          there_o,
  // The first one is begun; it is through.
  input  logic          begin_i,
  input  logic          end_i,
  output operation_id_t id_o,
  output address_t      address_o,
  output bus_pkg::way_t way_o,
  output bytes_t        start_o,
  output bytes_t        length_o,

  // Its next burst, as long as there is one: the address of its first beat, and its beats.
  output logic          burst_valid_o,
  input  logic          burst_take_i,
  output bus_pkg::address_t burst_o
);

  typedef struct packed {
    operation_id_t id;
    address_t      address;
    bus_pkg::way_t way;
    bytes_t        start;
    bytes_t        length;
  } move_t;

  (* ram_style = "distributed" *)
  move_t           moves_q [Blocks];
  row_t            put_q, get_q;
  move_t           first;
  logic [RowWidth:0] count_q;
  logic            unused;

  assign unused    = ^operation_i;
  assign there_o   = count_q != '0;
  assign first     = moves_q[get_q];
  assign id_o      = first.id;
  assign address_o = first.address;
  assign way_o     = first.way;
  assign start_o   = first.start;
  assign length_o  = first.length;

  always_ff @(posedge clk_i) begin
    if (operation_valid_i) begin
      moves_q[put_q] <= '{id: operation_i.id, address: address_i, way: way_i,
                          start: operation_i.start, length: operation_i.length};
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      put_q   <= '0;
      get_q   <= '0;
      count_q <= '0;
    end else begin
      put_q   <= put_q + row_t'(operation_valid_i);
      get_q   <= get_q + row_t'(end_i);
      count_q <= count_q + (RowWidth+1)'(operation_valid_i) - (RowWidth+1)'(end_i);
    end
  end

  // ---- Bursts ----

  logic [63-Shift:0]     beat_q;
  logic [BeatsWidth-1:0] left_q, room, beats;

  assign room          = BeatsWidth'(bus_pkg::MostBeats)
                         - BeatsWidth'(beat_q[$clog2(bus_pkg::MostBeats)-1:0]);
  assign beats         = left_q < room ? left_q : room;
  assign burst_valid_o = left_q != '0;
  assign burst_o       = '{
    addr:  {beat_q, Shift'(0)},
    id:    '0,
    len:   8'(beats - 1'b1),
    size:  3'(Shift),
    burst: bus_pkg::BurstIncrement
  };

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) left_q <= '0;
    else if (begin_i) begin
      left_q <= BeatsWidth'((32'(first.address[Shift-1:0]) + 32'(first.length)
                             + bus_pkg::BeatBytes - 1) >> Shift);
    end else if (burst_take_i) left_q <= left_q - beats;
  end

  always_ff @(posedge clk_i) begin
    if (begin_i) beat_q <= first.address[63:Shift];
    else if (burst_take_i) beat_q <= beat_q + (64-Shift)'(beats);
  end

endmodule
