//! A stream that fails if its client makes no progress for too long.
//!
//! A connection has three phases. Between requests it is idle. The first byte that arrives begins
//! the head of a request. From the complete head until its answer is sent, a request is in
//! progress; in this phase only the time limits of handlers and of a write without progress apply.
//!
//! Timeouts of reads alone, such as those of the crate `tokio-io-timeout`, do not suffice: they
//! cannot tell an idle connection from one whose head arrives slowly, and these have other limits.

use std::future::Future as _;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{MIN_PROGRESS, TimeLimits};

const IDLE: u8 = 0;
const HEAD: u8 = 1;
const REQUEST: u8 = 2;

/// The phase of a connection, shared by the stream and the service.
#[derive(Clone, Debug, Default)]
pub(super) struct Phase(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    /// Whether written bytes wait because the client has not accepted them.
    unsent: AtomicBool,
    /// Waker of the task that reads while a request is in progress. When the request ends, it has
    /// to start the timer for the idle phase.
    reader: Mutex<Option<Waker>>,
}

impl Phase {
    fn get(&self) -> u8 {
        self.0.phase.load(Ordering::Relaxed)
    }

    /// Whether no request is in progress and no answer is being sent.
    pub(super) fn is_quiet(&self) -> bool {
        self.get() != REQUEST && !self.0.unsent.load(Ordering::Relaxed)
    }

    fn set_unsent(&self, unsent: bool) {
        self.0.unsent.store(unsent, Ordering::Relaxed);
    }

    fn set(&self, phase: u8) {
        self.0.phase.store(phase, Ordering::Relaxed);
    }

