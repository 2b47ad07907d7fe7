
/* ---- Doorbells, by offset in BAR0, where CAP.DSTRD is 0 ---- */

/** Where the new tail of submission queue `queue` is written: entries up to it may be fetched. */
#define DCS_SQ_TAIL_DOORBELL(queue) (DCS_DOORBELL_BASE + 8u * (queue))
/** Where the new head of completion queue `queue` is written: entries before it may be reused. */
#define DCS_CQ_HEAD_DOORBELL(queue) (DCS_DOORBELL_BASE + 8u * (queue) + 4u)

/* ---- Structures ---- */
