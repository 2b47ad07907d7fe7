//! Target for the input of `dcs-csd`: requests of the management socket, `--drive`, a configuration file.

use dcs_csd_cli::request::Request;
use dcs_csd_cli::spec::{Configuration, Drive};

/// The first byte chooses a request's line, a drive as an option, or a configuration. Checks that accepted input means the same
/// after it was written and parsed again.
pub fn control(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    match kind % 3 {
        0 => request(rest),
        1 => {
            if let Ok(drive) = Drive::parse(&text) {
                drive.check_name().expect("the option was taken");
                assert!(drive.namespaces.len() <= 1, "an option has one namespace at most");
                again(&Request::Add { drive });
            }
        }
        _ => {
            let Ok(read) = Configuration::parse(&text) else { return };
            read.drives.into_iter().for_each(|drive| again(&Request::Add { drive }));
        }
    }
}

fn request(line: &[u8]) {
    match Request::parse(line) {
        Ok(request) => again(&request),
        Err(error) => assert!(!error.is_empty()),
    }
}

fn again(request: &Request) {
    let line = request.line().expect("what came as text is text");
    assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1), "it is one line");
    assert_eq!(Request::parse(&line).as_ref(), Ok(request));
}
