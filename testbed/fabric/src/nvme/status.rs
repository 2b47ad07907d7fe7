//! Statuses for failures that a retry would repeat (DNR). Other statuses are [`Status`]'s own.

use dcs_nvme::Status;

macro_rules! final_statuses {
    ($($name:ident)*) => {$(
        #[doc = concat!("[`Status::", stringify!($name), "`].")]
        pub const $name: Status = Status::$name.with_do_not_retry();
    )*};
}

final_statuses! {
    INVALID_OPCODE INVALID_FIELD INVALID_NAMESPACE SEQUENCE_ERROR
    INVALID_SGL_SEGMENT INVALID_SGL_COUNT INVALID_SGL_LENGTH INVALID_SGL_TYPE INVALID_PRP_OFFSET
    LBA_OUT_OF_RANGE
    INVALID_COMPLETION_QUEUE INVALID_QUEUE_ID INVALID_QUEUE_SIZE INVALID_QUEUE_DELETION INVALID_VECTOR
    EVENT_REQUEST_LIMIT_EXCEEDED INVALID_LOG_PAGE FEATURE_NOT_SAVEABLE
}
