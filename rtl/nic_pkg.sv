// What the NIC's controller is told of connections, and its sizes.

package nic_pkg;

  // Whoever uses the package does not use all of it.
  // verilator lint_off UNUSEDPARAM

  localparam int unsigned Connections = 8;
  // Operations that are sent and not acknowledged, or wait for it: one for each command.
  localparam int unsigned Pending = 16;
  // Descriptors of the transmit ring, of 16 bytes each.
  localparam int unsigned Entries = 64;

  localparam int unsigned ConnectionWidth = $clog2(Connections);
  localparam int unsigned PendingWidth    = $clog2(Pending);
  localparam int unsigned EntryWidth      = $clog2(Entries);

  typedef logic [ConnectionWidth-1:0] connection_t;
  typedef logic [PendingWidth-1:0]    pending_t;
  typedef logic [EntryWidth-1:0]      entry_t;
  // A sequence number of TCP.
  typedef logic [31:0] number_t;

  // A connection as software opens it. Addresses and ports have the order of the wire, byte 0 in
  // the lowest bits; numbers are numbers.
  typedef struct packed {
    logic        tcp;
    logic [47:0] mac_destination;
    logic [47:0] mac_source;
    logic [31:0] source;
    logic [31:0] destination;
    logic [15:0] source_port;
    logic [15:0] destination_port;
    logic [7:0]  service;
    logic [7:0]  ttl;
    // Bytes of payload in a segment or a datagram.
    logic [15:0] most;
    logic [15:0] identification;
    // TCP: the number of the next byte that is taken from the core, and of the next one that is
    // sent; up to where the peer has acknowledged, and up to where its window reaches.
    number_t     next;
    number_t     sent;
    number_t     acknowledged;
    number_t     limit;
    // TCP: what is told to the peer.
    number_t     acknowledges;
    logic [15:0] window;
    // It has failed: its operations end so.
    logic        failed;
    logic [14:0] status;
  } template_t;

  // Where things are on the bus.
  typedef struct packed {
    // The first block.
    logic [63:0] blocks;
    // Headers of frames that are sent: 64 bytes for each descriptor.
    logic [63:0] headers;
    // The transmit ring, and the register of its tail.
    logic [63:0] ring;
    logic [63:0] tail;
  } layout_t;

  // What software asks for.
  typedef enum logic [2:0] {
    // A connection, with everything.
    Open,
    // A command writes to a connection.
    Bind,
    // An acknowledgement came: `first` are the bytes acknowledged, `second` is the window's end.
    Acknowledged,
    // The next headers tell `first` as acknowledged and `second` as window.
    Advertise,
    // Send again what was sent from `first` on, `second` bytes.
    Resend,
    // All operations of the connection end with the status in `first`.
    Fail,
    // The NIC gets nothing more until it was stopped: then what it had is not sent, and datagrams
    // among that are lost with the status in `first`.
    WillStop,
    WasStopped
  } request_e;

  typedef struct packed {
    request_e            kind;
    connection_t         connection;
    core_pkg::command_t  command;
    number_t             first;
    number_t             second;
    template_t           opened;
  } request_t;

  // ---- What is received ----

  // Buffers of 2 KiB, one for each descriptor of the receive ring.
  localparam int unsigned Buffers     = 32;
  localparam int unsigned BufferShift = 11;
  // Those that have payload at most, of all connections and of one. Software has fewer than the
  // others, so that the NIC always has some.
  localparam int unsigned MostKept     = Buffers / 2;
  localparam int unsigned MostKeptEach = Buffers / 4;
  localparam int unsigned BufferWidth = $clog2(Buffers);
  typedef logic [BufferWidth-1:0] buffer_t;

  // Where things are on the bus.
  typedef struct packed {
    // The first block, and the first buffer.
    logic [63:0] blocks;
    logic [63:0] buffers;
    // The receive ring, and the register of its tail.
    logic [63:0] ring;
    logic [63:0] tail;
  } receive_layout_t;

  typedef enum logic [2:0] {
    // A connection, whose `next` is the number that is expected. What is kept of an earlier one
    // is dropped.
    Listen,
    // A command reads from a connection.
    Assign,
    // Behind what has come nothing follows; or the connection has failed, with a status.
    Ended,
    Broken,
    // The NIC's ring is left alone until the NIC was reset: then the buffers that it had are back,
    // and the ring begins with its first descriptor.
    RingStops,
    RingStopped
  } receive_e;

  typedef struct packed {
    receive_e            kind;
    connection_t         connection;
    core_pkg::command_t  command;
    core_pkg::status_t   status;
    template_t           opened;
  } receive_request_t;

  // What software is told of a frame: it has its buffer, or (`kept`) only what its header said,
  // as the payload is kept for the core.
  typedef struct packed {
    buffer_t     place;
    logic [15:0] length;
    logic        kept;
    connection_t connection;
    number_t     acknowledges;
    logic [15:0] window;
    // What is expected next.
    number_t     next;
  } received_t;

  // verilator lint_on UNUSEDPARAM

endpackage
