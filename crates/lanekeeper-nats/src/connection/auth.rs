//! Authentication from files, at every connect anew.
//!
//! Which files are there decides the method: `user.creds` (JWT and seed), else `nkey` (seed), else `token`, else `user`
//! with `password`. None of them: no authentication.

use std::io;

use async_nats::{Auth, AuthError};
use nkeys::KeyPair;

use crate::files::Files;

/// Credentials file: JWT and seed.
pub const CREDENTIALS: &str = "user.creds";
/// Seed of a user's key.
pub const NKEY: &str = "nkey";
/// Token.
pub const TOKEN: &str = "token";
/// User's name.
pub const USER: &str = "user";
/// User's password.
pub const PASSWORD: &str = "password";

/// Answers a server's challenge.
pub(super) fn authenticate(files: &Files, nonce: &[u8]) -> Result<Auth, AuthError> {
    read(files, nonce).map_err(|error| AuthError::new(error.to_string()))
}

/// Whether the files can be used at all; the challenge is made up.
pub(super) fn check(files: &Files) -> io::Result<()> {
    read(files, b"check").map(drop)
}

fn read(files: &Files, nonce: &[u8]) -> io::Result<Auth> {
    let mut auth = Auth::new();
    if let Some(text) = files.read_text(CREDENTIALS)? {
        let (jwt, seed) = jwt_and_seed(&text)?;
        auth.signature = Some(sign(CREDENTIALS, seed, nonce)?);
        auth.jwt = Some(jwt.to_owned());
    } else if let Some(seed) = files.read_text(NKEY)? {
        auth.nkey = Some(key(NKEY, &seed)?.public_key());
        auth.signature = Some(sign(NKEY, &seed, nonce)?);
    } else if let Some(token) = files.read_text(TOKEN)? {
        auth.token = Some(token);
    } else if let Some(user) = files.read_text(USER)? {
        let password = files.read_text(PASSWORD)?;
        auth.password =
            Some(password.ok_or_else(|| invalid("there is a file 'user' but no file 'password'"))?);
        auth.username = Some(user);
    }
    Ok(auth)
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}

fn key(file: &str, seed: &str) -> io::Result<KeyPair> {
    KeyPair::from_seed(seed).map_err(|_| invalid(&format!("file '{file}' has no valid seed of a NATS key")))
}

fn sign(file: &str, seed: &str, nonce: &[u8]) -> io::Result<Vec<u8>> {
    key(file, seed)?.sign(nonce).map_err(|_| invalid(&format!("the seed of file '{file}' cannot sign")))
}

/// The two blocks of a credentials file, as `nsc` writes it: each is one line after a line with `BEGIN`.
fn jwt_and_seed(text: &str) -> io::Result<(&str, &str)> {
    let block = |label: &str| {
        let mut lines = text.lines().map(str::trim);
        lines
            .by_ref()
            .find(|line| line.starts_with("---") && line.contains("BEGIN") && line.contains(label))?;
        lines.find(|line| !line.is_empty()).filter(|line| !line.starts_with("---"))
    };
    let missing = |what: &str| {
        invalid(&format!("file '{CREDENTIALS}' has no {what}; it must be a NATS credentials file"))
    };
    Ok((block("JWT").ok_or_else(|| missing("user JWT"))?, block("SEED").ok_or_else(|| missing("seed"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(entries: &[(&str, &str)]) -> Files {
        let entries = entries.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()));
        Files::Memory(entries.collect())
    }

    #[test]
    fn a_credentials_file_gives_the_jwt_and_a_signature() {
        let pair = KeyPair::new_user();
        let seed = pair.seed().unwrap();
        let creds = format!(
            "-----BEGIN NATS USER JWT-----\r\neyJ0.eyJq.sig\r\n------END NATS USER JWT------\n\n\
             ************************* IMPORTANT *************************\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        let auth = authenticate(&files(&[(CREDENTIALS, &creds)]), b"nonce").unwrap();
        assert_eq!(auth.jwt.as_deref(), Some("eyJ0.eyJq.sig"));
        pair.verify(b"nonce", &auth.signature.unwrap()).unwrap();
    }

    #[test]
    fn a_seed_alone_names_its_public_key() {
        let pair = KeyPair::new_user();
        let auth = authenticate(&files(&[(NKEY, &format!("{}\n", pair.seed().unwrap()))]), b"nonce").unwrap();
        assert_eq!(auth.nkey, Some(pair.public_key()));
        pair.verify(b"nonce", &auth.signature.unwrap()).unwrap();
    }

    #[test]
    fn token_and_password_lose_the_line_end_that_editors_add() {
        let auth = authenticate(&files(&[(TOKEN, "t0\n")]), b"").unwrap();
        assert_eq!(auth.token.as_deref(), Some("t0"));
        let auth = authenticate(&files(&[(USER, "u\n"), (PASSWORD, "p\n")]), b"").unwrap();
        assert_eq!((auth.username.as_deref(), auth.password.as_deref()), (Some("u"), Some("p")));
    }

    #[test]
    fn what_cannot_be_used_is_named_without_its_content() {
        for (given, named) in [
            (files(&[(CREDENTIALS, "geheim")]), "user.creds"),
            (files(&[(NKEY, "geheim")]), "nkey"),
            (files(&[(USER, "geheim")]), "password"),
        ] {
            let error = check(&given).unwrap_err().to_string();
            assert!(error.contains(named) && !error.contains("geheim"), "{error}");
        }
        check(&Files::None).unwrap();
    }
}
