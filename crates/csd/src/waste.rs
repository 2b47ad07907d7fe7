//! Memory that is freed outside the loop that drives the controllers: a guest can have so much that the
//! kernel takes milliseconds for it, and others would wait.

use std::any::Any;
use std::fmt;

/// Something that only needs to be dropped.
pub struct Waste(Box<dyn Any + Send>);

impl Waste {
    /// Makes it of any value.
    pub fn new(what: impl Any + Send) -> Waste {
        Waste(Box::new(what))
    }
}

impl fmt::Debug for Waste {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waste at {:p}", &*self.0)
    }
}
