//! The programs and statements in the documents do what the documents say.

// The helpers of tests may fail as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::panic)]
// Each program of tests uses a part of the helpers.
#![allow(dead_code)]

mod document;

use std::{
    io::{BufRead, BufReader, Read, Write},
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

/// `SQLite` understands the statements of the page as they are, once it has the collation `C`.
const DATABASE: &str = r#"
import sqlite3, sys
statements = [one.strip() for one in sys.stdin.read().split(";") if one.strip()]
place, miles = [one for one in statements if one.startswith("INSERT")]
base = sqlite3.connect(":memory:")
base.create_collation("C", lambda a, b: (a > b) - (a < b))
for create in [one for one in statements if one.startswith("CREATE")]:
    base.execute(create)
fence = lambda incarnation, sequence: f"{incarnation:010}-{sequence:020}"
for value, at in [("a", (1, 5)), ("old", (1, 4)), ("again", (1, 5)), ("b", (1, 6)), ("c", (2, 1)), ("late", (1, 9))]:
    base.execute(place, {"1": "k", "2": value, "3": fence(*at)})
print(base.execute("SELECT place, fence FROM places").fetchone())
for amount, at in [(5, (1, 5)), (5, (1, 5)), (7, (1, 6)), (100, (1, 2))]:
    base.execute(miles, {"1": "k", "2": amount, "3": fence(*at)})
print(base.execute("SELECT miles FROM miles").fetchone())
"#;

#[test]
fn the_statements_apply_a_message_once_and_never_an_older_one_over_a_newer() {
    let statements = read(&root(), "docs/handlers.md").only("sql");
    let mut child = Command::new("python3")
        .args(["-c", DATABASE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is needed");
    child.stdin.take().unwrap().write_all(statements.as_bytes()).unwrap();
    let lines: Vec<String> =
        BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success());
    assert_eq!(lines, ["('c', '0000000002-00000000000000000001')", "(12,)"].map(str::to_owned));
}
