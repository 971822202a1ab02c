//! Credentials and certificates as named files: in a folder (a mounted Secret) or in memory.
//!
//! A folder is read again at every connect, because a Secret changes under a running worker. What is read never
//! appears in logs, errors or `Debug`.

use std::{collections::BTreeMap, fmt, io, path::PathBuf};

/// Where the files are.
#[derive(Clone, Default)]
pub enum Files {
    /// There are none.
    #[default]
    None,
    /// A folder, read at every connect; a folder that does not exist holds no files.
    Folder(PathBuf),
    /// Name and content, as a Secret's data.
    Memory(BTreeMap<String, Vec<u8>>),
}

impl Files {
    /// The content of one file; `None` when there is no such file.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::None => Ok(None),
            Self::Memory(files) => Ok(files.get(name).cloned()),
            Self::Folder(folder) => match std::fs::read(folder.join(name)) {
                Ok(content) => Ok(Some(content)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => {
                    Err(io::Error::new(error.kind(), format!("file '{name}' cannot be read: {error}")))
                }
            },
        }
    }

    /// The content of one file as text without white space around it.
    pub fn read_text(&self, name: &str) -> io::Result<Option<String>> {
        let Some(content) = self.read(name)? else { return Ok(None) };
        let text = String::from_utf8(content).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, format!("file '{name}' must be UTF-8 text"))
        })?;
        Ok(Some(text.trim().to_owned()))
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Folder(folder) => f.debug_tuple("Folder").field(folder).finish(),
            // Names only: the contents are secrets.
            Self::Memory(files) => f.debug_tuple("Memory").field(&files.keys()).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_never_appear_in_debug() {
        let files = Files::Memory(BTreeMap::from([("token".into(), b"geheim".to_vec())]));
        let debug = format!("{files:?}");
        assert!(debug.contains("token") && !debug.contains("geheim") && !debug.contains("103"), "{debug}");
    }

    #[test]
    fn a_folder_or_file_that_is_not_there_is_no_error_but_bad_text_is() {
        let nowhere = Files::Folder("/nonexistent/lanekeeper".into());
        assert_eq!(nowhere.read("token").unwrap(), None);
        let bad = Files::Memory(BTreeMap::from([("token".into(), vec![0xff])]));
        assert!(bad.read_text("token").unwrap_err().to_string().contains("token"));
    }
}
