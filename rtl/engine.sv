// The engine core: it runs commands and moves no byte of their data, as the Rust core does.
//
// Whoever owns it binds commands to devices (`bind`), does the operations that it issues
// (`operation`), and answers them (`outcome`); it reads and writes host memory for queues,
// descriptors and results by itself. Operations are taken whether or not their outcomes are.

module engine
  import core_pkg::*;
  import dcs_pkg::*;
(
  input  logic          clk_i,
  input  logic          rst_ni,
  input  logic [63:0]   now_i,
  input  logic [39:0]   millis_i,
  // Milliseconds that a command which has failed waits for its devices. Then it completes without
  // them; its slot, and the blocks that they have, are free when they have answered.
  input  logic [31:0]   grace_i,

  input  logic          create_i,
  input  queue_t        create_queue_i,
  input  queue_config_t create_config_i,

  // A queue pair is to go: its commands are stopped, then it is gone.
  input  logic          delete_i,
  input  queue_t        delete_queue_i,
  output logic          deleted_valid_o,
  input  logic          deleted_ready_i,
  output queue_t        deleted_queue_o,

  input  logic          doorbell_valid_i,
  input  logic          doorbell_completion_i,
  input  queue_t        doorbell_queue_i,
  input  logic [31:0]   doorbell_value_i,
  output logic          doorbell_bad_o,

  // Host memory, of any alignment. Words are written in their order.
  output logic          read_valid_o,
  // An entry of a queue, not a descriptor. The queue is the same for both.
  output logic          read_entry_o,
  output queue_t        read_queue_o,
  input  logic          read_ready_i,
  output address_t      read_address_o,
  output logic [12:0]   read_bytes_o,
  input  logic          data_valid_i,
  output logic          data_ready_o,
  input  logic [63:0]   data_i,
  input  logic          data_error_i,
  output logic          write_valid_o,
  // A word of a completion entry, not of a result.
  output logic          write_entry_o,
  output command_t      write_command_o,
  output queue_t        write_queue_o,
  input  logic          write_ready_i,
  output address_t      write_address_o,
  output logic [63:0]   write_data_o,
  output logic          interrupt_valid_o,
  input  logic          interrupt_ready_i,
  output logic [10:0]   interrupt_vector_o,
  output queue_t        interrupt_queue_o,
  // A completion entry is in its ring, or was dropped.
  output logic          posted_o,
  output command_t      posted_command_o,

  // What a transfer says, as it is checked: extents and parameter blocks of `checked`, then all of
  // it, for a cycle or more before it is bound.
  output command_t      checked_o,
  output logic          transfer_valid_o,
  output transfer_t     transfer_o,
  output logic          extent_valid_o,
  output extent_index_t extent_index_o,
  output extent_t       extent_o,
  output logic          parameter_valid_o,
  output logic [7:0]    parameter_bytes_o,
  output place_t        parameter_at_o,
  output logic [4:0]    parameter_index_o,
  output logic [63:0]   parameter_o,
  input  command_t      look_command_i,
  output transfer_t     look_transfer_o,

  output logic          bind_valid_o,
  input  logic          bind_ready_i,
  output command_t      bind_command_o,
  input  logic          bound_valid_i,
  output logic          bound_ready_o,
  input  command_t      bound_command_i,
  input  logic          bound_ok_i,
  input  logic          bound_flush_i,
  input  failure_t      bound_failure_i,
  output logic          unbind_valid_o,
  input  logic          unbind_ready_i,
  output command_t      unbind_command_o,

  output logic          operation_valid_o,
  input  logic          operation_ready_i,
  output operation_t    operation_o,
  output command_t      operation_command_o,
  input  logic          outcome_valid_i,
  output logic          outcome_ready_o,
  input  outcome_t      outcome_i,
  // Blocks that a device still has after an outcome, and one that it has not any more.
  input  logic [Blocks-1:0] held_i,
  input  logic          released_valid_i,
  output logic          released_ready_o,
  input  row_t          released_row_i,
  // A command is to stop, asked for beside its queue. Nothing happens where there is none.
  input  logic          stop_valid_i,
  output logic          stop_ready_o,
  input  queue_t        stop_queue_i,
  input  logic [15:0]   stop_cid_i,
  output logic          abort_valid_o,
  input  logic          abort_ready_i,
  output operation_id_t abort_id_o,
  output logic          stale_o,

  // With slots: one is to be loaded with a pool's operator. Stable until it is; nobody has it
  // meanwhile.
  output logic          load_valid_o,
  input  logic          load_ready_i,
  output unit_t         load_unit_o,
  output pool_t         load_pool_o,

  output logic          digest_valid_o,
  input  logic          digest_ready_i,
  output command_t      digest_command_o,
  output place_t        digest_at_o,
  output logic [3:0]    digest_index_o,
  input  logic [63:0]   digest_i,

  // Nothing is in flight, and all that commands had has come back.
  output logic          idle_o,
  // Nothing will happen by itself: the clock may stand still until something comes in. But while
  // `timed_o`, timeouts come with `millis_i`.
  output logic          quiet_o,
  output logic          timed_o,
  // A command waits for a block that another one has.
  output logic          short_o,
  output logic [Blocks-1:0] free_o
);

  logic        entry_valid, entry_ready, fetched;
  queue_t      entry_queue;
  command_t    entry_command;
  address_t    entry_address;
  logic [15:0] entry_tenant, entry_number;

  logic        post;
  command_t    post_command;
  posting_t    post_posting;

  logic        entry_write_valid, entry_write_ready, result_write_valid, result_write_ready;
  address_t    entry_write_address, result_write_address;
  logic [63:0] entry_write_data, result_write_data;

  logic        frontend_idle, sequencer_idle, completion_idle;
  logic        frontend_quiet, validate_quiet, sequencer_quiet, stop_found, checking;
  command_t    result_command, entry_write_command;
  queue_t      result_queue, entry_write_queue;
  command_t    stop_command;
  logic [Queues-1:0] deleting, there;
  logic [Commands-1:0] forsaken;
  function_t [Queues-1:0] func;
  logic [Functions-1:0][8:0] weight;

  frontend u_frontend (
    .clk_i,
    .rst_ni,
    .create_i,
    .create_queue_i,
    .create_config_i,
    .delete_i,
    .delete_queue_i,
    .deleting_o         (deleting),
    .deleted_valid_o,
    .deleted_ready_i,
    .deleted_queue_o,
    .there_o            (there),
    .func_o             (func),
    .weight_o           (weight),
    .doorbell_valid_i,
    .doorbell_completion_i,
    .doorbell_queue_i,
    .doorbell_value_i,
    .doorbell_bad_o,
    .entry_valid_o      (entry_valid),
    .entry_ready_i      (entry_ready),
    .entry_queue_o      (entry_queue),
    .entry_command_o    (entry_command),
    .entry_address_o    (entry_address),
    .entry_tenant_o     (entry_tenant),
    .entry_number_o     (entry_number),
    .fetched_i          (fetched),
    .fetched_queue_i    (entry_queue),
    .post_i             (post),
    .post_command_i     (post_command),
    .post_posting_i     (post_posting),
    .write_valid_o      (entry_write_valid),
    .write_ready_i      (entry_write_ready),
    .write_address_o    (entry_write_address),
    .write_data_o       (entry_write_data),
    .interrupt_valid_o,
    .interrupt_ready_i,
    .interrupt_vector_o,
    .forsaken_i         (forsaken),
    .write_command_o    (entry_write_command),
    .write_queue_o      (entry_write_queue),
    .posted_o,
    .posted_command_o,
    .idle_o             (frontend_idle),
    .quiet_o            (frontend_quiet)
  );

  // A result's words all come before its completion entry, which is posted after them.
  assign write_entry_o      = entry_write_valid;
  assign write_command_o    = entry_write_valid ? entry_write_command : result_command;
  assign write_queue_o      = entry_write_valid ? entry_write_queue : result_queue;
  assign interrupt_queue_o  = entry_write_queue;
  assign read_queue_o       = entry_queue;
  assign write_valid_o      = entry_write_valid || result_write_valid;
  assign write_address_o    = entry_write_valid ? entry_write_address : result_write_address;
  assign write_data_o       = entry_write_valid ? entry_write_data : result_write_data;
  assign entry_write_ready  = write_ready_i;
  assign result_write_ready = write_ready_i && !entry_write_valid;

  logic                join_line;
  logic [47:0]         join_key;
  logic [Commands-1:0] turn, in_order;
  logic                verdict_valid, verdict_ready;
  verdict_t            verdict;
  logic                finish;
  command_t            finish_command;

  validate u_validate (
    .clk_i,
    .rst_ni,
    .entry_valid_i     (entry_valid),
    .entry_ready_o     (entry_ready),
    .entry_queue_i     (entry_queue),
    .entry_command_i   (entry_command),
    .entry_address_i   (entry_address),
    .entry_tenant_i    (entry_tenant),
    .entry_number_i    (entry_number),
    .fetched_o         (fetched),
    .read_valid_o,
    .read_entry_o,
    .read_ready_i,
    .read_address_o,
    .read_bytes_o,
    .data_valid_i,
    .data_ready_o,
    .data_i,
    .data_error_i,
    .join_o            (join_line),
    .join_key_o        (join_key),
    .command_o         (checked_o),
    .transfer_valid_o,
    .transfer_o,
    .extent_valid_o,
    .extent_index_o,
    .extent_o,
    .parameter_valid_o,
    .parameter_bytes_o,
    .parameter_at_o,
    .parameter_index_o,
    .parameter_o,
    .verdict_valid_o   (verdict_valid),
    .verdict_ready_i   (verdict_ready),
    .verdict_o         (verdict),
    .finish_i          (finish),
    .finish_command_i  (finish_command),
    .stop_queue_i,
    .stop_cid_i,
    .stop_found_o      (stop_found),
    .stop_command_o    (stop_command),
    .quiet_o           (validate_quiet)
  );

  order #(
    .Commands (Commands),
    .KeyWidth (48 + FunctionWidth)
  ) u_order (
    .clk_i,
    .rst_ni,
    .join_i          (join_line),
    .join_command_i  (checked_o),
    .join_key_i      ({func[entry_queue], join_key}),
    .leave_i         (finish),
    .leave_command_i (finish_command),
    .there_o         (in_order),
    .first_o         (turn)
  );

  posting_t            finish_posting;
  address_t            finish_result;
  logic [2:0][63:0]    finish_times;
  logic [63:0]         finish_bytes_in, finish_bytes_out;
  logic [15:0]         finish_path;
  logic [ChainMax-1:0] finish_told;
  places_t             finish_operators;
  logic [TimedStages-1:0] finish_seen;
  errno_t              finish_errno;
  logic                times_ready;
  times_at_t           times_at;
  times_t              times;

  sequencer u_sequencer (
    .clk_i,
    .rst_ni,
    .now_i,
    .millis_i,
    .grace_i,
    .verdict_valid_i    (verdict_valid),
    .verdict_ready_o    (verdict_ready),
    .verdict_i          (verdict),
    .checked_i          (checked_o),
    .transfer_valid_i   (transfer_valid_o),
    .transfer_i         (transfer_o),
    .extent_valid_i     (extent_valid_o),
    .extent_index_i     (extent_index_o),
    .extent_i           (extent_o),
    .turn_i             (turn),
    .bind_valid_o,
    .bind_ready_i,
    .bind_command_o,
    .bound_valid_i,
    .bound_ready_o,
    .bound_command_i,
    .bound_ok_i,
    .bound_flush_i,
    .bound_failure_i,
    .unbind_valid_o,
    .unbind_ready_i,
    .unbind_command_o,
    .look_command_i,
    .look_transfer_o,
    .operation_valid_o,
    .operation_ready_i,
    .operation_o,
    .operation_command_o,
    .outcome_valid_i,
    .outcome_ready_o,
    .outcome_i,
    .held_i,
    .released_valid_i,
    .released_ready_o,
    .released_row_i,
    .there_i            (there),
    .func_i             (func),
    .weight_i           (weight),
    .deleting_i         (deleting),
    .stop_valid_i,
    .stop_ready_o,
    .stop_found_i       (stop_found),
    .stop_command_i     (stop_command),
    .checking_i         (checking),
    .abort_valid_o,
    .abort_ready_i,
    .abort_id_o,
    .stale_o,
    .load_valid_o,
    .load_ready_i,
    .load_unit_o,
    .load_pool_o,
    .finish_o           (finish),
    .finish_command_o   (finish_command),
    .finish_posting_o   (finish_posting),
    .finish_result_o    (finish_result),
    .finish_times_o     (finish_times),
    .finish_bytes_in_o  (finish_bytes_in),
    .finish_bytes_out_o (finish_bytes_out),
    .finish_path_o      (finish_path),
    .finish_told_o      (finish_told),
    .finish_operators_o (finish_operators),
    .finish_seen_o      (finish_seen),
    .finish_errno_o     (finish_errno),
    .times_ready_o      (times_ready),
    .times_at_i         (times_at),
    .times_o            (times),
    .forsaken_o         (forsaken),
    .idle_o             (sequencer_idle),
    .quiet_o            (sequencer_quiet),
    .timed_o,
    .short_o,
    .free_o
  );

  completion u_completion (
    .clk_i,
    .rst_ni,
    .finish_i           (finish),
    .finish_command_i   (finish_command),
    .finish_posting_i   (finish_posting),
    .finish_result_i    (finish_result),
    .finish_times_i     (finish_times),
    .finish_bytes_in_i  (finish_bytes_in),
    .finish_bytes_out_i (finish_bytes_out),
    .finish_operators_i (finish_operators),
    .finish_path_i      (finish_path),
    .finish_told_i      (finish_told),
    .finish_seen_i      (finish_seen),
    .finish_errno_i     (finish_errno),
    .times_ready_i      (times_ready),
    .times_at_o         (times_at),
    .times_i            (times),
    .digest_valid_o,
    .digest_ready_i,
    .digest_command_o,
    .digest_at_o,
    .digest_index_o,
    .digest_i,
    .write_valid_o      (result_write_valid),
    .write_ready_i      (result_write_ready),
    .write_address_o    (result_write_address),
    .write_data_o       (result_write_data),
    .write_command_o    (result_command),
    .write_queue_o      (result_queue),
    .post_o             (post),
    .post_command_o     (post_command),
    .post_posting_o     (post_posting),
    .idle_o             (completion_idle)
  );

  assign checking = entry_valid;
  assign quiet_o  = frontend_quiet && validate_quiet && sequencer_quiet && completion_idle;
  assign idle_o   = frontend_idle && sequencer_idle && completion_idle && in_order == '0;

endmodule
