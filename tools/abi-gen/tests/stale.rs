//! Checks that the generated files in the repository match the tables.

use dcs_abi_gen::{COMMAND, outputs, root};

#[test]
fn generated_files_are_up_to_date() {
    let root = root().expect("tests run inside the repository");
    let stale: Vec<_> = outputs(&root)
        .unwrap()
        .into_iter()
        .filter(|output| output.is_stale(&root))
        .map(|output| output.path)
        .collect();
    assert!(stale.is_empty(), "stale: {stale:?}; to fix: {COMMAND}");
}

#[test]
fn a_changed_or_missing_file_is_noticed_and_mended() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("stale");
    let output = &outputs(&root().unwrap()).unwrap()[0];
    let file = folder.join(&output.path);
    let _ = std::fs::remove_file(&file);
    assert!(output.is_stale(&folder), "missing");
    output.write(&folder).unwrap();
    assert!(!output.is_stale(&folder));
    std::fs::write(&file, [&output.content[..], b"\n"].concat()).unwrap();
    assert!(output.is_stale(&folder), "changed");
}
