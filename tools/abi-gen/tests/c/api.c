/* Calls the functions of the fixture's API section; compiled, never linked. C11 and C++17. */
#include "dcs.h"

int use(void);

int use(void) {
    struct dcs_engine *engine = NULL;
    struct dcs_engine_options options = {0, DCS_BACKEND_CARD};
    struct dcs_result result;
    struct dcs_digest digest;
    int error = dcs_engine_start(&options, &engine);
    long sent = (long)dcs_sendfile(1, 0, NULL, 16, "md5", &result);
    return error + (int)sent + dcs_result_digest(&result, 0, &digest);
}
