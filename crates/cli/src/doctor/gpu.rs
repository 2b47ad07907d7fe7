//! GPUs: NVIDIA's, as the driver describes them.

use super::probe::Probes;
use super::row::{Row, State};
use crate::names::shown;
use crate::units::human;
use dcs::gpu::{GpuError, Storage, StorageError};
use dcs_vfio::sys::{Root, Seen};

pub fn rows(root: &Root, probes: &Probes) -> Vec<Row> {
    let row = |name: String, state, found: String| Row::new("GPUs", name, state, found);
    let mut rows = Vec::new();
    match &probes.gpus {
        Err(error) => {
            let said =
                row("CUDA's driver".into(), State::Note, format!("{error}; gpu: operators are refused"));
            rows.push(match error {
                GpuError::NoDriver { .. } if root.exists("dev/nvidiactl") => {
                    said.fix("in a container: pass the driver's libraries into it (nvidia-container-toolkit)")
                }
                GpuError::NoDriver { .. } if root.exists("proc/driver/nvidia") => {
                    said.fix("install the driver's library too (Debian: libcuda1)")
                }
                _ => said,
            });
        }
        Ok(found) => {
            let version = found.first().map_or((0, 0), |gpu| gpu.driver);
            let library = found.first().map(|gpu| shown(&gpu.library).to_string()).unwrap_or_default();
            let module = match root.text("proc/driver/nvidia/version") {
                Seen::Is(text) => text.lines().next().map(|line| format!("; {line}")).unwrap_or_default(),
                _ => String::new(),
            };
            let text = format!("{library}, CUDA {}.{}{module}", version.0, version.1);
            rows.push(row("CUDA's driver".into(), State::Ok, text));
            for gpu in found {
                let (major, minor) = gpu.capability;
                let text = format!(
                    "{}, {}, {} multiprocessors, compute capability {major}.{minor}",
                    gpu.name,
                    human(gpu.memory),
                    gpu.multiprocessors
                );
                let state = if gpu.stand_in || gpu.capability < (7, 0) { State::Note } else { State::Ok };
                let said = row(format!("GPU {}", gpu.device), state, text);
                rows.push(match (gpu.stand_in, gpu.capability < (7, 0)) {
                    (true, _) => said.fix("a stand-in for tests: unset DCS_CUDA_LIBRARY"),
                    (_, true) => {
                        said.fix("it is too old: the kernels are for compute capability 7.0 and later")
                    }
                    _ => said,
                });
            }
        }
    }
    rows.extend(probes.storage.as_ref().map(storage));
    rows
}

/// Reports the path of files if the first operator is on a GPU.
fn storage(found: &Result<Storage, StorageError>) -> Row {
    let row = |state, found: String| Row::new("GPUs", "GPUDirect Storage".to_string(), state, found);
    let otherwise = "files are read into locked memory, and copied to a GPU from there";
    match found {
        Ok(storage) if storage.is_direct() => {
            let by = match storage.nvidia_fs {
                Some((major, minor)) => format!("nvidia-fs {major}.{minor}"),
                None => "the kernel's peer-to-peer transfers".into(),
            };
            let text = format!(
                "{}, {by}: a GPU reads files itself, if their file system supports it",
                shown(&storage.library)
            );
            let state = if storage.stand_in { State::Note } else { State::Ok };
            let said = row(state, text);
            if storage.stand_in { said.fix("a stand-in for tests: unset DCS_CUFILE_LIBRARY") } else { said }
        }
        Ok(storage) => row(
            State::Note,
            format!("{}; {}; {otherwise}", shown(&storage.library), StorageError::Compatibility),
        )
        .fix("load the kernel module: modprobe nvidia-fs (package nvidia-fs)"),
        Err(error @ StorageError::Missing { .. }) => row(State::Note, format!("{error}; {otherwise}"))
            .fix("install libcufile and the kernel module nvidia-fs"),
        Err(error) => row(State::Note, format!("{error}; {otherwise}")).fix(
            "NVIDIA's gdscheck tells more; so does cufile.log, which the library writes where it was started",
        ),
    }
}
