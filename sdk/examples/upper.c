/* upper: converts ASCII letters to upper case. An operator that changes its data in place. */
#define DCS_IN_PLACE
#include "../dcs_operator.h"

int32_t dcs_start(uint32_t length)
{
    return length == 0 ? 0 : 1; /* takes no parameter */
}

int32_t dcs_step(uint32_t length, int32_t last)
{
    for (uint32_t at = 0; at < length; at++) {
        uint8_t letter = dcs_input[at];
        dcs_input[at] = letter >= 'a' && letter <= 'z' ? letter - 32 : letter;
    }
    return dcs_say(length, length, last ? DCS_FINISHED : DCS_GO_ON);
}
