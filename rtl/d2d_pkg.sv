// The D2D protocol's registers, states and errors (docs/d2d.md), sizes of a function, and what its
// modules tell each other.

package d2d_pkg;

  // Whoever uses the package does not use all of it.
  // verilator lint_off UNUSEDPARAM

  localparam int unsigned Streams     = 8;
  localparam int unsigned StreamWidth = $clog2(Streams);
  typedef logic [StreamWidth-1:0] stream_t;

  // Bytes of a credit, of a Tx queue, of a write to another function: powers of two.
  localparam int unsigned CreditShift  = 12;
  localparam int unsigned QueueShift   = 15;
  localparam int unsigned PayloadShift = 8;
  // Credits of an Rx queue, and places of a stream.
  localparam int unsigned WindowShift = 3;
  localparam int unsigned PlacesShift = 2;
  localparam int unsigned RxShift     = CreditShift + WindowShift;
  localparam int unsigned PlaceShift  = RxShift + 1;

  // Positions in a stream, times in nanoseconds.
  typedef logic [63:0] position_t;
  typedef logic [63:0] nanos_t;
  typedef logic [QueueShift:0] queued_t;
  typedef logic [PayloadShift:0] payload_t;

  // A stream's register, by its offset divided by eight. (Table I)
  typedef logic [3:0] register_t;
  localparam register_t RegTxAddress     = 4'h0;
  localparam register_t RegRxAddress     = 4'h1;
  localparam register_t RegRate          = 4'h2;
  localparam register_t RegBaseCredits   = 4'h3;
  localparam register_t RegByteCount     = 4'h4;
  localparam register_t RegCreditAddress = 4'h5;
  localparam register_t RegGrant         = 4'h6;
  localparam register_t RegStatus        = 4'h7;
  localparam register_t RegMoved         = 4'h8;
  localparam register_t RegTaken         = 4'h9;
  localparam register_t RegTimes         = 4'hb;
  localparam register_t RegControl       = 4'hc;
  localparam register_t RegDropped       = 4'hd;
  localparam register_t RegPackets       = 4'he;

  // An access to a register: which halves are written, none for a read.
  typedef struct packed {
    stream_t     stream;
    register_t   number;
    logic [1:0]  halves;
    logic [63:0] data;
  } access_t;

  typedef enum logic [3:0] {
    StInit   = 4'd0,
    StParse  = 4'd1,
    StSend   = 4'd2,
    StWait   = 4'd3,
    StCheck  = 4'd4,
    StIdle   = 4'd5,
    StFetch  = 4'd6,
    StCalc   = 4'd7,
    StFailed = 4'd8
  } state_e;

  localparam logic [1:0] RoleSender   = 2'd1;
  localparam logic [1:0] RoleReceiver = 2'd2;

  typedef logic [7:0] error_t;
  localparam error_t ErrNone      = 8'd0;
  localparam error_t ErrRate      = 8'd1;
  localparam error_t ErrCredits   = 8'd2;
  localparam error_t ErrTasks     = 8'd3;
  localparam error_t ErrEpoch     = 8'd5;
  localparam error_t ErrBus       = 8'd8;
  localparam error_t ErrPeer      = 8'd10;
  localparam error_t ErrRestarted = 8'd11;
  localparam error_t ErrGrant     = 8'd12;
  localparam error_t ErrSequence  = 8'd13;
  localparam error_t ErrOverrun   = 8'd14;
  localparam error_t ErrStalled   = 8'd15;
  localparam error_t ErrAddress   = 8'd16;

  // A grant, as it is in its register.
  typedef struct packed {
    logic        paused;
    logic        failed;
    logic [15:0] epoch;
    logic [31:0] taken;
  } grant_t;

  function automatic logic is_running(state_e state);
    return !(state inside {StInit, StIdle, StFailed});
  endfunction

  // Credits of that many bytes, the last one begun.
  function automatic position_t credits_of(position_t bytes);
    return (bytes + position_t'((1 << CreditShift) - 1)) >> CreditShift;
  endfunction

  // Microseconds as nanoseconds.
  function automatic logic [41:0] nanos_of(logic [31:0] micros);
    return (42'(micros) << 10) - (42'(micros) << 4) - (42'(micros) << 3);
  endfunction

  // A register after a write of either half.
  function automatic logic [63:0] written(logic [1:0] halves, logic [63:0] data, logic [63:0] old);
    return {halves[1] ? data[63:32] : old[63:32], halves[0] ? data[31:0] : old[31:0]};
  endfunction

  // verilator lint_on UNUSEDPARAM

endpackage
