//! TCP and UDP over IPv4 on the card: a state machine that does no I/O.
