//! Processes that must be gone: of a handling that was given up, of a program that ended, of a handler that was closed.

use rustix::process::{getpid, set_child_subreaper};

use super::*;

/// A program with a child of its own that does nothing for long; both are noted, with the first message if any.
const HANGS: &str = r#"
child = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
def handle(event):
    if noted("begun"):
        return pid(event)
    note("child", child.pid)
    note("begun", os.getpid())
    time.sleep(600)
serve(handle)
"#;

#[tokio::test]
async fn a_handling_that_is_given_up_ends_the_program_with_its_children_and_another_gets_the_next() {
    let rig = Rig::python(HANGS);
    let message = message_with("orders.k", HeaderMap::new(), "x".into());
    let begun = tokio::select! {
        outcome = rig.handler.handle(&message) => panic!("{outcome:?}"),
        begun = rig.noted("begun") => begun,
    };
    let (first, child): (i32, i32) = (begun.parse().unwrap(), rig.noted("child").await.parse().unwrap());
    assert_ne!(rig.pid().await, first);
    assert!(is_gone(first), "not even a zombie is left when the next message is answered");
    until(|| is_dead(child)).await;
}

#[tokio::test]
async fn a_message_that_was_given_up_before_its_turn_costs_nothing() {
    let rig = Rig::python("serve(pid)");
    let first = rig.pid().await;
    let message = message_with("orders.k", HeaderMap::new(), "x".into());
    // Polled once, so that it is asked for, and dropped before the keeper can look.
    let mut handling = Box::pin(rig.handler.handle(&message));
    assert!(futures::poll!(&mut handling).is_pending());
    drop(handling);
    assert_eq!(rig.pid().await, first);
}

#[tokio::test]
async fn a_program_that_ended_takes_along_a_child_that_holds_its_pipes() {
    let rig =
        Rig::shell("sleep 600 & echo $! > $FOLDER/half; mv $FOLDER/half $FOLDER/child; read line; exit 5");
    let child: i32 = {
        let noted = rig.noted("child").await;
        noted.trim().parse().unwrap()
    };
    let reason = attempt(rig.give("x").await);
    assert!(reason.contains("ended with code 5 while ORDERS/42 was in hand"), "{reason}");
    until(|| is_dead(child)).await;
}

#[tokio::test]
async fn processes_that_a_program_leaves_behind_are_collected_where_that_is_the_lanes_business() {
    // As the first process of a container.
    set_child_subreaper(Some(getpid())).unwrap();
    let rig = Rig::python(
        r#"
def handle(event):
    script = "sleep 0.01 & echo $!"
    return answer(event, result="retry", reason=subprocess.check_output(["sh", "-c", script], stderr=subprocess.DEVNULL).decode())
serve(handle)
"#,
    );
    for _ in 0..5 {
        // The output is held by the child that is left behind, so it ends with that.
        let orphan: i32 = attempt(rig.give("x").await).parse().unwrap();
        until(|| is_gone(orphan)).await;
    }
}

#[tokio::test]
async fn an_orderly_end_closes_the_input_and_waits_for_the_program() {
    let rig = Rig::python("serve(pid)\ntime.sleep(0.2)\nnote('ended')");
    let first = rig.pid().await;
    within(rig.handler.close()).await;
    assert!(rig.path("ended").exists(), "it could finish");
    assert!(is_gone(first));
    assert!(no_attempt(rig.give("x").await).contains("was closed"));
}

#[tokio::test]
async fn a_program_that_does_not_end_with_its_input_is_killed() {
    let rig = Rig::shell(
        "trap '' TERM; echo $$ > $FOLDER/half; mv $FOLDER/half $FOLDER/pid; while :; do sleep 0.1; done",
    );
    let pid: i32 = rig.noted("pid").await.trim().parse().unwrap();
    let start = Instant::now();
    within(rig.handler.close()).await;
    assert!(is_gone(pid), "after {:?}", start.elapsed());
}

#[tokio::test]
async fn a_handler_that_is_dropped_takes_its_program_along() {
    let rig = Rig::python(HANGS);
    let message = message_with("orders.k", HeaderMap::new(), "x".into());
    tokio::select! {
        outcome = rig.handler.handle(&message) => panic!("{outcome:?}"),
        _ = rig.noted("begun") => {}
    }
    let pids =
        ["begun", "child"].map(|name| std::fs::read_to_string(rig.path(name)).unwrap().parse().unwrap());
    drop(rig);
    for pid in pids {
        until(|| is_dead(pid)).await;
    }
}
