// What is proved of `nic_ring`: a frame's descriptors are none of those that the NIC has, one stays
// free, and an operation is busy exactly as long as one of its frames is in the ring.

module nic_ring_proof
  import nic_pkg::*;
(
  input logic     clk_i,
  input logic     rst_ni,
  input logic     clear_i,
  input logic     push_i,
  input pending_t push_pending_i,
  input logic     pop_i
);

  localparam int unsigned Frames = Entries / 3;

  logic room, any;
  entry_t tail, last;
  logic [Pending-1:0] busy;

  nic_ring u_ring (
    .clk_i,
    .rst_ni,
    .clear_i,
    .room_o (room),
    .tail_o (tail),
    .push_i,
    .push_pending_i,
    .any_o  (any),
    .last_o (last),
    .pop_i,
    .busy_o (busy)
  );

  // ---- The plain view: whose each descriptor of the ring is, and which are the NIC's ----

  logic [Entries-1:0]   owned_q, next_three;
  pending_t [Entries-1:0] whose_q;
  // Frames that the NIC has, in order of their descriptors.
  logic started_q, sound;

  initial started_q = 1'b0;

  always_comb begin
    for (int unsigned i = 0; i < Entries; i++) begin
      next_three[i] = entry_t'(i) - tail < entry_t'(3);
    end
  end

  always_ff @(posedge clk_i) begin
    started_q <= 1'b1;
    if (!rst_ni || clear_i) begin
      owned_q <= '0;
    end else begin
      for (int unsigned i = 0; i < Entries; i++) begin
        if (pop_i && last - entry_t'(i) < entry_t'(3)) owned_q[i] <= 1'b0;
        if (push_i && next_three[i]) begin
          owned_q[i] <= 1'b1;
          whose_q[i] <= push_pending_i;
        end
      end
    end
  end

  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    if (push_i) assume (room);
    if (pop_i) assume (any);
    assume (push_pending_i < pending_t'(Pending - 1) || push_pending_i == pending_t'(Pending - 1));
  end

  // ---- What the ring looks like, so that the proof is by induction ----

  logic [Pending-1:0][7:0] of;
  logic [7:0] used;
  assign used = 8'(u_ring.count_q) * 8'd3;

  always_comb begin
    sound = 8'(u_ring.count_q) <= 8'(Frames)
            && 8'(u_ring.oldest_q) < 8'(Frames)
            && 8'(u_ring.newest_q) < 8'(Frames)
            && tail - u_ring.head_q == entry_t'(used);
    sound &= 8'(u_ring.newest_q) == (8'(u_ring.oldest_q) + 8'(u_ring.count_q) >= 8'(Frames)
             ? 8'(u_ring.oldest_q) + 8'(u_ring.count_q) - 8'(Frames)
             : 8'(u_ring.oldest_q) + 8'(u_ring.count_q));
    of = '0;
    for (int unsigned i = 0; i < Entries; i++) begin
      // Those from the head on, as many as there are.
      sound &= owned_q[i] == (8'(entry_t'(entry_t'(i) - u_ring.head_q)) < used);
    end
    for (int unsigned age = 0; age < Frames; age++) begin
      if (8'(age) < 8'(u_ring.count_q)) begin
        logic [7:0] place;
        pending_t pending;
        place = 8'(u_ring.oldest_q) + 8'(age);
        if (place >= 8'(Frames)) place -= 8'(Frames);
        pending = '0;
        for (int unsigned i = 0; i < Frames; i++) begin
          if (place == 8'(i)) pending = u_ring.frames[i];
        end
        of[pending] += 8'd1;
        sound &= whose_q[u_ring.head_q + entry_t'(3 * age)] == pending;
      end
    end
    for (int unsigned p = 0; p < Pending; p++) sound &= 8'(u_ring.counts_q[p]) == of[p];
  end

  always_comb begin
    if (started_q && rst_ni) begin
      assert (sound);
      if (room) assert ((owned_q & next_three) == '0);
      assert (owned_q != '1);
      for (int unsigned p = 0; p < Pending; p++) assert (busy[p] == (of[p] != '0));
    end
  end

endmodule
