//! A PCIe fabric in memory, in virtual time: address routing with peer-to-peer, an IOMMU, NVMe and NIC models, faults.
