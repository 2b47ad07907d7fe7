/* An operator of the user's own, in WebAssembly: loaded, used in a chain, refused, unloaded. */
#include "check.h"

/* What a chain with the module makes of a text; the transfer's errno. */
static int through(struct dcs_session *session, const uint8_t *name, char *out, size_t room, struct dcs_completion *done) {
    static char text[] = "small letters, and LARGE ones\n";
    struct dcs_op chain[] = {{.op = DCS_OP_MODULE, .parameter = name, .parameter_length = DCS_MODULE_NAME}, {.op = DCS_OP_CRC32C}};
    struct dcs_request request;
    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.source.fd = request.destination.fd = -1;
    request.source.memory = text;
    request.source.memory_length = sizeof text - 1;
    request.destination.memory = out;
    request.destination.memory_length = room;
    request.length = DCS_LENGTH_TO_END;
    request.chain = chain;
    request.operators = 2;
    struct dcs_transfer *transfer = NULL;
    CHECK(dcs_transfer_submit(session, &request, &transfer) == 0);
    int failed = dcs_transfer_wait(transfer, done) == 0 ? 0 : errno;
    dcs_transfer_free(transfer);
    return failed;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    static uint8_t module[1 << 16];
    int file = open("upper.wasm", O_RDONLY);
    ssize_t length = read(file, module, sizeof module);
    CHECK(length > 0);
    close(file);
    struct dcs_engine *engine = start_engine();
    struct dcs_session *session = open_session(engine, 8);
    struct dcs_completion done;
    uint8_t name[DCS_MODULE_NAME], again[DCS_MODULE_NAME];
    char out[100] = {0}, why[200];
    memset(name, 7, sizeof name);
    CHECK(through(session, name, out, sizeof out, &done) != 0 && done.result.status == DCS_STATUS_UNKNOWN_OPERATOR);
    CHECK(dcs_module_load(module, (size_t)length, name, NULL, 0) == 0);
    CHECK(dcs_module_load(module, (size_t)length, again, why, sizeof why) == 0 && memcmp(name, again, sizeof name) == 0);
    CHECK(through(session, name, out, sizeof out, &done) == 0 && done.result.bytes_out == 30);
    CHECK(memcmp(out, "SMALL LETTERS, AND LARGE ONES\n", 31) == 0);
    /* What is no operator says why; the text is cut to its room. */
    FAILS(dcs_module_load(module, (size_t)length - 1, again, why, sizeof why), ENOEXEC);
    CHECK(strstr(why, "WebAssembly") != NULL);
    FAILS(dcs_module_load("junk", 4, again, why, 6), ENOEXEC);
    CHECK(strlen(why) == 5);
    FAILS(dcs_module_load(NULL, 0, again, NULL, 0), ENOEXEC);
    FAILS(dcs_module_load(NULL, 1, again, NULL, 0), EFAULT);
    FAILS(dcs_module_load(module, (size_t)length, NULL, NULL, 0), EFAULT);
    CHECK(dcs_module_unload(name) == 0 && dcs_module_unload(name) == 0);
    FAILS(dcs_module_unload(NULL), EFAULT);
    CHECK(through(session, name, out, sizeof out, &done) != 0 && done.result.status == DCS_STATUS_UNKNOWN_OPERATOR);
    dcs_session_close(session);
    dcs_engine_stop(engine);
    printf("end\n");
    return 0;
}
