// The transmit ring of a NIC: frames of three descriptors each, the oldest first, and whose they
// are.

module nic_ring
  import nic_pkg::*;
(
  input  logic               clk_i,
  input  logic               rst_ni,

  // The NIC was reset: nothing is in the ring.
  input  logic               clear_i,
  // There is room for a frame, from the tail on.
  output logic               room_o,
  output entry_t             tail_o,
  input  logic               push_i,
  input  pending_t           push_pending_i,
  // The oldest frame: its last descriptor.
  output logic               any_o,
  output entry_t             last_o,
  // The NIC has done it.
  input  logic               pop_i,
  // Those that have a frame in the ring.
  output logic [Pending-1:0] busy_o
);

  // A third of a power of two is no whole number, so that at least one descriptor stays free: with
  // none the ring would look empty.
  localparam int unsigned Frames     = Entries / 3;
  localparam int unsigned FrameWidth = $clog2(Frames);

  typedef logic [FrameWidth:0] count_t;

  pending_t              frames [Frames];
  pending_t              oldest;
  entry_t                tail_q, head_q;
  logic [FrameWidth-1:0] oldest_q, newest_q;
  count_t                count_q;
  count_t [Pending-1:0]  counts_q;

  assign room_o = count_q < count_t'(Frames);
  assign any_o  = count_q != '0;
  assign tail_o = tail_q;
  assign last_o = head_q + entry_t'(2);
  assign oldest = frames[oldest_q];

  for (genvar i = 0; i < int'(Pending); i++) begin : gen_busy
    assign busy_o[i] = counts_q[i] != '0;
  end

  always_ff @(posedge clk_i) begin
    if (push_i) frames[newest_q] <= push_pending_i;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      tail_q   <= '0;
      head_q   <= '0;
      oldest_q <= '0;
      newest_q <= '0;
      count_q  <= '0;
      counts_q <= '0;
    end else if (clear_i) begin
      tail_q   <= '0;
      head_q   <= '0;
      oldest_q <= '0;
      newest_q <= '0;
      count_q  <= '0;
      counts_q <= '0;
    end else begin
      count_q <= count_q + count_t'(push_i) - count_t'(pop_i);
      if (push_i) begin
        tail_q   <= tail_q + entry_t'(3);
        newest_q <= newest_q == FrameWidth'(Frames - 1) ? '0 : newest_q + 1'b1;
      end
      if (pop_i) begin
        head_q   <= head_q + entry_t'(3);
        oldest_q <= oldest_q == FrameWidth'(Frames - 1) ? '0 : oldest_q + 1'b1;
      end
      for (int unsigned i = 0; i < Pending; i++) begin
        counts_q[i] <= counts_q[i] + count_t'(push_i && push_pending_i == pending_t'(i))
                       - count_t'(pop_i && oldest == pending_t'(i));
      end
    end
  end

endmodule
