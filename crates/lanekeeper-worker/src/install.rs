//! Copies this program into a folder, where a container of another image starts it.
//!
//! The worker's image has nothing but the program, so no shell could do it.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The program's name in the folder.
const NAME: &str = "lanekeeper-worker";

/// Why the program could not be put there.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be written: {error}", path = .path.display())]
pub struct InstallError {
    path: PathBuf,
    #[source]
    error: io::Error,
}

/// Puts a copy of the running program into an existing folder, under its own name; where it is then. A half-written
/// one of an earlier try is replaced.
pub fn install(folder: &Path) -> Result<PathBuf, InstallError> {
    let path = folder.join(NAME);
    let half = folder.join(format!(".{NAME}.new"));
    let copied = fs::copy("/proc/self/exe", &half)
        .and_then(|_| fs::set_permissions(&half, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&half, &path));
    copied.map_err(|error| InstallError { path: path.clone(), error })?;
    Ok(path)
}
