//! The programs in the documents do what the documents say.

// The helpers of tests may fail as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::panic)]
// Each program of tests uses a part of the helpers.
#![allow(dead_code)]

mod document;

use std::{
    io::{BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use document::read;

const DEADLINE: Duration = Duration::from_secs(60);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn python(code: &str) -> Program {
    let child = Command::new("python3").args(["-c", code]).stdout(Stdio::piped()).spawn();
    Program(child.expect("python3 is needed"))
}

fn connect(port: u16) -> TcpStream {
    let start = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(start.elapsed() < DEADLINE, "the handler does not listen: {error}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn the_handler_to_begin_with_answers_each_message_and_ends_when_asked() {
    let code = read(&root(), "docs/getting-started.md").only("python");
    assert!(code.lines().count() <= 20, "it is no longer short");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let here = code.replace("(\"\", 8080)", &format!("(\"127.0.0.1\", {free})"));
    assert_ne!(here, code, "it does not listen on port 8080");
    let mut program = python(&here);
    let mut connection = connect(free);
    connection.set_read_timeout(Some(DEADLINE)).unwrap();
    // Two on one connection, as the lane sends them.
    for number in 1..=2 {
        let body = format!("{{\"n\":{number}}}");
        let fence = format!("0000000001-{number:020}");
        let length = body.len();
        let head = format!(
            "POST / HTTP/1.1\r\nhost: h\r\nce-partitionkey: pen\r\nlane-fence: {fence}\r\ncontent-length: {length}\r\n\r\n"
        );
        connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            connection.read_exact(&mut byte).unwrap();
            answer.extend(byte);
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    }
    let pid = program.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut said = String::new();
    BufReader::new(program.0.stdout.take().unwrap()).read_to_string(&mut said).unwrap();
    assert_eq!(
        said,
        "pen 0000000001-00000000000000000001 {\"n\":1}\npen 0000000001-00000000000000000002 {\"n\":2}\n"
    );
    assert_eq!(program.0.wait().unwrap().code(), Some(0), "it ends by itself after SIGTERM");
}
