//! Writes that fio reads back, once, or for as long as `DCS_SOAK` says (`make soak`).

use super::*;

/// Minutes of writing: none for one pass.
fn minutes() -> u64 {
    let told = std::env::var("DCS_SOAK").unwrap_or_default();
    if told.is_empty() { 0 } else { told.parse().expect("DCS_SOAK is a number of minutes") }
}

/// How long such a guest may take.
pub fn limit() -> Duration {
    LIMIT + Duration::from_secs(60 * minutes())
}

/// A script in which fio writes at random in each of these namespaces, all at once, blocks of at least so
/// many bytes, and reads them back; with another seed again and again, until the time is over.
pub fn verifying(spaces: &[(u32, &str)]) -> String {
    let job = |&(space, least): &(u32, &str)| {
        format!(
            "(D=$(named {space}); N=0
            while :; do
              N=$((N + 1))
              fio --name={space} --filename=$D --bsrange={least}-128k --size=16M --rw=randwrite --direct=1 --ioengine=libaio \
                --iodepth=32 --verify=crc32c --verify_fatal=1 --eta=never --randseed=$N --output=/tmp/{space} \
                || {{ cat /tmp/{space}; echo '@wrong {space}'; break; }}
              [ $(date +%s) -ge $END ] && {{ echo \"@verified {space} $N\"; break; }}
            done) &\nJOBS=\"$JOBS $!\"\n"
        )
    };
    let jobs: String = spaces.iter().map(job).collect();
    format!("export HOME=/tmp; cd /tmp; END=$(($(date +%s) + {})); JOBS=\n{jobs}wait $JOBS\n", 60 * minutes())
}

/// Waits until it is through with this many namespaces.
pub fn verified(guest: &mut Guest, spaces: usize) {
    for _ in 0..spaces {
        let said = guest.wait_for("@", limit()).unwrap();
        assert!(said.starts_with("verified"), "{said:?}");
        println!("fio: {said}");
    }
}
