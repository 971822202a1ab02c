//! The program's standard error, line by line into the lane's log.

use std::time::Duration;

use tokio::{io::AsyncRead, time::Instant};

use super::lines::{Line, Lines};

/// A longer line is logged in parts.
const LONGEST: usize = 8 * 1024;
/// No more lines are logged in a second: a program in trouble must not drown the lane's own words.
const MOST: u32 = 200;
const WINDOW: Duration = Duration::from_secs(1);

/// Until the pipe's end.
pub(super) async fn follow(pipe: impl AsyncRead + Unpin, pid: i32) {
    let mut lines = Lines::new(pipe, LONGEST);
    let mut budget = Budget::new(Instant::now());
    loop {
        let (text, last) = match lines.next().await {
            Ok(Line::Whole(text) | Line::Part(text)) => (text, false),
            Ok(Line::End(rest)) => (rest, true),
            Err(_) => return,
        };
        let (may, left_out) = budget.ask(Instant::now());
        say_left_out(pid, left_out);
        if may && !(last && text.is_empty()) {
            tracing::info!(pid, stderr = %String::from_utf8_lossy(&text), "the handler's program says");
        }
        if last {
            say_left_out(pid, budget.left_out);
            return;
        }
    }
}

fn say_left_out(pid: i32, lines: u64) {
    if lines > 0 {
        tracing::warn!(pid, lines, "the handler's program said more than is logged");
    }
}

/// So many lines for each window.
struct Budget {
    since: Instant,
    used: u32,
    left_out: u64,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { since: now, used: 0, left_out: 0 }
    }

    /// Whether one more line may be logged, and how many were left out in the window that has just ended.
    fn ask(&mut self, now: Instant) -> (bool, u64) {
        let mut ended = 0;
        if now.duration_since(self.since) >= WINDOW {
            ended = self.left_out;
            *self = Self::new(now);
        }
        if self.used < MOST {
            self.used += 1;
            return (true, ended);
        }
        self.left_out += 1;
        (false, ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_logged_in_part_and_the_rest_counted() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let logged = (0..1000).filter(|_| budget.ask(start).0).count();
        assert_eq!(logged, 200);
        assert_eq!(budget.ask(start + WINDOW), (true, 800));
        assert_eq!(budget.ask(start + WINDOW), (true, 0));
    }
}
