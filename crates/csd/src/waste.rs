//! Memory that is given back beside the loop that drives the controllers: a guest can have so much of it that the kernel
//! takes milliseconds for that, and others would wait.

use std::any::Any;
use std::fmt;

/// Something that is only to be dropped.
pub struct Waste(Box<dyn Any + Send>);

impl Waste {
    /// Whatever it is.
    pub fn new(what: impl Any + Send) -> Waste {
        Waste(Box::new(what))
    }
}

impl fmt::Debug for Waste {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waste at {:p}", &*self.0)
    }
}