    fn lock_reader(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in progress. Dropping it makes the connection idle again.
pub(super) struct InProgress(Phase);

impl InProgress {
    /// Begins a request, whose head is complete.
    pub(super) fn begin(phase: &Phase) -> Self {
        phase.set(REQUEST);
        Self(phase.clone())
    }

    /// Keeps the request in progress until its answer is sent.
    pub(super) fn until_sent(self, body: Body) -> Body {
        // The server computes the length of an answer from its body, so an empty body is returned
        // unchanged.
        if body.is_end_stream() {
            return body;
        }
        Body::new(Sending {
            body,
            _request: self,
        })
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.set(IDLE);
        // Without a wake-up, the reading task would sleep without a timer, and an idle connection
        // would stay open forever.
        let reader = self.0.lock_reader().take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// The body of an answer, which keeps its request in progress.
struct Sending {
    body: Body,
    _request: InProgress,
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A timer that is started by the first poll of a phase, and not restarted by later polls of the
/// same phase.
struct Deadline {
    /// The phase that is timed. A change restarts the timer.
    timed: Option<u8>,
    sleep: Pin<Box<Sleep>>,
}

impl Deadline {
    fn new() -> Self {
        Self {
            timed: None,
            sleep: Box::pin(sleep_until(Instant::now())),
        }
    }

    /// Completes with an error when `time` has passed since the first call for the phase `timed`.
    fn poll_timeout(
        &mut self,
        timed: u8,
        time: Duration,
        context: &mut Context<'_>,
    ) -> Poll<io::Error> {
        // Not restarted by later calls, or a client could send one byte at a time forever.
        if self.timed != Some(timed) {
            self.timed = Some(timed);
            self.sleep.as_mut().reset(Instant::now() + time);
        }
        ready!(self.sleep.as_mut().poll(context));
        Poll::Ready(ErrorKind::TimedOut.into())
    }

    const fn clear(&mut self) {
        self.timed = None;
    }
}

/// A stream of a connection with time limits.
pub(super) struct Bounded<S> {
    stream: S,
    times: TimeLimits,
    phase: Phase,
    reading: Deadline,
    writing: Deadline,
    /// Number of bytes that the client has accepted since the timer `writing` started.
    accepted: usize,
}

impl<S> Bounded<S> {
    pub(super) fn new(stream: S, times: TimeLimits) -> Self {
        Self {
            stream,
            times,
            phase: Phase::default(),
            reading: Deadline::new(),
            writing: Deadline::new(),
            accepted: 0,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.clone()
    }

    fn check_progress(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.phase.set_unsent(written.is_pending());
        // Enough progress clears the timer: a slow client is served, and only one that accepts
        // almost nothing is disconnected.
        if let Poll::Ready(written) = &written {
            self.accepted += written.as_ref().map_or(0, |written| *written);
            if self.accepted >= MIN_PROGRESS {
                self.clear_writing();
            }
        }
        if written.is_ready() {
            return written;
        }
        let late = ready!(
            self.writing
                .poll_timeout(REQUEST, self.times.write, context)
        );
        Poll::Ready(Err(late))
    }
}

impl<S> Bounded<S> {
    const fn clear_writing(&mut self) {
        self.writing.clear();
        self.accepted = 0;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        let phase = match this.phase.get() {
            // The timer of a head starts with its first byte, not with a later one.
            IDLE if buffer.filled().len() > before => {
                this.phase.set(HEAD);
                HEAD
            }
            phase => phase,
        };
        let time = match phase {
            IDLE => this.times.idle,
            HEAD => this.times.head,
            _ => {
                this.reading.clear();
                if read.is_pending() {
                    *this.phase.lock_reader() = Some(context.waker().clone());
                }
                return read;
            }
        };
        let late = this.reading.poll_timeout(phase, time, context);
        match (read, late) {
            (Poll::Pending, Poll::Ready(late)) => Poll::Ready(Err(late)),
            (read, _) => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_progress(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.check_progress(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The client has accepted everything that was written, however little that is.
        self.clear_writing();
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that accepts some bytes, and then none until it is asked again.
    struct SlowClient {
        accepts: usize,
        is_waiting: bool,
    }

    impl AsyncWrite for SlowClient {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.is_waiting = !self.is_waiting;
            if self.is_waiting {
                return Poll::Pending;
            }
            Poll::Ready(Ok(self.accepts.min(bytes.len())))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Writes once, until the client has accepted some bytes. Returns whether the timer of a client
    /// without progress is running.
    fn is_timed_after_write(stream: &mut Bounded<SlowClient>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let bytes = vec![0; MIN_PROGRESS];
        loop {
            let written = Pin::new(&mut *stream).poll_write(&mut context, &bytes);
            assert_eq!(stream.phase.is_quiet(), written.is_ready());
            if written.is_ready() {
                return stream.writing.timed.is_some();
            }
        }
    }

    fn bounded(accepts: usize) -> Bounded<SlowClient> {
        let hour = Duration::from_hours(1);
        let times = TimeLimits {
            idle: hour,
            head: hour,
            write: hour,
        };
        let is_waiting = false;
        Bounded::new(
            SlowClient {
                accepts,
                is_waiting,
            },
            times,
        )
    }

    /// A client that accepts a byte now and then has no more time than one that accepts nothing.
    #[tokio::test]
    async fn a_byte_is_no_progress() {
        let mut dripping = bounded(1);
        for _ in 0..1000 {
            assert!(is_timed_after_write(&mut dripping));
        }
        let mut slow = bounded(MIN_PROGRESS / 4);
        for _ in 0..5 {
            for is_timed in [true, true, true, false] {
                assert_eq!(is_timed_after_write(&mut slow), is_timed);
            }
        }
    }

    /// The last part of an answer may be shorter than the minimum progress.
    #[tokio::test]
    async fn an_answer_that_is_sent_is_timed_no_more() {
        let mut stream = bounded(1);
        assert!(is_timed_after_write(&mut stream));
        let mut context = Context::from_waker(Waker::noop());
        let flushed = Pin::new(&mut stream).poll_flush(&mut context);
        assert!(flushed.is_ready() && stream.writing.timed.is_none());
        assert_eq!(stream.accepted, 0);
    }
}
