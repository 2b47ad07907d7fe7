
/* ---- Reading a completion entry ---- */

/** The phase bit: the entry is new where it equals the phase that the reader expects. */
static inline bool dcs_cqe_phase(const struct dcs_cqe *cqe) {
    return (cqe->status & 1u) != 0;
}

/** The status, DCS_STATUS_*. */
static inline uint16_t dcs_cqe_status(const struct dcs_cqe *cqe) {
    return (uint16_t)(cqe->status >> 1);
}

/** Bytes that the destination took. */
static inline uint64_t dcs_cqe_delivered(const struct dcs_cqe *cqe) {
    uint64_t value = 0;
    for (int i = 5; i >= 0; i--) {
        value = value << 8 | cqe->delivered[i];
    }
    return value;
}

/** Do Not Retry: the same command would fail again. */
static inline bool dcs_status_do_not_retry(uint16_t status) {
    return (status & 0x4000u) != 0;
}
