//! Lines of a pipe, never more of them in memory than a limit.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

const CHUNK: usize = 16 * 1024;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, without its line feed.
    Whole(Bytes),
    /// So much of a line that exceeds the limit; what follows is its rest.
    Part(Bytes),
    /// The pipe's end, and what came after the last line feed.
    End(Bytes),
}

#[derive(Debug)]
pub(super) struct Lines<R> {
    source: R,
    limit: usize,
    buffer: BytesMut,
    /// So much of the buffer has no line feed.
    searched: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(source: R, limit: usize) -> Self {
        Self { source, limit, buffer: BytesMut::new(), searched: 0 }
    }

    /// What has been read and not been given out yet.
    pub(super) fn pending(&self) -> &[u8] {
        &self.buffer
    }

    /// The next line. Dropped before it is there, it loses nothing.
    pub(super) async fn next(&mut self) -> io::Result<Line> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            let found = unsearched.iter().position(|byte| *byte == b'\n').map(|found| self.searched + found);
            let length = found.unwrap_or(self.buffer.len());
            if length > self.limit {
                return Ok(Line::Part(self.take(self.limit)));
            }
            if found.is_some() {
                let mut line = self.take(length + 1);
                line.truncate(length);
                return Ok(Line::Whole(line));
            }
            self.searched = length;
            if self.read().await? == 0 {
                return Ok(Line::End(self.take(self.buffer.len())));
            }
        }
    }

    /// Reads once, whatever comes; 0 at the pipe's end. Dropped before that, it loses nothing.
    pub(super) async fn read(&mut self) -> io::Result<usize> {
        self.buffer.reserve(CHUNK);
        self.source.read_buf(&mut self.buffer).await
    }

    fn take(&mut self, length: usize) -> Bytes {
        self.searched = 0;
        self.buffer.split_to(length.min(self.buffer.len())).freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(text: &[u8], limit: usize) -> Vec<Line> {
        let mut lines = Lines::new(text, limit);
        let mut found = Vec::new();
        loop {
            let line = lines.next().await.unwrap();
            let end = matches!(line, Line::End(_));
            found.push(line);
            if end {
                return found;
            }
        }
    }

    #[tokio::test]
    async fn lines_come_one_by_one_and_the_rest_with_the_end() {
        let (whole, end) = (
            |text: &'static str| Line::Whole(Bytes::from_static(text.as_bytes())),
            |text: &'static str| Line::End(Bytes::from_static(text.as_bytes())),
        );
        assert_eq!(all(b"a\n\nbc\nd", 10).await, [whole("a"), whole(""), whole("bc"), end("d")]);
        assert_eq!(all(b"", 10).await, [end("")]);
    }

    #[tokio::test]
    async fn a_line_beyond_the_limit_comes_in_parts() {
        let found = all(b"0123456789ab\nc\n", 5).await;
        let part = |text: &'static [u8]| Line::Part(Bytes::from_static(text));
        assert_eq!(found[..2], [part(b"01234"), part(b"56789")]);
        assert_eq!(found[2], Line::Whole(Bytes::from_static(b"ab")));
    }

    #[tokio::test]
    async fn an_endless_line_is_never_held_beyond_the_limit_and_a_chunk() {
        let mut lines = Lines::new(tokio::io::repeat(b'x'), 1000);
        for _ in 0..100 {
            assert!(matches!(lines.next().await.unwrap(), Line::Part(part) if part.len() == 1000));
            assert!(lines.buffer.capacity() <= 4 * CHUNK, "{}", lines.buffer.capacity());
        }
    }
}
