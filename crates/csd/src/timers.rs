//! Settings that depend on the port's clock: the timestamp, and the keep alive timer. [base 2.2 5.1.25.1.7,
//! 5.1.25.1.8]

/// Bits of a timestamp, in milliseconds.
const BITS: u64 = (1 << 48) - 1;

/// Nanoseconds of a millisecond.
const MILLISECOND: u64 = 1_000_000;

/// Granularity of the keep alive timer, in units of 100 ms.
pub const KEEP_ALIVE: u16 = 1;

/// The timers of a controller, from one reset to the next. `now` is always the port's clock, in nanoseconds.
#[derive(Default)]
pub struct Timers {
    /// The timestamp, in milliseconds, and the clock's time at which it was set.
    timestamp: Option<(u64, u64)>,
    /// The guest has set the timestamp.
    is_set: bool,
    /// Milliseconds; 0 means that the timer is off.
    keep_alive: u32,
    /// Time of the guest's last command.
    heard: u64,
}

impl Timers {
    /// Begins at the first command after a reset: the timestamp counts from 0.
    pub fn begin(&mut self, now: u64) {
        self.timestamp.get_or_insert((0, now));
    }

    /// Returns the data of the timestamp feature: 48 bits, then the origin of the time.
    pub fn timestamp(&self, now: u64) -> [u8; 8] {
        let (value, at) = self.timestamp.unwrap_or((0, now));
        let value = value.wrapping_add(now.saturating_sub(at) / MILLISECOND) & BITS;
        (u64::from(self.is_set) << 49 | value).to_le_bytes()
    }

    /// Sets the timestamp.
    pub fn set_timestamp(&mut self, now: u64, data: [u8; 8]) {
        (self.timestamp, self.is_set) = (Some((u64::from_le_bytes(data) & BITS, now)), true);
    }

    /// Returns the timeout in milliseconds; 0 if the timer is off.
    pub fn keep_alive(&self) -> u32 {
        self.keep_alive
    }

    /// Starts the timer, or with 0 switches it off. Timeouts are rounded up to the granularity.
    pub fn set_keep_alive(&mut self, now: u64, timeout: u32) {
        let unit = 100 * u32::from(KEEP_ALIVE);
        self.keep_alive = timeout.checked_next_multiple_of(unit).unwrap_or(timeout);
        self.heard = now;
    }

    /// Restarts the timer: the guest has sent a command.
    pub fn hear(&mut self, now: u64) {
        self.heard = now;
    }

    /// Returns true if the timer is on and has expired.
    pub fn is_over(&self, now: impl FnOnce() -> u64) -> bool {
        self.deadline().is_some_and(|deadline| now() >= deadline)
    }

    /// Returns the time at which the timer expires, if it is on.
    pub fn deadline(&self) -> Option<u64> {
        let time = u64::from(self.keep_alive) * MILLISECOND;
        (time > 0).then(|| self.heard.saturating_add(time + 1))
    }
}
