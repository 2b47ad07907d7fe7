//! The dcs engine as a PCIe function: registers, queue pairs, controllers over the bus, served by vfio-user.
