// What is proved of `frontend`, whatever a host rings and while queues come and go: a completion ring
// is never overrun, each command completes once, a slot has one command, and entries that are fetched
// were written.

module frontend_proof
  import core_pkg::*;
(
  input logic          clk_i,
  input logic          rst_ni,
  input logic          create_i,
  input queue_t        create_queue_i,
  input queue_config_t create_config_i,
  input logic          delete_i,
  input queue_t        delete_queue_i,
  input logic          deleted_ready_i,
  input logic          doorbell_valid_i,
  input logic          doorbell_completion_i,
  input queue_t        doorbell_queue_i,
  input logic [31:0]   doorbell_value_i,
  input logic          entry_ready_i,
  input logic          fetched_i,
  input logic          post_i,
  input command_t      post_command_i,
  input posting_t      post_posting_i,
  input logic [Commands-1:0] forsaken_i,
  input logic          write_ready_i,
  input logic          interrupt_ready_i
);

  logic          bad, entry_valid, write_valid, interrupt_valid, idle, quiet, posted, deleted;
  logic [Queues-1:0] deleting;
  queue_t        deleted_queue;
  command_t      write_command, posted_command;
  queue_t        entry_queue;
  command_t      entry_command;
  address_t      entry_address, write_address;
  logic [15:0]   entry_tenant, entry_number;
  logic [63:0]   write_data;
  logic [10:0]   vector;

  frontend u_frontend (
    .clk_i,
    .rst_ni,
    .create_i,
    .create_queue_i,
    .create_config_i,
    .delete_i,
    .delete_queue_i,
    .deleting_o         (deleting),
    .deleted_valid_o    (deleted),
    .deleted_ready_i,
    .deleted_queue_o    (deleted_queue),
    .doorbell_valid_i,
    .doorbell_completion_i,
    .doorbell_queue_i,
    .doorbell_value_i,
    .doorbell_bad_o     (bad),
    .entry_valid_o      (entry_valid),
    .entry_ready_i,
    .entry_queue_o      (entry_queue),
    .entry_command_o    (entry_command),
    .entry_address_o    (entry_address),
    .entry_tenant_o     (entry_tenant),
    .entry_number_o     (entry_number),
    .fetched_i,
    .fetched_queue_i    (entry_queue),
    .post_i,
    .post_command_i,
    .post_posting_i,
    .forsaken_i,
    .write_valid_o      (write_valid),
    .write_ready_i,
    .write_address_o    (write_address),
    .write_data_o       (write_data),
    .write_command_o    (write_command),
    .posted_o           (posted),
    .posted_command_o   (posted_command),
    .interrupt_valid_o  (interrupt_valid),
    .interrupt_ready_i,
    .interrupt_vector_o (vector),
    .idle_o             (idle),
    .quiet_o            (quiet)
  );

  // ---- A command: its entry is offered, it runs, it waits to be told, a device has it still ----

  logic [Commands-1:0]   running_q, waiting_q, kept_q;
  queue_t [Commands-1:0] owner_q;
  logic                  started_q, copied_q, wrote;
  // Completions of a ring that its host has not taken.
  logic [Queues-1:0][16:0] unread_q;
  queue_t                  now;

  assign now   = u_frontend.posting_queue;
  assign wrote = u_frontend.state_q == 3'd2 && write_ready_i;

  initial started_q = 1'b0;

  function automatic logic [16:0] distance(logic [14:0] from, logic [14:0] to, logic [15:0] depth);
    return to < from ? 17'(to) + 17'(depth) - 17'(from) : 17'(to) - 17'(from);
  endfunction

  // Slots that were kept come back one by one.
  logic     freed_valid;
  command_t freed;

  always_comb begin
    freed_valid = 1'b0;
    freed       = '0;
    for (int unsigned i = Commands; i > 0; i--) begin
      if (kept_q[i-1] && !forsaken_i[i-1]) begin
        freed_valid = 1'b1;
        freed       = command_t'(i - 1);
      end
    end
  end

  logic [16:0] taken;
  assign taken = doorbell_valid_i && doorbell_completion_i && !bad
                 ? distance(u_frontend.taken_q[doorbell_queue_i], doorbell_value_i[14:0],
                            u_frontend.config_q[doorbell_queue_i].depth) : '0;

  always_ff @(posedge clk_i) begin
    started_q <= 1'b1;
    if (!rst_ni) begin
      running_q <= '0;
      waiting_q <= '0;
      kept_q    <= '0;
      copied_q  <= 1'b0;
      unread_q  <= '0;
    end else begin
      copied_q <= (copied_q || fetched_i) && !entry_ready_i;
      if (entry_ready_i) begin
        running_q[entry_command] <= 1'b1;
        owner_q[entry_command]   <= entry_queue;
      end
      if (post_i) begin
        running_q[post_command_i] <= 1'b0;
        waiting_q[post_command_i] <= 1'b1;
      end
      if (posted) waiting_q[posted_command] <= 1'b0;
      if (posted && forsaken_i[posted_command]) kept_q[posted_command] <= 1'b1;
      if (!posted && freed_valid) kept_q[freed] <= 1'b0;
      for (int unsigned i = 0; i < Queues; i++) begin
        unread_q[i] <= unread_q[i] + 17'(wrote && now == queue_t'(i))
                       - (doorbell_queue_i == queue_t'(i) ? taken : '0);
        if (create_i && create_queue_i == queue_t'(i)) unread_q[i] <= '0;
      end
    end
  end

  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    if (started_q) begin
      if (create_i) begin
        assume (!u_frontend.there_q[create_queue_i] && create_config_i.depth >= 16'd2
                && create_config_i.depth <= 16'd4 && create_config_i.weight != '0);
        // Its first doorbell is rung when it is there.
        assume (!(doorbell_valid_i && doorbell_queue_i == create_queue_i));
      end
      if (fetched_i) assume (entry_valid && !copied_q);
      if (entry_ready_i) assume (entry_valid && (copied_q || fetched_i));
      if (post_i) begin
        assume (running_q[post_command_i] && post_posting_i.owner == owner_q[post_command_i]);
      end
    end
  end

  // ---- What holds at any time ----

  logic [Queues-1:0][7:0] used, live;
  logic [7:0]             all;
  logic                   offered;

  always_comb begin
    used = '0;
    live = '0;
    for (int unsigned i = 0; i < Commands; i++) begin
      offered = entry_valid && entry_command == command_t'(i);
      for (int unsigned queue = 0; queue < Queues; queue++) begin
        live[queue] += 8'(offered ? entry_queue == queue_t'(queue)
                          : (running_q[i] || waiting_q[i]) && owner_q[i] == queue_t'(queue));
        used[queue] += 8'(kept_q[i] && owner_q[i] == queue_t'(queue));
      end
    end
    for (int unsigned queue = 0; queue < Queues; queue++) used[queue] += live[queue];
    all = '0;
    for (int unsigned i = 0; i < Queues; i++) all += used[i];
  end

  always_comb begin
    if (started_q && rst_ni) begin
      for (int unsigned i = 0; i < Commands; i++) begin
        // A slot has one command, in one state.
        assert (3'(entry_valid && entry_command == command_t'(i)) + 3'(running_q[i])
                + 3'(waiting_q[i]) + 3'(kept_q[i]) == 3'(u_frontend.slots_q[i]));
        assert (u_frontend.told_q[i] == kept_q[i]);
        if (u_frontend.slots_q[i]) begin
          assert (u_frontend.owner_q[i]
                  == (entry_valid && entry_command == command_t'(i) ? entry_queue : owner_q[i]));
        end
        assert (u_frontend.u_line.there_q[i] == waiting_q[i]);
        if (waiting_q[i]) begin
          assert (u_frontend.queue_q[i] == owner_q[i] && u_frontend.postings[i].owner == owner_q[i]);
        end
        if (running_q[i] || waiting_q[i]) assert (u_frontend.there_q[owner_q[i]]);
      end
      for (int unsigned i = 0; i < Queues; i++) begin
        assert (8'(u_frontend.u_slots.used_q[i]) == used[i]);
        if (u_frontend.there_q[i]) begin
          assert (u_frontend.config_q[i].depth >= 16'd2 && u_frontend.config_q[i].depth <= 16'd4);
          assert (16'(u_frontend.tail_q[i]) < u_frontend.config_q[i].depth);
          assert (16'(u_frontend.fetch_q[i]) < u_frontend.config_q[i].depth);
          assert (16'(u_frontend.post_q[i]) < u_frontend.config_q[i].depth);
          assert (16'(u_frontend.taken_q[i]) < u_frontend.config_q[i].depth);
          // The ring is never overrun: what is unread is what its pointers say, one place is empty.
          assert (unread_q[i] == distance(u_frontend.taken_q[i], u_frontend.post_q[i],
                                          u_frontend.config_q[i].depth));
        end else begin
          assert (live[i] == '0 && !deleting[i]);
        end
      end
      assert (8'(u_frontend.u_slots.free_q) + all == 8'(Commands));
      if (entry_valid) assert (u_frontend.there_q[entry_queue]);
      if (!entry_valid) assert (!copied_q);
      // What is told is a command that waits for it: once, since then it does not wait any more.
      if (u_frontend.state_q != 3'd0) begin
        assert (u_frontend.state_q <= 3'd4);
        assert (waiting_q[u_frontend.posting_q] && u_frontend.there_q[now]);
      end
      if (write_valid) begin
        assert (unread_q[now] + 17'd1 < 17'(u_frontend.config_q[now].depth));
      end
      // An entry is one that the host has told of.
      if (!entry_valid && u_frontend.offer) begin
        assert (u_frontend.tail_q[u_frontend.at_q] != u_frontend.fetch_q[u_frontend.at_q]);
        assert (!u_frontend.slots_q[u_frontend.slot]);
      end
    end
  end

endmodule
