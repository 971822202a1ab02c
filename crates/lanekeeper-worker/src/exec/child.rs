//! One life of the program: its process, its pipes, and one message given over them.

use std::{
    ffi::OsString,
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, getpgid, kill_process_group, waitpgid, waitpid};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{sleep, timeout},
};
use tracing::Instrument;

use super::{
    answer::{Judged, judge, quoted},
    lines::{Line, Lines},
    log,
};
use crate::handler::HandlerError;

/// The longest answer.
const LONGEST_ANSWER: usize = 1024 * 1024;
/// So long a program may take to end once its input is closed.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// What is left to do when a program ends by itself, closes a pipe or was killed takes moments; never longer than this.
const MOMENTS: Duration = Duration::from_secs(1);

/// What came of giving a message.
#[derive(Debug)]
pub(super) enum Exchange {
    /// It was answered; after a fault the program cannot have another one.
    Answered { outcome: Result<(), HandlerError>, fault: Option<String> },
    /// The program ended, and nothing of the message had been read: nothing can have been done with it.
    Untouched { reason: String },
    /// No answer will come, or none that could be trusted.
    Broken { reason: String },
}

/// What ended the wait for an answer.
enum Came {
    Line(io::Result<Line>),
    Exit,
    InputClosed,
}

/// The process, killed with its whole group when it is dropped.
#[derive(Debug)]
pub(super) struct Program {
    process: Child,
    /// Its process group, whose number is its own.
    pid: Pid,
    /// Closed only to let it end.
    stdin: Option<ChildStdin>,
    lines: Lines<ChildStdout>,
    ended: bool,
}

