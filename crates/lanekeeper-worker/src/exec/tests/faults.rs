//! Programs that break the rules of the pipes: what counts as an attempt, what is said, and that the next one goes on.

use super::*;

/// A program that does this with its first message, and is right afterwards.
fn once(wrong: &str) -> Rig {
    let wrong = wrong.replace('\n', "\n    ");
    Rig::python(&format!(
        r#"
def handle(event):
    if noted("begun"):
        return pid(event)
    note("begun", os.getpid())
    {wrong}
serve(handle)
"#
    ))
}

/// The attempt fails with these words, and another process gets the next message.
async fn breaks(wrong: &str, words: &str) {
    let rig = once(wrong);
    let reason = attempt(rig.give("x").await);
    assert!(reason.starts_with("the handler's program "), "{reason}");
    assert!(reason.contains(words), "{reason}");
    let first: i32 = rig.noted("begun").await.parse().unwrap();
    assert!(is_gone(first), "the process is gone before the attempt is said to have failed");
    assert_ne!(rig.pid().await, first);
}

#[tokio::test]
async fn an_end_in_the_middle_of_a_message_is_an_attempt() {
    breaks("sys.exit(3)", "ended with code 3 while ORDERS/42 was in hand").await;
    breaks("os.kill(os.getpid(), 9)", "was ended by signal 9 while ORDERS/42 was in hand").await;
    breaks("say('{\"id\":')\nos._exit(0)", "was in hand, having written '{\\\"id\\\":'").await;
}

#[tokio::test]
async fn what_is_no_answer_is_an_attempt_and_the_program_is_not_trusted_again() {
    breaks("return 'hello\\n'", "wrote 'hello' while ORDERS/42 was in hand: no JSON object").await;
    breaks("sys.stdout.buffer.write(b'\\xff\\x00\\n')\nreturn ''", "no JSON object").await;
    breaks("return '\\n'", "wrote '' while").await;
    breaks(
        "return json.dumps({'id': 'ORDERS/41', 'result': 'done'}) + '\\n'",
        "an answer to 'ORDERS/41' while ORDERS/42 was in hand",
    )
    .await;
    breaks("return 'x' * 3_000_000", "a line of more than 1048576 bytes").await;
    breaks("while True: say('babble\\n')", "wrote 'babble' while").await;
}

#[tokio::test]
async fn a_closed_output_is_an_attempt_when_the_message_was_read() {
    breaks("os.close(1)\ntime.sleep(600)", "closed its standard output while ORDERS/42 was in hand").await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_used_is_an_attempt_and_the_program_goes_on() {
    let rig = once("return answer(event, result='ok')");
    let reason = attempt(rig.give("x").await);
    assert!(reason.contains("the answer to ORDERS/42 cannot be used: 'result' is 'ok'"), "{reason}");
    assert_eq!(rig.pid().await.to_string(), rig.noted("begun").await);
}

#[tokio::test]
async fn what_comes_behind_an_answer_costs_the_program_and_not_the_answer() {
    let rig = once("return answer(event, result='done') + 'more\\n'");
    assert_eq!(rig.give("x").await, Ok(()));
    assert_ne!(rig.pid().await.to_string(), rig.noted("begun").await);
}

#[tokio::test]
async fn an_answer_before_the_message_was_read_costs_the_program_and_not_the_answer() {
    let rig = Rig::python(
        r#"
note(str(os.getpid()))
os.read(0, 1)
say('{"id": "ORDERS/42", "result": "done"}\n')
time.sleep(600)
"#,
    );
    for _ in 0..2 {
        assert_eq!(rig.give(vec![7; 2 * 1024 * 1024]).await, Ok(()));
    }
    until(|| std::fs::read_dir(rig.folder.path()).unwrap().count() >= 3).await;
}

#[tokio::test]
async fn an_answer_just_before_the_end_counts() {
    let rig = once("say(answer(event, result='permanent', reason='never'))\nos._exit(9)");
    assert_eq!(rig.give("x").await, Err(HandlerError::permanent("never")));
    assert_ne!(rig.pid().await.to_string(), rig.noted("begun").await);
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_no_attempt_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "no program").unwrap();
    for (program, words) in [
        ("/nowhere/handle", "'/nowhere/handle' cannot be started: No such file or directory"),
        (plain.to_str().unwrap(), "cannot be started: Permission denied"),
    ] {
        let rig = Rig::start(&[program]);
        for _ in 0..3 {
            let reason = no_attempt(rig.give("x").await);
            assert!(reason.contains(words), "{reason}");
        }
        assert!(rig.handler.reachable().await.unwrap_err().contains(words));
    }
}

#[tokio::test]
async fn a_program_that_is_put_right_is_started_without_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("handle");
    let rig = Rig::start(&[program.to_str().unwrap()]);
    no_attempt(rig.give("x").await);
    let half = folder.path().join("half");
    std::fs::write(&half, "#!/bin/sh\ncat > /dev/null\n").unwrap();
    std::fs::set_permissions(&half, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::rename(half, program).unwrap();
    within(async {
        while rig.handler.reachable().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_program_that_ends_before_it_reads_is_no_attempt_however_often() {
    let rig = Rig::shell("exit 7");
    for _ in 0..20 {
        let reason = no_attempt(rig.give("x").await);
        assert!(reason.contains("ended with code 7"), "{reason}");
    }
    // Nor when the message was larger than a pipe holds.
    let rig = Rig::shell("sleep 0.05; exit 7");
    for _ in 0..5 {
        no_attempt(rig.give(vec![1; 1024 * 1024]).await);
    }
}

#[tokio::test]
async fn a_closed_input_is_no_attempt_when_nothing_was_read() {
    let rig = Rig::shell("exec 0<&-; echo > $FOLDER/closed; sleep 600");
    rig.noted("closed").await;
    // More than a pipe holds: the program is started anew for it, and a pipe that took it all before its reader closed
    // would not say so.
    let reason = no_attempt(rig.give(vec![1; 1024 * 1024]).await);
    assert!(reason.contains("closed its standard input without having read anything"), "{reason}");
}

#[tokio::test]
async fn a_program_that_speaks_unasked_is_started_anew_and_the_message_is_not_blamed() {
    let rig = Rig::python(
        r#"
import threading
def babble():
    while not noted("speak"):
        time.sleep(0.005)
    if not noted("spoken"):
        note("spoken")
        say("unasked\n")
threading.Thread(target=babble, daemon=True).start()
serve(pid)
"#,
    );
    let first = rig.pid().await;
    std::fs::write(rig.path("speak"), "").unwrap();
    until(|| is_gone(first)).await;
    assert_ne!(rig.pid().await, first);
}
