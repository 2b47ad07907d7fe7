/* Reads a completion entry from the file given as argument, and prints its fields. */
#include "dcs.h"

#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv) {
    struct dcs_cqe cqe;
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL || fread(&cqe, sizeof cqe, 1, file) != 1) {
        return 1;
    }
    fclose(file);
    const char *name = dcs_cqe_status(&cqe) == DCS_STATUS_BAD_HANDLE ? "BAD_HANDLE" : "other";
    printf("phase %d %s dnr %d delivered %" PRIu64 " cid %d doorbells %u %u\n", dcs_cqe_phase(&cqe), name,
           dcs_status_do_not_retry(dcs_cqe_status(&cqe)), dcs_cqe_delivered(&cqe), cqe.cid,
           DCS_SQ_TAIL_DOORBELL(513), DCS_CQ_HEAD_DOORBELL(513));
    return 0;
}
