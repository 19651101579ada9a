//! Work that continues when its caller stops waiting for it.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future whose work continues in a task of its own if it is dropped before it completes.
pub(super) struct Unstoppable<T: Send + 'static> {
    /// `None` once the work is done.
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T: Send + 'static> Unstoppable<T> {
    pub(super) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        let work = Some(Box::pin(work) as Pin<Box<dyn Future<Output = T> + Send>>);
        Self { work }
    }
}

impl<T: Send + 'static> Future for Unstoppable<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.work else {
            return Poll::Pending;
        };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Unstoppable<T> {
    fn drop(&mut self) {
        // Without a runtime the process is ending; the next garbage collection corrects the count.
        if let (Some(work), Ok(runtime)) = (self.work.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}
