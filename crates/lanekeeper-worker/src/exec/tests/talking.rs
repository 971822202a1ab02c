//! What goes over the pipes when nobody does anything wrong.

use super::*;

#[tokio::test]
async fn one_process_gets_all_messages_and_each_answer_means_what_it_says() {
    let rig = Rig::python(
        r#"
answers = {
    "done": {"result": "done"},
    "permanent": {"result": "permanent", "reason": "never"},
    "wait": {"result": "wait", "reason": "busy", "afterMilliseconds": 1500},
}
def handle(event):
    payload = base64.b64decode(event["data_base64"]).decode()
    return answer(event, **answers[payload]) if payload in answers else pid(event)
serve(handle)
"#,
    );
    let first = rig.pid().await;
    assert_eq!(rig.give("done").await, Ok(()));
    assert_eq!(rig.give("permanent").await, Err(HandlerError::permanent("never")));
    let after = Duration::from_millis(1500);
    assert_eq!(rig.give("wait").await, Err(HandlerError::Wait { reason: "busy".into(), after }));
    assert_eq!(rig.pid().await, first);
    assert_eq!(rig.handler.reachable().await, Ok(()));
}

#[tokio::test]
async fn payloads_up_to_the_servers_limit_come_exactly_and_empty_ones_as_well() {
    let rig = Rig::python(
        r#"
import hashlib
serve(lambda event: answer(event, result="retry", reason=hashlib.md5(base64.b64decode(event["data_base64"])).hexdigest()))
"#,
    );
    let large: Vec<u8> = (0..=255).cycle().take(8 * 1024 * 1024).collect();
    let md5 = |bytes: &[u8]| {
        let path = rig.path("payload");
        std::fs::write(&path, bytes).unwrap();
        let output = std::process::Command::new("md5sum").arg(path).output().unwrap().stdout;
        String::from_utf8(output).unwrap().split(' ').next().unwrap().to_owned()
    };
    for payload in [large, Vec::new(), b"\n\r\0\xff{}".to_vec()] {
        let expected = md5(&payload);
        assert_eq!(attempt(rig.give(payload).await), expected);
    }
}

#[tokio::test]
async fn a_program_that_starts_slowly_reads_slowly_and_says_much_at_once_stops_nobody() {
    let rig = Rig::python(
        r#"
time.sleep(0.3)
for number in range(20000):
    print("a line on the standard error", number, file=sys.stderr)
def handle(event):
    return answer(event, result="retry", reason="r" * 900_000)
while True:
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 65536)
        time.sleep(0.001)
    say(handle(json.loads(line)))
"#,
    );
    for _ in 0..2 {
        assert_eq!(attempt(rig.give(vec![7; 2 * 1024 * 1024]).await), "r".repeat(200));
    }
}

#[tokio::test]
async fn a_program_that_ends_after_each_answer_is_started_for_each_message() {
    let rig = Rig::python("line = sys.stdin.readline()\nsay(answer(json.loads(line), result='done'))");
    for _ in 0..5 {
        assert_eq!(rig.give("x").await, Ok(()));
    }
}

#[tokio::test]
async fn the_program_gets_the_variables_but_those_of_the_lane_alone_and_three_pipes() {
    let _connection_of_the_lane = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let rig = Rig::python(
        r#"
names = sorted(name for name in os.environ if name.startswith("LANEKEEPER_"))
files = os.listdir("/proc/self/fd")
serve(lambda event: answer(event, result="retry", reason=f"{names} {len(files)} {'PATH' in os.environ}"))
"#,
    );
    // Whatever the tests themselves were started with, any program of theirs gets.
    let list = ["-c", "import os; print(len(os.listdir('/proc/self/fd')))"];
    let plain = std::process::Command::new("python3").args(list).stdin(std::process::Stdio::piped()).output();
    let files = String::from_utf8(plain.unwrap().stdout).unwrap().trim().to_owned();
    assert_eq!(attempt(rig.give("x").await), format!("[] {files} True"));
    for (name, shared) in [
        ("LANEKEEPER_NATS_SERVERS", false),
        ("LANEKEEPER_NATS_AUTH_DIR", false),
        ("LANEKEEPER_TLS_DIR", false),
        ("LANEKEEPER_HANDLER_EXEC", false),
        ("LANEKEEPER_PARTITION", true),
        ("LANEKEEPER_POD", true),
        ("DATABASE_URL", true),
    ] {
        assert_eq!(is_shared(&name.into()), shared, "{name}");
    }
}

#[tokio::test]
async fn a_command_that_cannot_be_one_is_refused() {
    for command in [vec![], vec![""], vec!["a\0"], vec!["a"; 65]] {
        let command: Vec<String> = command.into_iter().map(str::to_owned).collect();
        let error = ExecHandler::start(&command).unwrap_err().to_string();
        assert!(error.contains("must have 1 to 64 words"), "{error}");
    }
}