impl Program {
    pub(super) fn start(command: &[String], variables: &[(OsString, OsString)]) -> Result<Self, String> {
        let (program, arguments) = command.split_first().ok_or("there is no command")?;
        let mut process = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Its children belong to it, and signals of a terminal do not.
            .process_group(0)
            // Only so that the runtime collects it when there was no time to wait for its end.
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{} cannot be started: {error}", quoted(program.as_bytes())))?;
        let pid = process.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let pipes = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        // Neither can be missing: they were asked for, and nobody has waited for the process.
        let (Some(pid), (Some(stdin), Some(stdout), Some(stderr))) = (pid, pipes) else {
            return Err(format!("{} has no pipes", quoted(program.as_bytes())));
        };
        tokio::spawn(log::follow(stderr, pid.as_raw_pid()).in_current_span());
        Ok(Self { process, pid, stdin: Some(stdin), lines: Lines::new(stdout, LONGEST_ANSWER), ended: false })
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    /// Until something is wrong with a program that has nothing to do. May be dropped at any time.
    pub(super) async fn idle(&mut self) -> String {
        tokio::select! {
            biased;
            status = self.process.wait() => ended(status),
            read = self.lines.read() => match read {
                Ok(0) => "closed its standard output".to_owned(),
                Ok(_) => format!("wrote {} without a message in hand", quoted(self.lines.pending())),
                Err(error) => format!("cannot be read: {error}"),
            },
        }
    }

    /// Writes a message and waits for its answer, both at once: neither pipe can fill up and stop the other. When it is
    /// dropped before its end, nobody knows what the program does; it must be ended.
    pub(super) async fn exchange(&mut self, id: &str, message: &[u8]) -> Exchange {
        if !self.lines.pending().is_empty() {
            let words = quoted(self.lines.pending());
            return Exchange::Untouched { reason: format!("wrote {words} without a message in hand") };
        }
        let unread_before = self.unread();
        let mut written = 0;
        let came = loop {
            let rest = message.get(written..).unwrap_or_default();
            tokio::select! {
                biased;
                line = self.lines.next() => break Came::Line(line),
                _ = self.process.wait() => break Came::Exit,
                count = write(self.stdin.as_mut(), rest), if !rest.is_empty() => match count {
                    Ok(count) => written += count,
                    Err(_) => break Came::InputClosed,
                },
            }
        };
        let whole = written == message.len();
        match came {
            Came::Line(Ok(Line::Whole(line))) => self.judged(&line, id, whole),
            Came::Line(Ok(Line::Part(part))) => Exchange::Broken {
                reason: format!(
                    "wrote a line of more than {LONGEST_ANSWER} bytes while {id} was in hand: {}",
                    quoted(&part)
                ),
            },
            Came::Line(Ok(Line::End(rest))) => {
                self.no_answer("closed its standard output", &rest, id, unread_before, written).await
            }
            Came::Line(Err(error)) => Exchange::Broken { reason: format!("cannot be read: {error}") },
            Came::Exit | Came::InputClosed => {
                // What it wrote last may be the answer. With its group gone, the pipe ends behind that.
                let words = if matches!(came, Came::Exit) { "ended" } else { "closed its standard input" };
                let status = self.settle(words).await;
                self.kill();
                match timeout(MOMENTS, self.lines.next()).await {
                    Ok(Ok(Line::Whole(line))) => match self.judged(&line, id, whole) {
                        Exchange::Answered { outcome, .. } => {
                            Exchange::Answered { outcome, fault: Some(status) }
                        }
                        broken => broken,
                    },
                    Ok(Ok(Line::End(rest))) => {
                        self.without_answer(&status, &rest, id, unread_before, written)
                    }
                    _ => self.without_answer(&status, &[], id, unread_before, written),
                }
            }
        }
    }

    fn judged(&self, line: &[u8], id: &str, whole: bool) -> Exchange {
        match judge(line, id) {
            Judged::Foreign(reason) => Exchange::Broken { reason },
            Judged::Answer(outcome) => {
                let fault = match self.lines.pending() {
                    [] if whole => None,
                    [] => Some(format!("answered before it had read all of {id}")),
                    more => Some(format!("wrote {} behind its answer", quoted(more))),
                };
                Exchange::Answered { outcome, fault }
            }
        }
    }

    async fn no_answer(
        &mut self,
        words: &str,
        rest: &[u8],
        id: &str,
        unread: u64,
        written: usize,
    ) -> Exchange {
        let status = self.settle(words).await;
        self.without_answer(&status, rest, id, unread, written)
    }

    /// How it ended, when it does so now; otherwise the words.
    async fn settle(&mut self, words: &str) -> String {
        timeout(MOMENTS, self.process.wait()).await.map_or_else(|_| words.to_owned(), ended)
    }

    fn without_answer(&self, words: &str, rest: &[u8], id: &str, unread: u64, written: usize) -> Exchange {
        let written = u64::try_from(written).unwrap_or(u64::MAX);
        if rest.is_empty() && self.unread() >= unread.saturating_add(written) {
            return Exchange::Untouched { reason: format!("{words} without having read anything of {id}") };
        }
        let half = if rest.is_empty() { String::new() } else { format!(", having written {}", quoted(rest)) };
        Exchange::Broken { reason: format!("{words} while {id} was in hand{half}") }
    }

    /// Bytes that were written and that nobody has read; the pipe keeps them when the reader is gone.
    fn unread(&self) -> u64 {
        // Not knowing counts as read, which makes an attempt of it.
        self.stdin.as_ref().and_then(|pipe| rustix::io::ioctl_fionread(pipe).ok()).unwrap_or_default()
    }

    /// Collects processes that the program has left behind: where this process is the first one of its container,
    /// they become its children.
    pub(super) fn collect_orphans(&self) {
        for pid in children().into_iter().filter(|pid| *pid != self.pid) {
            if getpgid(Some(pid)) == Ok(self.pid) {
                // What has not ended yet is collected later.
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
    }

    /// Lets it end by itself, which the end of its input tells it to do.
    pub(super) async fn close(mut self) {
        self.stdin = None;
        let pid = self.pid();
        if let Ok(status) = timeout(PATIENCE, self.process.wait()).await {
            tracing::info!(pid, how = ended(status), "the handler's program ended with its input");
        } else {
            tracing::warn!(pid, "the handler's program did not end with its input; it is killed");
        }
        self.end().await;
    }

    /// Kills it with its whole group, and returns when they are gone.
    pub(super) async fn end(mut self) {
        self.kill();
        if timeout(MOMENTS, self.process.wait()).await.is_err() {
            tracing::warn!(pid = self.pid(), "the handler's program was killed and has not ended yet");
            return;
        }
        let pid = self.pid;
        let collect = async {
            // An error says that nothing of the group is left that would be this process' to collect.
            while let Ok(collected) = waitpgid(pid, WaitOptions::NOHANG) {
                if collected.is_none() {
                    sleep(Duration::from_millis(5)).await;
                }
            }
        };
        let _ = timeout(MOMENTS, collect).await;
    }

    fn kill(&mut self) {
        // Once: afterwards the number can become another group's.
        if !std::mem::replace(&mut self.ended, true) {
            // An error says that the group is gone.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn write(pipe: Option<&mut ChildStdin>, bytes: &[u8]) -> io::Result<usize> {
    match pipe {
        Some(pipe) => pipe.write(bytes).await,
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

fn ended(status: io::Result<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with code {code}"),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended".to_owned(),
        },
        Err(error) => format!("cannot be waited for: {error}"),
    }
}

/// The children of this process, where the kernel lists them.
fn children() -> Vec<Pid> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| numbers(&list)).collect()
}

fn numbers(list: &str) -> Vec<Pid> {
    list.split_whitespace().filter_map(|number| number.parse().ok().and_then(Pid::from_raw)).collect()
}
