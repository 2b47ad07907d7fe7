// What is proved of `nvme_controller`, whatever the SSD writes and the bus answers: the submission
// ring is never overrun, and the SSD is told of no entry that was not written; each operation is in
// one place, so that it is answered once; and there are fewer commands than the completion ring has
// entries. What its memory reads as is anything at all.

module nvme_controller_proof
  import core_pkg::*;
  import nvme_pkg::config_t;
(
  input logic               clk_i,
  input logic               rst_ni,
  input logic [39:0]        millis_i,
  input logic               enable_i,
  input config_t            config_i,
  input logic               cancel_ready_i,
  input logic               operation_valid_i,
  input operation_t         operation_i,
  input logic               outcome_ready_i,
  input logic               abort_valid_i,
  input operation_id_t      abort_id_i,
  input bus_pkg::response_t bus_i
);

  localparam int unsigned Entries = nvme_pkg::Entries;
  localparam int unsigned Keys    = Blocks + Commands;
  typedef logic [nvme_pkg::EntryWidth-1:0] entry_t;
  typedef logic [$clog2(Keys+1)-1:0] key_t;

  // The module's states.
  typedef enum logic [3:0] {
    Clear,
    Look,
    Plan,
    Enter,
    Poll,
    PollAgain,
    Accept,
    Finish,
    Copy,
    Filled,
    Answer,
    Down
  } state_e;

  logic              ready, broken, cancel, operation_ready, outcome_valid, abort_ready;
  logic [15:0]       cancelled;
  outcome_t          outcome;
  bus_pkg::request_t bus;
  logic              own_read_ready, own_read_done, own_write_ready, read_valid, write_valid;
  block_word_t       own_read_data, write_data;
  word_at_t          read_at, write_at;
  keep_t             write_keep;

  nvme_controller u_nvme (
    .clk_i,
    .rst_ni,
    .millis_i,
    .enable_i,
    .config_i,
    .ready_o             (ready),
    .broken_o            (broken),
    .cancel_valid_o      (cancel),
    .cancel_ready_i,
    .cancel_identifier_o (cancelled),
    .operation_valid_i,
    .operation_ready_o   (operation_ready),
    .operation_i,
    .outcome_valid_o     (outcome_valid),
    .outcome_ready_i,
    .outcome_o           (outcome),
    .abort_valid_i,
    .abort_ready_o       (abort_ready),
    .abort_id_i,
    .bus_o               (bus),
    .bus_i,
    .own_read_valid_i    (1'b0),
    .own_read_ready_o    (own_read_ready),
    .own_read_at_i       ('0),
    .own_read_done_o     (own_read_done),
    .own_read_data_o     (own_read_data),
    .own_write_valid_i   (1'b0),
    .own_write_ready_o   (own_write_ready),
    .own_write_at_i      ('0),
    .own_write_data_i    ('0),
    .own_write_keep_i    ('0),
    .read_valid_o        (read_valid),
    .read_ready_i        (1'b0),
    .read_at_o           (read_at),
    .read_done_i         (1'b0),
    .read_data_i         ('0),
    .write_valid_o       (write_valid),
    .write_ready_i       (1'b0),
    .write_at_o          (write_at),
    .write_data_o        (write_data),
    .write_keep_o        (write_keep)
  );

  function automatic key_t key(operation_id_t id);
    return id.blockless ? key_t'(Blocks + 32'(id.command)) : key_t'(id.row);
  endfunction

  // ---- What is assumed: one operation of a row at a time; the SSD is started when rings are empty ----

  logic started_q, enable_q;
  initial started_q = 1'b0;

  always_ff @(posedge clk_i) begin
    started_q <= 1'b1;
    enable_q  <= rst_ni && enable_i;
  end

  always_comb begin
    if (!started_q) assume (!rst_ni);
    else assume (rst_ni);
    if (started_q) begin
      if (operation_valid_i) assume (!u_nvme.live_q[key(operation_i.id)]);
      if (enable_i) assume (enable_q || ready);
      // The memory answers those who ask.
      if (u_nvme.ring_write_ready) assume (u_nvme.ring_write);
      if (u_nvme.ring_done) assume (u_nvme.asked_q);
    end
  end

  // ---- Where each operation is: in the line, with the SSD, or in hand ----

  logic                 in_hand;
  logic [Keys-1:0][7:0] places;
  entry_t               told, written;

  assign in_hand = u_nvme.state_q inside {
    Enter, Finish, Copy, Filled, Answer
  };

  always_comb begin
    places = '0;
    for (int unsigned i = 0; i < 2 ** $bits(key_t); i++) begin
      if (key_t'(key_t'(i) - u_nvme.get_q) < key_t'(u_nvme.put_q - u_nvme.get_q)) begin
        places[key(u_nvme.line_q[i].id)] += 8'd1;
      end
    end
    for (int unsigned i = 0; i < Entries; i++) begin
      if (u_nvme.used_q[i]) places[key(u_nvme.flights_q[i].id)] += 8'd1;
    end
    if (in_hand) places[key(u_nvme.flight_q.id)] += 8'd1;
  end

  // ---- What holds at any time ----

  assign told    = u_nvme.rung_tail_q - u_nvme.head_q;
  assign written = u_nvme.tail_q - u_nvme.head_q;

  always_comb begin
    if (started_q && rst_ni) begin
      for (int unsigned i = 0; i < Keys; i++) assert (places[i] == 8'(u_nvme.live_q[i]));
      assert (u_nvme.state_q <= Down);
      if (u_nvme.state_q != Clear) assert (told <= written);
      assert (!u_nvme.used_q[Entries-1]);
      if (u_nvme.state_q == Clear) assert (u_nvme.used_q == '0 && !enable_q);
      if (u_nvme.state_q inside {Plan, Enter, Finish, Copy,
                                 Filled}) begin
        assert (u_nvme.room);
      end
      if (u_nvme.state_q == Plan) assert (u_nvme.there && u_nvme.slot_there);
      if (u_nvme.state_q inside {Enter, Finish, Copy, Filled}) begin
        assert (!u_nvme.used_q[u_nvme.slot_q] && u_nvme.slot_q != entry_t'(Entries - 1));
      end
      if (outcome_valid) assert (u_nvme.live_q[key(outcome.id)]);
    end
  end

endmodule
